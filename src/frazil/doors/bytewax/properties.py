"""Properties of object stores and of Glue, by the names that PyIceberg and Iceberg's Java library give them.

Whoever comes from PyIceberg brings its names; the work is done by the Java library, which ignores those that it does not know.
"""

from __future__ import annotations

from pydantic import BaseModel

from frazil.errors import ConfigError
from frazil.model.arguments import unknown
from frazil.model.catalog_kinds import S3TablesCatalog
from frazil.model.storage import AzureStorage, GcsStorage, S3Storage

CATALOG, PROPERTIES = "catalog", "properties"
"""The places of a property beside the stores: the catalog's section, and what is passed on as written."""

# How the names of a store's properties begin, its section in the sink, and what that takes.
_STORES: dict[str, tuple[str, type[BaseModel]]] = {
    "s3.": ("s3", S3Storage),
    "gcs.": ("gcs", GcsStorage),
    "adls.": ("azure", AzureStorage),
}

# Names that do not come from those of the section by hyphens alone.
_OTHER_NAMES: dict[str, tuple[str, str]] = {
    "client.access-key-id": ("s3", "access_key_id"),
    "client.secret-access-key": ("s3", "secret_access_key"),
    "client.session-token": ("s3", "session_token"),
    "gcs.service.host": ("gcs", "endpoint"),
    "adls.account-name": ("azure", "storage_account"),
    "adls.account-key": ("azure", "access_key"),
    "adls.auth.shared-key.account.name": ("azure", "storage_account"),
    "adls.auth.shared-key.account.key": ("azure", "access_key"),
    "s3.profile-name": ("s3", "profile"),
    "s3.retry.num-retries": ("s3", "max_retries"),
    "s3.retry.min-wait-ms": ("s3", "retry_min_wait_ms"),
    "s3.retry.max-wait-ms": ("s3", "retry_max_wait_ms"),
    "gcs.oauth2.token": ("gcs", "token"),
    "gcs.oauth2.token-expires-at": ("gcs", "expires_at_ms"),
    "gcs.impersonate.service-account": ("gcs", "impersonate_service_account"),
    "s3.proxy-uri": (PROPERTIES, "http-client.proxy-endpoint"),
    "s3.sse-kms-key-id": (PROPERTIES, "s3.sse.key"),
    "s3.signer.uri": (PROPERTIES, "signer.uri"),
    "s3.signer.endpoint": (PROPERTIES, "signer.endpoint"),
}
_GLUE: dict[str, tuple[str, str]] = {
    "client.region": (CATALOG, "region"),
    "client.profile-name": (CATALOG, "profile"),
    "client.role-arn": (CATALOG, "role_arn"),
    "client.access-key-id": (CATALOG, "access_key_id"),
    "client.secret-access-key": (CATALOG, "secret_access_key"),
    "glue.id": (CATALOG, "catalog_id"),
    "glue.region": (CATALOG, "region"),
    "glue.endpoint": (CATALOG, "endpoint"),
    "glue.profile-name": (CATALOG, "profile"),
    "glue.access-key-id": (CATALOG, "access_key_id"),
    "glue.secret-access-key": (CATALOG, "secret_access_key"),
    "client.session-token": (CATALOG, "session_token"),
    "glue.session-token": (CATALOG, "session_token"),
}
_S3_TABLES = {
    name: place for name, place in _GLUE.items() if name.startswith("client.") and place[1] in S3TablesCatalog.model_fields
}

# What else the Java library (1.12) knows of stores; one with a star is the beginning of many.
_JAVA = (
    "s3.acceleration-enabled", "s3.access-grants.enabled", "s3.access-grants.fallback-to-iam", "s3.access-points.*", "s3.acl",
    "s3.analytics-accelerator.*", "s3.checksum-enabled", "s3.chunked-encoding-enabled", "s3.client-factory-impl",
    "s3.cross-region-access-enabled", "s3.crt.enabled", "s3.crt.max-concurrency", "s3.delete-enabled", "s3.delete.batch-size",
    "s3.delete.num-threads", "s3.delete.tags.*", "s3.directory-bucket.list-prefix-as-directory", "s3.dualstack-enabled",
    "s3.multipart.num-threads", "s3.multipart.part-size-bytes", "s3.multipart.threshold", "s3.preload-client-enabled",
    "s3.remote-signing-enabled",
    "s3.session-token-expires-at-ms", "s3.sse.key", "s3.sse.md5", "s3.sse.type",
    "s3.staging-dir", "s3.use-arn-region-enabled", "s3.write.namespace-tag-enabled", "s3.write.storage-class",
    "s3.write.table-tag-enabled", "s3.write.tags.*", "gcs.analytics-core.enabled", "gcs.channel.read.chunk-size-bytes",
    "gcs.channel.write.chunk-size-bytes", "gcs.client-lib-token", "gcs.decryption-key", "gcs.delete.batch-size",
    "gcs.encryption-key", "gcs.impersonate.delegates", "gcs.impersonate.lifetime-seconds", "gcs.impersonate.scopes",
    "gcs.oauth2.refresh-credentials-enabled", "gcs.oauth2.refresh-credentials-endpoint",
    "adls.connection-string.*",
    "adls.read.block-size-bytes", "adls.refresh-credentials-enabled", "adls.refresh-credentials-endpoint",
    "adls.sas-token-expires-at-ms.*", "adls.sas-token.*", "adls.token-credential-provider",
    "adls.token-credential-provider.*", "adls.write.block-size-bytes",
)  # fmt: skip

# Names of PyIceberg that the Java library has no name for that takes the same values.
_OTHERWISE = {
    "s3.force-virtual-addressing": "Write 's3.path-style-access', which says the opposite.",
    "s3.connect-timeout": "Write 'http-client.apache.connection-timeout-ms', in milliseconds.",
    "s3.request-timeout": "Write 'http-client.apache.socket-timeout-ms', in milliseconds.",
    "s3.server-side-encryption": "Write 's3.sse.type': 's3' or 'kms'.",
    "s3.signer": "Write 's3.remote-signing-enabled': 'true'.",
}


def store_of(name: str) -> str | None:
    """The section of the sink about the store that a property concerns, so that the store is known even where it stays empty."""
    return next((section for family, (section, _) in _STORES.items() if name.startswith(family)), None)


def place_of(name: str, catalog_type: str, *, code: str) -> tuple[str, str] | None:
    """The section that a property belongs to, and its name there; None when it concerns no store.

    A property of a store that nobody knows is an error.
    """
    others = _OTHER_NAMES | {"glue": _GLUE, "s3tables": _S3_TABLES}.get(catalog_type, {})
    if name in others:
        return others[name]
    if catalog_type == "glue" and name.startswith("glue."):
        raise unknown(name, [other for other in others if other.startswith("glue.")], code=code, path=f"extra_options.{name}")
    family = next((one for one in _STORES if name.startswith(one)), None)
    if family is None:
        return None
    section, model = _STORES[family]
    field = name.removeprefix(family).replace("-", "_")
    if field in model.model_fields:
        return section, field
    if name in _JAVA or any(name.startswith(one[:-1]) for one in _JAVA if one.endswith("*")):
        return PROPERTIES, name
    if name in _OTHERWISE:
        raise ConfigError(code, f"extra_options.{name}: there is no option of this name.", fix=_OTHERWISE[name])
    known = {f"{family}{field.replace('_', '-')}" for field in model.model_fields}
    known |= {one for one in (*others, *_JAVA) if one.startswith(family)}
    raise unknown(name, known, code=code, path=f"extra_options.{name}")
