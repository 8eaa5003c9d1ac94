"""Catalogs and stores as Spark settings: pure functions from a sink to the options of one Spark catalog."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pydantic import SecretStr

from frazil.model.catalog import CatalogSpec, CatalogType, GlueCatalog, RestCatalog, SqlCatalog
from frazil.model.sink import Compression, SinkSpec
from frazil.model.storage import AzureStorage, GcsStorage, S3Storage

SQLITE = "jdbc:sqlite:"
SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
GOOGLE_KEY = "GOOGLE_APPLICATION_CREDENTIALS"

# Amazon's library refuses to work without a region; a store of one's own does not care which.
ANY_REGION = "us-east-1"

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
        return replace(self, options=self.options | {"jdbc.init-catalog-tables": "false"})

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
    if catalog.location:
        # What a REST catalog calls its warehouse is a name that it knows, not a folder of this machine.
        is_name = catalog.type is CatalogType.REST
        options["warehouse"] = catalog.location if is_name else warehouse_uri(catalog.location)
    options |= _type_options(catalog)
    components = ["core"]
    if catalog.type is CatalogType.SQL and _is_postgres(catalog):
        components.append("postgres")
    if sink.compression is Compression.BROTLI:
        components.append("brotli")
    place = urlsplit(options.get("warehouse", ""))
    if sink.s3 is not None or place.scheme in S3_SCHEMES or catalog.type is CatalogType.GLUE:
        components.append("aws")
        options |= _s3_options(sink.s3 or S3Storage())
    if sink.gcs is not None or place.scheme in GCS_SCHEMES:
        components.append("gcp")
        options |= _gcs_options(sink.gcs or GcsStorage())
    if sink.azure is not None or place.scheme in AZURE_SCHEMES:
        components.append("azure")
        options |= _azure_options(sink.azure or AzureStorage(), place.hostname)
    if catalog.rest:
        options |= catalog.rest.properties
    if catalog.sql:
        options |= catalog.sql.properties
    if catalog.hive:
        options |= catalog.hive.properties
    guessed = _stores_behind(options) if catalog.type is CatalogType.REST and not STORES.keys() & set(components) else []
    return CatalogSettings(catalog.name, options, (*components, *guessed), _environment(sink), _files(sink), tuple(guessed))


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
    """Iceberg's Glue client takes its keys and profile from Amazon's default chain alone, and Google's a key only as a file."""
    glue = sink.catalog.glue
    amazon = (
        _present(
            {
                "AWS_ACCESS_KEY_ID": glue.access_key_id,
                "AWS_SECRET_ACCESS_KEY": glue.secret_access_key,
                "AWS_PROFILE": glue.profile,
            }
        )
        if glue
        else {}
    )
    return amazon | (_present({GOOGLE_KEY: sink.gcs.service_account_path}) if sink.gcs else {})


def _files(sink: SinkSpec) -> dict[str, SecretStr]:
    return {GOOGLE_KEY: sink.gcs.service_account_key} if sink.gcs and sink.gcs.service_account_key else {}


def warehouse_uri(location: str) -> str:
    """A location that every reader understands: a plain path becomes a `file:` URI, unquoted, as Iceberg keeps locations."""
    if urlsplit(location).scheme:
        return location
    return f"file://{Path(location).expanduser().resolve()}"


def _type_options(catalog: CatalogSpec) -> dict[str, str]:
    match catalog.type:
        case CatalogType.REST:
            return {"type": "rest"} | _rest_options(catalog.rest or RestCatalog())
        case CatalogType.SQL:
            return {"type": "jdbc"} | _sql_options(catalog.sql or SqlCatalog())
        case CatalogType.HIVE:
            return {"type": "hive"} | ({"uri": catalog.hive.uri} if catalog.hive and catalog.hive.uri else {})
        case CatalogType.GLUE:
            return {"type": "glue"} | _glue_options(catalog.glue or GlueCatalog())
        case CatalogType.HADOOP:
            return {"type": "hadoop"}
        case _:
            memory = {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}
            # With a warehouse the files are real, so that executors of their own can write them.
            return memory | ({"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"} if catalog.location else {})


def _rest_options(rest: RestCatalog) -> dict[str, str]:
    options = _rest_address(rest.uri or "") | _present(
        {"scope": rest.scope, "prefix": rest.prefix, "oauth2-server-uri": rest.oauth2_server_uri}
    )
    # A user names a warehouse of the catalog, not a folder of this machine.
    if rest.warehouse:
        options["warehouse"] = rest.warehouse
    return options | _rest_authentication(rest)


