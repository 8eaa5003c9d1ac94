"""Catalogs: who knows where a table's current metadata is."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from frazil.errors import ConfigError
from frazil.model.base import InconsistencyError, Model, Problem, Texts
from frazil.model.catalog_kinds import (
    BigQueryCatalog,
    GlueCatalog,
    HadoopCatalog,
    HiveCatalog,
    NessieCatalog,
    RestCatalog,
    S3TablesCatalog,
    Signing,
    SqlCatalog,
)
from frazil.model.secrets import mask_uri

DEFAULT_CATALOG_NAME = "lake"

# Spark takes more in a name that is quoted. A dot it takes in none.
SPARK_NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
SPARK_NAME_LENGTH = 64
CatalogName = Annotated[str, StringConstraints(pattern=SPARK_NAME, max_length=SPARK_NAME_LENGTH)]

# What signatures of requests to a catalog name when nothing else is known: a gateway of Amazon's.
GATEWAY = "execute-api"
# Databases that a SQL catalog can be kept in.
DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")

# Hosts of Amazon's own catalogs begin with the name of the service.
_OF_AMAZON = re.compile(r"(glue|s3tables)(-fips)?\..*\.amazonaws\.com(\.cn)?")


class CatalogType(StrEnum):
    """The kinds of catalog."""

    REST = "rest"
    SQL = "sql"
    HIVE = "hive"
    GLUE = "glue"
    S3TABLES = "s3tables"
    NESSIE = "nessie"
    BIGQUERY = "bigquery"
    HADOOP = "hadoop"
    MEMORY = "memory"
    SPARK = "spark"


class CatalogSpec(Model):
    """Which catalog a sink writes to. The section named like the type holds its settings."""

    type: CatalogType = Field(
        description="Kind of catalog. `jdbc` is another name of `sql`; `spark` is one that the Spark session knows by its name."
    )
    name: CatalogName = Field(
        DEFAULT_CATALOG_NAME, description="Name in Spark, and the scope of the rows that a SQL catalog keeps."
    )
    warehouse: str | None = Field(None, description="Where new tables are put; the section's own value wins.")
    properties: Texts = Field(
        default_factory=dict,
        description="Further properties of the catalog, passed on as written; they win over what the other options say, and the "
        "section's own win over these.",
    )
    rest: RestCatalog | None = Field(None, description="Settings of type rest.")
    sql: SqlCatalog | None = Field(None, description="Settings of type sql; `jdbc` is another name of the section.")
    hive: HiveCatalog | None = Field(None, description="Settings of type hive.")
    glue: GlueCatalog | None = Field(None, description="Settings of type glue.")
    s3tables: S3TablesCatalog | None = Field(None, description="Settings of type s3tables.")
    nessie: NessieCatalog | None = Field(None, description="Settings of type nessie.")
    bigquery: BigQueryCatalog | None = Field(None, description="Settings of type bigquery.")
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
        own: str | None = getattr(self._section, "warehouse", None)
        return own or self.warehouse

    @property
    def further(self) -> dict[str, str]:
        """The properties that are passed on as written."""
        own: dict[str, str] = getattr(self._section, "properties", {})
        return {**self.properties, **own}

    @property
    def may_commit_together(self) -> bool:
        """Whether a catalog of this kind can commit several tables at once. Of some only the server knows it."""
        return self.as_rest is not None or self.type in (CatalogType.SQL, CatalogType.SPARK)

    @property
    def as_rest(self) -> RestCatalog | None:
        """The catalog as one that speaks Iceberg's REST protocol, or None when it speaks another."""
        match self.type:
            case CatalogType.REST:
                return (self.rest or RestCatalog()).model_copy(update={"properties": self.further})
            case CatalogType.S3TABLES:
                return _s3_tables_by_rest(self)
            case CatalogType.GLUE if self.glue and self.glue.rest:
                return _glue_by_rest(self.glue, self.further)
            case _:
                return None

    def folder_of(self, namespace: str, table: str) -> str | None:
        """Where a new table is put, if the catalog needs to know. Only Glue does, at its REST endpoint."""
        if self.glue is None or not self.glue.rest or _in_table_buckets(self.glue):
            return None
        if not self.warehouse:
            raise ConfigError(
                "location-missing",
                f"Glue's REST endpoint does not decide where a new table is put, and nothing says it for {namespace}.{table}.",
                fix="Set warehouse in the catalog to a folder on S3, or location in the sink.",
            )
        return f"{self.warehouse.rstrip('/')}/{namespace}.db/{table}"

    @property
    def region(self) -> str | None:
        """The region of Amazon's that the catalog is in, where its settings tell."""
        if self.type is CatalogType.S3TABLES:
            return (self.s3tables and self.s3tables.region) or _region_of(self.location or "")
        return self.glue.region if self.type is CatalogType.GLUE and self.glue else None

    @property
    def address(self) -> str:
        """What to call the catalog in messages, without secrets."""
        rest, section = self.as_rest, self._section
        uri = rest.uri if rest else getattr(section, "uri", None) or getattr(section, "endpoint", None) or self.location
        return mask_uri(uri) if uri else self.type.value

    @property
    def _section(self) -> Model | None:
        section: Model | None = getattr(self, self.type.value, None)
        return section


