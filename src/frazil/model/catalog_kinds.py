"""The settings of each kind of catalog: one section of the configuration each."""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from frazil.model.base import InconsistencyError, Model, Problem, Texts

DELEGATION_HEADER = "X-Iceberg-Access-Delegation"


class AccessDelegation(StrEnum):
    """How a REST catalog gives access to the files of its tables."""

    VENDED_CREDENTIALS = "vended-credentials"
    REMOTE_SIGNING = "remote-signing"


class Signing(Model):
    """Signatures of Amazon (SigV4) on the requests to a REST catalog. `sigv4: {}` signs with what is found by default."""

    region: str | None = Field(None, description="Region of the signature. Left out: what AWS's default chain finds.")
    name: str | None = Field(
        None, description="Service of the signature: `glue` or `s3tables` by the host of the address, otherwise `execute-api`."
    )
    access_key_id: SecretStr | None = Field(None, description="Access key that signs. Left out: the AWS default chain.")
    secret_access_key: SecretStr | None = Field(None, description="Secret of the access key.")
    session_token: SecretStr | None = Field(None, description="Token of temporary credentials.")

    @model_validator(mode="after")
    def _consistent(self) -> Signing:
        _refuse(_key_problems(self.access_key_id, self.secret_access_key, self.session_token))
        return self


class RestTls(Model):
    """Certificates of the connection to a REST catalog: a private authority, and the client's own certificate (mTLS)."""

    ca_path: str | None = Field(
        None, description="PEM file with the authorities that are trusted, and no others; Java's own when left out."
    )
    cert_path: str | None = Field(None, description="PEM file with the client's own certificate, and those that vouch for it.")
    key_path: str | None = Field(None, description="PEM file with the key of that certificate (PKCS 8, not encrypted).")

    @model_validator(mode="after")
    def _consistent(self) -> RestTls:
        if (self.cert_path is None) != (self.key_path is None):
            at = "cert_path" if self.cert_path else "key_path"
            _refuse([Problem("cert_path and key_path belong together", at)])
        return self


class RestCatalog(Model):
    """An Iceberg REST catalog: Polaris, Lakekeeper, Nessie, Unity, Gravitino, Tabular."""

    uri: str | None = Field(None, description="Address of the catalog service.")
    warehouse: str | None = Field(None, description="Warehouse: a location, or a name that the catalog knows.")
    credential: SecretStr | None = Field(
        None, description="`id:secret` for OAuth2 client credentials, or a bearer token when there is no colon in it."
    )
    token: SecretStr | None = Field(None, description="Bearer token.")
    user: str | None = Field(None, description="User, where the catalog or a gateway before it asks for HTTP basic login.")
    password: SecretStr | None = Field(None, description="Password of the user.")
    oauth2_server_uri: str | None = Field(None, description="Where tokens are fetched; the catalog itself when left out.")
    scope: str | None = Field(None, description="OAuth2 scope, e.g. PRINCIPAL_ROLE:ALL for Polaris.")
    audience: str | None = Field(None, description="OAuth2 audience, where the token service wants one.")
    resource: str | None = Field(None, description="OAuth2 resource, where the token service wants one.")
    renew_early: bool = Field(True, description="Whether tokens are renewed before they expire.")
    renew_by_exchange: bool = Field(
        True, description="Whether renewing exchanges the old token; if not, the credential is shown again."
    )
    assumed_lifetime_secs: int | None = Field(
        None, ge=1, description="How long tokens last whose service does not tell it; an hour when left out."
    )
    sigv4: Signing | None = Field(None, description="Sign requests as Amazon's services want it.")
    headers: Texts = Field(default_factory=dict, description="Further headers of each request.")
    access_delegation: AccessDelegation | None = Field(
        None, description="Ask the catalog for credentials of the files of its tables, or to sign each request to their store."
    )
    tls: RestTls | None = Field(None, description="Certificates of the connection.")
    prefix: str | None = Field(None, description="Path prefix of the catalog, where the service does not tell it.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")

    @model_validator(mode="after")
    def _consistent(self) -> RestCatalog:
        _refuse(_rest_option_problems(self))
        return self


