"""Connections as values of the model."""

from __future__ import annotations

from typing import Any

from frazil.doors.sql.given import Given, World
from frazil.doors.sql.grammar import Target
from frazil.doors.sql.statements import CreateConnection, Reference
from frazil.model.base import Model
from frazil.model.catalog import CatalogName, CatalogSpec, CatalogType
from frazil.model.catalog_kinds import AccessDelegation
from frazil.model.format import RegistrySpec
from frazil.model.secrets import mask_uri
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaCluster, KafkaSecurity, KafkaTls
from frazil.model.storage import AzureStorage, GcsStorage, S3Storage

# The document says that signing is done for this region when none is given.
DEFAULT_REGION = "us-east-1"

_S3_TABLES = ("s3table", "s3tables", "s3tablesrest", "s3tablerest")
_TYPES = ("rest", *_S3_TABLES, "sql", "hive", "glue", "nessie", "bigquery", "hadoop")
_CERTIFICATES = ("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY")
# The kinds of catalogs that take an option, where it is not for all of them.
_ONLY_IN = {
    "CREDENTIAL": ("rest", *_S3_TABLES), "SCOPE": ("rest", *_S3_TABLES), "OAUTH2 SERVER URI": ("rest", *_S3_TABLES),
    "TOKEN": ("rest", "nessie", *_S3_TABLES), "ACCESS DELEGATION": ("rest",), "REF": ("nessie",), "PROJECT": ("bigquery",),
    **dict.fromkeys(_CERTIFICATES, ("rest",)),
}  # fmt: skip


class CatalogAndStores(Model):
    """An Iceberg catalog, and how the files of its tables are reached."""

    catalog: CatalogSpec
    s3: S3Storage | None = None
    gcs: GcsStorage | None = None
    azure: AzureStorage | None = None

    @property
    def stores(self) -> dict[str, Any]:
        """The ways to the files that the connection names, as options of a sink."""
        return _present(s3=self.s3, gcs=self.gcs, azure=self.azure)

    @property
    def sink(self) -> SinkSpec:
        """A sink without a table, by which the catalog is asked."""
        return SinkSpec(catalog=self.catalog, **self.stores)


class _Name(Model):
    name: CatalogName


def check_connection(world: World, connection: CreateConnection) -> None:
    """Refuses a connection whose options do not fit together. Connects to nothing."""
    match connection.to:
        case Target.ICEBERG:
            lake(world, connection)
        case Target.AWS:
            storage(world, connection)
        case Target.GCS:
            google_storage(world, connection)
        case Target.AZURE:
            azure_storage(world, connection)
        case Target.KAFKA:
            cluster(world, connection)
        case Target.POSTGRES:
            database(world, connection)
        case Target.REGISTRY:
            registry(world, connection)


def given_of(world: World, connection: CreateConnection) -> Given:
    """The options of a connection."""
    return Given(world, connection, connection.options)


def lake(world: World, connection: CreateConnection, files: CreateConnection | None = None) -> CatalogAndStores:
    """The catalog that a connection leads to. ``files`` is another AWS connection than its own, for the files of its tables."""
    given = given_of(world, connection)
    given.required("TYPE")
    kind = given.choice("TYPE", *_TYPES) or ""
    aws = _used(world, given, "AWS CONNECTION", Target.AWS)
    google, azure = _used(world, given, "GCS CONNECTION", Target.GCS), _used(world, given, "AZURE CONNECTION", Target.AZURE)
    files = files or aws
    if aws is not None and (why_not := _not_in_s3(kind, given)):
        raise given.wrong("AWS CONNECTION", why_not, fix="Leave it out, or write a WAREHOUSE that begins with s3://.")
    if kind in (*_S3_TABLES, "glue"):
        given.refuse(f"in a catalog of type {kind}", "GCS CONNECTION", "AZURE CONNECTION")
    given.refuse(f"in a catalog of type {kind}", *(name for name, kinds in _ONLY_IN.items() if kind not in kinds))
    name = given.text("NAME") or connection.name.text
    where = {"name": given.place("NAME")}
    given.built(_Name, {"name": name}, where)  # the name that queries use; refused before anything else is built
    values: dict[str, Any] = {"name": name}
    if kind in _S3_TABLES:
        values |= _s3_tables(given, aws)
    else:
        values |= _section(kind, given, aws)
    places = {
        "uri": given.place("URI"),
        "warehouse": given.place("WAREHOUSE"),
        "tls": given.place(_CERTIFICATES[0]),
        "cert_path": given.place("SSL CERTIFICATE"),
        "key_path": given.place("SSL KEY"),
        "region": given.place("AWS CONNECTION"),
        kind: given.place("URI"),
        **where,
    }
    catalog = given.built(CatalogSpec, values, places)
    return CatalogAndStores(
        catalog=catalog,
        s3=storage(world, files) if files is not None else None,
        gcs=google_storage(world, google) if google is not None else None,
        azure=azure_storage(world, azure) if azure is not None else None,
    )


