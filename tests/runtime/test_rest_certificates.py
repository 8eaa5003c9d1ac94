"""A REST catalog behind TLS with an authority that only the configuration knows, and which wants a certificate of its clients."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.observe.catalogs import open_catalog
from helpers.lakes import Lake, fresh_name, run
from services.rest_catalog import RestCatalog
from services.tls_front import TlsFront, tls_front

pytestmark = pytest.mark.slow

GENERATOR = {"connector": "generator", "rows": 5}


@pytest.fixture(scope="module")
def front(rest_catalog: RestCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsFront]:
    with tls_front(tmp_path_factory.mktemp("tls"), rest_catalog.uri) as one:
        yield one


def catalog(front: TlsFront, **tls: Any) -> dict[str, Any]:
    return {"type": "rest", "rest": {"uri": front.uri, "tls": tls}}


def whole(front: TlsFront, **other: Any) -> dict[str, Any]:
    folder = front.certificates
    files = {"ca_path": folder / "ca.pem", "cert_path": folder / "client.pem", "key_path": folder / "client.key"}
    return catalog(front, **{name: str(path) for name, path in (files | other).items()})


def test_a_run_and_pyiceberg_show_their_certificate_and_trust_that_authority(lake: Lake, front: TlsFront) -> None:
    namespace = fresh_name()
    pipeline = lake.with_catalog(whole(front)).pipeline(GENERATOR, f"{namespace}.t")
    run(pipeline)
    looked = open_catalog(pipeline.sink)
    assert looked is not None
    assert looked.load_table((namespace, "t")).scan().count() == 5


def test_without_a_certificate_nobody_gets_in(lake: Lake, front: TlsFront) -> None:
    there = lake.with_catalog(catalog(front, ca_path=str(front.certificates / "ca.pem")))
    with pytest.raises(frazil.FrazilError, match="Failed to connect to catalog") as caught:
        run(there.pipeline(GENERATOR))
    assert "frazil.PemTls" not in str(caught.value)
    with pytest.raises(frazil.FrazilError, match="Failed to connect to catalog"):
        open_catalog(there.pipeline(GENERATOR).sink)


def test_files_that_are_not_what_they_should_be_are_named(lake: Lake, front: TlsFront, tmp_path: Path) -> None:
    old = tmp_path / "old.key"
    convert = ["openssl", "rsa", "-traditional", "-in", "client.key", "-out", str(old)]
    subprocess.run(convert, cwd=front.certificates, check=True, capture_output=True)
    with pytest.raises(frazil.FrazilError, match="openssl pkcs8 -topk8 -nocrypt"):
        run(lake.with_catalog(whole(front, key_path=old)).pipeline(GENERATOR))
    with pytest.raises(frazil.FrazilError, match=r"absent\.pem is not there"):
        run(lake.with_catalog(whole(front, ca_path=tmp_path / "absent.pem")).pipeline(GENERATOR))
