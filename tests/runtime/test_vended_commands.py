"""Every command works with the access to files that the catalog gives, and with no other."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cli.commands import Outcome, frazil_process
from helpers.children import write_project
from helpers.lakes import fresh_name
from services.rest_catalog import RestCatalog
from services.s3proxy import S3Store
from services.vending import signing, vending

pytestmark = pytest.mark.slow(seconds=80)

BUCKET = "rest-catalog"


def project(folder: Path, uri: str, way: str) -> Path:
    catalog = {
        "type": "rest",
        "rest": {"uri": uri, "access_delegation": way},
        "properties": {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
    }
    small = {"maintenance": {"small_files": 2, "max_snapshots": 2, "reader_grace_minutes": 0}}
    sink: dict[str, Any] = {"catalog": catalog, "namespace": fresh_name(), "table": "events", "batch_size": 10, **small}
    content = {
        "sources": {"numbers": {"connector": "generator", "config": {"rows": 40}}},
        "sinks": {"lake": {"connector": "iceberg", "config": sink}},
        "pipelines": {"load": {"source": "numbers", "sink": "lake"}},
    }
    return write_project(folder, content)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def call(*arguments: str) -> Outcome:
        done = frazil_process(*arguments, "-c", tmp_path / "pipeline.yaml", cwd=tmp_path)
        assert done.code == 0, (arguments, done.text)
        return done

    return call


def test_by_credentials(tmp_path: Path, command: Callable[..., Outcome], rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    with vending(rest_catalog_s3.uri, s3, BUCKET, lifetime=30) as catalog:
        project(tmp_path, catalog.uri, "vended-credentials")
        before = s3.files
        command("run", "--once")
        steps = {check["step"]: check["message"] for check in command("check", "--json").json["checks"]}
        assert steps["storage"].startswith("wrote, read and deleted a probe in s3://")
        assert "40" in command("status").text
        assert "event_number" in command("inspect", "load").text
        command("maintain")
        command("forget", "load", "--yes", "--where", "event_number < 10")
        assert "30" in command("status", "--json").text
        assert catalog.strangers == 0
        assert s3.files > before
    assert not [path for path in s3.files if "frazil-probe" in path]


def test_by_signatures(tmp_path: Path, command: Callable[..., Outcome], rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    with signing(rest_catalog_s3.uri, s3) as catalog:
        project(tmp_path, catalog.uri, "remote-signing")
        command("run", "--once")
        if find_spec("s3fs") is None:
            for looking in (("check",), ("inspect", "load")):
                refused = frazil_process(*looking, "-c", tmp_path / "pipeline.yaml", cwd=tmp_path)
                assert refused.code == 1
                assert "[package-missing]" in refused.text
                assert "pip install 'pyiceberg[s3fs]'" in refused.text
        assert "40" in command("status").text
        command("maintain")
        command("forget", "load", "--yes", "--where", "event_number < 10")
        assert catalog.signed["PUT"]
