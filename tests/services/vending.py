"""Stand-ins for a REST catalog that gives access to its store: by credentials that expire, or by signing each request.

The catalog and the store are real. Before the catalog one adds credentials to what it answers; before the store another refuses
those that have expired: the store itself knows one pair of keys, and takes no notice of session tokens.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from services.between import Asked, Made, between, passed_on, s3_error
from services.s3proxy import REGION, S3Store

HEADER = "x-iceberg-access-delegation"
JSON = {"Content-Type": "application/json"}
_TABLE = re.compile(r"/v1/namespaces/[^/]+/tables(/[^/]+)?$")
_CREDENTIALS = re.compile(r"/v1/namespaces/[^/]+/tables/[^/]+/credentials$")
_SIGN = re.compile(r"/v1/namespaces/[^/]+/tables/[^/]+/sign$|/v1/aws/s3/sign$")


def _wanted(asked: Asked) -> str:
    """What a client wants the catalog to give access by."""
    return {name.lower(): value for name, value in asked.headers.items()}.get(HEADER, "")


def _with_more(backend: str, asked: Asked, more: Callable[[dict[str, Any]], dict[str, Any]]) -> Made:
    """What the catalog answers to whoever loads or makes a table, with something added; another answer as it is."""
    plain = {name: value for name, value in asked.headers.items() if name.lower() not in ("accept-encoding", "if-none-match")}
    made = passed_on(backend, replace(asked, headers=plain))
    answer = json.loads(made.body) if made.status == 200 and made.body else {}
    if "metadata" not in answer:
        return made
    headers = {name: value for name, value in made.headers.items() if name.lower() != "etag"}
    return Made(200, json.dumps(more(answer)).encode(), headers)


@dataclass
class Vending:
    """A catalog that vends credentials. ``lifetime``: seconds; ``refreshes``: whether it names an address for newer ones."""

    store: S3Store
    bucket: str
    lifetime: float
    refreshes: bool = True
    uri: str = ""
    endpoint: str = ""
    ends: dict[str, float] = field(default_factory=dict)
    refreshed: int = 0
    expired: int = 0
    """How many requests the store has refused."""
    strangers: int = 0
    """How many requests came to the store with no credentials of the catalog's."""
    used: set[str] = field(default_factory=set)

    def credentials(self) -> dict[str, str]:
        """New ones."""
        token, now = f"s3ssion-{uuid.uuid4()}", time.time()
        self.ends[token] = now + self.lifetime
        return {
            "s3.access-key-id": self.store.access_key_id,
            "s3.secret-access-key": self.store.secret_access_key,
            "s3.session-token": token,
            "s3.session-token-expires-at-ms": str(int((now + self.lifetime) * 1000)),
        }

    def loaded(self, answer: dict[str, Any], path: str) -> dict[str, Any]:
        """What a catalog answers to whoever loads or makes a table, with access to its files."""
        credentials = self.credentials()
        place = {"s3.endpoint": self.endpoint, "s3.path-style-access": "true", "client.region": REGION}
        again = {"client.refresh-credentials-endpoint": f"{path}/credentials"} if self.refreshes else {}
        config = {**answer.get("config", {}), **place, **again, **credentials}
        return {**answer, "config": config, "storage-credentials": [self._of_bucket(credentials)]}

    def _of_bucket(self, credentials: dict[str, str]) -> dict[str, Any]:
        return {"prefix": f"s3://{self.bucket}/", "config": credentials}

    def at_catalog(self, backend: str, asked: Asked, place: str = "v1") -> Asked | Made:
        """Answers for the catalog, whose paths clients find at a place."""
        path = urlsplit(asked.target).path
        if self.refreshes and _CREDENTIALS.search(path):
            self.refreshed += 1
            return Made(200, json.dumps({"storage-credentials": [self._of_bucket(self.credentials())]}).encode(), JSON)
        found = _TABLE.search(path)
        loads_or_makes = found and (asked.method, found[1] is None) in (("GET", False), ("POST", True))
        if not (loads_or_makes and _wanted(asked) == "vended-credentials"):
            return asked
        of_table = path if asked.method == "GET" else f"{path}/{json.loads(asked.body)['name']}"
        return _with_more(backend, asked, lambda answer: self.loaded(answer, f"{place}{of_table.removeprefix('/v1')}"))

    def at_store(self, asked: Asked) -> Asked | Made:
        """Refuses what the catalog did not give out, or gave out too long ago."""
        token = {name.lower(): value for name, value in asked.headers.items()}.get("x-amz-security-token", "")
        if token not in self.ends:
            self.strangers += 1
            return s3_error(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        if self.ends[token] < time.time():
            self.expired += 1
            return s3_error(400, "ExpiredToken", "The provided token has expired.")
        self.used.add(token)
        return asked


@contextmanager
def keys_for(store: S3Store, bucket: str, *, lifetime: float, refreshes: bool = True) -> Iterator[Vending]:
    """Credentials to give out, and a store behind a stand-in that knows no others, as long as the block."""
    found = Vending(store, bucket, lifetime, refreshes)
    with between(store.endpoint, found.at_store) as found.endpoint:
        yield found


@contextmanager
def vending(catalog: str, store: S3Store, bucket: str, *, lifetime: float, refreshes: bool = True) -> Iterator[Vending]:
    """A catalog and a store behind such stand-ins, as long as the block."""
    with (
        keys_for(store, bucket, lifetime=lifetime, refreshes=refreshes) as found,
        between(catalog, lambda asked: found.at_catalog(catalog, asked)) as found.uri,
    ):
        yield found


@dataclass
class Signer:
    """A catalog that signs requests to its store. ``signed``: how many, by method; ``unsigned``: those that came without."""

    store: S3Store
    uri: str = ""
    endpoint: str = ""
    signed: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def at_catalog(self, backend: str, asked: Asked) -> Asked | Made:
        """Answers for the catalog."""
        path = urlsplit(asked.target).path
        if _SIGN.search(path):
            return self._sign(json.loads(asked.body))
        if not (_wanted(asked) == "remote-signing" and _TABLE.search(path)):
            return asked
        config = {
            "s3.remote-signing-enabled": "true",
            "s3.signer.uri": self.uri,
            "s3.signer.endpoint": "v1/aws/s3/sign",
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "client.region": REGION,
        }
        return _with_more(backend, asked, lambda answer: {**answer, "config": {**answer.get("config", {}), **config}})

    def _sign(self, wanted: dict[str, Any]) -> Made:
        """As Amazon's own library signs it, with the keys that nobody else has."""
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        with self._lock:
            self.signed[wanted["method"]] = self.signed.get(wanted["method"], 0) + 1
        headers = {name: ", ".join(values) for name, values in wanted["headers"].items()}
        kept = {name: value for name, value in headers.items() if name.lower() in ("host", "content-type", "content-md5")}
        body = (wanted.get("body") or "").encode()
        request = AWSRequest(wanted["method"], wanted["uri"], headers=kept, data=body)

        class OfHeaders(S3SigV4Auth):  # type: ignore[misc]
            def payload(self, request: AWSRequest) -> str:
                return "UNSIGNED-PAYLOAD"

        signer = OfHeaders(Credentials(self.store.access_key_id, self.store.secret_access_key), "s3", wanted["region"])
        signer.add_auth(request)
        answer = {"uri": wanted["uri"], "headers": {name: [value] for name, value in request.headers.items()}}
        return Made(200, json.dumps(answer).encode(), JSON)


@contextmanager
def signing(catalog: str, store: S3Store) -> Iterator[Signer]:
    """A catalog behind such a stand-in, as long as the block. The store is asked itself: it refuses what was not signed."""
    found = Signer(store, endpoint=store.endpoint)
    with between(catalog, lambda asked: found.at_catalog(catalog, asked)) as found.uri:
        yield found
