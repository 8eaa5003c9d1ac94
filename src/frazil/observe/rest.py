"""PyIceberg's REST catalog with the authorities that the configuration names, whatever the environment names."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS, VIEW_ENDPOINTS, Endpoint, RestCatalog
from pyiceberg.exceptions import OAuthError, RESTError, ServerError, ServiceUnavailableError, TooManyRequestsError
from requests import Session

_TRANSACTIONS = Endpoint.from_string("POST /v1/{prefix}/transactions/commit")


class CertifiedCatalog(RestCatalog):
    """Requests would prefer the authorities in REQUESTS_CA_BUNDLE to those that a session was given."""

    @property
    def lacks_transactions(self) -> bool:
        """Whether the server lists what it offers, and commits of several tables are not on its list."""
        listed = self._supported_endpoints
        lists_none = listed in (DEFAULT_ENDPOINTS, DEFAULT_ENDPOINTS | VIEW_ENDPOINTS)
        return not lists_none and _TRANSACTIONS not in listed

    def _create_session(self) -> Session:
        try:
            session = super()._create_session()
        except (ServerError, ServiceUnavailableError, TooManyRequestsError):
            raise
        except RESTError as error:
            # Only a token is asked for here, and whoever does not give one out refuses the login.
            raise OAuthError(str(error)) from error
        if session.verify is not True:
            _keep_own_authorities(session)
        return session


def _keep_own_authorities(session: Session) -> None:
    merge = session.merge_environment_settings

    def merged(url: str, proxies: Any, stream: Any, verify: Any, cert: Any) -> MutableMapping[str, Any]:
        found: MutableMapping[str, Any] = merge(url, proxies, stream, session.verify if verify is None else verify, cert)
        return found

    session.merge_environment_settings = merged  # type: ignore[method-assign, assignment]
