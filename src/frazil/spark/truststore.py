"""The machine's certificate authorities as a file that Java reads.

The Java of the ``java`` extra brings its own list of authorities. Behind a company's proxy, which signs with an authority of its
own, every other program trusts the machine's list and that Java alone would not.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from pathlib import Path

# Where the bundle of authorities is on Debian, Fedora, and macOS or Alpine, unless Python is configured with another path.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")

# A trust store holds nothing secret: the password only seeds its checksum, and this one is what Java's own tools expect.
PASSWORD = "changeit"

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def machine_certificates() -> tuple[bytes, ...]:
    """The authorities that this machine trusts, DER encoded, or none where no bundle is found. ``SSL_CERT_FILE`` comes first."""
    configured = ssl.get_default_verify_paths().cafile
    for name in (configured, *BUNDLES):
        if name and Path(name).is_file():
            text = Path(name).read_text(encoding="utf-8", errors="replace")
            return tuple(dict.fromkeys(ssl.PEM_cert_to_DER_cert(block) for block in _PEM.findall(text)))
    return ()


def java_key_store(certificates: tuple[bytes, ...]) -> bytes:
    """A key store of Java's own format (JKS, version 2) that trusts these certificates."""
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        trusted_entry, created = 2, 0
        body += struct.pack(">I", trusted_entry) + _utf(f"authority-{number}") + struct.pack(">Q", created)
        body += _utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    checksum = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)  # the format's own constant
    return body + checksum.digest()


def _utf(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
