"""Stores of Google and Microsoft, asked once before their libraries are: these try again for half a minute and longer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from frazil.model.connections import Place
from frazil.model.storage import AZURE_DOMAIN, connection_parts
from frazil.observe.greeting import ANSWER_SECONDS, greet
from frazil.observe.store_faults import cloud_failed
from frazil.spark.catalogs import AZURE_SCHEMES, GCS_SCHEMES

_GOOGLE = "https://storage.googleapis.com"
_GOOGLE_RIGHTS = "https://www.googleapis.com/auth/devstorage.full_control"


def require_cloud(location: str, properties: Mapping[str, Any]) -> None:
    """Raises when the store of Google's or Microsoft's does not answer, or nobody gives out a token for the key. Others pass."""
    scheme = urlsplit(location).scheme
    if scheme in GCS_SCHEMES:
        _require(properties.get("gcs.service.host") or _GOOGLE, location)
        key = properties.get("gcs.oauth2.token")
        if isinstance(key, dict) and key.get("type") == "service_account":
            _require_token(key, location)
    elif scheme in AZURE_SCHEMES:
        _require(_azure_address(location, properties), location)


def _require(address: str, location: str) -> None:
    place = Place.storage(location)
    greet(address, place).require_same_time(place)


def _azure_address(location: str, properties: Mapping[str, Any]) -> str:
    """Where adlfs looks for the blobs of an account."""
    parts = connection_parts(properties.get("adls.connection-string", ""))
    if "BlobEndpoint" in parts:
        return parts["BlobEndpoint"]
    host = urlsplit(location).hostname or ""
    account = parts.get("AccountName") or properties.get("adls.account-name") or host.partition(".")[0]
    return f"{parts.get('DefaultEndpointsProtocol', 'https')}://{account}.blob.{parts.get('EndpointSuffix', AZURE_DOMAIN)}"


def _require_token(key: Mapping[str, Any], location: str) -> None:
    """Gets a token for the key of a service account."""
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request
    from google.oauth2.service_account import Credentials

    try:
        credentials = Credentials.from_service_account_info(key, scopes=[_GOOGLE_RIGHTS])  # type: ignore[no-untyped-call]
        credentials.refresh(functools.partial(Request(), timeout=ANSWER_SECONDS))
    except GoogleAuthError as error:
        known = cloud_failed(error, location)
        if known is None:
            raise
        raise known from error
