"""A store that speaks S3, asked directly: one request, one answer, with the store's own words when it refuses.

PyArrow hides most of an answer, and its delete leaves an empty object where the folder would be. So requests are signed here
(Signature Version 4) wherever the keys are known.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from frazil.errors import FrazilError
from frazil.model import connections
from frazil.model.connections import Place
from frazil.model.secrets import scrub
from frazil.model.storage import Encryption
from frazil.observe.greeting import ANSWER_SECONDS, CONNECT_SECONDS, Greeting, as_it_is, causes, request_fault

if TYPE_CHECKING:
    from requests import Response

ANY_REGION = "us-east-1"
# As S3 calls what a file is encrypted by.
ENCRYPTIONS = {Encryption.S3: "AES256", Encryption.KMS: "aws:kms", Encryption.DSSE_KMS: "aws:kms:dsse"}
SIGNED = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class S3Keys:
    """What requests are signed with."""

    access: str
    secret: str
    token: str = ""


def keys_of(properties: Mapping[str, str]) -> S3Keys | None:
    """The keys that the properties of files have, else the environment's; None where they must be asked for elsewhere first."""
    if properties.get("s3.role-arn") or properties.get("s3.remote-signing-enabled") == "true":
        return None
    for prefix in ("s3.", "client."):
        if access := properties.get(f"{prefix}access-key-id"):
            secret, token = properties.get(f"{prefix}secret-access-key", ""), properties.get(f"{prefix}session-token", "")
            return S3Keys(access, secret, token)
    access, secret, token = (
        os.environ.get(f"AWS_{name}", "") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    )
    return S3Keys(access, secret, token) if access and secret else None


def encryption_headers(method: str, properties: Mapping[str, str]) -> dict[str, str]:
    """How a request says what a file is encrypted by, as Iceberg's does. A key of one's own is needed to read, too."""
    kind, key = properties.get("s3.sse.type", ""), properties.get("s3.sse.key")
    name = "x-amz-server-side-encryption"
    if kind == Encryption.CUSTOM and method in ("GET", "PUT"):
        md5 = properties.get("s3.sse.md5", "")
        return {f"{name}-customer-algorithm": "AES256", f"{name}-customer-key": key or "", f"{name}-customer-key-md5": md5}
    if kind not in ENCRYPTIONS or method != "PUT":
        return {}
    return {name: ENCRYPTIONS[Encryption(kind)]} | ({f"{name}-aws-kms-key-id": key} if key else {})


@dataclass(frozen=True)
class Bucket:
    """A bucket and how it is reached."""

    name: str
    endpoint: str
    region: str
    path_style: bool
    keys: S3Keys
    place: Place
    properties: Mapping[str, str]

    @classmethod
    def at(cls, location: str, properties: Mapping[str, str], keys: S3Keys) -> Bucket:
        """The bucket of a location, by the properties that its files are reached with."""
        name = urlsplit(location).netloc
        region = properties.get("s3.region") or properties.get("client.region") or ANY_REGION
        endpoint = properties.get("s3.endpoint") or f"https://s3.{region}.amazonaws.com"
        in_path = properties.get("s3.path-style-access") == "true" or "." in name or _is_address(endpoint)
        return cls(name, endpoint.rstrip("/"), region, in_path, keys, Place.storage(location), properties)

    @property
    def proxy(self) -> str | None:
        """The address of a proxy that all requests go through."""
        return self.properties.get("s3.proxy-uri")

    def url(self, key: str) -> str:
        """The address of an object."""
        parts = urlsplit(self.endpoint)
        path = quote(f"/{self.name}/{key}" if self.path_style else f"/{key}", safe="/~")
        host = parts.netloc if self.path_style else f"{self.name}.{parts.netloc}"
        return f"{parts.scheme}://{host}{parts.path}{path}"

    def ask(self, method: str, key: str, use: str, content: bytes = b"") -> bytes:
        """Sends a request and returns the content of the answer. Raises what the store says instead, in words for people."""
        from requests import RequestException, request

        url = self.url(key)
        more = encryption_headers(method, self.properties)
        headers = signed(method, url, content, region=self.region, keys=self.keys, now=datetime.now(UTC), more=more)
        try:
            answer = request(
                method,
                url,
                data=content or None,
                headers=headers,
                auth=as_it_is,
                proxies={"http": self.proxy, "https": self.proxy} if self.proxy else None,
                timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
                allow_redirects=False,
            )
        except RequestException as error:
            raise self._unreached(error) from error
        if answer.ok and answer.status_code < 300:
            return answer.content
        raise self._refused(answer, use)

    def _unreached(self, error: Exception) -> FrazilError:
        host = urlsplit(self.endpoint).hostname or ""
        not_found = any(isinstance(part, socket.gaierror) for part in causes(error))
        if not_found and not self.path_style and connections.resolves(host):
            return connections.path_style_needed(self.place, f"{self.name}.{host}")
        return request_fault(error, self.endpoint, self.place)

    def _refused(self, answer: Response, use: str) -> FrazilError:
        """By the code in the answer's body. Some answers have none, and say the region in a header."""
        body = answer.content[:8192].decode(errors="replace")
        region = answer.headers.get("x-amz-bucket-region", "") or _element(body, "Region")
        code = _element(body, "Code") or {301: "PermanentRedirect", 307: "TemporaryRedirect", 403: "AccessDenied"}.get(
            answer.status_code, ""
        )
        said = _element(body, "Message") or answer.reason or f"status {answer.status_code}"
        if answer.status_code == 403:
            # Whatever the store calls it: what was signed at another time is not accepted.
            Greeting.of(answer).require_same_time(self.place)
        known = connections.s3_refused(self.place, code, scrub(said), use=use, region=region)
        if known is None and answer.status_code == 403:
            known = connections.s3_denied(scrub(f"{code}: {said}"), use=use)
        return known or connections.unreachable(self.place, scrub(f"{answer.status_code} {code or said}: {said}"))


def _element(xml: str, name: str) -> str:
    """The text of the first element of a name: answers are small, and servers differ in the namespace."""
    found = re.search(rf"<{name}>([^<]*)</{name}>", xml)
    return unescape(found[1]).strip() if found else ""


def _is_address(endpoint: str) -> bool:
    """Whether the host is a number, in front of which no bucket can stand."""
    host = urlsplit(endpoint).hostname or ""
    return ":" in host or re.fullmatch(r"[\d.]+", host) is not None


def signed(
    method: str, url: str, content: bytes, *, region: str, keys: S3Keys, now: datetime, more: Mapping[str, str]
) -> dict[str, str]:
    """The headers of a request, and ``more``, with the signature that Amazon's services expect."""
    parts = urlsplit(url)
    day, at = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(content).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": at, **more}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    whole = "\n".join((method, parts.path or "/", parts.query, lines, names, digest))
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join((SIGNED, at, scope, hashlib.sha256(whole.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    sent = {name: value for name, value in headers.items() if name != "host"}
    return sent | {"Authorization": f"{SIGNED} Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"}
