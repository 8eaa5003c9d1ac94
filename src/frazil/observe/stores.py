"""Object stores as PyIceberg's properties, where it calls things otherwise than Iceberg's Java library or takes other things."""

from __future__ import annotations

import json
import time
from typing import Any

from frazil.errors import ConfigError
from frazil.model.catalog_kinds import AccessDelegation
from frazil.model.sink import SinkSpec
from frazil.model.storage import Encryption
from frazil.observe.greeting import CONNECT_SECONDS

_FSSPEC = "pyiceberg.io.fsspec.FsspecFileIO"
# As S3 calls what a file is encrypted by.
_ENCRYPTIONS = {Encryption.S3: "AES256", Encryption.KMS: "aws:kms", Encryption.DSSE_KMS: "aws:kms:dsse"}
# How long a token is taken to last whose end is not given; PyArrow wants to know, and looking takes no longer.
_TOKEN_MS = 3_600_000


def store_properties(sink: SinkSpec) -> dict[str, Any]:
    """What PyIceberg must know of the sink's stores beyond Java's properties."""
    return _signed_elsewhere(sink) | _s3_properties(sink) | _gcs_properties(sink) | _azure_properties(sink)


def _signed_elsewhere(sink: SinkSpec) -> dict[str, str]:
    """For requests to a store that the catalog signs. PyIceberg can have them signed through s3fs alone, if that is asked for."""
    rest = sink.catalog.as_rest
    if rest is None or rest.access_delegation is not AccessDelegation.REMOTE_SIGNING:
        return {}
    return {"py-io-impl": _FSSPEC, "s3.signer": "S3V4RestSigner"}


def _s3_properties(sink: SinkSpec) -> dict[str, str]:
    s3 = sink.s3
    if s3 is None:
        return {}
    virtual = bool(s3.endpoint) and not s3.path_style_access
    found = {"s3.connect-timeout": str(CONNECT_SECONDS), "s3.force-virtual-addressing": str(virtual).lower()}
    if s3.profile:
        found["client.profile-name"] = s3.profile
    # PyArrow cannot tell an external id, without which such a role refuses: files are then read as who asks for the role.
    if s3.role_arn and not s3.external_id:
        found |= {"s3.role-arn": s3.role_arn} | ({"s3.role-session-name": s3.role_session_name} if s3.role_session_name else {})
    if s3.sse_type in _ENCRYPTIONS:
        found["s3.server-side-encryption"] = _ENCRYPTIONS[s3.sse_type]
    return found | ({"s3.sse-kms-key-id": s3.kms_key} if s3.kms_key else {})


def _gcs_properties(sink: SinkSpec) -> dict[str, Any]:
    """A key, or no credentials at all, is gcsfs's matter; Arrow takes tokens, and knows Google's default chain."""
    gcs = sink.gcs
    if gcs is None:
        return {}
    if gcs.token is not None:
        return {"gcs.oauth2.token-expires-at": str(gcs.expires_at_ms or round(time.time() * 1000) + _TOKEN_MS)}
    if not (gcs.service_account_path or gcs.service_account_key or gcs.no_auth):
        return {}
    token: Any = gcs.service_account_path or "anon"
    if gcs.service_account_key is not None:
        token = _google_key(gcs.service_account_key.get_secret_value())
    return {"py-io-impl": _FSSPEC, "gcs.oauth2.token": token}


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
    if azure.token:
        properties["py-io-impl"] = _FSSPEC  # PyArrow takes no token
    if azure.client_id and azure.tenant_id and azure.client_secret:
        properties["adls.client-id"] = azure.client_id
        properties["adls.tenant-id"] = azure.tenant_id
        properties["adls.client-secret"] = azure.client_secret.get_secret_value()
    return properties
