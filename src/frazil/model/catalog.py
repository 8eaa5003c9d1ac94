"""Catalogs: who knows where a table's current metadata is."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, StringConstraints, model_validator

from frazil.model.base import InconsistencyError, Model, Problem, Texts
from frazil.model.secrets import mask_uri

DEFAULT_CATALOG_NAME = "lake"

# Spark takes more in a name that is quoted. A dot it takes in none.
SPARK_NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
SPARK_NAME_LENGTH = 64
CatalogName = Annotated[str, StringConstraints(pattern=SPARK_NAME, max_length=SPARK_NAME_LENGTH)]

# What signatures of requests to a catalog name when nothing else is known: a gateway of Amazon's.
GATEWAY = "execute-api"
# Hosts of Amazon's own catalogs begin with the name of the service.
_OF_AMAZON = re.compile(r"(glue|s3tables)(-fips)?\..*\.amazonaws\.com(\.cn)?")


class CatalogType(StrEnum):
    """The kinds of catalog."""

    REST = "rest"
    SQL = "sql"
    HIVE = "hive"
    GLUE = "glue"
    HADOOP = "hadoop"
    MEMORY = "memory"
    SPARK = "spark"


class RestCatalog(Model):
    """An Iceberg REST catalog: Polaris, Lakekeeper, Nessie, Unity, Gravitino, Tabular."""

    uri: str | None = Field(None, description="Address of the catalog service.")
    warehouse: str | None = Field(None, description="Warehouse: a location, or a name that the catalog knows.")
    credential: SecretStr | None = Field(
        None, description="`id:secret` for OAuth2 client credentials, or a bearer token when there is no colon in it."
    )
    token: SecretStr | None = Field(None, description="Bearer token.")
    oauth2_server_uri: str | None = Field(None, description="Where tokens are fetched; the catalog itself when left out.")
    scope: str | None = Field(None, description="OAuth2 scope, e.g. PRINCIPAL_ROLE:ALL for Polaris.")
    prefix: str | None = Field(None, description="Path prefix of the catalog, where the service does not tell it.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class SqlCatalog(Model):
    """A catalog in a SQL database. The embedded default: SQLite, one file."""

    uri: str | None = Field(None, description="`sqlite:///path/catalog.db`, `postgresql://host/db`, or a `jdbc:` URL of either.")
    user: str | None = Field(None, description="Database user, when the address has none.")
    password: SecretStr | None = Field(None, description="Database password, when the address has none.")
    warehouse: str | None = Field(None, description="Where new tables are put.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class HiveCatalog(Model):
    """A Hive metastore."""

    uri: str | None = Field(None, description="`thrift://host:9083`.")
    warehouse: str | None = Field(None, description="Where new tables are put.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class GlueCatalog(Model):
    """The AWS Glue data catalog."""

    region: str | None = Field(None, description="AWS region.")
    catalog_id: str | None = Field(None, description="Account whose catalog is used; the caller's when left out.")
    profile: str | None = Field(None, description="Profile of the AWS configuration files.")
    access_key_id: SecretStr | None = Field(None, description="Access key. Left out: the AWS default chain.")
    secret_access_key: SecretStr | None = Field(None, description="Secret of the access key.")
    role_arn: str | None = Field(None, description="Role to assume.")
    endpoint: str | None = Field(None, description="Address of a service that speaks Glue's protocol.")


class HadoopCatalog(Model):
    """A catalog that is only a folder: no service, one writer at a time on object stores."""

    warehouse: str | None = Field(None, description="The folder.")


class CatalogSpec(Model):
    """Which catalog a sink writes to. The section named like the type holds its settings."""

    type: CatalogType = Field(
        description="Kind of catalog. `jdbc` is another name of `sql`; `spark` is one that the Spark session knows by its name."
    )
    name: CatalogName = Field(
        DEFAULT_CATALOG_NAME, description="Name in Spark, and the scope of the rows that a SQL catalog keeps."
    )
    warehouse: str | None = Field(None, description="Where new tables are put; the section's own value wins.")
    rest: RestCatalog | None = Field(None, description="Settings of type rest.")
    sql: SqlCatalog | None = Field(None, description="Settings of type sql; `jdbc` is another name of the section.")
    hive: HiveCatalog | None = Field(None, description="Settings of type hive.")
    glue: GlueCatalog | None = Field(None, description="Settings of type glue.")
    hadoop: HadoopCatalog | None = Field(None, description="Settings of type hadoop.")

    @model_validator(mode="before")
    @classmethod
    def _jdbc_is_sql(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        if data.get("type") == "jdbc":
            data["type"] = CatalogType.SQL.value
        if "jdbc" in data and "sql" not in data:
            data["sql"] = data.pop("jdbc")
        return data

    @model_validator(mode="after")
    def _complete(self) -> CatalogSpec:
        if problems := catalog_problems(self):
            raise InconsistencyError(problems)
        return self

    @property
    def location(self) -> str | None:
        """The warehouse, wherever it was written."""
        section = getattr(self, self.type.value, None)
        own: str | None = getattr(section, "warehouse", None)
        return own or self.warehouse

    @property
    def address(self) -> str:
        """What to call the catalog in messages, without secrets."""
        section = getattr(self, self.type.value, None)
        uri = getattr(section, "uri", None) or getattr(section, "endpoint", None) or self.location
        return mask_uri(uri) if uri else self.type.value


def signing_name(uri: str) -> str:
    """The service that signatures of requests to a REST catalog name, by its address."""
    known = _OF_AMAZON.fullmatch(urlsplit(uri).hostname or "")
    return known[1] if known else GATEWAY


def catalog_problems(catalog: CatalogSpec) -> list[Problem]:
    """What a catalog lacks, in the words that users search for."""
    return _foreign_sections(catalog) + _own_problems(catalog)


def _foreign_sections(catalog: CatalogSpec) -> list[Problem]:
    return [
        Problem(f"the section {kind} has no meaning in a catalog of type {catalog.type}", kind.value)
        for kind in CatalogType
        if kind is not catalog.type and getattr(catalog, kind.value, None) is not None
    ]


def _own_problems(catalog: CatalogSpec) -> list[Problem]:
    match catalog.type:
        case CatalogType.REST:
            return _rest_problems(catalog.rest)
        case CatalogType.SQL:
            return _sql_problems(catalog)
        case CatalogType.HIVE if not (catalog.hive and catalog.hive.uri):
            return [Problem("Hive metastore URI is required for Hive catalog type", "hive")]
        case CatalogType.GLUE if not (catalog.glue and catalog.glue.region):
            return [Problem("AWS region is required for Glue catalog type", "glue")]
        case CatalogType.HADOOP if not catalog.location:
            return [Problem("Warehouse is required for Hadoop catalog type")]
        case _:
            return []


def _rest_problems(rest: RestCatalog | None) -> list[Problem]:
    if rest is None or not rest.uri:
        return [Problem("REST catalog URI is required for REST catalog type", "rest")]
    if not _is_web_address(rest.uri):
        return [Problem(f"Invalid REST catalog URI: {mask_uri(rest.uri)}", "rest", "uri")]
    return []


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _sql_problems(catalog: CatalogSpec) -> list[Problem]:
    if catalog.sql is None or not catalog.sql.uri:
        return [Problem("SQL catalog URI is required for SQL catalog type", "sql")]
    if not catalog.sql.uri.removeprefix("jdbc:").startswith(("sqlite:", "postgresql:", "postgresql+")):
        words = "Invalid SQL catalog URI: it must start with sqlite:, postgresql: or jdbc: followed by one of these"
        return [Problem(words, "sql", "uri")]
    if not catalog.location:
        return [Problem("Warehouse is required for SQL catalog type", "sql")]
    return []
