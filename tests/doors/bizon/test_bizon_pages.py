"""Sources of Bizon's that are asked for pages: a class of the test, and one of the package."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from bizon_cases import EXAMPLES, run
from paged_cases import COLUMNS, Shelf, books
from pyspark.sql import SparkSession

from frazil.doors.bizon import load_text
from frazil.errors import ConfigError, ConfigErrors, DataError, Retryable
from frazil.model.events import Committed, SourceFailed
from frazil.model.settings import Settings
from frazil.runtime.replay import replay

INCREMENTAL = "sync_mode: incremental\ncursor_field: updated_at"


def test_a_full_refresh_takes_the_place_of_all_rows_in_one_commit(shelf: Shelf) -> None:
    shelf.put(books(1, 2), books(3))
    shelf.run()
    assert shelf.rows() == [(1, "t1"), (2, "t2"), (3, "t3")]
    assert shelf.calls() == [(0, None), (1, None)]
    shelf.put(books(3), books(4))
    result = shelf.run()
    assert shelf.rows() == [(3, "t3"), (4, "t4")]
    assert shelf.data_snapshots() == 2
    assert [event.counts.written for event in result if isinstance(event, Committed)] == [2]
    shelf.put([])
    shelf.run()
    assert shelf.rows() == [], "nothing is what the source has now"


@pytest.mark.slow
def test_an_incremental_run_brings_what_is_new_and_hands_its_state_on(shelf: Shelf) -> None:
    shelf.put(books(1), books(2), state={"seen": 2})
    shelf.run(INCREMENTAL)
    assert shelf.calls() == [(0, None), (1, None)], "the first run asks for everything"
    shelf.put(books(3))
    shelf.run(INCREMENTAL)
    ((page, (last_run, state, cursor, started)),) = shelf.calls()
    assert (page, state, cursor) == (0, {"seen": 2}, "updated_at")
    assert dt.datetime.fromisoformat(last_run) < dt.datetime.fromisoformat(started)
    shelf.put([])
    shelf.run(INCREMENTAL)
    ((_, (next_run, state, _, _)),) = shelf.calls()
    assert (next_run, state) == (started, {"seen": 2}), "a run without a state leaves the last one"
    assert shelf.rows() == [(1, "t1"), (2, "t2"), (3, "t3")]
    # The same file with reset: everything anew, and later runs go on from there.
    shelf.put(books(7), state={"seen": 7})
    shelf.run(f"{INCREMENTAL}\nreset: true")
    assert (shelf.calls(), shelf.rows()) == ([(0, None)], [(7, "t7")])
    shelf.put(books(8))
    shelf.run(INCREMENTAL)
    assert shelf.calls()[0][1][1] == {"seen": 7}
    assert shelf.rows() == [(7, "t7"), (8, "t8")]


@pytest.mark.slow
def test_so_many_pages_a_run_and_the_next_run_goes_on(shelf: Shelf) -> None:
    shelf.put(books(1), books(2), books(3))
    source = f"{INCREMENTAL}\nmax_iterations: 2"
    shelf.run(source)
    assert (shelf.rows(), shelf.calls()) == ([(1, "t1"), (2, "t2")], [(0, None), (1, None)])
    shelf.run(source)
    assert (shelf.rows(), shelf.calls()) == ([(1, "t1"), (2, "t2"), (3, "t3")], [(2, None)])
    shelf.run("max_iterations: 1")
    assert shelf.rows() == [(1, "t1")], "a full refresh of one page"


def test_a_stream_goes_on_and_tells_the_source_what_is_written(shelf: Shelf) -> None:
    shelf.put(books(1, 2))
    project = shelf.project("sync_mode: stream\nmax_iterations: 2", f"write_batch_size: 2\n{COLUMNS}")
    assert not project.pipelines[0].once
    run(project, once=False)
    assert shelf.rows() == [(1, "t1"), (1, "t1"), (2, "t2"), (2, "t2")], "this source has the same to say whenever it is asked"
    assert shelf.calls() == [(0, None), "commit", (0, None), "commit"]


TWO = """\
destination_table_config:
  - destination_id: books
    iceberg_schema: [{name: id, type: long}, {name: title, type: string}]
  - destination_id: papers
    upsert: {upsert}
    iceberg_schema:
      - {name: paper, type: long, source_field: id}
      - {name: title, type: string, source_field: other}
      - {name: _source_record_id, type: string}
