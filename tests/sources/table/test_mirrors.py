"""Tables that follow the changes of others: A into B, and B into C."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import frazil
from exactly_once.children import end as end_of
from exactly_once.children import ended, started
from frazil.errors import ConfigError
from frazil.model.events import Committed
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.runtime.replay import replay
from frazil.runtime.verify import verify
from helpers.children import COMMAND, finished, write_project
from helpers.lakes import Lake, commits, run

UPSERT: dict[str, Any] = {"commit_mode": "upsert", "key_fields": ["id"]}


def mirror(lake: Lake, source: str, target: str, *, key: str | None = None, **options: Any) -> PipelineSpec:
    """A pipeline from the changes of one table into another."""
    given = {"connector": "table", "table": f"{lake.name}.db.{source}", "changes": True} | ({"key_fields": key} if key else {})
    return lake.pipeline(given, f"db.{target}", f"{source}-{target}", **{"commit_mode": "upsert"} | options)


def write(lake: Lake, values: str, **options: Any) -> None:
    """Upserts rows of `id`, `v` and `op` into A."""
    query = f"select cast(id as long) id, v, op from values {values} t(id, v, op)"
    lake.sink(query, "db.a", **UPSERT | {"op_field": "op"} | options).write()


def same(*pipelines: PipelineSpec) -> None:
    """Every value of the targets is that of their sources."""
    for pipeline in pipelines:
        verified = verify(pipeline, Settings(), values=True)
        assert (verified.findings, verified.notes, len(verified.compared)) == ((), (), 1)
        assert verify(pipeline, Settings()).findings == ()


def written(*pipelines: PipelineSpec) -> list[Committed]:
    """What the pipelines commit, one after the other."""
    return [event for pipeline in pipelines for event in commits(run(pipeline, once=True))]


@pytest.mark.parametrize(
    ("strategy", "version"),
    [
        ("position", 3),
        pytest.param("position", 2, marks=pytest.mark.slow(seconds=30)),
        pytest.param("equality_delete", 3, marks=pytest.mark.slow(seconds=30)),
        pytest.param("equality_delete", 2, marks=pytest.mark.slow(seconds=30)),
        pytest.param("merge", 3, marks=pytest.mark.slow(seconds=30)),
        pytest.param("merge", 2, marks=pytest.mark.slow(seconds=30)),
    ],
)
def test_a_mirror_of_a_mirror(lake: Lake, strategy: str, version: int) -> None:
    given = {"upsert_strategy": strategy, "format_version": version}
    first, second = mirror(lake, "a", "b", **given), mirror(lake, "b", "c", **given)
    write(lake, "(1, 'a', 'c'), (2, 'a', 'c'), (3, 'a', 'c'), (4, 'a', 'c')", **given)
    written(first, second)
    same(first, second)
    write(lake, "(2, 'b', 'u'), (3, null, 'd'), (5, 'b', 'c')", **given)
    lake.spark.sql(f"UPDATE {lake.name}.db.a SET id = 40 WHERE id = 4")
    events = written(first, second)
    assert [(one.counts.read, one.counts.written, one.counts.deleted) for one in events] == [(5, 3, 2)] * 2
    assert lake.rows("id, v", "db.c") == [(1, "a"), (2, "b"), (40, "a"), (5, "b")]
    same(first, second)
    lake.spark.sql(f"CALL {lake.name}.system.rewrite_data_files(table => 'db.a', options => map('rewrite-all', 'true'))")
    write(lake, "(2, 'b', 'u')", max_delete_files=0, **given)
    events = written(first, second)
    assert {(one.counts.read, one.counts.written, one.counts.deleted) for one in events} <= {(0, 0, 0)}
    same(first, second)


def test_columns_are_renamed_and_added_in_the_mirror(lake: Lake) -> None:
    pipeline = mirror(lake, "a", "b", schema_evolution="full")
    write(lake, "(1, 'a', 'c'), (2, 'a', 'c')")
    written(pipeline)
    name = f"{lake.name}.db.a"
    lake.spark.sql(f"ALTER TABLE {name} RENAME COLUMN v TO w")
    lake.spark.sql(f"ALTER TABLE {name} ADD COLUMN n int")
    lake.spark.sql(f"UPDATE {name} SET n = 1 WHERE id = 1")
    written(pipeline)
    assert lake.rows("id, w, n", "db.b") == [(1, "a", 1), (2, "a", None)]
    same(pipeline)


@pytest.mark.slow
def test_a_mirror_under_another_key(lake: Lake) -> None:
    """Two rows exchange the values that the mirror knows them by."""
    pipeline = mirror(lake, "a", "b", key_fields=["v"])
    write(lake, "(1, 'a', 'c'), (2, 'b', 'c'), (3, 'c', 'c')")
    written(pipeline)
    write(lake, "(1, 'b', 'u'), (2, 'a', 'u'), (3, 'd', 'u')")
    written(pipeline)
    assert lake.rows("id, v", "db.b") == [(1, "b"), (2, "a"), (3, "d")]
    same(pipeline)


@pytest.mark.slow(seconds=20)
def test_changes_that_cannot_be_written_are_dead_letters(lake: Lake) -> None:
    """An update under another key is left out as a whole. Changes of the past are not put through again."""
    pipeline = mirror(lake, "a", "b", key_fields=["v"], schema={"id": "long", "v": "int"}, on_error="dead_letter")
    write(lake, "(1, '1', 'c'), (2, 'x', 'c')")
    written(pipeline)
    write(lake, "(1, 'y', 'u'), (3, '3', 'c')")
    (event,) = written(pipeline)
    assert (event.counts.written, event.counts.dead_lettered) == (1, 1)
    assert lake.rows("id, v", "db.b") == [(1, 1), (3, 3)]
    letters = lake.rows("at, cast(raw as string)", "db.b__dead_letters")
    assert {raw for _, raw in letters} == {'{"id":1,"v":"y"}', '{"id":2,"v":"x"}'}
    assert f"{lake.name}.db.a" in letters[0][0]
    with pytest.raises(ConfigError, match="changes of the past"):
        replay(pipeline, Settings(), None, really=True)


@pytest.mark.slow
def test_rows_are_not_compared_before_they_are_there(lake: Lake) -> None:
    pipeline = mirror(lake, "a", "b")
    write(lake, "(1, 'a', 'c')")
    written(pipeline)
    write(lake, "(2, 'a', 'c')")
    assert "not in the table yet" in verify(pipeline, Settings(), values=True).notes[0]
    written(pipeline)
    lake.spark.sql(f"DELETE FROM {lake.name}.db.b WHERE id = 2")
    assert ["1 rows of" in one.problem for one in verify(pipeline, Settings(), values=True).findings] == [True]


def test_rows_that_were_left_out_as_late_are_not_missed(lake: Lake) -> None:
    pipeline = mirror(lake, "a", "b", order_by=["v"], late="ignore")
    write(lake, "(1, 'b', 'c')")
    written(pipeline)
    write(lake, "(1, 'a', 'u')")
    written(pipeline)
    assert lake.rows("id, v", "db.b") == [(1, "b")]
    verified = verify(pipeline, Settings(), values=True)
    assert (verified.findings, ["left out as late" in note for note in verified.notes]) == ((), [True])


@pytest.mark.slow
def test_a_table_without_a_key_is_followed_by_one_that_is_named(lake: Lake) -> None:
    lake.sink("select 1 id, 'a' v union all select 2, 'a'", "db.a").write()
    by_source, by_sink = mirror(lake, "a", "b", key="id"), mirror(lake, "a", "c", key_fields=["id"])
    written(by_source, by_sink)
    lake.spark.sql(f"UPDATE {lake.name}.db.a SET v = 'b' WHERE id = 1")
    lake.spark.sql(f"DELETE FROM {lake.name}.db.a WHERE id = 2")
    written(by_source, by_sink)
    assert lake.rows("id, v", "db.b") == lake.rows("id, v", "db.c") == [(1, "b")]


def test_an_append_keeps_what_rows_did_and_counts_them(lake: Lake) -> None:
    history = mirror(lake, "a", "b", commit_mode="append", op_column="op")
    counted = mirror(lake, "a", "c", commit_mode="append", diff_column="diff")
    write(lake, "(1, 'a', 'c'), (2, 'a', 'c')")
    written(history, counted)
    write(lake, "(1, 'b', 'u'), (2, null, 'd')")
    written(history, counted)
    assert lake.rows("id, v, op", "db.b") == [(1, "a", "insert"), (1, "b", "update"), (2, "a", "delete"), (2, "a", "insert")]
    assert lake.rows("id, v, diff", "db.c") == [(1, "a", -1), (1, "a", 1), (1, "b", 1), (2, "a", -1), (2, "a", 1)]


def project(folder: Path, rows: int) -> dict[str, Any]:
    """So many made-up events, of which A keeps the last of each user; B follows A, and C follows B."""
    catalog = {"type": "sql", "sql": {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}}
    sink = {"catalog": catalog, "namespace": "shop", "commit_mode": "upsert", "batch_size": 10}
    own = {"a": {"key_fields": ["user_id"], "order_by": ["event_number"]}, "b": {}, "c": {}}
    followed = {name: {"connector": "table", "config": {"table": f"lake.shop.{name}", "changes": True}} for name in ("a", "b")}
    return {
        "sources": {"shop": {"connector": "generator", "config": {"rows": rows}}} | followed,
        "sinks": {name: {"connector": "iceberg", "config": sink | {"table": name} | options} for name, options in own.items()},
        "pipelines": {
            "load": {"source": "shop", "sink": "a"},
            "ab": {"source": "a", "sink": "b"},
            "bc": {"source": "b", "sink": "c"},
        },
        "settings": {"state_dir": "./state", "spark": {"master": "local[1]"}},
    }


@pytest.mark.slow(seconds=150)
def test_mirrors_that_are_killed_at_any_moment(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_project(tmp_path, project(tmp_path, 30))
    frazil.run(file, once=True, only=["load"])
    frazil.run(file, once=True, only=["ab"])
    write_project(tmp_path, project(tmp_path, 120))
    frazil.run(file, once=True, only=["load"])
    for name, moment, nth in (("ab", "applied", 2), ("ab", "staged", 2), ("bc", "staged", 1), ("ab", "sent", 1)):
        elsewhere = tmp_path / f"{name}-{moment}"
        elsewhere.mkdir()
        arguments = (moment, str(nth), "kill-all", elsewhere, "run", "--once", "-c", file, name)
        child = started("command_line", *arguments, log=elsewhere / "log")
        try:
            assert ended(child) == -signal.SIGKILL, child.log_text()
        finally:
            end_of(child)
    frazil.run(file, once=True, only=["ab"])
    frazil.run(file, once=True, only=["bc"])
    done = finished([*COMMAND, "verify", "--values", "-c", str(file), "ab", "bc"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("nothing is missing") == 2
