"""Flows of Bytewax into a table: what is written when, and that every row is there once whatever happens."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import Counter
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from bytewax.errors import BytewaxRuntimeError
from bytewax.testing import cluster_main
from flows import Numbers, Pond, plain, rows_of

import frazil
from frazil.bytewax import IcebergSink
from frazil.doors.bytewax.sink import IcebergSinkPartition
from frazil.model.events import Committed, Event
from services.processes import wait_until

LONG = timedelta(hours=1)


def causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while (cause := found[-1].__cause__) is not None:
        found.append(cause)
    return found


def failure(pond: Pond, source: Numbers, **given: Any) -> frazil.FrazilError:
    """What stops the flow, out of the layers that Bytewax puts around it."""
    with pytest.raises((BytewaxRuntimeError, frazil.FrazilError)) as caught:
        pond.run(source, **given)
    (own,) = [one for one in causes(caught.value) if isinstance(one, frazil.FrazilError)]
    return own


def part(pond: Pond, state: Any = None, name: str = "part-0", **given: Any) -> IcebergSinkPartition:
    return pond.sink(**given).build_part("flow.lake", name, state)


def test_an_epoch_of_each_part_is_one_commit(pond: Pond) -> None:
    pond.run(Numbers(6), epoch=LONG, num_partitions=2, partition_spec=["id"])
    assert pond.ids() == list(range(6))
    made = pond.snapshots()
    assert Counter(one["frazil.sink"] for one in made) == {"flow.lake/part-0": 1, "flow.lake/part-1": 1}
    assert [one["changed-partition-count"] for one in made] == ["3", "3"], "all partitions of the table in one commit"


def test_enough_rows_are_flushed_before_the_epoch_ends(pond: Pond) -> None:
    pond.run(Numbers(5), epoch=LONG, batch_size=2)
    assert [one["frazil.rows-in"] for one in pond.snapshots()] == ["2", "2", "1"]


def test_rows_do_not_wait_for_others_to_be_flushed(pond: Pond) -> None:
    written = threading.Event()
    sink = IcebergSink(pond.config(batch_interval_seconds=1), listeners=(lambda event: _tell(event, written),))
    waiting = sink.build_part("flow.lake", "part-0", None)
    waiting.write_batch(rows_of([1, 2]))
    assert written.wait(60), "nothing else is written, and no snapshot is taken"
    assert pond.ids() == [1, 2]
    waiting.write_batch(rows_of([3]))
    wait_until(lambda: pond.ids() == [1, 2, 3], 60, "the second flush")
    waiting.close()


def _tell(event: Event, written: threading.Event) -> None:
    if isinstance(event, Committed):
        written.set()


@pytest.mark.parametrize("size", [1, 1000])
def test_aborted_at_every_poll_and_resumed_each_row_is_there_once(pond: Pond, size: int) -> None:
    """With size 1 every row is in the table before its epoch ends: what is then sent again must be taken back."""
    for poll in range(1, 6):
        pond.run(Numbers(4, abort_at=poll), batch_size=size, num_partitions=2, epoch=timedelta(0) if size > 1 else LONG)
        assert all(times == 1 for times in Counter(pond.ids()).values()), f"aborted at {poll}"
    pond.run(Numbers(4), num_partitions=2)
    assert pond.ids() == [0, 1, 2, 3]
    pond.run(Numbers(4), num_partitions=2)
    assert pond.ids() == [0, 1, 2, 3], "started again at its end, the flow adds nothing"


def test_resumed_from_any_snapshot_after_any_crash_the_table_is_what_bytewax_knows(pond: Pond) -> None:
    """Drives a part as Bytewax does, but forgets snapshots, as if they had never been stored, and never closes it."""
    chance = random.Random(11)
    states: list[tuple[Any, int]] = [(None, 0)]
    numbers, written = count(), list[int]()
    for _ in range(6):
        del states[chance.randint(1, len(states)) :]
        states = states[-1:]  # what Bytewax resumed from, it never goes behind
        state, length = states[-1]
        del written[length:]
        working = part(pond, state, batch_size=2)
        assert pond.ids() == sorted(written) if pond.folder.joinpath("warehouse").exists() else not written
        for _ in range(chance.randint(1, 3)):
            batch = [next(numbers) for _ in range(chance.randint(1, 3))]
            working.write_batch(rows_of(batch))
            written += batch
            if chance.random() < 0.6:
                states.append((working.snapshot(), len(written)))
    assert len(pond.snapshots("rewind")) >= 2, "some rows were taken back"


@pytest.mark.slow
def test_three_workers_of_which_one_fails(pond: Pond) -> None:
    failed = threading.Event()

    def row(number: int) -> dict[str, Any]:
        if number == 7 and not failed.is_set():
            failed.set()
            raise RuntimeError("a worker fails")
        return plain(number)

    def run() -> None:
        flow = pond.flow(Numbers(10), row, num_partitions=3, batch_size=1)
        cluster_main(flow, [], 0, worker_count_per_proc=3, recovery_config=pond.recovery, epoch_interval=timedelta(0))

    with pytest.raises(BytewaxRuntimeError):
        run()
    run()
    assert pond.ids() == list(range(10))
    assert {one["frazil.sink"] for one in pond.snapshots()} == {f"flow.lake/part-{n}" for n in range(3)}


def test_without_recovery_a_flow_that_ended_adds_its_rows_again_and_one_that_was_cut_off_does_not(pond: Pond) -> None:
    pond.run(Numbers(2), recovery=False)
    pond.run(Numbers(2), recovery=False)
    assert pond.ids() == [0, 0, 1, 1]
    pond.run(Numbers(2, abort_at=2), recovery=False, batch_size=1, epoch=LONG)
    assert pond.ids() == [0, 0, 0, 1, 1]
    pond.run(Numbers(2), recovery=False)
    assert pond.ids() == [0, 0, 0, 1, 1, 1]


def test_a_long_run_without_a_state_is_a_question_for_a_person(pond: Pond) -> None:
    cut_off = part(pond)
    for number in range(11):
        cut_off.write_batch(rows_of([number]))
        cut_off.snapshot()
    with pytest.raises(frazil.Halted, match=r"db\.t, part-0: Bytewax starts without a state") as caught:
        part(pond)
    assert "on_fresh_start='undo'" in caught.value.fix
    assert "on_fresh_start='append'" in caught.value.fix
    assert len(pond.ids()) == 11
    part(pond, on_fresh_start="append", batch_size=1).write_batch(rows_of([11]))
    assert pond.ids() == list(range(12))
    part(pond, on_fresh_start="undo")
    assert pond.ids() == list(range(11)), "only the last run"


def test_a_run_that_was_resumed_and_has_ended_is_not_followed_by_one_without_its_state(pond: Pond) -> None:
    pond.run(Numbers(4, abort_at=3))
    pond.run(Numbers(4))
    error = failure(pond, Numbers(4), recovery=False)
    assert (error.code, "that was resumed before" in error.message) == ("state-missing", True)
    assert pond.ids() == [0, 1, 2, 3]
    pond.run(Numbers(1), recovery=False, on_fresh_start="append")
    assert pond.ids() == [0, 0, 1, 2, 3]


def test_rows_of_others_stay_when_ours_are_taken_back(pond: Pond) -> None:
    working = part(pond, batch_size=1)
    working.write_batch(rows_of([1]))
    state = working.snapshot()
    working.write_batch(rows_of([2]))
    pond.table().append(pa.table({"id": [100], "name": ["other"]}, pond.table().schema().as_arrow()))
    working.write_batch(rows_of([3]))
    part(pond, state)
    assert pond.ids() == [1, 100]
    assert pond.snapshots("rewind")[-1]["frazil.batches-taken-back"] == "2"


def test_rows_whose_files_were_rewritten_stop_the_resume(pond: Pond, spark: Any) -> None:
    working = part(pond, batch_size=1)
    working.write_batch(rows_of([1]))
    state = working.snapshot()
    working.write_batch(rows_of([2]))
    table = pond.table()
    table.overwrite(table.scan().to_arrow())  # as compaction does: the same rows in another file
    with pytest.raises(frazil.Halted, match="cannot be taken back out") as caught:
        part(pond, state)
    assert caught.value.code == "batches-not-removable"
    assert pond.ids() == [1, 2]


def test_an_instance_that_was_replaced_writes_nothing_more(pond: Pond) -> None:
    old = part(pond, batch_size=1)
    old.write_batch(rows_of([1]))
    state = old.snapshot()
    new = part(pond, state, batch_size=1)
    with pytest.raises(frazil.Fenced):
        old.write_batch(rows_of([2]))
    new.write_batch(rows_of([2]))
    assert pond.ids() == [1, 2]


def test_a_wrong_row_stops_the_flow_and_after_the_cure_each_row_is_there_once(pond: Pond) -> None:
    error = failure(pond, Numbers(4), row=lambda n: plain(n) | ({"name": n} if n == 2 else {}), num_partitions=2, epoch=LONG)
    assert error.message.startswith("The field 'name' (string): 2 (int) is not a text")
    pond.run(Numbers(4), num_partitions=2, epoch=LONG)
    assert pond.ids() == [0, 1, 2, 3]


def test_a_sink_that_has_failed_can_be_run_again(pond: Pond) -> None:
    sink = pond.sink()
    failure(pond, Numbers(2), recovery=False, sink=sink, row=lambda n: {"id": "wrong"})
    for _ in range(2):
        pond.run(Numbers(2), recovery=False, sink=sink)
    assert pond.ids() == [0, 0, 1, 1], "both runs came to their end"


def test_a_table_that_is_there_needs_no_schema(pond: Pond) -> None:
    pond.run(Numbers(1), recovery=False)
    pond.run(Numbers(2), recovery=False, arrow_schema=None)
    assert pond.ids() == [0, 0, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arrow_schema": pa.schema([("id", pa.string())])}, "'id' is declared as string, and the table has long"),
        ({"arrow_schema": pa.schema([("id", pa.int64()), ("nam", pa.string())])}, "'nam' is not in the table"),
        ({"arrow_schema": None, "table_name": "db.other"}, "db.other does not exist"),
        ({"partition_spec": ["name"]}, "is partitioned not at all, but the sink asks for"),
        ({"temp_dir": "/tmp"}, "temp_dir: Spark runs in this process already, with"),
        ({"sort_order": ["id desc"]}, "is sorted not at all, but the sink asks for id desc nulls last"),
        ({"arrow_schema": None, "extra_options": {"error_column": "error"}}, "error_column: 'error' is not an optional string"),
    ],
)
def test_a_schema_that_is_not_the_tables_is_reported_at_the_start(pond: Pond, given: dict[str, Any], message: str) -> None:
    pond.sink().list_parts()
    with pytest.raises(frazil.FrazilError) as caught:
        pond.sink(**given).list_parts()
    assert message in caught.value.message
    assert "partition_evolution" not in caught.value.fix
    assert "sort_by" not in caught.value.fix
    assert all(f"{name} out" in caught.value.fix for name in ("partition_spec", "sort_order") if name in given)


def test_a_missing_table_that_may_not_be_made_is_reported_with_the_options_of_the_sink(pond: Pond) -> None:
    with pytest.raises(frazil.ConfigError, match="auto_create_table is disabled") as caught:
        pond.sink(extra_options={"auto_create_table": False}).list_parts()
    assert "do not set auto_create_table=False in extra_options" in caught.value.fix


def test_a_table_that_is_changed_while_the_flow_writes_is_reported(pond: Pond) -> None:
    working = part(pond, batch_size=1)
    working.write_batch(rows_of([1]))
    with pond.table().update_schema() as update:
        update.delete_column("name")
    with pytest.raises(frazil.DataError, match="column 'name'") as caught:
        working.write_batch(rows_of([2]))
    assert caught.value.fix.startswith("The schema is static: change the table back")


def test_partitions_are_computed_from_source_fields_and_files_are_sorted(pond: Pond) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
    first = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    given = {
        "arrow_schema": schema,
        "partition_spec": ["hour(at)", "truncate(1, name)", 1],
        "sort_order": ["name desc"],
        "extra_options": {"extra_columns": "refuse"},
    }
    part(pond, **given).write_batch([])
    working = part(pond, batch_size=2, **given)
    working.write_batch([{"id": 1, "at": first, "name": "aa"}, {"id": 1, "at": first, "name": "ab"}])
    assert [row["name"] for row in pond.rows()] == ["ab", "aa"]
    partitions = {str(key): value for key, value in pond.table().inspect.partitions().to_pylist()[0]["partition"].items()}
    assert partitions == {"at_hour": 490896, "name_trunc_1": "a", "id": 1}
    with pytest.raises(frazil.DataError, match="the field 'at_hour', which is not in the schema"):
        working.write_batch([{"id": 1, "at": first, "at_hour": 5}] * 2)


def test_wrong_values_are_kept_with_their_error_when_there_are_columns_for_it(pond: Pond) -> None:
    schema = pa.schema([("id", pa.int64()), ("error", pa.string()), ("raw", pa.string())])
    options = {"extra_options": {"error_column": "error", "raw_column": "raw"}, "arrow_schema": schema}
    working = part(pond, batch_size=3, **options)
    working.write_batch([{"id": 1}, {"id": "two"}, {"id": 3, "error": "its own", "raw": "r"}])
    assert pond.rows() == [
        {"id": 1, "error": None, "raw": None},
        {"id": None, "error": "id: 'two' (str) is not a whole number", "raw": '{"id":"two"}'},
        {"id": 3, "error": "its own", "raw": "r"},
    ]


def test_another_number_of_parts_is_refused_on_resume(pond: Pond) -> None:
    pond.run(Numbers(2), num_partitions=2)
    error = failure(pond, Numbers(3), num_partitions=3)
    assert error.message.startswith("num_partitions: it was 2 when Bytewax stored its state, and is 3 now")


def test_the_recovery_store_of_another_table_is_refused(pond: Pond) -> None:
    pond.run(Numbers(1))
    error = failure(pond, Numbers(2), table_name="db.another")
    assert (error.code, "has no rows of this sink" in error.message) == ("state-ahead", True)


def test_something_that_is_no_row_is_reported(pond: Pond) -> None:
    error = failure(pond, Numbers(1), row=lambda n: ["a", "list"])
    assert error.message == "The sink takes (key, row) with a dictionary as the row, not list."
