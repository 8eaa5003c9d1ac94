"""Object stores: where a table's files live and how they are reached."""

from __future__ import annotations

from pydantic import Field, SecretStr

from frazil.model.base import Model


class S3Storage(Model):
    """Amazon S3, and everything that speaks its protocol (MinIO, R2, Ceph, ...)."""

    region: str | None = Field(None, description="Region of the bucket.")
    endpoint: str | None = Field(None, description="Address of an S3-compatible service; leave out for Amazon S3.")
    path_style_access: bool = Field(False, description="Bucket in the path instead of the host name; MinIO needs it.")
    access_key_id: SecretStr | None = Field(None, description="Access key. Left out: the AWS default chain is used.")
    secret_access_key: SecretStr | None = Field(None, description="Secret of the access key.")
    session_token: SecretStr | None = Field(None, description="Token of temporary credentials.")


class GcsStorage(Model):
    """Google Cloud Storage."""

    project_id: str | None = Field(None, description="Project that is billed.")
    service_account_path: str | None = Field(None, description="File with the service account's JSON key.")
    service_account_key: SecretStr | None = Field(None, description="The service account's JSON key itself.")
    endpoint: str | None = Field(None, description="Address of a service that speaks the same protocol.")
    no_auth: bool = Field(False, description="Send no credentials; for emulators and public buckets.")


class AzureStorage(Model):
    """Azure Blob Storage and Data Lake Storage."""

    storage_account: str | None = Field(None, description="Name of the storage account.")
    access_key: SecretStr | None = Field(None, description="Shared key of the account.")
    sas_token: SecretStr | None = Field(None, description="Shared access signature, instead of a key.")
    connection_string: SecretStr | None = Field(None, description="Connection string, instead of both.")