def why_not_for_files(world: World, connection: CreateConnection, files: CreateConnection) -> str:
    """Why the files of a catalog cannot be reached by another AWS connection than its own; empty when they can."""
    given, other = given_of(world, connection), given_of(world, files)
    kind = (given.text("TYPE") or "").lower()
    if why_not := _not_in_s3(kind, given):
        return why_not
    if kind != "glue":
        return ""
    own = _used(world, given, "AWS CONNECTION", Target.AWS)
    keys = given_of(world, own) if own is not None else given
    if keys.text("ASSUME ROLE ARN") != other.text("ASSUME ROLE ARN"):
        return "a glue catalog and its files have one ASSUME ROLE ARN, that of the catalog's own AWS CONNECTION"
    if _region(keys) != _region(other):
        return "a glue catalog and its files have one REGION, that of the catalog's own AWS CONNECTION"
    return ""


def _not_in_s3(kind: str, given: Given) -> str:
    """Why an AWS connection cannot lead to the files of a catalog; empty when it may."""
    warehouse = given.text("WAREHOUSE") or ""
    # That of other catalogs may be a mere name.
    is_place = kind in ("sql", "hive", "nessie", "bigquery", "hadoop") or warehouse.startswith(("file:", "/"))
    if not warehouse or not is_place or warehouse.lower().startswith(("s3://", "s3a://", "s3n://")):
        return ""
    return f"an AWS connection leads to files in S3, and the WAREHOUSE {mask_uri(warehouse)} is not there"


def _used(world: World, given: Given, option: str, to: Target) -> CreateConnection | None:
    """The connection that an option names."""
    if option not in given:
        return None
    value = given[option].value
    assert isinstance(value, Reference), "the option takes nothing else"
    return world.connection(given.statement, value.name, to)


def _section(kind: str, given: Given, aws: CreateConnection | None) -> dict[str, Any]:
    uri, warehouse = given.text("URI"), given.text("WAREHOUSE")
    match kind:
        case "rest":
            delegation, tls = given.choice("ACCESS DELEGATION", *AccessDelegation), _certificates(given)
            own = _present(uri=uri, warehouse=warehouse, access_delegation=delegation, tls=tls or None, **_login(given))
        case "sql":
            own = _present(uri=uri, warehouse=warehouse, user=given.text("USER"), password=given.text("PASSWORD"))
        case "nessie":
            given.refuse("in a catalog of type nessie", "USER", "PASSWORD")
            own = _present(uri=uri, warehouse=warehouse, ref=given.text("REF"), token=given.text("TOKEN"))
        case "hive":
            given.refuse("in a catalog of type hive", "USER", "PASSWORD")
            own = _present(uri=uri, warehouse=warehouse)
        case "glue":
            given.refuse("in a catalog of type glue", "USER", "PASSWORD", "URI")
            return {"type": kind, "warehouse": warehouse, "glue": _glue(given, aws)}
        case "bigquery":
            given.refuse("in a catalog of type bigquery", "USER", "PASSWORD", "URI")
            own = _present(warehouse=warehouse, project_id=given.text("PROJECT"))
        case _:
            given.refuse("in a catalog of type hadoop", "USER", "PASSWORD", "URI")
            own = _present(warehouse=warehouse)
    return {"type": kind, kind: own}


def _glue(given: Given, aws: CreateConnection | None) -> dict[str, str]:
    """What Glue's own calls are made with."""
    if aws is None:
        return {}
    keys = given_of(given.world, aws)
    return _present(
        region=_region(keys),
        access_key_id=keys.text("ACCESS KEY ID"),
        secret_access_key=keys.text("SECRET ACCESS KEY"),
        session_token=keys.text("SESSION TOKEN"),
        profile=keys.text("PROFILE"),
        role_arn=keys.text("ASSUME ROLE ARN"),
        endpoint=keys.text("ENDPOINT"),
    )


