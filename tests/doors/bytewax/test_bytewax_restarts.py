"""Flows that are started again after others were cut off: with stale states, without states, with other parts and other sinks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bytewax.operators as op
import pytest
from bytewax.dataflow import Dataflow
from bytewax.errors import BytewaxRuntimeError
from bytewax.recovery import RecoveryConfig
from bytewax.testing import run_main
from flows import EVERY_ITEM, Numbers, Pond, Script, key_of, plain, rows_of
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimeType
from pyspark.sql import SparkSession

import frazil
from frazil.bytewax import IcebergSink
from frazil.doors.bytewax.sink import IcebergSinkPartition
from frazil.spark import session as sessions

FIRST, SECOND = key_of(0, 2), key_of(1, 2)
# A failure of a part, with or without what Bytewax puts around it.
FAILURES = (BytewaxRuntimeError, frazil.DataError)


def run_script(pond: Pond, *batches: list[tuple[str, Any]], **given: Any) -> None:
    """An epoch a batch, into two parts, each row flushed at once. Bytewax keeps earlier snapshots, to be resumed from them."""
    flow = Dataflow("flow")
    op.output("lake", op.input("script", flow, Script(batches)), pond.sink(num_partitions=2, batch_size=1, **given))
    recovery = RecoveryConfig(pond.recovery.db_dir, backup_interval=timedelta(hours=1))
    run_main(flow, epoch_interval=EVERY_ITEM, recovery_config=recovery)


def built(sink: IcebergSink, *states: Any) -> list[IcebergSinkPartition]:
    """The parts of a sink, by their states."""
    return [sink.build_part("flow.lake", f"part-{number}", state) for number, state in enumerate(states)]


def written(part: IcebergSinkPartition, *numbers: int) -> Any:
    """Its state after rows that a snapshot has committed, one for each."""
    for number in numbers:
        part.write_batch(rows_of([number]))
        state = part.snapshot()
    return state


def test_a_state_that_bytewax_has_kept_of_an_execution_that_was_set_back(pond: Pond) -> None:
    zero, one, two = ((FIRST, plain(number)) for number in range(3))
    wrong = (SECOND, {"id": "wrong"})
    with pytest.raises(FAILURES):
        run_script(pond, [zero], [one], [], [wrong])
    assert pond.ids() == [0, 1]
    pond.resume_from(2)  # the second epoch is repeated; what was stored of it stays in the store
    with pytest.raises(FAILURES):
        run_script(pond, [zero], [], [one, wrong])
    assert pond.ids() == [0, 1], "what came again was taken back first; the second part has failed"
    pond.resume_from(3)  # the first part had no row in the second epoch: its state is the one of the first execution
    run_script(pond, [zero], [], [one, two])
    assert pond.ids() == [0, 1, 2]


def test_a_stale_state_that_may_hide_another_is_a_question_for_a_person(pond: Pond) -> None:
    (working,) = built(pond.sink(), None)
    first, stale = written(working, 1), written(working, 2)
    (again,) = built(pond.sink(), first)
    assert pond.ids() == [1]
    written(again, 3)
    with pytest.raises(frazil.Halted, match=r"db\.t, part-0: Bytewax resumes part-0 from a state of an execution") as caught:
        built(pond.sink(), stale)
    assert caught.value.code == "state-stale"
    assert pond.ids() == [1, 3]
    built(pond.sink(on_fresh_start="append"), stale)
    assert pond.ids() == [1, 3]
    built(pond.sink(on_fresh_start="undo"), first)
    assert pond.ids() == [1], "the way back goes through all that was taken back before"


@pytest.mark.slow
def test_what_was_taken_back_is_known_even_when_nothing_was_written_since(pond: Pond) -> None:
    (working,) = built(pond.sink(), None)
    first, stale = written(working, 1), written(working, 2)
    built(pond.sink(), first)
    (last,) = built(pond.sink(), stale)
    assert pond.ids() == [1]
    assert written(last, 2)["seq"] == 2
    assert pond.ids() == [1, 2]


def test_a_flow_of_which_another_sink_has_failed_has_not_ended(pond: Pond) -> None:
    def run(*wrong: int) -> None:
        flow = Dataflow("flow")
        numbers = op.input("numbers", flow, Numbers(2))
        first = op.filter_map("first", numbers, lambda n: ("key", plain(n)) if n == 0 else None)
        rest = op.map("rest", numbers, lambda n: ("key", {"id": "wrong"} if n in wrong else plain(n)))
        op.output("lake", first, pond.sink())
        op.output("sea", rest, pond.sink(table_name="db.sea", batch_size=1))
        run_main(flow, epoch_interval=EVERY_ITEM)

    with pytest.raises(FAILURES):
        run(1)
    assert pond.ids() == [0]
    run()
    assert (pond.ids(), pond.ids("db.sea")) == ([0], [0, 1]), "all rows came again"
    run()
    assert (pond.ids(), pond.ids("db.sea")) == ([0, 0], [0, 0, 1, 1]), "what has ended is kept"


@pytest.mark.slow
def test_a_part_without_a_state_that_others_of_its_run_have_was_never_stored(pond: Pond) -> None:
    parts = built(pond.sink(num_partitions=2), None, None)
    first, _ = written(parts[0], 1), written(parts[1], 2)
    for part in parts:
        part.close()
    built(pond.sink(num_partitions=2), first, None)
    assert pond.ids() == [1], "Bytewax sends the other row again, though it looks as if the flow had ended"


@pytest.mark.slow
def test_a_long_run_is_not_taken_back_by_a_part_that_had_little_of_it(pond: Pond) -> None:
    often, seldom = built(pond.sink(num_partitions=3), None, None)
    written(seldom, 100)
    written(often, *range(11))
    sink = pond.sink(num_partitions=3)
    sink.build_part("flow.lake", "part-2", None)  # had nothing at all
    with pytest.raises(frazil.Halted, match=r"db\.t, part-0: Bytewax starts without a state"):
        sink.build_part("flow.lake", "part-1", None)
    assert pond.ids() == [*range(11), 100]


@pytest.mark.slow
def test_a_run_that_went_on_for_long_is_a_question_for_a_person_however_few_rows_it_had(pond: Pond) -> None:
    now = 0.0
    sink = IcebergSink(pond.config(num_partitions=2), clock=lambda: now)
    (first,) = built(sink, None)
    written(first, 1)
    now = 601
    written(first, 2)
    with pytest.raises(frazil.Halted, match="Bytewax starts without a state"):
        built(pond.sink(num_partitions=2), None)
    assert pond.ids() == [1, 2]


@pytest.mark.slow
def test_parts_that_there_are_no_more_are_taken_back_like_the_others(pond: Pond) -> None:
    for part, number in zip(built(pond.sink(num_partitions=3), None, None, None), range(3), strict=True):
        written(part, number)
    pond.run(Numbers(3), recovery=False)
    assert pond.ids() == [0, 1, 2]
    pond.run(Numbers(3), recovery=False)
    assert pond.ids() == [0, 0, 1, 1, 2, 2], "what has ended is kept"


@pytest.mark.slow
def test_parts_that_there_are_no_more_stop_the_flow_when_nobody_can_tell(pond: Pond) -> None:
    parts = built(pond.sink(num_partitions=3), None, None, None)
    written(parts[2], *range(11))
    with pytest.raises(frazil.Halted, match=r"db\.t, part-2: Bytewax starts without a state"):
        built(pond.sink(num_partitions=2), None)
    built(pond.sink(num_partitions=2, on_fresh_start="append"), None)
    built(pond.sink(num_partitions=2), None)
    built(pond.sink(num_partitions=2, on_fresh_start="undo"), None)
    assert pond.ids() == list(range(11)), "once kept they are no longer the last run's"


def test_options_of_spark_that_come_too_late_are_refused_and_others_are_those_of_the_sink(
    pond: Pond, spark: SparkSession
) -> None:
    with pytest.raises(frazil.ConfigError, match=r"Spark runs in this process already, with spark\.master=") as caught:
        pond.sink(extra_options={"spark": {"master": "local[7]"}}).list_parts()
    assert caught.value.code == "spark-runs-already"
    before = spark.conf.get("spark.sql.shuffle.partitions")
    (part,) = built(pond.sink(extra_options={"spark": {"conf": {"spark.sql.shuffle.partitions": "3"}}}), None)
    written(part, 1)
    assert (pond.ids(), spark.conf.get("spark.sql.shuffle.partitions")) == ([1], before)


def test_a_catalog_whose_jars_the_running_spark_lacks_is_refused(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test may have given this process the jars.
    monkeypatch.setitem(sessions._CLASSES, "gcp", "of.no.Jar")
    with pytest.raises(frazil.FrazilError) as caught:
        pond.sink(warehouse_path="gs://bucket/lake").list_parts()
    assert caught.value.code == "jars-missing"
    assert caught.value.message == "Spark runs in this process already, without the jars of gcp."
    assert "frazil.session(components=['core', 'gcp'])" in caught.value.fix


def test_columns_that_python_has_no_values_for_here_are_reported_at_the_start(pond: Pond) -> None:
    pond.sink().list_parts()
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "at", TimeType(), required=False))
    pond.table().catalog.create_table("db.timed", schema)
    with pytest.raises(frazil.ConfigError, match=r"table db\.timed: there are columns .*: 'at' \(time\)\."):
        pond.sink(table_name="db.timed", arrow_schema=None).list_parts()
