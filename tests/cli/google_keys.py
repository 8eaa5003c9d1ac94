"""Keys of service accounts that Google has never heard of, in the form of Google's."""

from __future__ import annotations

import json

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def google_key(tokens: str, key_id: str) -> str:
    """A key whose owner asks at an address for tokens."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "w@p.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": tokens,
        "project_id": "p",
    }
    return json.dumps(account | {"private_key_id": key_id, "private_key": private.decode()})
