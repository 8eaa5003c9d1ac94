"""Object stores: where a table's files live and how they are reached."""

from __future__ import annotations

import base64
import binascii
import hashlib
from enum import StrEnum

from pydantic import Field, SecretStr, model_validator

from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.catalog_kinds import GlueCatalog

AZURE_DOMAIN = "core.windows.net"
_KEY_BYTES = 32  # of AES-256, the only one that S3 takes


class Encryption(StrEnum):
    """Who encrypts files in S3, and with whose key."""

    S3 = "s3"
    KMS = "kms"
    DSSE_KMS = "dsse-kms"
    CUSTOM = "custom"


class S3Storage(Model):
    """Amazon S3, and everything that speaks its protocol (MinIO, R2, Ceph, ...)."""

    region: str | None = Field(None, description="Region of the bucket.")
    endpoint: str | None = Field(None, description="Address of an S3-compatible service; leave out for Amazon S3.")
    path_style_access: bool = Field(False, description="Bucket in the path instead of the host name; MinIO needs it.")
    access_key_id: SecretStr | None = Field(None, description="Access key. Left out: the AWS default chain is used.")
    secret_access_key: SecretStr | None = Field(None, description="Secret of the access key.")
    session_token: SecretStr | None = Field(None, description="Token of temporary credentials.")
    profile: str | None = Field(None, description="Profile of the AWS configuration files, for the whole process.")
    role_arn: str | None = Field(None, description="Role to assume, with what the AWS default chain finds. It needs `region`.")
    external_id: str | None = Field(None, description="External id that the role asks for.")
    role_session_name: str | None = Field(None, description="Name of the session as the role, in Amazon's logs.")
    sse_type: Encryption | None = Field(
        None, description="Encryption by the store: its own key, one of the key service (once or twice), or `encryption_key`."
    )
    kms_key: str | None = Field(None, description="Key of the key service, by id or ARN; the account's own when left out.")
    encryption_key: SecretStr | None = Field(None, description="Key of type custom: 32 bytes in base64, needed to read, too.")
    max_retries: int | None = Field(None, ge=0, description="How often a request is repeated that failed; 5 when left out.")
    retry_min_wait_ms: int | None = Field(None, ge=1, description="Shortest wait before that; 2000 when left out.")
    retry_max_wait_ms: int | None = Field(None, ge=1, description="Longest wait before that; 20000 when left out.")

    @model_validator(mode="after")
    def _consistent(self) -> S3Storage:
        if problems := _s3_problems(self):
            raise InconsistencyError(problems)
        return self

    @property
    def encryption_key_md5(self) -> str | None:
        """The digest that goes with a key of one's own, by which the store sees that it arrived whole."""
        if self.encryption_key is None:
            return None
        key = base64.b64decode(self.encryption_key.get_secret_value())
        return base64.b64encode(hashlib.md5(key, usedforsecurity=False).digest()).decode()


class GcsStorage(Model):
    """Google Cloud Storage. Without credentials here Google's default ones are used, such as those of the machine."""

    project_id: str | None = Field(None, description="Project of the bucket.")
    user_project: str | None = Field(None, description="Project that is billed for buckets whose requesters pay.")
    service_account_path: str | None = Field(None, description="File with the service account's JSON key.")
    service_account_key: SecretStr | None = Field(None, description="The service account's JSON key itself.")
    token: SecretStr | None = Field(None, description="OAuth2 access token, for runs that end before it expires.")
    expires_at_ms: int | None = Field(None, ge=0, description="When the token expires, in milliseconds since 1970.")
    impersonate_service_account: str | None = Field(None, description="Service account that files are reached as.")
    endpoint: str | None = Field(None, description="Address of a service that speaks the same protocol.")
    no_auth: bool = Field(False, description="Send no credentials; for emulators and public buckets.")

    @model_validator(mode="after")
    def _consistent(self) -> GcsStorage:
        ways = ("service_account_path", "service_account_key", "token", "no_auth")
        problems = _one_of(ways, [name for name in ways if getattr(self, name)])
        if self.expires_at_ms is not None and self.token is None:
            problems.append(Problem("expires_at_ms has no meaning without token", "expires_at_ms"))
        if self.no_auth and self.impersonate_service_account:
            words = "no_auth and impersonate_service_account exclude each other"
            problems.append(Problem(words, "impersonate_service_account"))
        if problems:
            raise InconsistencyError(problems)
        return self


