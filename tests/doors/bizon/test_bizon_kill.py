"""A run that asks for pages is killed with SIGKILL, and another one goes on: every row is there once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from bizon_cases import run
from paged_cases import Shelf, books
from pyspark.sql import SparkSession

from exactly_once.children import end, ended, rows_in, started

CONFIG = """\
write_batch_size: 2
buffer_size: 0
destination_table_config:
  - destination_id: books
    iceberg_schema: [{name: id, type: long}, {name: title, type: string}]
"""
SPARK = """\
settings:
  spark: {master: "local[1]"}
"""


def run_killed(shelf: Shelf, folder: Path, source: str, moment: str, nth: int, config: str = CONFIG) -> None:
    """A run of the command line that dies at the nth such moment."""
    (folder / "shelf.yaml").write_text(shelf.text(source, config) + SPARK)
    child = started("command_line", moment, str(nth), "kill-all", folder, "run", "shelf.yaml", log=folder / "log")
    try:
        assert ended(child) == -signal.SIGKILL, child.log_text()
    finally:
        end(child)


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize(("moment", "held"), [("unsent", 4), ("applied", 6)])
def test_the_next_run_goes_on_with_the_page_after_the_last_committed_one(
    spark: SparkSession, shelf: Shelf, tmp_path: Path, moment: str, held: int
) -> None:
    shelf.put(*(books(number) for number in range(10)))
    run_killed(shelf, tmp_path, "sync_mode: incremental", moment, 3)
    assert rows_in(tmp_path, "ns.books", "id", "shelf/books", shelf.catalog) == held
    asked = [page for page, _ in shelf.calls()]
    assert asked == list(range(6))
    shelf.run("sync_mode: incremental", CONFIG)
    assert [page for page, _ in shelf.calls()] == list(range(held, 10))
    assert rows_in(tmp_path, "ns.books", "id", "shelf/books", shelf.catalog) == 10


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize(("moment", "held"), [("unsent", [0, 1]), ("applied", [7, 8])])
def test_a_full_refresh_is_all_or_nothing_and_begins_anew(
    spark: SparkSession, shelf: Shelf, tmp_path: Path, moment: str, held: list[int]
) -> None:
    shelf.put(books(0), books(1))
    shelf.run("", CONFIG)
    shelf.calls()
    shelf.put(books(7), books(8))
    run_killed(shelf, tmp_path, "", moment, 1)
    assert shelf.rows("books", "id") == [(number,) for number in held]
    assert [page for page, _ in shelf.calls()] == [0, 1]
    shelf.put(books(7), books(8), books(9))
    shelf.run("", CONFIG)
    assert shelf.rows("books", "id") == [(7,), (8,), (9,)]
    assert [page for page, _ in shelf.calls()] == [0, 1, 2], "a refresh is of all pages"


TWO_TABLES = (
    CONFIG
    + """\
  - destination_id: papers
    upsert: {enabled: true, join_cols: [id]}
    iceberg_schema: [{name: id, type: long}, {name: title, type: string}]
"""
)


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize(("moment", "nth"), [("unsent", 4), ("applied", 3)])
def test_every_table_of_a_run_has_every_row_once(
    spark: SparkSession, shelf: Shelf, tmp_path: Path, moment: str, nth: int
) -> None:
    shelf.put(*(books(number, to="books") + books(number, to="papers") for number in range(5)))
    run_killed(shelf, tmp_path, "sync_mode: incremental", moment, nth, TWO_TABLES)
    held = [len(shelf.rows(name)) for name in ("books", "papers")]
    assert sum(held) < 10, "the run was cut off"
    shelf.run("sync_mode: incremental", TWO_TABLES)
    for name in ("books", "papers"):
        assert shelf.rows(name, "id") == [(number,) for number in range(5)]


@pytest.mark.slow(seconds=20)
def test_a_stream_goes_on_with_the_page_after_the_last_committed_one(spark: SparkSession, shelf: Shelf, tmp_path: Path) -> None:
    shelf.put(*(books(number) for number in range(6)))
    run_killed(shelf, tmp_path, "sync_mode: stream", "applied", 2)
    held = rows_in(tmp_path, "ns.books", "id", "shelf/books", shelf.catalog)
    assert 0 < held < 6
    shelf.calls()
    run(shelf.project(f"sync_mode: stream\nmax_iterations: {6 - held}", CONFIG), once=False)
    assert [call[0] for call in shelf.calls() if call != "commit"] == list(range(held, 6))
    assert rows_in(tmp_path, "ns.books", "id", "shelf/books", shelf.catalog) == 6
