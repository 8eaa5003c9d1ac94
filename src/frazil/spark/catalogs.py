"""Catalogs and stores as Spark settings: pure functions from a sink to the options of one Spark catalog."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from frazil.model.catalog import CatalogSpec, CatalogType, database_of, signing_name
from frazil.model.catalog_kinds import (
    DELEGATION_HEADER,
    BigQueryCatalog,
    GlueCatalog,
    NessieCatalog,
    RestCatalog,
    RestTls,
    Signing,
    SqlCatalog,
)
from frazil.model.sink import Compression, SinkSpec
from frazil.model.storage import AzureStorage, GcsStorage, S3Storage
from frazil.spark.databases import COMPONENTS, jdbc_uri
from frazil.spark.stores import azure_options, gcs_options, present, role_options, s3_options

SQLITE = "jdbc:sqlite:"
INIT_TABLES = "jdbc.init-catalog-tables"
SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
GOOGLE_KEY = "GOOGLE_APPLICATION_CREDENTIALS"

# Reads the certificates of a REST catalog's connection from PEM files; of frazil's own jar.
TLS_CONFIGURER = "frazil.PemTls"
TLS_OPTIONS = {"ca_path": "frazil.tls.ca-path", "cert_path": "frazil.tls.cert-path", "key_path": "frazil.tls.key-path"}

# A REST catalog and its login that recover when a token is refused; of frazil's own jar.
LASTING_LOGIN = {"catalog-impl": "frazil.RestCatalog", "rest.auth.type": "frazil.RestLogin"}

# How long a metastore is asked again when it fails at a lock. Iceberg asks for three minutes, and only then says so.
HIVE_LOCKS = {"hadoop.iceberg.hive.lock-creation-timeout-ms": "5000"}

S3_SCHEMES = ("s3", "s3a")
GCS_SCHEMES = ("gs",)
AZURE_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
# Files that need no library of a cloud.
OTHER_SCHEMES = ("file", "hdfs")

# Each store's component, and how the names of hosts end whose catalogs keep their files there.
STORES = {
    "aws": ("amazonaws.com", "amazonaws.com.cn", "api.aws", "cloud.databricks.com", "cloud.databricks.us", "tabular.io"),
    "gcp": ("gcp.databricks.com", "googleapis.com"),
    "azure": ("azuredatabricks.net", "azure.com", "azure.us", "azure.cn", "windows.net", "fabric.microsoft.com"),
}


@dataclass(frozen=True)
class CatalogSettings:
    """One catalog for Spark: its name, its options, and the jars (by component) that it needs.

    ``environment`` is what the libraries of Google and Amazon only read from the process's environment; of ``files`` they
    read the name of a file with that content there.
    """

    name: str
    options: dict[str, str]
    components: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, SecretStr] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()
    """The components that only may be needed."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The components without which nothing can be written."""
        return tuple(name for name in self.components if name not in self.guessed)

    @property
    def is_unborn(self) -> bool:
        """Whether it is a file that is not there, which opening it would make."""
        file = sqlite_file(self)
        return file is not None and not file.is_file()

    @property
    def read_only(self) -> CatalogSettings:
        """Settings that only read: by default a SQL catalog creates its tables when it is opened."""
        if self.options.get("type") != "jdbc":
            return self
        return replace(self, options=self.options | {INIT_TABLES: "false"})

    @property
    def spark_conf(self) -> dict[str, str]:
        """The options as Spark spells them; none for a catalog that the session already knows."""
        prefix = f"spark.sql.catalog.{self.name}"
        if not self.options:
            return {}
        return {prefix: SPARK_CATALOG} | {f"{prefix}.{key}": value for key, value in self.options.items()}


def sqlite_file(catalog: CatalogSettings) -> Path | None:
    """The file that a SQLite catalog is kept in; None for every other catalog."""
    path = catalog.options.get("uri", "").removeprefix(SQLITE)
    return Path(path) if path.startswith("/") and catalog.options["uri"].startswith(SQLITE) else None