class AzureStorage(Model):
    """Azure Blob Storage and Data Lake Storage. Without credentials here Azure's default ones are used: environment, managed
    identity, command line.
    """

    storage_account: str | None = Field(None, description="Name of the storage account.")
    access_key: SecretStr | None = Field(None, description="Shared key of the account.")
    sas_token: SecretStr | None = Field(None, description="Shared access signature, instead of a key.")
    connection_string: SecretStr | None = Field(None, description="Connection string, instead of both.")
    token: SecretStr | None = Field(None, description="OAuth2 access token, for runs that end before it expires.")
    client_id: str | None = Field(
        None, description="Managed identity that the user assigned; with `tenant_id` and `client_secret` a service principal."
    )
    tenant_id: str | None = Field(None, description="Tenant of the service principal.")
    client_secret: SecretStr | None = Field(None, description="Secret of the service principal.")

    @model_validator(mode="after")
    def _consistent(self) -> AzureStorage:
        ways = ("access_key", "sas_token", "token", "client_id")
        problems = _one_of(ways, [name for name in ways if getattr(self, name)])
        if (self.tenant_id is None) != (self.client_secret is None):
            at = "tenant_id" if self.tenant_id else "client_secret"
            problems.append(Problem("tenant_id and client_secret belong together", at))
        if self.client_secret is not None and self.client_id is None:
            problems.append(Problem("client_secret has no meaning without client_id", "client_secret"))
        if problems:
            raise InconsistencyError(problems)
        return self


def connection_parts(connection: str) -> dict[str, str]:
    """Azure's `AccountName=...;AccountKey=...` as a mapping; values may hold `=` themselves."""
    pairs = (part.partition("=") for part in connection.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def shared_problems(glue: GlueCatalog | None, s3: S3Storage | None) -> list[Problem]:
    """What cannot differ between Glue and its tables' files: Iceberg has one option for both, the environment one variable."""
    if glue is None or s3 is None:
        return []
    both = [(name, getattr(glue, name), getattr(s3, name)) for name in ("role_arn", "profile")]
    return [
        Problem(f"{name} is one for the catalog and its files, and here are {one} (glue) and {other} (s3)", "s3", name)
        for name, one, other in both
        if one is not None and other is not None and one != other
    ]


def _one_of(ways: tuple[str, ...], given: list[str]) -> list[Problem]:
    """Two ways to say who one is: one of them would be passed over in silence."""
    if len(given) < 2:
        return []
    return [Problem(f"{given[0]} and {given[1]} exclude each other: give one of {', '.join(ways)}", given[1])]


def _s3_problems(s3: S3Storage) -> list[Problem]:
    problems = []
    if s3.role_arn is None:
        lonely = [name for name in ("external_id", "role_session_name") if getattr(s3, name) is not None]
        problems += [Problem(f"{name} has no meaning without role_arn", name) for name in lonely]
    elif s3.region is None:
        problems.append(Problem("role_arn needs region, where the role is assumed", "role_arn"))
    for other in ("role_arn", "profile"):
        if s3.access_key_id is not None and getattr(s3, other) is not None:
            problems.append(Problem(f"{other} and access_key_id exclude each other: the keys would not be used", other))
    if s3.kms_key is not None and s3.sse_type not in (Encryption.KMS, Encryption.DSSE_KMS):
        problems.append(Problem("kms_key has no meaning without sse_type: kms or dsse-kms", "kms_key"))
    if (s3.encryption_key is not None) != (s3.sse_type is Encryption.CUSTOM):
        at = "encryption_key" if s3.encryption_key is not None else "sse_type"
        problems.append(Problem("sse_type: custom and encryption_key belong together", at))
    elif s3.encryption_key is not None and not _is_key(s3.encryption_key.get_secret_value()):
        words = f"encryption_key is {_KEY_BYTES} bytes in base64, as `openssl rand -base64 {_KEY_BYTES}` prints them"
        problems.append(Problem(words, "encryption_key"))
    least, most = s3.retry_min_wait_ms, s3.retry_max_wait_ms
    if least is not None and most is not None and least > most:
        problems.append(Problem(f"retry_min_wait_ms ({least}) is more than retry_max_wait_ms ({most})", "retry_min_wait_ms"))
    return problems


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (ValueError, binascii.Error):
        return False
