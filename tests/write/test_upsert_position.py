"""Upserts that find rows by the key index, which is a cache: the table is right whatever becomes of either."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import frazil
from exactly_once.programs.moments import act_at
from frazil.model.events import CommitFailed, Event, Staged
from frazil.spark.cache import state_dir
from helpers.lakes import Lake
from helpers.readers import by_duckdb, by_polars, by_pyiceberg, by_spark, tuples

READERS = (by_spark, by_duckdb, by_pyiceberg, by_polars)
UPSERT: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": "position"}


def upsert(lake: Lake, keys: str, value: str, *, op: str | None = None, **options: Any) -> list[Event]:
    """Rows with the keys that a query of `id` gives, or deletes of them; what was heard."""
    events: list[Event] = []
    said = {"op_field": "op"} if op else {}
    query = f"select id, '{value}' v, id % 3 part{f', {op!r} op' if op else ''} from ({keys})"
    lake.sink(query, **UPSERT | said | options).listen(events.append).write()
    return events


def last_summary(lake: Lake) -> dict[str, str]:
    """What the newest snapshot with rows says of itself."""
    return dict(lake.data_snapshots()[-1].summary)


def by_position(lake: Lake) -> None:
    """The last batch was written by positions, and no equality delete is left to readers."""
    summary = last_summary(lake)
    assert (summary["frazil.upsert-strategy"], summary["total-equality-deletes"]) == ("position", "0")


def values(lake: Lake) -> dict[int, str]:
    rows = lake.rows("id, v")
    assert len({key for key, _ in rows}) == len(rows), "a key is there twice"
    return dict(rows)


def index_folder() -> Path:
    """The index that was written last, which is that of the lake's table."""
    states = (state_dir() / "key-index").glob("db.t-*/state")
    return max(states, key=lambda state: state.stat().st_mtime_ns).parent


@pytest.mark.parametrize("partition", [[], ["part"], ["bucket(2, id)"]], ids=str)
@pytest.mark.parametrize("version", [2, 3])
def test_every_reader_reads_every_snapshot(lake: Lake, version: int, partition: list[str]) -> None:
    given = {"format_version": version, "partition_by": partition}
    upsert(lake, "select id from range(300)", "a", **given)
    expected = [dict.fromkeys(range(300), "a")]
    for number, (keys, value, op) in enumerate(
        [
            ("id * 3 id from range(150)", "b", None),
            ("id * 7 id from range(20)", "gone", "delete"),
            ("id from range(90)", "c", None),
        ]
    ):
        upsert(lake, f"select {keys}", value, op=op, **given)
        by_position(lake)
        step = [3 * n for n in range(150)] if number == 0 else [7 * n for n in range(20)] if number == 1 else list(range(90))
        after = {key: old for key, old in expected[-1].items() if number != 1 or key not in step}
        expected.append(after | (dict.fromkeys(step, value) if number != 1 else {}))
    for snapshot, state in zip(lake.data_snapshots(), expected, strict=True):
        rows = sorted([(key, value, key % 3) for key, value in state.items()], key=repr)
        for read in READERS:
            assert tuples(read(lake, snapshot.snapshot_id)) == rows, read.__name__


def test_a_row_that_moves_to_another_partition_leaves_the_old_one(lake: Lake) -> None:
    for value, part in (("a", 1), ("b", 2)):
        lake.sink(f"select 7 id, '{value}' v, {part} part", **UPSERT, partition_by=["part"]).write()
    by_position(lake)
    assert lake.rows("id, v, part") == [(7, "b", 2)]


def test_keys_of_several_columns_are_not_confused(lake: Lake) -> None:
    given = UPSERT | {"key_fields": ["a", "b", "n"]}
    lake.sink("select * from values ('x', 'yz', 1, 1), ('xy', 'z', 1, 2), ('x', 'yz', 2, 3) t(a, b, n, v)", **given).write()
    lake.sink("select 'xy' a, 'z' b, 1 n, 20 v", **given).write()
    by_position(lake)
    assert lake.rows("a, b, n, v") == [("x", "yz", 1, 1), ("x", "yz", 2, 3), ("xy", "z", 1, 20)]


@pytest.mark.parametrize("files", ["parquet", "orc", "avro"])
def test_rows_are_found_in_files_of_each_format(lake: Lake, files: str) -> None:
    for value in "abc":
        upsert(lake, "select id from range(50)" if value != "c" else "select id from range(7)", value, file_format=files)
    by_position(lake)
    assert values(lake) == dict.fromkeys(range(7), "c") | dict.fromkeys(range(7, 50), "b")