def catalog_settings(sink: SinkSpec) -> CatalogSettings:
    """What Spark must know to write to this sink."""
    catalog = sink.catalog
    if catalog.type is CatalogType.SPARK:
        return CatalogSettings(catalog.name, {}, ("core",))
    # Without this a session keeps seeing a table as it was when it was first loaded.
    options = {"cache-enabled": "false"}
    rest = catalog.as_rest
    if catalog.location and (rest is None or catalog.type is CatalogType.REST):
        # What a REST catalog calls its warehouse is a name that it knows, not a folder of this machine.
        options["warehouse"] = catalog.location if rest else warehouse_uri(catalog.location)
    options |= _type_options(catalog) if rest is None else {"type": "rest"} | _rest_options(rest)
    components = ["core"]
    if catalog.sql and (driver := COMPONENTS.get(database_of(catalog.sql.uri or "") or "")):
        components.append(driver)
    if sink.compression is Compression.BROTLI:
        components.append("brotli")
    place = urlsplit(options.get("warehouse", ""))
    if sink.s3 is not None or place.scheme in S3_SCHEMES or catalog.type in (CatalogType.GLUE, CatalogType.S3TABLES):
        components.append("aws")
        options |= s3_options(sink.s3 or _s3_of(catalog))
    if sink.gcs is not None or place.scheme in GCS_SCHEMES or catalog.type is CatalogType.BIGQUERY:
        components.append("gcp")
    if sink.gcs is not None or place.scheme in GCS_SCHEMES:
        options |= gcs_options(sink.gcs or GcsStorage())
    if sink.azure is not None or place.scheme in AZURE_SCHEMES:
        components.append("azure")
        options |= azure_options(sink.azure or AzureStorage(), place.hostname)
    if rest and rest.sigv4 and "aws" not in components:
        components.append("aws")  # what makes signatures
    if rest and catalog.glue and catalog.glue.role_arn:
        options |= role_options(catalog.glue.role_arn, catalog.glue.region)
    options |= catalog.further
    if rest and _shows_tokens(options):
        del options["type"]
        options |= LASTING_LOGIN
    guessed = _stores_behind(options) if rest and not STORES.keys() & set(components) else []
    return CatalogSettings(catalog.name, options, (*components, *guessed), _environment(sink), _files(sink), tuple(guessed))


def _shows_tokens(options: dict[str, str]) -> bool:
    """Whether a REST catalog is logged in to by OAuth2, and the user does not name classes of his own for that."""
    own_ways = {"rest.sigv4-enabled", *LASTING_LOGIN} & options.keys()
    return not own_ways and bool({"credential", "token"} & options.keys())


def _s3_of(catalog: CatalogSpec) -> S3Storage:
    """How files are reached where the sink does not tell: those of S3 Tables with what signs the requests to it."""
    own = catalog.s3tables
    if catalog.type is not CatalogType.S3TABLES or own is None:
        return S3Storage(region=catalog.region)
    return S3Storage(
        region=catalog.region,
        access_key_id=own.access_key_id,
        secret_access_key=own.secret_access_key,
        session_token=own.session_token,
    )


def _stores_behind(options: dict[str, str]) -> list[str]:
    """The stores for which a REST catalog may hand out credentials, derived from its address if nothing else names the store.

    Only their libraries are needed: what else they must know comes from the catalog with each table, and its client chooses
    among them by the scheme of a file.
    """
    if "io-impl" in options:
        return [store for store in STORES if f".{store}." in options["io-impl"]]
    host = urlsplit(options["uri"]).hostname or ""
    warehouse = options.get("warehouse", "")
    if _is_this_machine(host) or warehouse.startswith("/") or urlsplit(warehouse).scheme in OTHER_SCHEMES:
        return []
    stores = [store for store, ends in STORES.items() if f".{host}".endswith(tuple(f".{end}" for end in ends))]
    return stores or list(STORES)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _environment(sink: SinkSpec) -> dict[str, str]:
    """What libraries only read there: Glue's client keys, Amazon's a profile, Google's a key as a file, Azure's an identity."""
    glue, s3, gcs, azure = sink.catalog.glue, sink.s3, sink.gcs, sink.azure
    found: dict[str, str] = {}
    if glue:
        found |= present({"AWS_PROFILE": glue.profile})
    if glue and not glue.rest:
        found |= present(
            {
                "AWS_ACCESS_KEY_ID": glue.access_key_id,
                "AWS_SECRET_ACCESS_KEY": glue.secret_access_key,
                "AWS_SESSION_TOKEN": glue.session_token,
            }
        )
    if s3:
        found |= present({"AWS_PROFILE": s3.profile})
    if gcs:
        found |= present({GOOGLE_KEY: gcs.service_account_path})
    if azure:
        found |= present(
            {
                "AZURE_CLIENT_ID": azure.client_id,
                "AZURE_TENANT_ID": azure.tenant_id,
                "AZURE_CLIENT_SECRET": azure.client_secret,
            }
        )
    return found


def _files(sink: SinkSpec) -> dict[str, SecretStr]:
    return {GOOGLE_KEY: sink.gcs.service_account_key} if sink.gcs and sink.gcs.service_account_key else {}


def warehouse_uri(location: str) -> str:
    """A location that every reader understands: a plain path becomes a `file:` URI, unquoted, as Iceberg keeps locations."""
    if urlsplit(location).scheme:
        return location
    return f"file://{Path(location).expanduser().resolve()}"


