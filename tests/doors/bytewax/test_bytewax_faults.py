"""A catalog that fails while rows wait: what was not settled is settled later, and every row is there once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flows import Pond, rows_of
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import frazil
from frazil.doors.bytewax.sink import IcebergSinkPartition
from services.faults import Fault, applied_then, refused
from services.faulty_rest import FaultyRest
from services.processes import wait_until
from services.rest_catalog import RestCatalog

# More than are asked for before a test lets them through again.
MANY = 50


@dataclass
class RestPond(Pond):
    """A table of a REST catalog, which others reach at another address than the sink."""

    behind: str = ""

    def table(self, name: str = "") -> Table:
        return load_catalog("behind", type="rest", uri=self.behind).load_table(name or self.options["table_name"])


@pytest.fixture
def pond(spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest, tmp_path: Path) -> RestPond:
    """Whatever fails at the catalog fails a flush: nothing is tried twice."""
    options = {
        "catalog_type": "rest",
        "catalog_uri": faulty_rest.uri,
        "warehouse_path": "",
        "table_name": f"n{uuid4().hex}.t",
        "batch_interval_seconds": 1,
        "extra_options": {"retry": {"max_retries": 0}, "rest.client.max-retries": "1"},
    }
    return RestPond(tmp_path, options, rest_catalog.uri)


def part(pond: RestPond, state: Any = None, **given: Any) -> IcebergSinkPartition:
    return pond.sink(**given).build_part("flow.lake", "part-0", state)


def failed_at_an_interval(
    working: IcebergSinkPartition, rows: list[int], proxy: FaultyRest, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    """Rows whose flush fails with a fault, after which the catalog does not answer to those who want to look."""
    proxy.script([replace(fault, meanwhile=lambda: proxy.script([refused(503)] * MANY, on="load"))])
    working.write_batch(rows_of(rows))
    wait_until(lambda: "a flush failed, and is tried again: After 1 attempts" in caplog.text, 60, "the failed flush")
    assert working.waiting == len(rows)


def answers_again(proxy: FaultyRest) -> None:
    proxy.script([], on="load")


def by_enough_rows(_: IcebergSinkPartition) -> None:
    """With the last row there are."""


def by_the_interval(working: IcebergSinkPartition) -> None:
    wait_until(lambda: working.waiting == 0, 60, "the next flush")


def by_a_snapshot(working: IcebergSinkPartition) -> None:
    working.snapshot()


@pytest.mark.parametrize(("size", "flushed"), [(6, by_enough_rows), (1000, by_the_interval), (1000, by_a_snapshot)])
@pytest.mark.parametrize("applied", [True, False])
def test_rows_that_come_after_a_flush_of_unknown_outcome_are_not_taken_for_part_of_it(
    pond: RestPond,
    faulty_rest: FaultyRest,
    caplog: pytest.LogCaptureFixture,
    applied: bool,
    size: int,
    flushed: Callable[[IcebergSinkPartition], None],
) -> None:
    working = part(pond, batch_size=size)
    fault = applied_then(502, html=True) if applied else refused(502, html=True)
    failed_at_an_interval(working, [1, 2], faulty_rest, caplog, fault)
    assert pond.ids() == ([1, 2] if applied else [])
    working.write_batch(rows_of([3, 4, 5]))
    answers_again(faulty_rest)
    working.write_batch(rows_of([6]))
    flushed(working)
    state = working.snapshot()
    assert pond.ids() == [1, 2, 3, 4, 5, 6]
    part(pond, state)
    assert pond.ids() == [1, 2, 3, 4, 5, 6], "what Bytewax knows of is what the table has"


def test_a_flush_of_unknown_outcome_that_bytewax_does_not_know_of_is_taken_back(
    pond: RestPond, faulty_rest: FaultyRest, caplog: pytest.LogCaptureFixture
) -> None:
    working = part(pond, batch_size=2)
    working.write_batch(rows_of([1, 2]))
    state = working.snapshot()
    failed_at_an_interval(working, [3], faulty_rest, caplog, applied_then(502, html=True))
    with pytest.raises(frazil.Retryable):
        working.snapshot()
    working.close()
    answers_again(faulty_rest)
    assert pond.ids() == [1, 2, 3]
    part(pond, state)
    assert pond.ids() == [1, 2]


def test_a_run_that_ended_well_after_a_failure_that_passed_has_finished(
    pond: RestPond, faulty_rest: FaultyRest, caplog: pytest.LogCaptureFixture
) -> None:
    sink = pond.sink(num_partitions=2)
    first, second = (sink.build_part("flow.lake", f"part-{n}", None) for n in range(2))
    failed_at_an_interval(first, [1], faulty_rest, caplog, refused(503))
    answers_again(faulty_rest)
    second.write_batch(rows_of([2]))
    for one in (first, second):
        one.snapshot()
    for one in (first, second):
        one.close()
    again = pond.sink(num_partitions=2)
    for n in range(2):
        again.build_part("flow.lake", f"part-{n}", None)
    assert pond.ids() == [1, 2], "a fresh start keeps the rows of both"
    assert pond.snapshots("rewind") == []
