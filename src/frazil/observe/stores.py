"""Object stores as PyIceberg's properties, where it calls things otherwise than Iceberg's Java library or takes other things."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frazil.errors import ConfigError
from frazil.model.catalog_kinds import AccessDelegation
from frazil.model.sink import SinkSpec
from frazil.model.storage import AzureStorage, GcsStorage, connection_parts
from frazil.observe.greeting import CONNECT_SECONDS
from frazil.observe.s3 import ENCRYPTIONS

_FSSPEC = "pyiceberg.io.fsspec.FsspecFileIO"
_AZURE_BY_BLOBS = "frazil.observe.azure_files.AzureFileIO"
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
    if s3.sse_type in ENCRYPTIONS:
        found["s3.server-side-encryption"] = ENCRYPTIONS[s3.sse_type]
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
    return {"py-io-impl": _FSSPEC, "gcs.oauth2.token": "anon" if gcs.no_auth else _google_key(gcs)}


def _google_key(gcs: GcsStorage) -> Any:
    """The key of a service account. What is no name of a file, gcsfs would take for a token, and show it to Google."""
    try:
        if gcs.service_account_key is not None:
            return json.loads(gcs.service_account_key.get_secret_value())
        return json.loads(Path(gcs.service_account_path or "").read_text())
    except OSError as error:
        message = f"gcs.service_account_path cannot be read: {error}."
    except ValueError:
        name = "key is not" if gcs.service_account_key is not None else "path names a file that is not"
        message = f"gcs.service_account_{name} the JSON of a service account's key."
    fix = "Give the file's content as service_account_key, or its name as service_account_path."
    raise ConfigError("bad-service-account-key", message, fix=fix)


def quiet_libraries() -> None:
    """Libraries that log what they raise, with a trace, do so no longer."""
    for name in ("azure", "gcsfs"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _azure_properties(sink: SinkSpec) -> dict[str, str]:
    azure = sink.azure
    by_blobs = urlsplit(sink.location or sink.catalog.location or "").scheme in ("wasb", "wasbs")
    properties = {"py-io-impl": _AZURE_BY_BLOBS} if by_blobs else {}
    if azure is None:
        return properties
    if azure.storage_account:
        properties["adls.account-name"] = azure.storage_account
    if azure.sas_token:
        properties["adls.sas-token"] = azure.sas_token.get_secret_value()
    if azure.connection_string:
        properties["adls.connection-string"] = _whole_connection(azure.connection_string.get_secret_value(), azure)
    if azure.token:
        properties.setdefault("py-io-impl", _FSSPEC)  # PyArrow takes no token
    if azure.client_id and azure.tenant_id and azure.client_secret:
        properties["adls.client-id"] = azure.client_id
        properties["adls.tenant-id"] = azure.tenant_id
        properties["adls.client-secret"] = azure.client_secret.get_secret_value()
    return properties


def _whole_connection(connection: str, azure: AzureStorage) -> str:
    """A connection string with what is given beside it: where adlfs has one, it takes nothing else."""
    beside = {
        "AccountName": azure.storage_account,
        "AccountKey": azure.access_key.get_secret_value() if azure.access_key else None,
        "SharedAccessSignature": azure.sas_token.get_secret_value() if azure.sas_token else None,
    }
    known = connection_parts(connection)
    missing = [f"{name}={value}" for name, value in beside.items() if value and name not in known]
    return ";".join([connection.rstrip(";"), *missing])