def _rest_address(uri: str) -> dict[str, str]:
    """The address without user and password, which Iceberg's client refuses there: they go into the header that they mean."""
    parts = urlsplit(uri)
    if parts.username is None:
        return {"uri": uri}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return {"uri": bare, "header.Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def _rest_authentication(rest: RestCatalog) -> dict[str, str]:
    """A credential is `id:secret` for OAuth2; without a colon and without a token service it can only be a bearer token."""
    options = _present({"token": rest.token})
    if rest.credential is None:
        return options
    text = rest.credential.get_secret_value()
    has_token_service = bool(rest.oauth2_server_uri or "oauth2-server-uri" in rest.properties)
    return options | {"credential" if ":" in text or has_token_service else "token": text}


def _sql_options(sql: SqlCatalog) -> dict[str, str]:
    uri, user, password = jdbc_uri(sql.uri or "")
    options = {"uri": uri, "jdbc.schema-version": "V1"}
    options |= _present({"jdbc.user": sql.user or user, "jdbc.password": sql.password or password})
    return options


def jdbc_uri(uri: str) -> tuple[str, str | None, str | None]:
    """A `jdbc:` URL without credentials, and the user and password that stood in the given one."""
    plain = uri.removeprefix("jdbc:")
    scheme, _, rest = plain.partition(":")
    if scheme == "sqlite":
        path = rest.removeprefix("//").removeprefix("/") if rest.startswith("///") else rest
        if path.startswith(":") or not path:
            return f"jdbc:sqlite:{path}", None, None
        return f"jdbc:sqlite:{Path(path).expanduser().resolve()}", None, None
    parts = urlsplit("postgresql:" + rest)
    host = parts.hostname or "localhost"
    port = f":{parts.port}" if parts.port else ""
    query = f"?{parts.query}" if parts.query else ""
    address = f"jdbc:postgresql://{host}{port}{quote(parts.path)}{query}"
    return address, unquote(parts.username) if parts.username else None, unquote(parts.password) if parts.password else None


def _is_postgres(catalog: CatalogSpec) -> bool:
    return bool(catalog.sql and catalog.sql.uri and "postgresql" in catalog.sql.uri.removeprefix("jdbc:").partition(":")[0])


def _glue_options(glue: GlueCatalog) -> dict[str, str]:
    options = _present({"client.region": glue.region, "glue.id": glue.catalog_id, "glue.endpoint": glue.endpoint})
    if glue.role_arn:
        factory = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
        options |= {"client.factory": factory, "client.assume-role.arn": glue.role_arn}
        options |= _present({"client.assume-role.region": glue.region})
    # Iceberg's Java library does not know these two, PyIceberg does; for the former they are in the environment.
    return options | _present({"glue.access-key-id": glue.access_key_id, "glue.secret-access-key": glue.secret_access_key})


def _s3_options(s3: S3Storage) -> dict[str, str]:
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.path-style-access": str(s3.path_style_access).lower(),
    } | _present(
        {
            "client.region": s3.region or (ANY_REGION if s3.endpoint else None),
            "s3.endpoint": s3.endpoint,
            "s3.access-key-id": s3.access_key_id,
            "s3.secret-access-key": s3.secret_access_key,
            "s3.session-token": s3.session_token,
        }
    )


def _gcs_options(gcs: GcsStorage) -> dict[str, str]:
    return {"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"} | _present(
        {
            "gcs.project-id": gcs.project_id,
            "gcs.service.host": gcs.endpoint,
            "gcs.no-auth": "true" if gcs.no_auth else None,
        }
    )


def _azure_options(azure: AzureStorage, warehouse_host: str | None) -> dict[str, str]:
    """Iceberg knows a store by its host, and takes of a connection string only the address: the rest is picked from it here."""
    parts = _connection_parts(azure.connection_string)
    account = azure.storage_account or parts.get("AccountName")
    host = f"{account}.dfs.{parts.get('EndpointSuffix', 'core.windows.net')}" if account else warehouse_host
    key = azure.access_key or parts.get("AccountKey")
    sas_token = azure.sas_token or parts.get("SharedAccessSignature")
    if key and not account:
        account = (warehouse_host or "").partition(".")[0] or None
    return {"io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO"} | _present(
        {
            "adls.auth.shared-key.account.name": account if key else None,
            "adls.auth.shared-key.account.key": key,
            f"adls.sas-token.{host}": sas_token,
            f"adls.connection-string.{host}": parts.get("DfsEndpoint") or parts.get("BlobEndpoint"),
        }
    )


def _connection_parts(connection: SecretStr | None) -> dict[str, str]:
    """`AccountName=...;AccountKey=...` as a mapping; values may hold `=` themselves."""
    pairs = (part.partition("=") for part in connection.get_secret_value().split(";")) if connection else ()
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def _present(options: dict[str, str | SecretStr | None]) -> dict[str, str]:
    return {
        key: value.get_secret_value() if isinstance(value, SecretStr) else value
        for key, value in options.items()
        if value is not None
    }
