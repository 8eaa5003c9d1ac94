"""Keeps BigQuery's external table at the newest metadata of a sink's table, through BigQuery's REST API.

A failure of BigQuery never undoes a commit, and never blocks the next batch. If a commit could not be published, a later one
is, or the next start publishes the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from frazil.commit.retry import retried
from frazil.errors import ConfigError, EnvironmentFault, FrazilError, Retryable
from frazil.model.biglake import BigLakeSpec
from frazil.model.events import Listener, Published, PublishFailed
from frazil.model.settings import RetrySettings

BIGQUERY = "https://bigquery.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/bigquery",)

# Answers after which the same call may succeed later.
PASSING = (408, 429, 500, 502, 503, 504)
MISSING, EXISTS = 404, 409


class BigLakeTable:
    """One external table. Delivery: the newest metadata file counts; older ones may be left out."""

    def __init__(
        self,
        spec: BigLakeSpec,
        table: str,
        *,
        pipeline: str,
        retry: RetrySettings,
        listen: Listener,
        sleep: Callable[[float], object],
    ) -> None:
        self._spec = spec
        self._table = spec.table or table
        self._pipeline = pipeline
        self._retry = retry
        self._listen = listen
        self._sleep = sleep
        self._session = _session(spec)
        self._shown: str | None = None

    @property
    def name(self) -> str:
        """`project.dataset.table`."""
        return f"{self._spec.project_id}.{self._spec.dataset_id}.{self._table}"

    def show(self, metadata: str) -> None:
        """Points the external table at a metadata file; makes it, and its dataset, when they are missing."""
        if metadata == self._shown:
            return
        failures = 0

        def report(error: FrazilError, count: int, final: bool) -> None:
            nonlocal failures
            failures = count
            self._listen(PublishFailed(self._pipeline, self.name, error.message, count, will_retry=not final))

        try:
            retried(lambda: self._put(metadata), self._retry, report, self._sleep)
        except Retryable:
            return  # the last failure was reported
        except FrazilError as error:
            report(error, failures + 1, final=True)
            return
        self._shown = metadata
        self._listen(Published(self._pipeline, self.name, metadata))

    def _put(self, metadata: str) -> None:
        """Changes the table, which most times is there; one that somebody else makes meanwhile is changed after all."""
        tables = f"projects/{self._spec.project_id}/datasets/{self._spec.dataset_id}/tables"
        definition = {
            "externalDataConfiguration": {
                "sourceFormat": "ICEBERG",
                "sourceUris": [metadata],
                "connectionId": self._spec.connection,
                "autodetect": True,
            }
        }
        reference = {"projectId": self._spec.project_id, "datasetId": self._spec.dataset_id, "tableId": self._table}

        def changed() -> int:
            # Without a schema, and with autodetect: BigQuery reads the columns from the metadata again.
            path = f"{tables}/{self._table}?autodetect_schema=true"
            return self._call("PATCH", path, {"schema": None, **definition}, MISSING)

        def made() -> int:
            return self._call("POST", tables, {"tableReference": reference, **definition}, MISSING, EXISTS)

        if changed() != MISSING:
            return
        answer = made()
        if answer == MISSING:
            self._make_dataset()
            answer = made()
        if answer == EXISTS:
            answer = changed()
        if answer == MISSING:
            raise Retryable("biglake-missing", f"BigQuery does not find the dataset of {self.name}, which was just made.")

    def _make_dataset(self) -> None:
        spec = self._spec
        reference = {"projectId": spec.project_id, "datasetId": spec.dataset_id}
        body = {"datasetReference": reference, "location": spec.dataset_location}
        self._call("POST", f"projects/{spec.project_id}/datasets", body, EXISTS)

    def _call(self, method: str, path: str, body: Mapping[str, Any], *expected: int) -> int:
        import requests
        from google.auth.exceptions import GoogleAuthError

        address = f"{(self._spec.endpoint or BIGQUERY).rstrip('/')}/bigquery/v2/{path}"
        try:
            answer = self._session.request(method, address, json=body, timeout=self._spec.timeout_secs)
        except GoogleAuthError as error:
            raise _not_authorised(error) from error
        except (requests.RequestException, OSError) as error:
            raise Retryable("biglake-unreachable", f"BigQuery does not answer: {_line(error)}") from error
        if answer.ok or answer.status_code in expected:
            return int(answer.status_code)
        message = f"BigQuery refuses to show {self.name}: {answer.status_code} {_reason(answer)}"
        if answer.status_code in PASSING:
            raise Retryable("biglake-unavailable", message)
        raise ConfigError("biglake-refused", message, fix="The rows are in the table. Look at the rights of the service account.")


def _session(spec: BigLakeSpec) -> Any:
    """A session that shows the credentials; Google's library asks for new ones when they are old."""
    try:
        import requests
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
    except ImportError:
        raise EnvironmentFault.package("An external table of BigQuery", "google-auth", "bigquery") from None
    if spec.no_auth:
        return requests.Session()
    try:
        return AuthorizedSession(_credentials(spec))  # type: ignore[no-untyped-call]
    except GoogleAuthError as error:
        raise _not_authorised(error) from None
    except (ValueError, KeyError):
        raise ConfigError(
            "biglake-credentials",
            "The service account's key is not the JSON text that Google hands out for a key.",
            fix="Give that text as a whole, e.g. by a variable that holds it.",
        ) from None


def _credentials(spec: BigLakeSpec) -> Any:
    import google.auth
    from google.oauth2 import service_account

    if spec.service_account_key is not None:
        key = json.loads(spec.service_account_key.get_secret_value())
        return service_account.Credentials.from_service_account_info(key, scopes=SCOPES)  # type: ignore[no-untyped-call]
    credentials, _ = google.auth.default(scopes=SCOPES)
    return credentials


def _not_authorised(error: Exception) -> FrazilError:
    if getattr(error, "retryable", False):
        return Retryable("biglake-unreachable", f"Google does not answer: {_line(error)}")
    return ConfigError(
        "biglake-credentials",
        f"Google's credentials for BigQuery cannot be used: {_line(error)}",
        fix="Give a service_account_key, or set GOOGLE_APPLICATION_CREDENTIALS.",
    )


def _reason(answer: Any) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.reason)


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
