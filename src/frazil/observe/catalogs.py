"""Opens a sink's catalog with PyIceberg, without a JVM.

Everything here only looks. A SQLite catalog is opened read-only, and the tables of a SQL catalog are not created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from frazil.errors import ConfigError
from frazil.model.catalog import CatalogSpec, CatalogType
from frazil.model.sink import SinkSpec
from frazil.observe.faults import translated
from frazil.spark.catalogs import catalog_settings, jdbc_uri

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

ANSWER_SECONDS = 10

# Where PyIceberg calls the same thing otherwise than Iceberg's Java library.
_OTHER_NAMES = {
    "adls.auth.shared-key.account.name": "adls.account-name",
    "adls.auth.shared-key.account.key": "adls.account-key",
    "rest.access-key-id": "client.access-key-id",
    "rest.secret-access-key": "client.secret-access-key",
    "rest.session-token": "client.session-token",
}
_JAVA_ONLY = ("type", "cache-enabled", "catalog-impl", "io-impl", "jdbc.schema-version", "jdbc.user", "jdbc.password")


def open_catalog(sink: SinkSpec) -> Catalog | None:
    """The catalog of a sink, or None when it is a database in which no catalog was made yet."""
    with translated(sink.catalog):
        return _opened(sink.catalog, pyiceberg_properties(sink))


def _opened(spec: CatalogSpec, properties: dict[str, Any]) -> Catalog | None:
    match spec.type:
        case CatalogType.REST:
            return _rest_catalog(spec, properties)
        case CatalogType.SQL:
            return _sql_catalog(spec, properties)
        case CatalogType.HIVE:
            from pyiceberg.catalog.hive import HiveCatalog

            return HiveCatalog(spec.name, **properties)
        case CatalogType.GLUE:
            from pyiceberg.catalog.glue import GlueCatalog

            return GlueCatalog(spec.name, **properties)
        case CatalogType.HADOOP:
            raise TypeError("a hadoop catalog is only a folder")
        case CatalogType.MEMORY:
            raise ConfigError(
                "memory-catalog",
                "A memory catalog exists only inside the run that made it: nothing else can look at it.",
                fix="Use a SQL catalog on SQLite for tables that outlive the run.",
            )
        case CatalogType.SPARK:
            raise ConfigError(
                "spark-catalog",
                f"The catalog {spec.name} is known to Spark alone, and this command starts no Spark.",
                fix="Describe the catalog in the file (type: rest, sql, hive, glue or hadoop), or look at the table with Spark.",
            )


def _rest_catalog(spec: CatalogSpec, properties: dict[str, Any]) -> Catalog:
    from pyiceberg.catalog.rest import RestCatalog
    from requests import get

    # Any answer will do, a refusal too: PyIceberg itself would wait for one without end.
    get(f"{properties['uri'].rstrip('/')}/v1/config", timeout=ANSWER_SECONDS, allow_redirects=False, stream=True).close()
    return RestCatalog(spec.name, **properties)


def _sql_catalog(spec: CatalogSpec, properties: dict[str, Any]) -> Catalog | None:
    import logging

    path = sqlite_path(spec)
    if path is not None and not path.is_file():
        return None
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import inspect

    # It warns of the older of the two table layouts, which is of no interest to somebody who only looks.
    logging.getLogger("pyiceberg.catalog.sql").setLevel(logging.ERROR)
    catalog = SqlCatalog(spec.name, **properties, init_catalog_tables="false")
    return catalog if inspect(catalog.engine).has_table("iceberg_tables") else None


def pyiceberg_properties(sink: SinkSpec) -> dict[str, Any]:
    """The properties of the sink's catalog as PyIceberg spells them."""
    options = catalog_settings(sink).options
    properties: dict[str, Any] = {_OTHER_NAMES.get(key, key): value for key, value in options.items() if key not in _JAVA_ONLY}
    if sink.catalog.type is CatalogType.SQL:
        properties["uri"] = sqlalchemy_uri(options)
    if "client.access-key-id" in properties:
        # PyArrow takes no role beside keys. The catalog can only be asked with these; its files may be readable with them, too.
        properties.pop("s3.role-arn", None)
    if sink.s3 is not None:
        properties.setdefault("s3.connect-timeout", str(ANSWER_SECONDS))
        virtual = bool(sink.s3.endpoint) and not sink.s3.path_style_access
        properties["s3.force-virtual-addressing"] = str(virtual).lower()
    return properties | _gcs_properties(sink) | _azure_properties(sink) | _glue_properties(sink)


def _gcs_properties(sink: SinkSpec) -> dict[str, Any]:
    """A key, or no credentials at all, is gcsfs's matter; Arrow knows Google's default chain, which serves the rest."""
    gcs = sink.gcs
    if gcs is None or not (gcs.service_account_path or gcs.service_account_key or gcs.no_auth):
        return {}
    token: Any = gcs.service_account_path or "anon"
    if gcs.service_account_key is not None:
        token = _google_key(gcs.service_account_key.get_secret_value())
    return {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "gcs.oauth2.token": token}


def _google_key(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        message = "gcs.service_account_key is not the JSON of a service account's key."
        raise ConfigError(
            "bad-service-account-key", message, fix="Give the file's content, or its name as service_account_path."
        ) from None


def _azure_properties(sink: SinkSpec) -> dict[str, str]:
    azure = sink.azure
    if azure is None:
        return {}
    properties = {"adls.account-name": azure.storage_account} if azure.storage_account else {}
    if azure.sas_token:
        properties["adls.sas-token"] = azure.sas_token.get_secret_value()
    if azure.connection_string:
        properties["adls.connection-string"] = azure.connection_string.get_secret_value()
    return properties


def _glue_properties(sink: SinkSpec) -> dict[str, str]:
    glue = sink.catalog.glue
    if glue is None:
        return {}
    properties = {"glue.region": glue.region} if glue.region else {}
    return properties | ({"glue.profile-name": glue.profile} if glue.profile else {})


def sqlalchemy_uri(options: Mapping[str, str]) -> str:
    """The address of a SQL catalog for SQLAlchemy, made from the options that Spark gets. SQLite is opened read-only."""
    from sqlalchemy import URL, make_url

    plain = options["uri"].removeprefix("jdbc:")
    if plain.startswith("sqlite:"):
        path = plain.removeprefix("sqlite:").partition("?")[0]
        made = URL.create("sqlite", database=f"file:{quote(path)}", query={"mode": "ro", "uri": "true"})
    else:
        user, password = options.get("jdbc.user"), options.get("jdbc.password")
        made = make_url(plain).set(drivername="postgresql+psycopg2", username=user, password=password)
    return made.render_as_string(hide_password=False)


def sqlite_path(spec: CatalogSpec) -> Path | None:
    """The file of a SQLite catalog, or None when the catalog is something else."""
    if spec.type is not CatalogType.SQL or spec.sql is None or not spec.sql.uri:
        return None
    plain = jdbc_uri(spec.sql.uri)[0].removeprefix("jdbc:")
    return Path(plain.removeprefix("sqlite:").partition("?")[0]) if plain.startswith("sqlite:") else None