def test_each_table_of_a_route_has_an_index_of_its_own(lake: Lake) -> None:
    route = {"field": "kind", "remove_field": True}
    given = {"route": route, "namespace": "db", "id": "routed", "format_version": 3}
    for value in "abc":
        rows = f"select id, '{value}' v, if(id % 2 = 0, 'even', 'odd') kind from range({20 if value != 'c' else 6})"
        frazil.sink(lake.introduced().frame(rows)).catalog(**lake.catalog).options(**UPSERT, **given).write()
    expected = [(n, "c" if n < 6 else "b") for n in range(20)]
    assert lake.rows(table="db.even") == sorted(expected[::2], key=repr)
    assert lake.rows(table="db.odd") == sorted(expected[1::2], key=repr)
    (last,) = [s.summary for s in lake.data_snapshots("db.odd")[-1:]]
    assert (last["frazil.upsert-strategy"], last["total-equality-deletes"]) == ("position", "0")


def foreign(lake: Lake, statement: str) -> None:
    lake.spark.sql(statement.format(table=f"{lake.name}.db.t", catalog=lake.name)).collect()


FOREIGN = {
    "compaction": "CALL {catalog}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    "deletes": "DELETE FROM {table} WHERE id % 2 = 0",
    "updates": "UPDATE {table} SET v = 'theirs' WHERE id % 5 = 0",
    "duplicates": "INSERT INTO {table} SELECT id, 'twice', part FROM {table} WHERE id < 20",
    "overwrite": "INSERT OVERWRITE {table} SELECT id, 'anew', part FROM {table} WHERE id < 50",
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("version", [2, 3])
def test_the_index_follows_what_others_commit(lake: Lake, version: int, what: str, caplog: pytest.LogCaptureFixture) -> None:
    upsert(lake, "select id from range(100)", "a", format_version=version, merge_mode="merge-on-read")
    upsert(lake, "select id from range(10)", "b")
    foreign(lake, FOREIGN[what])
    if what == "duplicates":
        foreign(lake, "DELETE FROM {table} WHERE v = 'twice' AND id < 5")
    theirs = lake.rows("id, v")
    upsert(lake, "select id from range(60)", "c")
    by_position(lake)
    duplicates = last_summary(lake).get("frazil.duplicate-rows-removed")
    assert (duplicates, "has 30 rows with 15 keys" in caplog.text) == (("15", True) if what == "duplicates" else (None, False))
    assert values(lake) == {key: value for key, value in theirs if key >= 60} | dict.fromkeys(range(60), "c")
    upsert(lake, "select id from range(70)", "gone", op="delete")
    assert "frazil.duplicate-rows-removed" not in last_summary(lake)
    assert values(lake) == {key: value for key, value in theirs if key >= 70}


def test_rows_that_live_again_are_found_again(lake: Lake) -> None:
    upsert(lake, "select id from range(50)", "a")
    before = lake.data_snapshots()[-1].snapshot_id
    upsert(lake, "select id from range(50)", "b")
    upsert(lake, "select id from range(10)", "c")
    lake.sink("select 1 id, 'x' v, 1 part", **UPSERT).id("other").write()
    foreign(lake, f"CALL {{catalog}}.system.rollback_to_snapshot('db.t', {before})")
    lake.sink("select id, 'd' v, id % 3 part from range(20)", **UPSERT).id("third").write()
    assert values(lake) == dict.fromkeys(range(20), "d") | dict.fromkeys(range(20, 50), "a")


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("version", [3, 2])
def test_rows_that_others_change_before_the_commit_are_looked_up_again(lake: Lake, version: int, what: str) -> None:
    upsert(lake, "select id from range(100)", "a", format_version=version, merge_mode="merge-on-read")
    upsert(lake, "select id * 10 id from range(10)", "a")
    undo = act_at("unsent", 1, lambda: foreign(lake, FOREIGN[what]))
    try:
        events = upsert(lake, "select id from range(40)", "b")
    finally:
        undo()
    assert [event for event in events if isinstance(event, CommitFailed)], "the first try was overtaken"
    assert len([event for event in events if isinstance(event, Staged)]) == 1, "the rows need not be written again"
    by_position(lake)
    found = values(lake)
    assert [found[key] for key in range(40)] == ["b"] * 40
    left = {"deletes": 80, "overwrite": 50}.get(what, 100) - (10 if what == "deletes" else 0)
    assert len(found) == left


def lost(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def torn(folder: Path) -> None:
    state = folder / "state"
    state.write_bytes(state.read_bytes()[:-3])


def shortened(folder: Path) -> None:
    for file in folder.glob("*.run"):
        file.write_bytes(file.read_bytes()[:-24])


def newer(folder: Path) -> None:
    """As a later version of frazil would leave it; the checksum is right."""
    import zlib

    state = folder / "state"
    content = (99).to_bytes(4) + state.read_bytes()[4:-8]
    state.write_bytes(content + zlib.crc32(content).to_bytes(8))


def foldered(folder: Path) -> None:
    for file in folder.glob("*.run"):
        file.unlink()
        (file / "something").mkdir(parents=True)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lost, None),
        (torn, "its state is not whole"),
        (shortened, "does not have the size"),
        (newer, "another version of frazil wrote it, in format 99"),
        (foldered, "cannot be read"),
    ],
)
def test_an_index_that_cannot_be_read_is_built_anew(
    lake: Lake, harm: Callable[[Path], None], why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    upsert(lake, "select id from range(100)", "a")
    upsert(lake, "select id from range(10)", "b")
    harm(index_folder())
    upsert(lake, "select id from range(20)", "c")
    by_position(lake)
    assert [line for line in caplog.messages if "is built anew" in line and (why or "nothing") in line] or why is None
    assert values(lake) == dict.fromkeys(range(20), "c") | dict.fromkeys(range(20, 100), "a")


def test_altered_bytes_of_an_index_are_noticed(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is wrong in the table; the batch goes another way, and the next one has an index again."""
    upsert(lake, "select id from range(1000)", "a")
    sink = lake.sink(**UPSERT)
    for number, (value, keys) in enumerate([("b", 20), ("c", 500), ("d", 500)]):
        sink(lake.frame(f"select id, '{value}' v, id % 3 part from range({keys})"), number)
        summary = last_summary(lake)
        assert summary["frazil.upsert-strategy"] == ("merge" if value == "c" else "position")
        assert ("the checksum of block" in summary["frazil.upsert-reason"]) == (value == "c")
        assert values(lake) == dict.fromkeys(range(keys), value) | dict.fromkeys(range(keys, 1000), "a")
        for file in index_folder().glob("*.run") if value == "b" else ():
            content = bytearray(file.read_bytes())
            for block in range(0, len(content) - 4096, 4096):
                content[block] ^= 1
            file.write_bytes(content)
    assert "a later batch builds the index anew" in caplog.text


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """A small disk, where one can be mounted; else the device that is always full, in place of a file."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=False, capture_output=True).returncode:
        (folder / "state.new").symlink_to("/dev/full")
        yield
    else:
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_costs_speed_and_nothing_else(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert(lake, "select id from range(20000)", "a")
    folder = lake.folder / "index"
    with full_disk(folder):
        monkeypatch.setattr("frazil.write.setup.WriterSetup.index_folder", lambda *_: folder)
        sink = lake.sink(**UPSERT)
        for number, value in enumerate("bc"):
            sink(lake.frame(f"select id, '{value}' v, id % 3 part from range(10)"), number)
            summary = last_summary(lake)
            assert summary["frazil.upsert-strategy"] == "merge"
            assert "No space left on device" in summary["frazil.upsert-reason"]
            assert {file.name for file in folder.iterdir()} == {"lock"}, "what is of no use takes no room"
    assert values(lake) == dict.fromkeys(range(10), "c") | dict.fromkeys(range(10, 20000), "a")


def test_more_keys_than_the_driver_takes_at_once_come_in_parts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """60,000 keys are 1.4 MB. The rows of a file of this size cannot be divided among tasks."""
    for first in range(0, 60_000, 15_000):
        upsert(lake, f"select id from range({first}, {first + 15_000})", "a", maintenance={"enabled": False})
    conf = lake.spark.sparkContext._jsc.sc().conf()
    ways = []
    try:
        for limit, value in (("1m", "b"), ("200k", "c")):
            conf.set("spark.driver.maxResultSize", limit)
            monkeypatch.setenv("FRAZIL_STATE_DIR", str(lake.folder / value))
            upsert(lake, "select id from range(10)", value)
            ways.append(last_summary(lake)["frazil.upsert-strategy"])
            entries = sum(file.stat().st_size for file in index_folder().glob("*.run")) / 24
            assert 60_000 <= entries < 63_000
    finally:
        conf.remove("spark.driver.maxResultSize")
    assert ways == ["position", "position"]
    assert values(lake) == dict.fromkeys(range(10), "c") | dict.fromkeys(range(10, 60_000), "a")


def test_of_two_writers_of_a_process_the_later_one_has_the_index(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert(lake, "select id from range(100)", "a")
    monkeypatch.setattr("frazil.write.setup.WriterSetup.index_folder", lambda *_: lake.folder / "index")
    one, other = (lake.sink(**UPSERT).id(name) for name in ("one", "other"))
    ways = []
    for number, (sink, value) in enumerate([(one, "b"), (other, "c"), (one, "d"), (other, "e")]):
        sink(lake.frame(f"select id, '{value}' v, id % 3 part from range({10 * number}, {10 * number + 20})"), number // 2)
        ways.append(
            (last_summary(lake)["frazil.upsert-strategy"], "another writer" in last_summary(lake)["frazil.upsert-reason"])
        )
    assert ways == [("position", False), ("position", False), ("merge", True), ("position", False)]
    expected = {key: "bcde"[min(key // 10, 3)] for key in range(50)}
    assert values(lake) == expected | dict.fromkeys(range(50, 100), "a")


def test_whatever_a_kill_leaves_of_an_index_is_put_in_order(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """As files are between the steps of writing a run, merging, replacing the state, and deleting what is of no use any more."""

    def kept(name: str) -> Path:
        return Path(shutil.copytree(index_folder(), lake.folder / name))

    upsert(lake, "select id from range(2000)", "a")
    upsert(lake, "select id from range(300)", "b")
    before = kept("before")
    foreign(lake, FOREIGN["compaction"])
    foreign(lake, FOREIGN["updates"])
    upsert(lake, "select id from range(1500)", "c")
    after = kept("after")
    runs = {name: {file.name for file in folder.glob("*.run")} for name, folder in (("before", before), ("after", after))}
    assert runs["after"] - runs["before"], "a run was written"
    theirs = {key: value for key, value in lake.rows("id, v") if key >= 1500}
    for number, (state, half) in enumerate([(before, True), (before, False), (after, False)]):
        folder = index_folder()
        for file in folder.iterdir():
            if file.name != "lock":
                file.unlink()
        for file in [*before.glob("*.run"), *after.glob("*.run")]:
            shutil.copy(file, folder)
        for name in runs["after"] - runs["before"] if half else ():
            (folder / name).write_bytes((after / name).read_bytes()[:-1000])
        shutil.copy(state / "state", folder)
        (folder / "state.new").write_bytes((after / "state").read_bytes()[:-10])
        upsert(lake, "select id from range(1500)", str(number))
        by_position(lake)
        assert values(lake) == theirs | dict.fromkeys(range(1500), str(number))
        assert "is built anew" not in caplog.text
        left = sum(file.stat().st_size for file in folder.iterdir())
        assert left < 2 * sum(file.stat().st_size for file in after.iterdir()), "what is of no use was deleted"


def test_an_index_of_a_table_that_was_dropped_is_not_used_for_the_next(lake: Lake) -> None:
    upsert(lake, "select id from range(100)", "a")
    upsert(lake, "select id from range(100)", "b")
    lake.spark.sql(f"DROP TABLE {lake.name}.db.t PURGE")
    upsert(lake, "select id from range(50)", "c")
    upsert(lake, "select id from range(10)", "d")
    by_position(lake)
    assert values(lake) == dict.fromkeys(range(10), "d") | dict.fromkeys(range(10, 50), "c")


def test_a_folder_that_cannot_be_written_to_costs_speed_and_nothing_else(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert(lake, "select id from range(100)", "a")
    blocked = lake.folder / "no folder"
    blocked.write_text("")
    monkeypatch.setenv("FRAZIL_STATE_DIR", str(blocked))
    sink = lake.sink(**UPSERT)
    for number, value in enumerate("bc"):
        sink(lake.frame(f"select id, '{value}' v, id % 3 part from range(10)"), number)
        summary = last_summary(lake)
        assert summary["frazil.upsert-strategy"] == "merge"
        assert "key index" in summary["frazil.upsert-reason"]
        assert str(blocked) in summary["frazil.upsert-reason"]
    assert values(lake) == dict.fromkeys(range(10), "c") | dict.fromkeys(range(10, 100), "a")


HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_an_index_that_another_process_has_is_left_to_it(lake: Lake) -> None:
    upsert(lake, "select id from range(100)", "a")
    upsert(lake, "select id from range(10)", "b")
    lake_index = index_folder()
    folder = state_dir() / "key-index" / "held"
    folder.mkdir(parents=True, exist_ok=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("frazil.write.setup.WriterSetup.index_folder", lambda *_: folder)
            upsert(lake, "select id from range(10)", "c")
        summary = last_summary(lake)
        assert (summary["frazil.upsert-strategy"], "another process" in summary["frazil.upsert-reason"]) == ("merge", True)
    finally:
        holder.communicate("")
    assert values(lake) == dict.fromkeys(range(10), "c") | dict.fromkeys(range(10, 100), "a")
    assert (lake_index / "state").exists()


def test_the_index_stays_small_however_often_a_row_changes(lake: Lake) -> None:
    upsert(lake, "select id from range(1000)", "a", maintenance={"enabled": False})
    for turn in range(12):
        upsert(lake, "select id from range(500)", f"b{turn}", maintenance={"enabled": False})
    entries = sum(file.stat().st_size for file in index_folder().glob("*.run")) / 24
    assert entries <= 3 * 1000
    assert values(lake) == dict.fromkeys(range(500), "b11") | dict.fromkeys(range(500, 1000), "a")


@pytest.mark.parametrize("version", [2, 3])
def test_a_data_file_has_one_file_of_deletes_or_one_vector(lake: Lake, version: int) -> None:
    given: dict[str, Any] = {"format_version": version, "partition_by": ["part"], "maintenance": {"enabled": False}}
    upsert(lake, "select id from range(300)", "a", **given)
    for turn in range(4):
        upsert(lake, f"select id from range({turn}, 300, 7)", f"b{turn}", max_delete_files=1, **given)
    summary = last_summary(lake)
    assert int(summary["total-delete-files"]) <= int(summary["total-data-files"])
    assert not [s for s in lake.spark.table(f"{lake.name}.db.t.snapshots").collect() if s.summary.get("frazil.kind") == "compact"]
    late = {key: f"b{turn}" for turn in range(4) for key in range(turn, 300, 7)}
    assert values(lake) == dict.fromkeys(range(300), "a") | late


# Rows that a batch does not say all of.


@pytest.mark.parametrize("version", [2, 3])
def test_what_a_batch_does_not_say_is_read_from_the_rows_that_the_index_finds(lake: Lake, version: int) -> None:
    given: dict[str, Any] = {"format_version": version, "maintenance": {"enabled": False}}
    for first in range(0, 40, 10):
        upsert(lake, f"select id from range({first}, {first + 10})", "a", **given)

    def changed(query: str, **options: Any) -> tuple[int, int]:
        done = lake.sink(query, **UPSERT | given | options).write()
        by_position(lake)
        return done.counts.written, done.counts.filtered

    expected = {key: ("a", key % 3) for key in range(40)}
    assert changed("select id, 'b' v from range(5, 12)", partial_updates=True) == (7, 0)
    expected |= {key: ("b", key % 3) for key in range(5, 12)}
    assert sorted(lake.rows("id, v, part")) == [(key, *row) for key, row in expected.items()]
    only_new = "select id, 'c' v, 0 part, if(id = 39, 'delete', 'insert') op from range(38, 42)"
    assert changed(only_new, when_matched_update_all=False, op_field="op") == (2, 1)
    del expected[39]
    expected |= dict.fromkeys((40, 41), ("c", 0))
    assert sorted(lake.rows("id, v, part")) == [(key, *row) for key, row in expected.items()]
    assert changed("select id, 'd' v, 1 part from range(41, 50)", when_not_matched_insert_all=False) == (1, 8)
    assert changed("select id, 'k' v, 5 part from range(40, 42)", combine={"v": "max", "part": "sum"}) == (2, 0)
    expected |= {40: ("k", 5), 41: ("k", 6)}
    assert sorted(lake.rows("id, v, part")) == [(key, *row) for key, row in expected.items()]
    unsent = "select id, '?' v, 8 part from range(4, 6)"
    assert changed(unsent, unchanged_value="?") == (2, 0)
    expected |= {4: ("a", 8), 5: ("b", 8)}
    for read in READERS:
        rows = [(key, *row) for key, row in expected.items()]
        assert tuples(read(lake)) == sorted(rows, key=repr), read.__name__


@pytest.mark.parametrize("how", [{"partial_updates": True}, {"when_matched_update_all": False}], ids=["partial", "only new"])
def test_new_keys_between_those_of_the_table_need_no_row_of_it(lake: Lake, how: dict[str, Any]) -> None:
    upsert(lake, "select id * 2 id from range(10)", "a")
    lake.sink("select id * 2 + 1 id, 'b' v from range(3)", **UPSERT | how).write()
    assert last_summary(lake)["frazil.upsert-strategy"] == "append"
    expected = [(n, "b", None) if n in (1, 3, 5) else (n, "a", n % 3) for n in sorted([*range(0, 20, 2), 1, 3, 5])]
    assert sorted(lake.rows("id, v, part"), key=lambda row: row[0]) == expected


def test_files_without_keys_of_the_batch_are_not_read(lake: Lake) -> None:
    """The statistics of all files say that they may have any key."""
    for turn in range(3):
        upsert(lake, f"select id * 3 + {turn} id from range(10)", "a", maintenance={"enabled": False})
    upsert(lake, "select 3L id", "b", maintenance={"enabled": False})
    others = {row.file for row in lake.spark.sql(f"select _file file from {lake.name}.db.t where id % 3 > 0").collect()}
    assert len(others) == 2
    for file in others:
        Path(file.removeprefix("file:")).write_bytes(b"not Parquet")
    lake.sink("select id * 6 id, 'c' v from range(3)", **UPSERT, partial_updates=True, maintenance={"enabled": False}).write()
    by_position(lake)


def test_what_others_change_meanwhile_is_read_again(lake: Lake) -> None:
    upsert(lake, "select id from range(10)", "a")
    events: list[Event] = []

    def foreign() -> None:
        undo()
        lake.sink("select 1L id, 'theirs' v, 7L part", commit_mode="upsert", key_fields=["id"]).id("other").write()

    undo = act_at("unsent", 1, foreign)
    try:
        lake.sink("select id, 'mine' v from range(3)", **UPSERT, partial_updates=True).listen(events.append).write()
    finally:
        undo()
    assert len([event for event in events if isinstance(event, Staged)]) == 2, "it was completed again"
    assert sorted(lake.rows("id, v, part"))[:4] == [(0, "mine", 0), (1, "mine", 7), (2, "mine", 2), (3, "a", 0)]


# What is chosen without being asked for.


def by_itself(lake: Lake, query: str, **options: Any) -> tuple[str, str]:
    """An upsert that may choose; what it chose, and why."""
    given = {"commit_mode": "upsert", "key_fields": ["id"], "format_version": 3}
    lake.sink(f"select id, '{query}' v, id % 3 part from range(10)", **given | options).write()
    summary = last_summary(lake)
    return summary["frazil.upsert-strategy"], summary["frazil.upsert-reason"]


def test_tables_with_vectors_get_no_equality_deletes(lake: Lake) -> None:
    by_itself(lake, "a")
    assert by_itself(lake, "b") == ("position", "its cost does not grow with the table, and every reader can read it")
    way, why = by_itself(lake, "c", max_indexed_rows=9)
    assert (way, "20 rows are more than the 9" in why) == ("equality_delete", True)
    way, why = by_itself(lake, "d", max_indexed_rows=9, readers=["pyiceberg"])
    assert (way, "pyiceberg" in why) == ("merge", True)
    assert by_itself(lake, "e")[0] == "position"
    assert values(lake) == dict.fromkeys(range(10), "e")


def test_without_a_folder_for_the_index_readers_decide(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    by_itself(lake, "a")
    blocked = lake.folder / "no folder"
    blocked.write_text("")
    monkeypatch.setenv("FRAZIL_STATE_DIR", str(blocked))
    way, why = by_itself(lake, "b")
    assert (way, str(blocked) in why) == ("equality_delete", True)
    way, why = by_itself(lake, "c", readers=["polars"])
    assert (way, str(blocked) in why) == ("merge", True)
    assert values(lake) == dict.fromkeys(range(10), "c")