def _login(given: Given) -> dict[str, str]:
    """USER and PASSWORD are the two halves of what an Iceberg REST catalog calls a credential."""
    user, password = given.text("USER"), given.text("PASSWORD")
    if (user is None) != (password is None):
        raise given.wrong("USER" if user else "PASSWORD", "USER and PASSWORD belong together", code="sql-missing-option")
    if user is not None:
        given.refuse("beside USER and PASSWORD", "CREDENTIAL", "TOKEN")
    return _present(
        credential=f"{user}:{password}" if user is not None else given.text("CREDENTIAL"),
        token=given.text("TOKEN"),
        scope=given.text("SCOPE"),
        oauth2_server_uri=given.text("OAUTH2 SERVER URI"),
    )


def _s3_tables(given: Given, aws: CreateConnection | None) -> dict[str, Any]:
    """Amazon S3 Tables: a REST catalog whose requests are signed with the keys of the AWS connection."""
    given.refuse("with S3 Tables, which use an AWS CONNECTION", "USER", "PASSWORD", "CREDENTIAL", "TOKEN", "SCOPE",
                 "OAUTH2 SERVER URI")  # fmt: skip
    if aws is None:
        raise given.wrong("AWS CONNECTION", "S3 Tables need an AWS CONNECTION", code="sql-missing-option")
    warehouse = given.required("WAREHOUSE")
    if not warehouse.startswith("arn:"):
        raise given.wrong(
            "WAREHOUSE", "WAREHOUSE of S3 Tables is the ARN of the table bucket", fix="Write 'arn:aws:s3tables:...'."
        )
    keys = given_of(given.world, aws)
    section = _present(
        uri=given.text("URI"),
        warehouse=warehouse,
        region=_region(keys),
        access_key_id=keys.text("ACCESS KEY ID"),
        secret_access_key=keys.text("SECRET ACCESS KEY"),
        session_token=keys.text("SESSION TOKEN"),
    )
    return {"type": CatalogType.S3TABLES.value, "s3tables": section}


def _region(keys: Given) -> str:
    return keys.text("REGION") or DEFAULT_REGION


def storage(world: World, connection: CreateConnection) -> S3Storage:
    """The store that an AWS connection gives access to."""
    given = given_of(world, connection)
    if ("ACCESS KEY ID" in given) != ("SECRET ACCESS KEY" in given):
        name = "ACCESS KEY ID" if "ACCESS KEY ID" in given else "SECRET ACCESS KEY"
        raise given.wrong(name, "ACCESS KEY ID and SECRET ACCESS KEY belong together", code="sql-missing-option")
    if "ASSUME ROLE ARN" in given:
        given.refuse("beside ASSUME ROLE ARN: the role is assumed with what AWS's default chain finds",
                     "ACCESS KEY ID", "SECRET ACCESS KEY", "SESSION TOKEN")  # fmt: skip
    endpoint = given.text("ENDPOINT")
    values = {
        "region": _region(given),
        "endpoint": endpoint,
        # A store of one's own has no host name for each bucket.
        "path_style_access": endpoint is not None,
        "access_key_id": given.text("ACCESS KEY ID"),
        "secret_access_key": given.text("SECRET ACCESS KEY"),
        "session_token": given.text("SESSION TOKEN"),
        "profile": given.text("PROFILE"),
        "role_arn": given.text("ASSUME ROLE ARN"),
        "role_session_name": given.text("ASSUME ROLE SESSION NAME"),
        "external_id": given.text("EXTERNAL ID"),
        "sse_type": given.text("SSE TYPE"),
        "kms_key": given.text("KMS KEY"),
    }
    options = {"role_session_name": "ASSUME ROLE SESSION NAME", "external_id": "EXTERNAL ID", "profile": "PROFILE"}
    options |= {"sse_type": "SSE TYPE", "kms_key": "KMS KEY"}
    return given.built(S3Storage, values, {field: given.place(option) for field, option in options.items()})


def google_storage(world: World, connection: CreateConnection) -> GcsStorage:
    """The store that a connection to GCS gives access to. Without a key Google's default credentials are used."""
    given = given_of(world, connection)
    if "SERVICE ACCOUNT KEY" in given:
        given.refuse("beside SERVICE ACCOUNT KEY", "SERVICE ACCOUNT FILE", "ACCESS TOKEN")
    if "SERVICE ACCOUNT FILE" in given:
        given.refuse("beside SERVICE ACCOUNT FILE", "ACCESS TOKEN")
    values = {
        "project_id": given.text("PROJECT"),
        "service_account_path": given.text("SERVICE ACCOUNT FILE"),
        "service_account_key": given.text("SERVICE ACCOUNT KEY"),
        "token": given.text("ACCESS TOKEN"),
        "endpoint": given.text("ENDPOINT"),
    }
    return given.built(GcsStorage, values)