def signing_name(uri: str) -> str:
    """The service that signatures of requests to a REST catalog name, by its address."""
    known = _OF_AMAZON.fullmatch(urlsplit(uri).hostname or "")
    return known[1] if known else GATEWAY


def _s3_tables_by_rest(catalog: CatalogSpec) -> RestCatalog:
    own, region = catalog.s3tables or S3TablesCatalog(), catalog.region
    return RestCatalog(
        uri=own.uri or f"https://s3tables.{region}.{_domain(region)}/iceberg",
        warehouse=catalog.location,
        sigv4=_signed_by(own, "s3tables", region),
        properties=catalog.further,
    )


def _glue_by_rest(glue: GlueCatalog, properties: dict[str, str]) -> RestCatalog:
    return RestCatalog(
        uri=glue.endpoint or f"https://glue.{glue.region}.{_domain(glue.region)}/iceberg",
        warehouse=glue.catalog_id,
        sigv4=_signed_by(glue, "glue", glue.region),
        properties=properties,
    )


def _signed_by(section: GlueCatalog | S3TablesCatalog, name: str, region: str | None) -> Signing:
    return Signing(
        name=name,
        region=region,
        access_key_id=section.access_key_id,
        secret_access_key=section.secret_access_key,
        session_token=section.session_token,
    )


def _in_table_buckets(glue: GlueCatalog) -> bool:
    """Whether the catalog is one within Glue that shows table buckets of S3 Tables."""
    return ":s3tablescatalog" in (glue.catalog_id or "")


def _domain(region: str | None) -> str:
    return "amazonaws.com.cn" if (region or "").startswith("cn-") else "amazonaws.com"


def _region_of(arn: str) -> str | None:
    """The region in the name of one of Amazon's resources."""
    parts = arn.split(":")
    return parts[3] if parts[0] == "arn" and len(parts) > 4 and parts[3] else None


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
    checks: dict[CatalogType, Callable[[CatalogSpec], list[Problem]]] = {
        CatalogType.REST: _rest_problems,
        CatalogType.SQL: _sql_problems,
        CatalogType.HIVE: _hive_problems,
        CatalogType.GLUE: _glue_problems,
        CatalogType.S3TABLES: _s3_tables_problems,
        CatalogType.NESSIE: _nessie_problems,
        CatalogType.BIGQUERY: _bigquery_problems,
        CatalogType.HADOOP: _hadoop_problems,
        CatalogType.SPARK: _spark_problems,
    }
    return checks[catalog.type](catalog) if catalog.type in checks else []


def _hive_problems(catalog: CatalogSpec) -> list[Problem]:
    if catalog.hive and catalog.hive.uri:
        return []
    return [Problem("Hive metastore URI is required for Hive catalog type", "hive", lacks="uri")]


def _hadoop_problems(catalog: CatalogSpec) -> list[Problem]:
    return [] if catalog.location else [Problem("Warehouse is required for Hadoop catalog type", lacks="warehouse")]


def _spark_problems(catalog: CatalogSpec) -> list[Problem]:
    words = "properties have no meaning in a catalog of type spark: set them in Spark's own options"
    return [Problem(words, "properties")] if catalog.properties else []


