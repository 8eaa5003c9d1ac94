"""Opens a sink's catalog with PyIceberg, without a JVM.

Everything here only looks. A SQLite catalog is opened read-only, and the tables of a SQL catalog are not created.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from frazil.errors import ConfigError
from frazil.model.catalog import CatalogSpec, CatalogType, nessie_reading_uri
from frazil.model.catalog_kinds import NessieCatalog, RestTls
from frazil.model.connections import Place
from frazil.model.sink import SinkSpec
from frazil.observe.faults import translated
from frazil.observe.greeting import ANSWER_SECONDS, CONNECT_SECONDS, Greeting, greet
from frazil.observe.stores import quiet_libraries, store_properties
from frazil.spark.catalogs import SQLITE, TLS_OPTIONS, catalog_settings
from frazil.spark.databases import PYTHON_DRIVERS, jdbc_uri, python_options

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


# Where PyIceberg calls the same thing otherwise than Iceberg's Java library.
_OTHER_NAMES = {
    "adls.auth.shared-key.account.name": "adls.account-name",
    "adls.auth.shared-key.account.key": "adls.account-key",
    "rest.access-key-id": "client.access-key-id",
    "rest.secret-access-key": "client.secret-access-key",
    "rest.session-token": "client.session-token",
}
_JAVA_ONLY = (
    "type", "cache-enabled", "catalog-impl", "io-impl", "jdbc.schema-version", "jdbc.user", "jdbc.password",
    "jdbc.init-catalog-tables", "authentication.type", "authentication.token", "ref", "rest.client.tls.configurer-impl",
    "rest.auth.type",
    *TLS_OPTIONS.values(),
)  # fmt: skip

# What libraries under PyIceberg read in the environment alone.
_FROM_ENVIRONMENT = ("AWS_PROFILE", "AZURE_CLIENT_ID")
# PyIceberg refuses to look into BigQuery's metastore without it, though it concerns new tables alone.
_BIGQUERY_SWITCH = "PYICEBERG_LEGACY_CURRENT_SNAPSHOT_ID"


def open_catalog(sink: SinkSpec) -> Catalog | None:
    """The catalog of a sink, or None when it is a database in which no catalog was made yet."""
    quiet_libraries()
    environment = catalog_settings(sink).environment
    os.environ.update({name: environment[name] for name in _FROM_ENVIRONMENT if name in environment})
    with translated(sink.catalog):
        return _opened(sink.catalog, pyiceberg_properties(sink))


def _opened(spec: CatalogSpec, properties: dict[str, Any]) -> Catalog | None:
    if spec.as_rest is not None:
        return _rest_catalog(spec, properties)
    match spec.type:
        case CatalogType.SQL:
            return _sql_catalog(spec, properties)
        case CatalogType.NESSIE:
            return _nessie_catalog(spec, properties)
        case CatalogType.HIVE:
            from frazil.observe.hive import HiveReader

            return HiveReader(spec.name, **properties)
        case CatalogType.GLUE:
            from pyiceberg.catalog.glue import GlueCatalog

            return GlueCatalog(spec.name, **properties)
        case CatalogType.BIGQUERY:
            from pyiceberg.catalog.bigquery_metastore import BigQueryMetastoreCatalog

            os.environ.setdefault(_BIGQUERY_SWITCH, "true")
            return BigQueryMetastoreCatalog(spec.name, **properties)
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
        case _:
            raise TypeError("a hadoop catalog is only a folder")


def _nessie_catalog(spec: CatalogSpec, properties: dict[str, Any]) -> Catalog:
    from frazil.observe.nessie import NessieReader

    nessie = spec.nessie or NessieCatalog()
    token = nessie.token.get_secret_value() if nessie.token else None
    return NessieReader(spec.name, seconds=ANSWER_SECONDS, ref=nessie.ref, token=token, **properties)


def _rest_catalog(spec: CatalogSpec, properties: dict[str, Any]) -> Catalog:
    from frazil.observe.rest import CertifiedCatalog

    # PyIceberg itself would wait for an answer without end.
    greet_rest(spec, properties)
    if tokens := properties.get("oauth2-server-uri"):
        greet(tokens, Place.catalog(f"{spec.address} (where tokens come from, {tokens})"))
    return CertifiedCatalog(spec.name, **properties)


def greet_rest(spec: CatalogSpec, properties: Mapping[str, Any]) -> Greeting:
    """What a REST catalog answers to somebody who says nothing of himself."""
    certificates = properties.get("ssl", {})
    own = tuple(certificates["client"].values()) if "client" in certificates else None
    uri = f"{properties['uri'].rstrip('/')}/v1/config"
    return greet(uri, Place.catalog(spec.address), authorities=certificates.get("cabundle"), own=own)


def _sql_catalog(spec: CatalogSpec, properties: dict[str, Any]) -> Catalog | None:
    import logging

    path = sqlite_path(spec)
    if path is not None and not path.is_file():
        if spec.sql is not None and not spec.sql.init_catalog_tables:
            raise _no_tables(spec)
        return None
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import inspect

    # It warns of the older of the two table layouts, which is of no interest to somebody who only looks.
    logging.getLogger("pyiceberg.catalog.sql").setLevel(logging.ERROR)
    catalog = SqlCatalog(spec.name, **properties, init_catalog_tables="false")
    if inspect(catalog.engine).has_table("iceberg_tables"):
        return catalog
    if spec.sql is not None and not spec.sql.init_catalog_tables:
        raise _no_tables(spec)
    return None


def _no_tables(spec: CatalogSpec) -> ConfigError:
    return ConfigError(
        "catalog-tables-missing",
        f"The database at {spec.address} has no tables of a catalog (iceberg_tables), and init_catalog_tables: false forbids to "
        "create them.",
        fix="Create them by a run with init_catalog_tables: true, as a user who may; or correct the address.",
    )


def pyiceberg_properties(sink: SinkSpec) -> dict[str, Any]:
    """The properties of the sink's catalog as PyIceberg spells them. Those that a user passes on win, as they do in Spark."""
    options = catalog_settings(sink).options
    properties: dict[str, Any] = _spelt(options)
    if sink.catalog.type is CatalogType.SQL:
        properties["uri"] = sqlalchemy_uri(options)
    properties |= _rest_properties(sink.catalog) | store_properties(sink) | _glue_properties(sink) | _bigquery_properties(sink)
    properties |= {name: value for name, value in _spelt(sink.catalog.further).items() if name != "uri"}
    if _shows_own_header(properties):
        properties["auth"] = {"type": "noop"}  # PyIceberg would put `Bearer None` in its place
    if "client.access-key-id" in properties:
        # PyArrow takes no role beside keys. The catalog can only be asked with these; its files may be readable with them, too.
        properties.pop("s3.role-arn", None)
    return properties


