"""Stand-ins for the Iceberg REST endpoints of Amazon S3 Tables and of Glue, which cannot be had here.

A real REST catalog and a real store are behind them. In front, requests must be signed as Amazon signs them, and what Amazon's
endpoints answer differently, as far as it is documented or was measured by others, is answered so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, quote

from services.between import Asked, Made, between, s3_error
from services.rest_endpoint import JSON, Endpoint, answer, in_front, refusal
from services.s3proxy import REGION, S3Store

ACCOUNT = "123456789012"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)"
)
_TABLES = re.compile(r"/namespaces/([^/]+)/tables$")
_TABLE = re.compile(r"/namespaces/[^/]+/tables/[^/]+$")
_ROUTED = re.compile(r"/namespaces(/[^/]+(/tables(/[^/]+)?)?)?$|/tables/rename$")
_NAMES = re.compile(r"[a-z0-9_]+")
_UNKNOWN = "UnknownOperationException"


def signature_problem(asked: Asked, service: str, key: str, secret: str) -> Made | None:
    """Amazon's answer to a request that is not signed with this key for this service; None if it is."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    headers = {name.lower(): value for name, value in asked.headers.items()}
    said = _AUTHORIZATION.match(headers.get("authorization", ""))
    if said is None:
        return Made(403, b'{"message":"Missing Authentication Token"}', JSON)
    who, region, signed_for, names, signature = said.groups()
    if (who, signed_for) != (key, service):
        return Made(403, b'{"message":"The security token included in the request is invalid."}', JSON)

    class Again(SigV4Auth):  # type: ignore[misc]
        """With the headers that the client has signed."""

        def headers_to_sign(self, request: AWSRequest) -> Any:
            return request.headers

    request = AWSRequest(asked.method, f"http://{headers['host']}{asked.target}", data=asked.body)
    for name in names.split(";"):
        request.headers[name] = headers[name]
    request.context["timestamp"] = headers["x-amz-date"]
    again = Again(Credentials(key, secret), service, region)
    # The header with the hash may have it in another form.
    *parts, _ = again.canonical_request(request).split("\n")
    canonical = "\n".join([*parts, sha256(asked.body).hexdigest()])
    if again.signature(again.string_to_sign(request, canonical), request) == signature:
        return None
    return Made(403, b'{"message":"The request signature we calculated does not match the signature you provided."}', JSON)


