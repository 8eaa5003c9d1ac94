"""When Spark starts, what is done meanwhile, and what it is given when it runs already."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.common.schema import Schema
from dlt_lakes import DltLake, loaded, resource
from noting_catalog import noting_catalog
from pyspark import SparkContext

from frazil.dlt import IcebergRestClient, IcebergRestConfiguration, iceberg_rest
from frazil.doors.dlt import client as client_module
from frazil.runtime.loads import is_starting

SIGNED = {"sigv4_enabled": True, "signing_region": "eu-west-1", "signing_name": "glue"}


def client(**options: Any) -> IcebergRestClient:
    """The client that dlt would be given."""
    made = iceberg_rest(max_retries=0, **options).client(Schema("s"), IcebergRestConfiguration()._bind_dataset_name("ds"))
    assert isinstance(made, IcebergRestClient)
    return made


def first_run_and_another_store(folder: str, catalog_uri: str) -> None:
    """In a process of its own: a pipeline that starts Spark, then a destination that needs a library which that lacks."""
    seen: list[bool] = []

    def rows() -> Any:
        seen.append(is_starting())
        yield {"id": 1}

    pipeline = DltLake(Path(folder)).pipeline()
    loaded(pipeline.run(dlt.resource(rows, name="t")))
    assert seen == [True], "rows are extracted while Spark starts"
    assert pipeline.dataset()("SELECT id FROM t").fetchall() == [(1,)]
    assert client(catalog_uri=catalog_uri, **SIGNED).is_storage_initialized()
    # Java dies, and the next load has another one.
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    java.kill()
    java.wait()
    loaded(pipeline.run(resource([{"id": 2}], "t")))
    assert sorted(pipeline.dataset()("SELECT id FROM t").fetchall()) == [(1,), (2,)]


@pytest.mark.slow
def test_spark_starts_while_rows_are_extracted_and_takes_the_library_of_another_store_later(tmp_path: Path) -> None:
    code = "import sys\nfrom test_dlt_start import first_run_and_another_store\nfirst_run_and_another_store(*sys.argv[1:])"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    keys = {"AWS_ACCESS_KEY_ID": "AKEY", "AWS_SECRET_ACCESS_KEY": "skey", "PYTHONPATH": path}
    with noting_catalog() as catalog:
        command = [sys.executable, "-c", code, str(tmp_path), catalog.uri]
        done = subprocess.run(command, env=os.environ | keys, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    signature = re.compile(r"AWS4-HMAC-SHA256 Credential=AKEY/\d{8}/eu-west-1/glue/aws4_request, SignedHeaders=.*, Signature=\w+")
    seen = [one.headers.get("authorization") for one in catalog.requests]
    assert seen
    assert all(signature.match(value or "") for value in seen), seen


@pytest.mark.slow
def test_state_and_schemas_are_found_without_spark_while_that_starts(lake: DltLake, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lake.pipeline()

    def rows(n: int) -> Any:
        dlt.current.resource_state()["n"] = n
        yield {"id": n, f"v{n}": n}

    before = lake.pipeline("before")
    with monkeypatch.context() as starting:
        starting.setattr(client_module, "is_starting", lambda: True)
        before.sync_destination()
    assert before.first_run, "nothing is there"
    for n in (1, 2):
        loaded(pipeline.run(dlt.resource(rows(n), name="t")))
    loaded(lake.pipeline("other").run(resource([{"id": 1}], "other")))

    def none(*_: Any) -> Any:
        raise AssertionError("it does not wait for Spark")

    again = dlt.pipeline("p", destination=lake.destination(), dataset_name="ds", pipelines_dir=str(lake.folder / "elsewhere"))
    monkeypatch.setattr(client_module, "is_starting", lambda: True)
    with monkeypatch.context() as without_spark:
        without_spark.setattr(client_module, "load_lake", none)
        again.sync_destination()
        with again.destination_client() as asked:
            assert asked.get_stored_schema_by_hash("unknown") is None  # type: ignore[attr-defined]
    assert again.state["_version_hash"] == pipeline.state["_version_hash"]
    assert again.default_schema.version_hash == pipeline.default_schema.version_hash
    # What PyIceberg cannot read is left to Spark.
    third = dlt.pipeline("p", destination=lake.destination(), dataset_name="ds", pipelines_dir=str(lake.folder / "third"))
    monkeypatch.setattr(client_module, "quick_look", none)
    third.sync_destination()
    assert third.state["_version_hash"] == pipeline.state["_version_hash"]