def azure_storage(world: World, connection: CreateConnection) -> AzureStorage:
    """The store that a connection to Azure gives access to. Without a key Azure's default credentials are used."""
    given = given_of(world, connection)
    if "ACCESS KEY" in given:
        given.refuse("beside ACCESS KEY", "SAS TOKEN", "ACCESS TOKEN", "CLIENT ID")
    values = {
        "storage_account": given.text("ACCOUNT"),
        "access_key": given.text("ACCESS KEY"),
        "sas_token": given.text("SAS TOKEN"),
        "token": given.text("ACCESS TOKEN"),
        "client_id": given.text("CLIENT ID"),
        "tenant_id": given.text("TENANT ID"),
        "client_secret": given.text("CLIENT SECRET"),
    }
    options = {"token": "ACCESS TOKEN", "client_id": "CLIENT ID", "tenant_id": "TENANT ID", "client_secret": "CLIENT SECRET"}
    return given.built(AzureStorage, values, {field: given.place(option) for field, option in options.items()})


def cluster(world: World, connection: CreateConnection) -> KafkaCluster:
    """The Kafka cluster that a connection leads to."""
    given = given_of(world, connection)
    given.required("BROKERS")
    protocol = given.choice("SECURITY PROTOCOL", "plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
    sasl = "SASL MECHANISMS" in given
    protocol = protocol or ("sasl_ssl" if sasl else "plaintext")
    if sasl != protocol.startswith("sasl"):
        name = "SASL MECHANISMS" if sasl else "SECURITY PROTOCOL"
        raise given.wrong(name, f"SASL MECHANISMS and SECURITY PROTOCOL = '{protocol}' do not go together")
    values: dict[str, Any] = {"bootstrap_servers": ",".join(given.texts("BROKERS"))}
    if sasl:
        values["security"] = given.built(
            KafkaSecurity,
            {
                "mechanism": (given.text("SASL MECHANISMS") or "").upper(),
                "user": given.required("SASL USERNAME"),
                "password": given.required("SASL PASSWORD"),
            },
            {"mechanism": given.place("SASL MECHANISMS")},
        )
    else:
        given.refuse("without SASL MECHANISMS", "SASL USERNAME", "SASL PASSWORD")
    files = _certificates(given)
    if protocol.endswith("ssl"):
        values["tls"] = given.built(KafkaTls, {"enabled": True, **files}, {"cert_path": given.place("SSL CERTIFICATE")})
    elif files:
        given.refuse(f"with SECURITY PROTOCOL = '{protocol}'", "SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY")
    return given.built(KafkaCluster, values)


def _certificates(given: Given) -> dict[str, str]:
    """Certificates are files here: their text would have to be written to one."""
    named = {"ca_path": "SSL CERTIFICATE AUTHORITY", "cert_path": "SSL CERTIFICATE", "key_path": "SSL KEY"}
    found = {}
    for field, option in named.items():
        text = given.text(option)
        if text is not None and "-----BEGIN" in text:
            raise given.wrong(option, f"{option} is the path of a file here", fix="Write the certificate to a file.")
        if text is not None:
            found[field] = text
    return found


def database(world: World, connection: CreateConnection) -> dict[str, Any]:
    """The part of a PostgreSQL source that its connection tells."""
    given = given_of(world, connection)
    port = given.text("PORT")
    if port is not None and not port.isdigit():
        raise given.wrong("PORT", "PORT is a whole number")
    modes = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full", "verify_ca", "verify_full")
    mode = given.choice("SSL MODE", *modes)
    return _present(
        host=given.required("HOST"),
        port=int(port) if port is not None else None,
        database=given.required("DATABASE"),
        user=given.required("USER"),
        password=given.text("PASSWORD"),
        sslmode=mode.replace("_", "-") if mode else None,
        sslrootcert=given.text("SSL CERTIFICATE AUTHORITY"),
    )


def registry(world: World, connection: CreateConnection) -> RegistrySpec:
    """The schema registry that a connection leads to."""
    given = given_of(world, connection)
    values = {"url": given.required("URI"), "user": given.text("USER"), "password": given.text("PASSWORD")}
    return given.built(RegistrySpec, values | _certificates(given), {"url": given.place("URI"), "user": given.place("USER")})


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
