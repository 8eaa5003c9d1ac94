"""Certificates of an authority of the tests' own, made by openssl."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from services.processes import LOCALHOST, ServiceFailed

# In a certificate for this machine.
HERE = f"IP:{LOCALHOST},DNS:localhost"


def make_certificates(folder: Path, names: Mapping[str, str]) -> Path:
    """A folder with the authority's ``ca.pem`` and, for each name, ``.pem``, ``.key`` and ``.both``; values: for whom."""
    folder.mkdir()
    key = ["-newkey", "rsa:2048", "-nodes"]
    _openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=frazil tests")
    for name, alternative in names.items():
        _openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
        signed = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", f"{name}.ext", "-days", "2"]
        _openssl(folder, "x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", *signed)
        (folder / f"{name}.both").write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.pem").read_text())
    return folder


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceFailed(f"openssl {arguments[0]} failed:\n{done.stderr}")