"""


@pytest.mark.slow
def test_records_name_their_tables(shelf: Shelf) -> None:
    config = TWO.replace("{upsert}", "{enabled: true, join_cols: [paper]}")
    shelf.put(books(1, to="books") + books(5, to="papers", other="old"), books(5, to="papers", other="new"))
    shelf.run(INCREMENTAL, config)
    assert shelf.rows() == [(1, "t1")]
    assert shelf.rows("papers") == [(5, "new", "5")]
    shelf.put(books(2, to="books"), books(6) + books(5, to="papers", other="newer"))
    with pytest.raises(DataError) as caught:
        shelf.run(INCREMENTAL, config)
    assert caught.value.code == "unknown-destination"
    shelf.run(INCREMENTAL, f"destination_id: books\n{config}")
    assert (shelf.rows(), shelf.rows("papers")) == ([(1, "t1"), (2, "t2"), (6, "t6")], [(5, "newer", "5")])


@pytest.mark.slow
def test_a_full_refresh_of_several_tables_empties_those_that_have_no_rows_any_more(shelf: Shelf) -> None:
    config = TWO.replace("{upsert}", "{enabled: false}")
    shelf.put(books(1, to="books") + books(5, to="papers"))
    shelf.run("", config)
    assert len(shelf.rows("papers")) == 1
    shelf.put(books(2, to="books"))
    shelf.run("", config)
    assert (shelf.rows(), shelf.rows("papers")) == ([(2, "t2")], [])


@pytest.mark.slow
def test_a_record_that_does_not_fit_stops_the_run_or_is_kept_aside(shelf: Shelf) -> None:
    shelf.put([*books(1), {"id": "x", "title": "no number"}], books(2, to="elsewhere"))
    with pytest.raises(DataError):
        shelf.run()
    letters = f"on_error: dead_letter\n{COLUMNS}"
    shelf.run("", letters)
    assert shelf.rows() == [(1, "t1")]
    kept = shelf.table("books__dead_letters").select("code", "raw").collect()
    assert sorted(row.code for row in kept) == ["unknown-destination", "value-not-convertible"]
    assert json.loads(bytes(next(row.raw for row in kept if row.code.startswith("value"))))["id"] == "x"


@pytest.mark.slow
def test_letters_are_read_again(shelf: Shelf) -> None:
    shelf.put([*books(1), {"id": "x2", "title": "t2", "number": 2}])
    config = f"on_error: dead_letter\n{COLUMNS}"
    shelf.run(INCREMENTAL, config)
    assert shelf.rows() == [(1, "t1")]
    other = config.replace("name: id, type: long", "name: id, type: long, source_field: number")
    (pipeline,) = shelf.project(INCREMENTAL, other).pipelines
    assert replay(pipeline, Settings(), None, really=True).letters == 1
    assert shelf.rows() == [(1, "t1"), (2, "t2")]


def test_the_columns_of_the_envelope(shelf: Shelf) -> None:
    shelf.put([{"id": 1, "deep": {"x": [1, 2.50]}, "ts": "2026-01-31T12:00:00.123456+02:00"}])
    shelf.run("", "destination_id: books")
    (row,) = shelf.table().collect()
    assert json.loads(row._source_data)["deep"] == {"x": [1, 2.5]}
    assert (row._source_record_id, row._source_timestamp) == ("1", dt.datetime(2026, 1, 31, 10, 0, 0, 123456))
    assert list(row.asDict()) == [
        "_bizon_extracted_at", "_bizon_id", "_bizon_loaded_at", "_source_record_id", "_source_timestamp", "_source_data",
    ]  # fmt: skip


def test_changes_of_rows(shelf: Shelf) -> None:
    shelf.put(books(1, 2))
    change = "{label: x, type: select, expressions: ['id * 10 AS id', 'upper(title) AS title']}"
    run(load_text(f"{shelf.text()}transforms: [{change}]\n", "shelf.yaml", {}))
    assert shelf.rows() == [(10, "T1"), (20, "T2")]


def test_a_source_that_raises_is_reported_with_the_line_of_its_file(shelf: Shelf) -> None:
    shelf.put(books(1), [{"id": 2, "raise": True}])
    with pytest.raises(ConfigError) as caught:
        shelf.run(INCREMENTAL, f"buffer_size: 0\nwrite_batch_size: 1\n{COLUMNS}")
    error = caught.value
    assert (error.code, error.location is not None and error.location.text.strip()) == (
        "source-failed",
        'raise KeyError("of the shelf")',
    )
    assert str(shelf.folder / "shelf.py") in str(error.location)
    assert "KeyError: 'of the shelf'" in error.message
    assert shelf.rows() == [(1, "t1")], "what came before is there"
    shelf.calls()
    shelf.put(books(1), books(2))
    shelf.run(INCREMENTAL)
    assert (shelf.calls(), shelf.rows()) == ([(1, None)], [(1, "t1"), (2, "t2")])


def test_a_source_that_is_away_is_asked_again(shelf: Shelf) -> None:
    shelf.put(books(1))
    (shelf.folder / "away").touch()
    events: list[object] = []
    with pytest.raises(Retryable) as caught:
        events += shelf.run("", f"max_retry_attempts: 1\nretry_backoff_base: 0.001\n{COLUMNS}")
    assert "the shelf is gone" in caught.value.message


def test_the_dummy_of_the_package(spark: SparkSession, shelf: Shelf) -> None:
    text = shelf.text("authentication: {type: api_key, params: {token: dummy_key}}", "destination_id: creatures")
    text = text.replace("name: shelf\n  stream: books", "name: dummy\n  stream: creatures")
    text = "\n".join(line for line in text.splitlines() if "source_file_path" not in line)
    project = load_text(text, "dummy.yaml", {})
    for _ in range(2):
        run(project)
    rows = shelf.table("creatures").select("_source_record_id", "_source_data").collect()
    assert {row._source_record_id: json.loads(row._source_data)["name"] for row in rows} == {
        "9898": "bizon", "88787": "croco", "98": "froggy", "3333": "turtle", "56565": "poulpo",
    }  # fmt: skip
    assert len(rows) == 5
    with pytest.raises(ConfigErrors) as caught:
        load_text(text.replace("  stream: creatures", "  stream: creatures\n  sync_mode: incremental"), "dummy.yaml", {})
    assert "has no get_records_after" in str(caught.value)


def test_a_source_of_several_pages_is_retried_where_it_failed(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text(
        (tmp_path / "shelf.py")
        .read_text()
        .replace(
            '        if any(one.data.get("raise")',
            '        if number == 1 and not (HERE / "once").exists():\n'
            '            (HERE / "once").touch()\n'
            '            raise ConnectionResetError("by the shelf")\n'
            '        if any(one.data.get("raise")',
        )
    )
    shelf.put(books(1), books(2))
    result = shelf.run("", f"retry_backoff_base: 0.001\n{COLUMNS}")
    assert [event.will_retry for event in result if isinstance(event, SourceFailed)] == [True]
    assert shelf.calls() == [(0, None), (1, None), (1, None)]
    assert shelf.rows() == [(1, "t1"), (2, "t2")]


@pytest.mark.slow
def test_the_example_with_a_source_of_its_own(spark: SparkSession, shelf: Shelf) -> None:
    text = (EXAMPLES / "example.custom.yaml").read_text()
    text = text.replace("./lake", str(shelf.folder)).replace("      default:", f"      {shelf.catalog}:")
    text = text.replace("iceberg_namespace: arctic", "iceberg_namespace: ns")
    for weeks, rows in ((2, 6), (4, 12), (4, 12)):
        wanted = text.replace("weeks: 4", f"weeks: {weeks}")
        run(load_text(wanted, "example.custom.yaml", {}, custom_source=str(EXAMPLES / "ice_charts.py")))
        assert shelf.table("charts").count() == rows
    last = shelf.table("charts").orderBy("day", "sea").collect()[-1]
    assert (last.sea, last.day, round(last.thickness, 1)) == ("Laptev Sea", dt.date(2026, 1, 26), 1.2)
