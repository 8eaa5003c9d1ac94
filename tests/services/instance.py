"""A stand-in for the service that tells a virtual machine of Amazon's which keys its role has, in front of a real store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from services.between import Asked, Made, StandIn, between, s3_error
from services.s3proxy import S3Store

ROLE = "writer-of-lakes"
_KEYS = "/latest/meta-data/iam/security-credentials"
_LIFETIME = timedelta(hours=6)


@dataclass
class Instance:
    """A machine with a role. ``endpoint``: the store, which takes nothing but the keys of the role; ``secret``: the one told."""

    store: S3Store
    secret: str
    metadata: str = ""
    endpoint: str = ""
    token: str = field(default_factory=lambda: f"s3ssion-{uuid.uuid4()}")
    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    told: int = 0
    """How often the keys were asked for."""

    @property
    def environment(self) -> dict[str, str]:
        """What leads Amazon's libraries to it."""
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata}

    def at_metadata(self, asked: Asked) -> Made:
        """The second version of the service: whoever asks shows a token, which is got first."""
        headers = {name.lower(): value for name, value in asked.headers.items()}
        if (asked.method, asked.target) == ("PUT", "/latest/api/token"):
            return Made(200, self.session.encode(), {"x-aws-ec2-metadata-token-ttl-seconds": "21600"})
        if headers.get("x-aws-ec2-metadata-token") != self.session:
            return Made(401)
        if asked.target.rstrip("/") == _KEYS:
            return Made(200, ROLE.encode(), {"Content-Type": "text/plain"})
        if asked.target != f"{_KEYS}/{ROLE}":
            return Made(404)
        self.told += 1
        now = datetime.now(UTC)
        keys = {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "LastUpdated": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "AccessKeyId": self.store.access_key_id,
            "SecretAccessKey": self.secret,
            "Token": self.token,
            "Expiration": f"{now + _LIFETIME:%Y-%m-%dT%H:%M:%SZ}",
        }
        return Made(200, json.dumps(keys).encode(), {"Content-Type": "application/json"})

    def at_store(self, asked: Asked) -> Asked | Made:
        """The store checks signatures, and takes no notice of tokens: they are compared here."""
        shown = {name.lower(): value for name, value in asked.headers.items()}.get("x-amz-security-token")
        if shown != self.token:
            return s3_error(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        return asked


@contextmanager
def instance_role(store: S3Store, secret: str) -> Iterator[Instance]:
    """Such a machine before a store, as long as the block."""
    found = Instance(store, secret)
    service = StandIn(found.at_metadata)
    try:
        found.metadata = service.uri
        with between(store.endpoint, found.at_store) as found.endpoint:
            yield found
    finally:
        service.close()
