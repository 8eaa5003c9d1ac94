"""A run that asks for pages is killed with SIGKILL, and another one goes on: every row is there once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from paged_cases import Shelf, books
from pyspark.sql import SparkSession

from exactly_once.children import end, ended, rows_in, started
from exactly_once.programs.structured_streaming import SHORT_LIVED

CONFIG = """\
write_batch_size: 2
buffer_size: 0
destination_table_config:
  - destination_id: books
    iceberg_schema: [{name: id, type: long}, {name: title, type: string}]
"""
SPARK = f"""\
settings:
  spark: {{master: "local[1]", conf: {{spark.driver.extraJavaOptions: "{SHORT_LIVED}"}}}}
"""


@pytest.mark.parametrize(("moment", "held"), [("unsent", 4), ("applied", 6)])
def test_the_next_run_goes_on_with_the_page_after_the_last_committed_one(
    spark: SparkSession, shelf: Shelf, tmp_path: Path, moment: str, held: int
) -> None:
    shelf.put(*(books(number) for number in range(10)))
    (tmp_path / "shelf.yaml").write_text(shelf.text("sync_mode: incremental", CONFIG) + SPARK)
    child = started("command_line", moment, "3", "kill-all", tmp_path, "run", "shelf.yaml", log=tmp_path / "log")
    try:
        assert ended(child) == -signal.SIGKILL, child.log_text()
    finally:
        end(child)
    assert rows_in(tmp_path, "ns.books", "id", "shelf/books", shelf.catalog) == held
    asked = [page for page, _ in shelf.calls()]
    assert asked == list(range(6))
    shelf.run("sync_mode: incremental", CONFIG)
    assert [page for page, _ in shelf.calls()] == list(range(held, 10))
    assert rows_in(tmp_path, "ns.books", "id", "shelf/books", shelf.catalog) == 10
