"""A store that speaks S3 and takes no file that is not encrypted, as policies of buckets ask for it.

A stand-in in front of another store looks at the headers of requests. Nothing is encrypted. s3proxy refuses all such headers, and
moto checks no signatures: hence a small store that does, in memory.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import md5

from services.amazon_rest import signature_problem
from services.between import Asked, Made, between, s3_error
from services.s3proxy import KEY, SECRET

HEADER = "x-amz-server-side-encryption"
_KEY = bytes(range(32))


@dataclass(frozen=True)
class Encryption:
    """One way to encrypt: what a sink says of it, and the headers that requests must have, to write and perhaps to read."""

    settings: str
    headers: Mapping[str, str]
    to_read: bool = False


ENCRYPTIONS = {
    "s3": Encryption(", sse_type: s3", {HEADER: "AES256"}),
    "kms": Encryption(", sse_type: kms, kms_key: alias/lake", {HEADER: "aws:kms", f"{HEADER}-aws-kms-key-id": "alias/lake"}),
    "custom": Encryption(
        f", sse_type: custom, encryption_key: '{b64encode(_KEY).decode()}'",
        {
            f"{HEADER}-customer-algorithm": "AES256",
            f"{HEADER}-customer-key": b64encode(_KEY).decode(),
            f"{HEADER}-customer-key-md5": b64encode(md5(_KEY).digest()).decode(),
        },
        to_read=True,
    ),
}


@contextmanager
def encrypting(store: str, kind: str) -> Iterator[str]:
    """The address of such a store, as long as the block."""
    encryption = ENCRYPTIONS[kind]

    def change(asked: Asked) -> Asked | Made:
        has = {name.lower(): value for name, value in asked.headers.items()}
        writes = asked.method == "PUT" and "partNumber=" not in asked.target
        reads = encryption.to_read and asked.method in ("GET", "HEAD") and "list-type=" not in asked.target
        if (writes or reads) and any(has.get(name) != value for name, value in encryption.headers.items()):
            return s3_error(403, "AccessDenied", "The policy of the bucket wants files to be encrypted otherwise.")
        return asked

    with between(store, change) as endpoint:
        yield endpoint


@contextmanager
def small_store() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The address of a store for single files, and what it has, as long as the block. It checks signatures."""
    files: dict[str, bytes] = {}

    def answer(asked: Asked) -> Made:
        if signature_problem(asked, "s3", KEY, SECRET) is not None:
            return s3_error(403, "SignatureDoesNotMatch", "The signature does not match.")
        match asked.method:
            case "PUT":
                files[asked.target] = asked.body
            case "DELETE":
                files.pop(asked.target, None)
        return Made(200, files.get(asked.target, b""))

    with between("", answer) as endpoint:
        yield endpoint, files
