"""Tables whose rows are laid out so that filters on several columns read few files."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frazil
from frazil.iceberg.zorder import spread
from frazil.model.events import Maintained
from helpers.lakes import Lake
from helpers.readers import by_duckdb, by_pyiceberg

# Columns of several types, in an order that has nothing to do with theirs; a few values are missing, or no numbers.
ROWS = """select id, cast(pmod(xxhash64(id, 1), 1000) as int) a, concat('name-', pmod(xxhash64(id, 2), 900) + 100) b,
    if(id % 50 = 7, null, timestamp_seconds(pmod(xxhash64(id, 3), 1000000))) seen,
    if(id % 70 = 3, double('NaN'), pmod(xxhash64(id, 4), 1000) / 10) share from range({first}, {last})"""
FILE_BYTES, FILES, FILE_ROWS = 40_000, 48, 1_000


def fill(lake: Lake, **options: Any) -> None:
    """Leaves files that all are smaller than they should be, and merges nothing."""
    wanted = {"write.target-file-size-bytes": str(FILE_BYTES)}
    lake.sink(ROWS.format(first=0, last=0), write_properties=wanted, **options).write()
    rows = lake.frame(ROWS.format(first=0, last=FILES * FILE_ROWS))
    rows.repartition(FILES).writeTo(f"{lake.name}.db.t").option("distribution-mode", "none").append()


def merge(lake: Lake, *columns: str) -> list[Maintained]:
    """Writes a batch, after which all small files are merged."""
    events: list[frazil.Event] = []
    given = {"small_files": 2, "z_order": columns, "max_time_share": 1, "max_snapshots": 1_000}
    rows = ROWS.format(first=FILES * FILE_ROWS, last=(FILES + 1) * FILE_ROWS)
    lake.sink(rows, maintenance=given).listen(events.append).write()
    return [event for event in events if isinstance(event, Maintained) and event.kind == "merge_files"]


def opened(lake: Lake, column: str, low: Any, high: Any) -> tuple[int, int]:
    """How many data files may have values of a column in a range, and how many there are."""
    bounds = [row.readable_metrics[column] for row in lake.meta("files")]
    return sum(bound.lower_bound <= high and bound.upper_bound >= low for bound in bounds), len(bounds)


@pytest.mark.parametrize("version", [2, 3])
def test_a_filter_on_any_of_the_columns_reads_few_files(lake: Lake, version: int) -> None:
    fill(lake, format_version=version)
    before = opened(lake, "a", 500, 509)
    assert before[0] == before[1] == FILES, "rows come in no order, and every file has some of each value"
    assert merge(lake, "a", "b")
    ranges = {
        "a": [(low, low + 9) for low in range(50, 1000, 100)],
        "b": [(f"name-{n}", f"name-{n + 9}") for n in range(150, 950, 100)],
    }
    for column, filters in ranges.items():
        found = [opened(lake, column, low, high) for low, high in filters]
        assert found[0][1] >= 20
        assert sum(files for files, _ in found) <= sum(of for _, of in found) / 2.5, column
    rows = sorted(row[0] for row in lake.table().select("id").collect())
    assert rows == list(range((FILES + 1) * FILE_ROWS))
    assert len(by_duckdb(lake)) == len(by_pyiceberg(lake)) == len(rows)


def test_without_the_option_nothing_is_laid_out(lake: Lake) -> None:
    fill(lake)
    assert merge(lake)
    files, of = opened(lake, "a", 500, 509)
    assert files == of


def test_values_that_are_missing_or_no_numbers_are_kept(lake: Lake) -> None:
    fill(lake)
    merge(lake, "seen", "share")
    counted = lake.table().selectExpr("count(*)", "count(seen)", "count_if(isnan(share))", "count(distinct id)").first()
    everything = (FILES + 1) * FILE_ROWS
    nothing = len([n for n in range(everything) if n % 50 == 7])
    assert tuple(counted or ()) == (
        everything,
        everything - nothing,
        len([n for n in range(everything) if n % 70 == 3]),
        everything,
    )
    times = "select timestamp_seconds(id * 100000) low, timestamp_seconds(id * 100000 + 10000) high from range(10)"
    found = [opened(lake, "seen", low, high) for low, high in lake.spark.sql(times).collect()]
    assert sum(files for files, _ in found) <= sum(of for _, of in found) / 2.5


@pytest.mark.parametrize(
    ("column", "message"),
    [("aa", "Did you mean 'a'"), ("tags", r"values of type list<int> cannot be ordered")],
)
def test_columns_that_cannot_be_used_stop_the_sink_before_it_writes(lake: Lake, column: str, message: str) -> None:
    lake.sink("select 1 a, array(1) tags").write()
    with pytest.raises(frazil.ConfigError) as caught:
        lake.sink("select 2 a, array(2) tags", maintenance={"z_order": [column]}).write()
    assert caught.value.code == "z-order-column"
    assert message in f"{caught.value.message} {caught.value.fix}"
    assert lake.count() == 1


def test_a_column_that_is_not_declared_is_named_at_its_option(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="z-order column 'b' is not among the declared columns"):
        lake.sink("select 1 a", schema={"a": "int"}, maintenance={"z_order": ["b"]}).write()


@given(st.integers(1, 4), st.data())
def test_ranks_keep_their_order_and_columns_do_not_meet(columns: int, data: st.DataObject) -> None:
    ranks = sorted(data.draw(st.lists(st.integers(0, 63), min_size=2, max_size=2)))
    for turn in range(columns):
        low, high = (spread(rank, turn, columns) for rank in ranks)
        assert (low < high) == (ranks[0] < ranks[1])
    for one, other in itertools.combinations(range(columns), 2):
        assert spread(63, one, columns) & spread(63, other, columns) == 0