def _shows_own_header(properties: Mapping[str, Any]) -> bool:
    """Whether a REST catalog is logged in to by a header of the configuration: that of a user and a password, or any other."""
    return not {"credential", "token"} & properties.keys() and "header.authorization" in map(str.lower, properties)


def _spelt(options: Mapping[str, str]) -> dict[str, str]:
    return {_OTHER_NAMES.get(name, name): value for name, value in options.items() if name not in _JAVA_ONLY}


def _rest_properties(spec: CatalogSpec) -> dict[str, Any]:
    rest = spec.as_rest
    if spec.type is CatalogType.NESSIE and spec.nessie is not None:
        return {"uri": nessie_reading_uri(spec.nessie.uri or "")}
    return {"ssl": _certificates(rest.tls)} if rest is not None and rest.tls is not None else {}


def _certificates(tls: RestTls) -> dict[str, Any]:
    files = {name: str(Path(path).expanduser()) for name, path in tls.model_dump().items() if path is not None}
    authorities = {"cabundle": files["ca_path"]} if "ca_path" in files else {}
    return authorities | ({"client": {"cert": files["cert_path"], "key": files["key_path"]}} if "cert_path" in files else {})


def _glue_properties(sink: SinkSpec) -> dict[str, str]:
    glue = sink.catalog.glue
    if glue is None:
        return {}
    profile = {"client.profile-name" if glue.rest else "glue.profile-name": glue.profile} if glue.profile else {}
    return profile | ({"glue.region": glue.region} if glue.region else {})


def _bigquery_properties(sink: SinkSpec) -> dict[str, str]:
    """The key of a service account, which Java finds in the environment."""
    gcs = sink.gcs
    if sink.catalog.type is not CatalogType.BIGQUERY or gcs is None:
        return {}
    if gcs.service_account_key is not None:
        return {"gcp.bigquery.credentials-info": gcs.service_account_key.get_secret_value()}
    return {"gcp.bigquery.credential-file": gcs.service_account_path} if gcs.service_account_path else {}


def sqlalchemy_uri(options: Mapping[str, str]) -> str:
    """The address of a SQL catalog for SQLAlchemy, made from the options that Spark gets. SQLite is opened read-only."""
    from sqlalchemy import URL, make_url

    if options["uri"].startswith(SQLITE):
        path = options["uri"].removeprefix(SQLITE).partition("?")[0]
        made = URL.create("sqlite", database=f"file:{quote(path)}", query={"mode": "ro", "uri": "true"})
        return made.render_as_string(hide_password=False)
    address = make_url(options["uri"].removeprefix("jdbc:"))
    made = address.set(
        drivername=PYTHON_DRIVERS[address.drivername], username=options.get("jdbc.user"), password=options.get("jdbc.password")
    )
    if address.drivername == "mariadb":
        made = made.set(query=python_options({name: str(value) for name, value in address.query.items()}))
    if "connect_timeout" not in made.query:
        made = made.update_query_dict({"connect_timeout": str(CONNECT_SECONDS)})
    return made.render_as_string(hide_password=False)


def sqlite_path(spec: CatalogSpec) -> Path | None:
    """The file of a SQLite catalog, or None when the catalog is something else."""
    if spec.type is not CatalogType.SQL or spec.sql is None or not spec.sql.uri:
        return None
    plain = jdbc_uri(spec.sql.uri)[0].removeprefix("jdbc:")
    return Path(plain.removeprefix("sqlite:").partition("?")[0]) if plain.startswith("sqlite:") else None