class SqlCatalog(Model):
    """A catalog in a SQL database. The embedded default: SQLite, one file."""

    uri: str | None = Field(
        None,
        description="`sqlite:///path/catalog.db`, `postgresql://host/db`, `mysql://host/db`, `mariadb://host/db`, each also with "
        "the driver of SQLAlchemy (`postgresql+psycopg2://`, `mysql+pymysql://`), or a `jdbc:` URL of one of them.",
    )
    user: str | None = Field(None, description="Database user, when the address has none.")
    password: SecretStr | None = Field(None, description="Database password, when the address has none.")
    warehouse: str | None = Field(None, description="Where new tables are put.")
    init_catalog_tables: bool = Field(
        True, description="Whether the catalog's own tables are created in the database when they are not there."
    )
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class HiveCatalog(Model):
    """A Hive metastore."""

    uri: str | None = Field(None, description="`thrift://host:9083`.")
    warehouse: str | None = Field(None, description="Where new tables are put.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class GlueCatalog(Model):
    """The AWS Glue data catalog."""

    region: str | None = Field(None, description="AWS region.")
    catalog_id: str | None = Field(
        None, description="Account whose catalog is used; the caller's when left out. With `rest` also `<account>:<catalog>`."
    )
    profile: str | None = Field(None, description="Profile of the AWS configuration files.")
    access_key_id: SecretStr | None = Field(None, description="Access key. Left out: the AWS default chain.")
    secret_access_key: SecretStr | None = Field(None, description="Secret of the access key.")
    session_token: SecretStr | None = Field(None, description="Token of temporary credentials.")
    role_arn: str | None = Field(None, description="Role to assume.")
    endpoint: str | None = Field(None, description="Address of a service that speaks Glue's protocol; with `rest`, Iceberg's.")
    rest: bool = Field(
        False, description="Use Glue's Iceberg REST endpoint, with signed requests, instead of Glue's own protocol."
    )
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class S3TablesCatalog(Model):
    """Amazon S3 Tables, by its Iceberg REST endpoint: a table bucket is the warehouse."""

    warehouse: str | None = Field(
        None, description="ARN of the table bucket: `arn:aws:s3tables:<region>:<account>:bucket/<name>`."
    )
    region: str | None = Field(None, description="AWS region; that of the ARN when left out.")
    uri: str | None = Field(
        None, description="Address of the endpoint; `https://s3tables.<region>.amazonaws.com/iceberg` by default."
    )
    access_key_id: SecretStr | None = Field(
        None, description="Access key that signs, and reaches files where the sink has no `s3` of its own. Left out: AWS's chain."
    )
    secret_access_key: SecretStr | None = Field(None, description="Secret of the access key.")
    session_token: SecretStr | None = Field(None, description="Token of temporary credentials.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")

    @model_validator(mode="after")
    def _consistent(self) -> S3TablesCatalog:
        _refuse(_key_problems(self.access_key_id, self.secret_access_key, self.session_token))
        return self


class NessieCatalog(Model):
    """A Nessie server by its own protocol, with branches of the whole catalog."""

    uri: str | None = Field(None, description="`http://host:19120/api/v2`.")
    warehouse: str | None = Field(None, description="Where new tables are put.")
    ref: str | None = Field(None, description="Branch that is written to; the server's default branch when left out.")
    token: SecretStr | None = Field(None, description="Bearer token.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class BigQueryCatalog(Model):
    """The metastore of BigQuery (BigLake): a namespace is a dataset."""

    project_id: str | None = Field(None, description="Google Cloud project of the datasets.")
    location: str | None = Field(None, description="Location of new datasets; `us` when left out.")
    warehouse: str | None = Field(None, description="Where new tables are put, e.g. `gs://bucket/lake`.")
    impersonate_service_account: str | None = Field(None, description="Service account that BigQuery is asked as.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


class HadoopCatalog(Model):
    """A catalog that is only a folder: no service, one writer at a time on object stores."""

    warehouse: str | None = Field(None, description="The folder.")
    properties: Texts = Field(default_factory=dict, description="Further catalog properties, passed on as written.")


def _key_problems(key: SecretStr | None, secret: SecretStr | None, token: SecretStr | None) -> list[Problem]:
    """What lacks of a key of Amazon's: half a key would be passed over in silence by its libraries."""
    if (key is None) != (secret is None):
        at = "access_key_id" if key is not None else "secret_access_key"
        return [Problem("access_key_id and secret_access_key belong together", at)]
    if token is not None and key is None:
        return [Problem("session_token has no meaning without access_key_id and secret_access_key", "session_token")]
    return []


def _rest_option_problems(rest: RestCatalog) -> list[Problem]:
    problems = []
    if (rest.user is None) != (rest.password is None):
        problems.append(Problem("user and password belong together", "user" if rest.user is not None else "password"))
    elif rest.user is not None and (rest.credential is not None or rest.token is not None):
        other = "credential" if rest.credential is not None else "token"
        problems.append(Problem(f"user and {other} exclude each other: they are logins of different kinds", "user"))
    if rest.credential is None:
        only = {"audience": rest.audience, "resource": rest.resource, "assumed_lifetime_secs": rest.assumed_lifetime_secs}
        given = [name for name, value in only.items() if value is not None]
        given += [name for name in ("renew_early", "renew_by_exchange") if not getattr(rest, name)]
        problems += [Problem(f"{name} has no meaning without credential", name) for name in given]
    if rest.access_delegation and DELEGATION_HEADER.lower() in (name.lower() for name in rest.headers):
        problems.append(Problem(f"access_delegation and the header {DELEGATION_HEADER} are one option: keep one", "headers"))
    if rest.tls is not None and urlsplit(rest.uri or "").scheme == "http":
        problems.append(Problem("tls has no meaning with an address of http://: write https://", "tls"))
    return problems


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise InconsistencyError(problems)
