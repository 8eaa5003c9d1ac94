"""Object stores as options of one Spark catalog."""

from __future__ import annotations

from pydantic import SecretStr

from frazil.errors import ConfigError
from frazil.model.storage import AZURE_DOMAIN, AzureStorage, GcsStorage, S3Storage, connection_parts

# Amazon's library refuses to work without a region; a store of one's own does not care which.
ANY_REGION = "us-east-1"
ASSUME_ROLE = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"


def s3_options(s3: S3Storage) -> dict[str, str]:
    """How Iceberg reaches files in S3."""
    return (
        {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.path-style-access": str(s3.path_style_access).lower()}
        | present(
            {
                "client.region": s3.region or (ANY_REGION if s3.endpoint else None),
                "s3.endpoint": s3.endpoint,
                "s3.access-key-id": s3.access_key_id,
                "s3.secret-access-key": s3.secret_access_key,
                "s3.session-token": s3.session_token,
                "s3.sse.type": s3.sse_type.value if s3.sse_type else None,
                "s3.sse.key": s3.kms_key or s3.encryption_key,
                "s3.sse.md5": s3.encryption_key_md5,
                "s3.retry.num-retries": _text(s3.max_retries),
                "s3.retry.min-wait-ms": _text(s3.retry_min_wait_ms),
                "s3.retry.max-wait-ms": _text(s3.retry_max_wait_ms),
            }
        )
        | (role_options(s3.role_arn, s3.region, s3.external_id, s3.role_session_name) if s3.role_arn else {})
    )


def role_options(role: str, region: str | None, external_id: str | None = None, session: str | None = None) -> dict[str, str]:
    """How Iceberg assumes a role for all that it asks of Amazon."""
    return {"client.factory": ASSUME_ROLE, "client.assume-role.arn": role} | present(
        {
            "client.assume-role.region": region,
            "client.assume-role.external-id": external_id,
            "client.assume-role.session-name": session,
        }
    )


def gcs_options(gcs: GcsStorage) -> dict[str, str]:
    """How Iceberg reaches files in Google's store."""
    return {"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"} | present(
        {
            "gcs.project-id": gcs.project_id,
            "gcs.user-project": gcs.user_project,
            "gcs.service.host": gcs.endpoint,
            "gcs.no-auth": "true" if gcs.no_auth else None,
            "gcs.oauth2.token": gcs.token,
            "gcs.oauth2.token-expires-at": _text(gcs.expires_at_ms),
            "gcs.impersonate.service-account": gcs.impersonate_service_account,
        }
    )


def azure_options(azure: AzureStorage, warehouse_host: str | None) -> dict[str, str]:
    """Iceberg looks settings up by the host in a file's location, and takes of a connection string only the address: the rest is
    picked from it here.
    """
    parts = connection_parts(azure.connection_string.get_secret_value() if azure.connection_string else "")
    account = azure.storage_account or parts.get("AccountName") or (warehouse_host or "").partition(".")[0] or None
    key = azure.access_key or parts.get("AccountKey")
    of_host = {
        "adls.sas-token": azure.sas_token or parts.get("SharedAccessSignature"),
        "adls.connection-string": parts.get("DfsEndpoint") or parts.get("BlobEndpoint"),
    }
    hosts = _hosts(account, parts.get("EndpointSuffix"), warehouse_host)
    if azure.sas_token and not hosts:
        raise ConfigError(
            "storage-account-missing",
            "sas_token is that of one account, and neither the settings nor the warehouse say which.",
            fix="Add storage_account to azure.",
        )
    return {"io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO"} | present(
        {
            "adls.auth.shared-key.account.name": account if key else None,
            "adls.auth.shared-key.account.key": key,
            "adls.token": azure.token,
            **{f"{name}.{host}": value for name, value in of_host.items() for host in hosts},
        }
    )


def _hosts(account: str | None, suffix: str | None, warehouse_host: str | None) -> list[str]:
    """The hosts of an account: locations that begin with `abfss` have the one of its files, with `wasbs` the one of its blobs."""
    if account is None:
        return []
    owner, _, rest = (warehouse_host or "").partition(".")
    own = [warehouse_host] if warehouse_host and owner == account else []
    domain = suffix or (rest.partition(".")[2] if own else "") or AZURE_DOMAIN
    return list(dict.fromkeys((*own, f"{account}.dfs.{domain}", f"{account}.blob.{domain}")))


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def present(options: dict[str, str | SecretStr | None]) -> dict[str, str]:
    """The options that have a value, in plain text."""
    return {
        key: value.get_secret_value() if isinstance(value, SecretStr) else value
        for key, value in options.items()
        if value is not None
    }
