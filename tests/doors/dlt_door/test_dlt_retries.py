"""Loads that fail, are cut off, or are repeated: nothing is lost and nothing is doubled."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dlt
import pyarrow
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_lakes import DltLake, loaded, resource
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from frazil.dlt import iceberg_rest
from services.between import Asked, Made, Outcome
from services.faults import applied_then, applied_then_cut_off, refused
from services.faulty_rest import FaultyRest
from services.processes import start, wait_until
from services.rest_catalog import RestCatalog

HINTS = {"write_disposition": "merge", "primary_key": "id"}


@pytest.mark.slow(seconds=50)
def test_a_load_that_was_killed_between_its_tables_is_finished_by_the_next_run(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    before = [{"id": 1, "parts": [{"n": 1}]}, {"id": 2, "parts": [{"n": 2}]}]
    loaded(pipeline.run([resource(before, "t", **HINTS), resource([{"n": 0}], "log")]))
    changes = [{"id": 1, "new": "v", "parts": [{"n": 10}, {"n": 11}]}, {"id": 3}]
    load = {"t": changes, "log": [{"n": 1}], "hints": HINTS}
    command = [sys.executable, str(Path(__file__).with_name("dlt_child.py")), str(lake.folder), json.dumps(load)]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    child = start("dlt", command, lake.folder / "child.log", env={"PYTHONPATH": path})
    wait_until(lambda: not child.running, 200, "its end")
    assert child.process.returncode == -signal.SIGKILL, child.log_text()
    # The rows of one table and of the nested one are there, those of the root are not.
    assert lake.rows("log", "n") == [(0,), (1,)]
    assert lake.rows("t__parts", "n") == [(10,), (11,), (2,)]
    assert lake.rows("t", "id") == [(1,), (2,)]
    assert len(lake.rows("_dlt_loads", "load_id")) == 1

    again = lake.pipeline()
    assert again.has_pending_data
    loaded(again.run())
    assert lake.rows("log", "n") == [(0,), (1,)]
    assert lake.rows("t", "id", "new") == [(1, "v"), (2, None), (3, None)]
    roots = dict(lake.rows("t", "_dlt_id", "id"))
    parts = lake.rows("t__parts", "_dlt_parent_id", "n")
    assert sorted((roots[parent], n) for parent, n in parts) == [(1, 10), (1, 11), (2, 2)]
    assert len(lake.rows("_dlt_loads", "load_id")) == 2
    assert [len(lake.snapshots(name)) for name in ("t", "t__parts", "log")] == [2, 2, 2]


# What the loads below leave, by what they do.
OLD, SECOND, THIRD = [(1, "a")], [(1, "b"), (2, "b")], [(1, "c"), (3, "c")]
DISPOSITIONS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "append": ("append", [*OLD, *SECOND], [*OLD, *SECOND, *THIRD]),
    "replace": ("replace", SECOND, THIRD),
    **{
        name: ({"disposition": "merge", "strategy": name}, SECOND, [(1, "c"), (2, "b"), (3, "c")])
        for name in ("delete-insert", "upsert")
    },
    "insert-only": ({"disposition": "merge", "strategy": "insert-only"}, [(1, "a"), (2, "b")], [(1, "a"), (2, "b"), (3, "c")]),
}


@pytest.mark.slow(seconds=25)
@pytest.mark.parametrize("name", DISPOSITIONS)
def test_a_catalog_that_fails(
    spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest, tmp_path: Path, name: str
) -> None:
    """Commits that are applied and answered with an error are found; a load that is given up is finished by the next run."""
    disposition, *left = DISPOSITIONS[name]
    after_second, after_third = map(sorted, left)
    namespace = f"dlt_faults_{name.replace('-', '_')}"
    catalog = load_catalog("rest", type="rest", uri=rest_catalog.uri)

    def rows() -> list[Any]:
        found = catalog.load_table((namespace, "t")).scan().to_arrow().to_pylist()
        return sorted((row["id"], row["v"]) for row in found)

    def data(of: list[tuple[int, str]]) -> Any:
        given = [{"id": key, "v": value} for key, value in of]
        return resource(given, write_disposition=disposition, primary_key="id")

    def run(*data: Any, tries: int = 3) -> None:
        destination = iceberg_rest(
            catalog_uri=faulty_rest.uri, namespace=namespace, max_retries=tries, retry_backoff_base=1.0, scope=None
        )
        loaded(dlt.pipeline("faults", destination=destination, pipelines_dir=str(tmp_path / "dlt")).run(*data))

    # To look for a table is tried again, too.
    faulty_rest.script([refused(500)] * 3, on="load")
    run(data(OLD))
    assert (rows(), faulty_rest.unused) == (OLD, ())
    faulty_rest.script([applied_then(503), refused(409), applied_then_cut_off()])
    run(data(SECOND))
    assert (rows(), faulty_rest.unused) == (after_second, ())
    faulty_rest.script([refused(503)] * 40)
    with pytest.raises(PipelineStepFailed, match="table t: After 1 attempts it is not known") as failed:
        run(data(THIRD), tries=0)
    assert "[outcome-unknown]" in str(failed.value)
    assert "py4j" not in str(failed.value).lower()
    assert rows() == after_second
    # The next run finds the load in the package. What is applied and denied is found in the table.
    faulty_rest.script([applied_then(500)] * 4)
    run(tries=0)
    assert rows() == after_third


class Meddling(FaultyRest):
    """Lets somebody act before a request goes to the catalog; what that returns is the answer in its place."""

    def __init__(self, backend: str, meddle: Callable[[Asked], Made | None]) -> None:
        self._meddle = meddle
        super().__init__(backend)

    def answer(self, asked: Asked) -> Outcome:
        return self._meddle(asked) or super().answer(asked)


@contextmanager
def meddling(backend: RestCatalog, meddle: Callable[[Asked], Made | None]) -> Iterator[str]:
    """The address of a catalog in which somebody meddles."""
    proxy = Meddling(backend.uri, meddle)
    try:
        yield proxy.uri
    finally:
        proxy.close()


@pytest.mark.slow
def test_a_replace_takes_the_place_of_rows_that_came_meanwhile(
    spark: SparkSession, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    catalog = load_catalog("rest", type="rest", uri=rest_catalog.uri)
    theirs: list[int] = []

    def beside(asked: Asked) -> None:
        """Another writer is faster than the first two commits of the second load."""
        if FaultyRest.kind_of(asked) == "commit" and asked.target.endswith("/dlt_beside/tables/t") and armed and len(theirs) < 2:
            theirs.append(99)
            table = catalog.load_table("dlt_beside.t")
            table.append(pyarrow.table({"id": [99], "_dlt_id": ["x"], "_dlt_load_id": ["x"]}, table.schema().as_arrow()))

    def run(*ids: int) -> None:
        destination = iceberg_rest(catalog_uri=uri, namespace="dlt_beside", retry_backoff_base=1.0, scope=None)
        rows = resource([{"id": number} for number in ids], write_disposition="replace")
        loaded(dlt.pipeline("beside", destination=destination, pipelines_dir=str(tmp_path / "dlt")).run(rows))

    armed = False
    with meddling(rest_catalog, beside) as uri:
        run(1)
        armed = True
        run(2, 3)
    assert theirs == [99, 99]
    assert sorted(catalog.load_table("dlt_beside.t").scan().to_arrow()["id"].to_pylist()) == [2, 3]


@pytest.mark.slow
def test_a_catalog_that_deletes_no_files_drops_tables_without_them(
    spark: SparkSession, rest_catalog: RestCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Polaris does where `DROP_WITH_PURGE_ENABLED` is not set; its answer is made up here, the catalog is another one."""
    words = "Unable to purge entity: t. To enable this feature, set the Polaris configuration DROP_WITH_PURGE_ENABLED"
    refusal = {"error": {"message": words, "type": "ForbiddenException", "code": 403}}

    def refuses(asked: Asked) -> Made | None:
        if asked.method == "DELETE" and "purgerequested=true" in asked.target.lower():
            return Made(403, json.dumps(refusal).encode(), {"Content-Type": "application/json"})
        return None

    catalog = load_catalog("rest", type="rest", uri=rest_catalog.uri)
    with meddling(rest_catalog, refuses) as uri:
        destination = iceberg_rest(catalog_uri=uri, namespace="dlt_polaris", scope=None)
        pipeline = dlt.pipeline("polaris", destination=destination, pipelines_dir=str(tmp_path / "dlt"))
        loaded(pipeline.run(resource([{"id": 1}])))
        files = [task.file.file_path for task in catalog.load_table("dlt_polaris.t").scan().plan_files()]
        with caplog.at_level(logging.WARNING, "frazil"):
            loaded(pipeline.run(resource([{"id": 2}]), refresh="drop_resources"))
    assert catalog.load_table("dlt_polaris.t").scan().to_arrow()["id"].to_pylist() == [2]
    assert all(Path(file.removeprefix("file:")).exists() for file in files)
    assert "dlt_polaris.t was dropped, and its files stay" in caplog.text