def _type_options(catalog: CatalogSpec) -> dict[str, str]:  # noqa: PLR0911 - one for each type
    match catalog.type:
        case CatalogType.SQL:
            return {"type": "jdbc"} | _sql_options(catalog.sql or SqlCatalog())
        case CatalogType.HIVE:
            return {"type": "hive"} | HIVE_LOCKS | present({"uri": catalog.hive.uri if catalog.hive else None})
        case CatalogType.HADOOP:
            return {"type": "hadoop"}
        case CatalogType.GLUE:
            return {"type": "glue"} | _glue_options(catalog.glue or GlueCatalog())
        case CatalogType.NESSIE:
            return {"type": "nessie"} | _nessie_options(catalog.nessie or NessieCatalog())
        case CatalogType.BIGQUERY:
            return {"type": "bigquery"} | _bigquery_options(catalog.bigquery or BigQueryCatalog())
        case _:
            memory = {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}
            # With a warehouse the files are real, so that executors of their own can write them.
            return memory | ({"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"} if catalog.location else {})


def _rest_options(rest: RestCatalog) -> dict[str, str]:
    options = _rest_address(rest.uri or "") | present(
        {
            # A user names a warehouse of the catalog, not a folder of this machine.
            "warehouse": rest.warehouse,
            "prefix": rest.prefix,
            f"header.{DELEGATION_HEADER}": rest.access_delegation,
        }
    )
    options |= {f"header.{name}": value for name, value in rest.headers.items()}
    options |= _signing_options(rest.sigv4, rest.uri or "") if rest.sigv4 else {}
    options |= _tls_options(rest.tls) if rest.tls else {}
    return options | _rest_authentication(rest)


def _signing_options(sigv4: Signing, uri: str) -> dict[str, str]:
    return {"rest.sigv4-enabled": "true", "rest.signing-name": sigv4.name or signing_name(uri)} | present(
        {
            "rest.signing-region": sigv4.region,
            "rest.access-key-id": sigv4.access_key_id,
            "rest.secret-access-key": sigv4.secret_access_key,
            "rest.session-token": sigv4.session_token,
        }
    )


def _tls_options(tls: RestTls) -> dict[str, str]:
    files = {key: getattr(tls, name) for name, key in TLS_OPTIONS.items()}
    return {"rest.client.tls.configurer-impl": TLS_CONFIGURER} | {
        key: str(Path(name).expanduser().resolve()) for key, name in files.items() if name is not None
    }


def _rest_address(uri: str) -> dict[str, str]:
    """The address without user and password, which Iceberg's client refuses there: they go into the header that they mean."""
    parts = urlsplit(uri)
    if parts.username is None:
        return {"uri": uri}
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return {"uri": bare} | _basic(unquote(parts.username), unquote(parts.password or ""))


def _basic(user: str, password: str) -> dict[str, str]:
    return {"header.Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def _rest_authentication(rest: RestCatalog) -> dict[str, str]:
    """A credential is `id:secret` for OAuth2; without a colon and without a token service it can only be a bearer token."""
    options = present(
        {
            "token": rest.token,
            "scope": rest.scope,
            "audience": rest.audience,
            "resource": rest.resource,
            "oauth2-server-uri": rest.oauth2_server_uri,
            "token-refresh-enabled": None if rest.renew_early else "false",
            "token-exchange-enabled": None if rest.renew_by_exchange else "false",
            "token-expires-in-ms": str(rest.assumed_lifetime_secs * 1000) if rest.assumed_lifetime_secs else None,
        }
    )
    if rest.user is not None and rest.password is not None:
        options |= _basic(rest.user, rest.password.get_secret_value())
    if rest.credential is None:
        return options
    text = rest.credential.get_secret_value()
    has_token_service = bool(rest.oauth2_server_uri or "oauth2-server-uri" in rest.properties)
    return options | {"credential" if ":" in text or has_token_service else "token": text}


def _sql_options(sql: SqlCatalog) -> dict[str, str]:
    uri, user, password = jdbc_uri(sql.uri or "")
    options = {"uri": uri, "jdbc.schema-version": "V1"}
    options |= present({"jdbc.user": sql.user or user, "jdbc.password": sql.password or password})
    return options if sql.init_catalog_tables else options | {INIT_TABLES: "false"}


def _glue_options(glue: GlueCatalog) -> dict[str, str]:
    options = present({"client.region": glue.region, "glue.id": glue.catalog_id, "glue.endpoint": glue.endpoint})
    if glue.role_arn:
        options |= role_options(glue.role_arn, glue.region)
    # Iceberg's Java library does not know these, PyIceberg does; for the former they are in the environment.
    return options | present(
        {
            "glue.access-key-id": glue.access_key_id,
            "glue.secret-access-key": glue.secret_access_key,
            "glue.session-token": glue.session_token,
        }
    )


def _nessie_options(nessie: NessieCatalog) -> dict[str, str]:
    login = {"authentication.type": "BEARER"} if nessie.token else {}
    return login | present({"uri": nessie.uri, "ref": nessie.ref, "authentication.token": nessie.token})


def _bigquery_options(bigquery: BigQueryCatalog) -> dict[str, str]:
    return present(
        {
            "gcp.bigquery.project-id": bigquery.project_id,
            "gcp.bigquery.location": bigquery.location,
            "gcp.bigquery.impersonate.service-account": bigquery.impersonate_service_account,
        }
    )