def _rest_problems(catalog: CatalogSpec) -> list[Problem]:
    rest = catalog.rest
    if rest is None or not rest.uri:
        return [Problem("REST catalog URI is required for REST catalog type", "rest", lacks="uri")]
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
        return [Problem("SQL catalog URI is required for SQL catalog type", "sql", lacks="uri")]
    if database_of(catalog.sql.uri) is None:
        words = (
            "Invalid SQL catalog URI: it must start with sqlite:, postgresql:, mysql: or mariadb:, or with jdbc: followed by one "
            "of these"
        )
        return [Problem(words, "sql", "uri")]
    if not catalog.location:
        return [Problem("Warehouse is required for SQL catalog type", "sql", lacks="warehouse")]
    return []


def database_of(uri: str) -> str | None:
    """The kind of database that an address of a SQL catalog leads to, or None when no catalog can be kept there."""
    kind = uri.removeprefix("jdbc:").partition(":")[0].partition("+")[0]
    return kind if kind in DATABASES else None


def _glue_problems(catalog: CatalogSpec) -> list[Problem]:
    glue = catalog.glue
    if glue is None or not glue.region:
        return [Problem("AWS region is required for Glue catalog type", "glue")]
    if not glue.rest:
        return []
    if catalog.location and _in_table_buckets(glue):
        words = (
            "warehouse has no meaning with a catalog of table buckets, which tell themselves where tables are put; it is named "
        )
        return [Problem(words + "by catalog_id", "warehouse")]
    if catalog.location and urlsplit(catalog.location).scheme not in ("s3", "s3a"):
        return [
            Problem(
                "Warehouse with rest: true is a folder on S3, below which new tables are put: s3://bucket/folder", "warehouse"
            )
        ]
    if glue.endpoint and not _is_web_address(glue.endpoint):
        return [Problem(f"Invalid Glue endpoint: {mask_uri(glue.endpoint)}", "glue", "endpoint")]
    return []


def _s3_tables_problems(catalog: CatalogSpec) -> list[Problem]:
    arn, own = catalog.location or "", catalog.s3tables
    at = ("s3tables", "warehouse") if own and own.warehouse else ("warehouse",) if catalog.warehouse else ("s3tables",)
    if not (arn.startswith("arn:") and ":s3tables:" in arn):
        words = "Warehouse is the ARN of the table bucket for S3 Tables: arn:aws:s3tables:<region>:<account>:bucket/<name>"
        return [Problem(words, *at)]
    if own and own.uri and not _is_web_address(own.uri):
        return [Problem(f"Invalid S3 Tables URI: {mask_uri(own.uri)}", "s3tables", "uri")]
    named, asked = _region_of(arn), own.region if own else None
    if named and asked and named != asked:
        words = f"the table bucket is in {named}, and region is {asked}: signatures must name the region of the bucket"
        return [Problem(words, "s3tables", "region")]
    return [] if named or asked else [Problem("AWS region is required for S3 Tables where the ARN has none", "s3tables")]


_NESSIE_PATH = re.compile(r"/api/v[12]/?$")


def is_nessie_own(uri: str) -> bool:
    """Whether Nessie speaks its own protocol at an address, and not Iceberg's."""
    return _NESSIE_PATH.search(uri) is not None


def nessie_reading_uri(uri: str) -> str:
    """The second version of Nessie's own protocol, beside the first where that is the address."""
    return _NESSIE_PATH.sub("/api/v2", uri)


def _nessie_problems(catalog: CatalogSpec) -> list[Problem]:
    nessie = catalog.nessie
    if nessie is None or not nessie.uri:
        return [Problem("Nessie URI is required for Nessie catalog type", "nessie", lacks="uri")]
    if not _is_web_address(nessie.uri):
        return [Problem(f"Invalid Nessie URI: {mask_uri(nessie.uri)}", "nessie", "uri")]
    if not (is_nessie_own(nessie.uri) or "client-api-version" in catalog.further):
        words = (
            f"Nessie's own protocol is at an address that ends with /api/v2, not {mask_uri(nessie.uri)}; for its Iceberg REST "
        )
        return [Problem(words + "endpoint (/iceberg) write type: rest", "nessie", "uri")]
    if not catalog.location:
        return [Problem("Warehouse is required for Nessie catalog type", "nessie", lacks="warehouse")]
    return []


def _bigquery_problems(catalog: CatalogSpec) -> list[Problem]:
    if catalog.bigquery is None or not catalog.bigquery.project_id:
        return [Problem("Project is required for BigQuery catalog type: add project_id", "bigquery")]
    if not catalog.location:
        return [Problem("Warehouse is required for BigQuery catalog type", "bigquery", lacks="warehouse")]
    return []