@dataclass
class AmazonRest:
    """One of the endpoints, before a real store: ``base`` is its address, ``endpoint`` that of the store."""

    store: S3Store
    warehouse: str
    base: str = ""
    endpoint: str = ""
    refused: list[str] = field(default_factory=list)
    """What the store was asked for, and refused."""

    def signed(self, asked: Asked, service: str) -> Made | None:
        """The answer to a request that is not signed with the keys of the store."""
        return signature_problem(asked, service, self.store.access_key_id, self.store.secret_access_key)

    def at_store(self, asked: Asked) -> Asked | Made:
        """The bucket of a table has objects that are written and read, and neither deleted nor listed."""
        path, _, query = asked.target.partition("?")
        lists = asked.method == "GET" and path.strip("/").count("/") == 0
        if (asked.method == "DELETE" and "uploadId" not in query) or "delete" in parse_qs(query, keep_blank_values=True) or lists:
            self.refused.append(f"{asked.method} {asked.target}")
            return s3_error(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        return asked


def _endpoint(found: AmazonRest, service: str, prefix: str, own: Callable[[Asked, str], Asked | Made | None]) -> Endpoint:
    """What both have in common: signatures, one warehouse, and namespaces of one level."""

    def config(warehouse: str | None) -> Made:
        if warehouse != found.warehouse:
            return refusal(404, "The specified bucket does not exist.", "no_such_bucket")
        return answer({"defaults": {}, "overrides": {"prefix": prefix}})

    def in_one_level(asked: Asked, path: str) -> Asked | Made | None:
        if "parent" in parse_qs(asked.target.partition("?")[2]):
            return refusal(400, "Multipart namespaces are not supported.")
        if "%1F" in path.upper():
            # What Spark asks first when somebody wants to see a table's snapshots, and must not be told otherwise.
            return refusal(404, "The specified table does not exist.", "NoSuchTableException")
        return own(asked, path)

    return Endpoint(
        "/iceberg",
        prefix,
        config,
        lambda asked: found.signed(asked, service),
        in_one_level,
        unknown=Made(404, f"<{_UNKNOWN}/>".encode()),
    )


@contextmanager
def s3_tables(catalog: str, store: S3Store, name: str) -> Iterator[AmazonRest]:
    """S3 Tables with one table bucket, as long as the block. Each table gets a bucket of its own from it."""
    arn = f"arn:aws:s3tables:{REGION}:{ACCOUNT}:bucket/{name}"
    made: list[str] = []

    def own(asked: Asked, path: str) -> Asked | Made | None:
        if path.endswith("/metrics"):
            return refusal(400, "ReportMetrics is currently not supported.")
        if not _ROUTED.search(path) or (path.endswith("/properties")):
            return Made(404, f"<{_UNKNOWN}/>".encode())
        content = json.loads(asked.body) if asked.body else {}
        if asked.method == "POST" and path == "/namespaces":
            if not all(_NAMES.fullmatch(level) for level in content["namespace"]):
                return refusal(
                    400, "The specified namespace name isn't valid. Specify a different namespace name, and then try again."
                )
            if len(content["namespace"]) > 1:
                return refusal(400, "Multipart namespaces are not supported.")
        if asked.method == "POST" and _TABLES.search(path):
            if content.get("stage-create") is None:
                return refusal(400, "stage-create is a required field and cannot be null")
            if content.get("location") is not None:
                return refusal(400, "The location of a table cannot be specified.")
            made.append(f"{len(made)}-{name}--table-s3".replace("_", "-"))
            return replace(asked, body=json.dumps(content | {"location": store.create_bucket(made[-1])}).encode())
        if asked.method == "DELETE" and _TABLE.search(path):
            if "purgeRequested=true" not in asked.target:
                return refusal(400, "DropTable operation failed. S3 Tables only supports dropping tables with purge enabled.")
            # The service deletes the files, at a time of its own.
            return replace(asked, target=asked.target.partition("?")[0])
        return None

    found = AmazonRest(store, arn)
    endpoint = _endpoint(found, "s3tables", quote(arn, safe=""), own)
    with between(store.endpoint, found.at_store) as found.endpoint, in_front(catalog, endpoint) as found.base:
        yield found


@contextmanager
def glue_rest(catalog: str, store: S3Store) -> Iterator[AmazonRest]:
    """Glue's REST endpoint for one account, as long as the block."""

    def own(asked: Asked, path: str) -> Asked | Made | None:
        if path.endswith(("/metrics", "/plan", "/transactions/commit")):
            return answer({"Output": {"__type": f"com.amazon.coral.service#{_UNKNOWN}"}, "Version": "1.0"})
        if "/views" in path or path == "/tables/rename":
            return refusal(406, "The endpoint is not supported for Glue Catalog.", "UnsupportedOperationException")
        if asked.method == "POST" and _TABLES.search(path) and json.loads(asked.body).get("location") is None:
            words = "Location information cannot be null while creating an iceberg table"
            return refusal(400, words, "InvalidInputException")
        if asked.method == "DELETE" and _TABLE.search(path) and "purgeRequested=true" in asked.target:
            return refusal(400, "PurgeRequested cannot be true for Glue iceberg tables.", "InvalidInputException")
        return None

    found = AmazonRest(store, ACCOUNT, endpoint=store.endpoint)
    with in_front(catalog, _endpoint(found, "glue", f"catalogs/{ACCOUNT}", own)) as found.base:
        yield found
