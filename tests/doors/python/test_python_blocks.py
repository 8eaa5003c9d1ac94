"""The blocks of the guide to Python, as they stand. Catalogs and folders are those of the tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import frazil
from helpers.lakes import Lake

GUIDE = Path(__file__).parents[3] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def block(begin: str) -> str:
    """The block that begins with these words."""
    (found,) = (one for one in BLOCKS if one.startswith(begin))
    return found


def run(code: str, lake: Lake, **names: Any) -> dict[str, Any]:
    """Runs a block whose catalog `lake` is the one of the test, which its session knows."""
    code = code.replace('"lake.', f'"{lake.name}.').replace("/data/", f"{lake.folder}/")
    exec(code, names)
    return names


def finish_streams(lake: Lake) -> None:
    """Lets all queries write what is there, and ends them."""
    queries = lake.spark.streams.active
    assert queries
    for query in queries:
        query.processAllAvailable()
        query.stop()


def rows_as_a_stream(lake: Lake) -> Any:
    folder = lake.folder / "landing"
    folder.mkdir()
    (folder / "1.json").write_text('{"id": 1, "at": "2026-11-01T00:00:00Z"}\n')
    return lake.spark.readStream.schema("id long, at timestamp").json(str(folder))


def test_every_block_is_run() -> None:
    """One that is added belongs into a test."""
    known = ("import frazil", "query = (", "stream.writeStream", "pipeline = frazil.Pipeline(", "orders.write.format", "lake = (")
    assert [one for one in BLOCKS if not one.startswith(known)] == []


def test_a_data_frame_is_written_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake.folder)
    names: dict[str, Any] = {}
    for _ in range(2):
        exec(block("import frazil"), names)
    assert names["spark"].table("lake.sales.orders").count() == 1000


@pytest.mark.parametrize("begin", ["query = (", "stream.writeStream"])
def test_a_stream_is_written(lake: Lake, begin: str) -> None:
    lake.introduced()
    run(block(begin), lake, frazil=frazil, stream=rows_as_a_stream(lake), path=str(lake.folder / "checkpoint"))
    finish_streams(lake)
    assert lake.spark.table(f"{lake.name}.sales.orders").count() == 1


def test_a_branch_is_published(lake: Lake) -> None:
    lake.introduced()
    names = run(block("lake = ("), lake, frazil=frazil, df=lake.spark.sql("select 1L id, 1.5D amount"))
    assert names["done"].done
    assert lake.spark.table(f"{lake.name}.sales.orders").count() == 1


def test_spark_s_own_writers(lake: Lake) -> None:
    lake.introduced()
    frazil.register(lake.spark)
    orders = lake.spark.sql("select 1L id, 'new' state")
    for _ in range(2):
        run(block("orders.write").partition("\n\n")[0], lake, orders=orders)
    run(block("orders.write").partition("\n\n")[2], lake, clicks=rows_as_a_stream(lake))
    finish_streams(lake)
    assert lake.spark.table(f"{lake.name}.shop.orders").count() == 1, "upserted"
    assert lake.spark.table(f"{lake.name}.shop.clicks").count() == 1
