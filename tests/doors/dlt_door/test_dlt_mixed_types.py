"""Files of one load that differ in the types of a column, and columns that are wider than dlt's schema says."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import dlt
import pyarrow
import pyarrow.parquet
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_lakes import DltLake, loaded

from frazil.errors import DataError
from frazil.model.catalog import CatalogSpec, CatalogType
from frazil.model.load import TableLoad
from frazil.model.sink import SinkSpec
from frazil.runtime.load_rows import _types_of, _wider_types

BIG = 2**40


def column(value: Any, kind: pyarrow.DataType, key: int) -> pyarrow.Table:
    return pyarrow.table({"id": [key], "x": pyarrow.array([value], kind)})


def arrow(tables: Sequence[pyarrow.Table], name: str = "t", **hints: Any) -> Any:
    return dlt.resource(list(tables), name=name, **hints)


def type_of(lake: DltLake, table: str) -> str:
    return str(lake.table(table).schema().find_field("x").field_type)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """dlt writes Arrow tables that it cannot concatenate to files of their own."""
    monkeypatch.setenv("DATA_WRITER__ARROW_CONCAT_PROMOTE_OPTIONS", "default")


@pytest.mark.slow
@pytest.mark.usefixtures("apart")
def test_files_of_one_load_that_differ_in_a_number_s_type(lake: DltLake, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows of dictionaries have these columns in any case, and dlt's schema requires them.
    monkeypatch.setenv("NORMALIZE__PARQUET_NORMALIZER__ADD_DLT_LOAD_ID", "true")
    monkeypatch.setenv("NORMALIZE__PARQUET_NORMALIZER__ADD_DLT_ID", "true")
    tables = {
        "i": [column(1, pyarrow.int32(), 1), column(BIG, pyarrow.int64(), 2)],
        "d": [column(Decimal("1.5"), pyarrow.decimal128(10, 2), 1), column(Decimal("1.55"), pyarrow.decimal128(20, 5), 2)],
        "f": [column(1.5, pyarrow.float32(), 1), column(0.1, pyarrow.float64(), 2)],
        "u": [column(255, pyarrow.uint8(), 1), column(7, pyarrow.int64(), 2)],
    }
    rows = [{"id": 3, "x": 0.25}], [{"id": 3, "x": 9}]
    python = [dlt.resource(given, name=f"p{table}", table_name=table) for given, table in zip(rows, "fu", strict=True)]
    loaded(lake.pipeline().run([*(arrow(several, name) for name, several in tables.items()), *python]))
    assert (lake.rows("i", "id", "x"), type_of(lake, "i")) == ([(1, 1), (2, BIG)], "long")
    assert lake.rows("d", "id", "x") == [(1, Decimal("1.50")), (2, Decimal("1.55"))]
    assert lake.rows("f", "id", "x") == [(1, 1.5), (2, 0.1), (3, 0.25)]
    assert lake.rows("u", "id", "x") == [(1, 255), (2, 7), (3, 9)]


@pytest.mark.slow
@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("strategy", ["delete-insert", "upsert"])
def test_a_merge_of_such_files(lake: DltLake, strategy: str) -> None:
    pipeline = lake.pipeline()
    hints: Any = {"write_disposition": {"disposition": "merge", "strategy": strategy}, "primary_key": "id"}
    loaded(pipeline.run(arrow([column(0, pyarrow.int32(), 1), column(0, pyarrow.int32(), 9)], **hints)))
    more = pyarrow.table({"id": [1, 2], "x": pyarrow.array([BIG, BIG + 1]), "new": ["a", "b"]})
    loaded(pipeline.run(arrow([column(5, pyarrow.int32(), 3), more], **hints)))
    assert lake.rows("t", "id", "x", "new") == [(1, BIG, "a"), (2, BIG + 1, "b"), (3, 5, None), (9, 0, None)]


@pytest.mark.usefixtures("apart")
def test_files_that_no_type_is_wide_enough_for_are_reported(lake: DltLake) -> None:
    several = [column(Decimal(1), pyarrow.decimal128(38, 0), 1), column(Decimal("0.5"), pyarrow.decimal128(10, 5), 2)]
    text = r"column 'x' of analytics\.t has .*\n.*Cast the column in the resource.*\[types-mixed\]"
    with pytest.raises(PipelineStepFailed, match=text) as failed:
        lake.pipeline().run(arrow(several))
    assert all(f"decimal({kind})" in str(failed.value) for kind in ("38,0", "10,5"))
    assert lake.rows("t", "id") == []


def test_types_that_have_nothing_in_common_are_reported(tmp_path: Path) -> None:
    kinds = {"struct": pyarrow.array([{"a": 1}]), "string": pyarrow.array(["a"]), "array": pyarrow.array([[1]])}
    for kind, values in kinds.items():
        pyarrow.parquet.write_table(pyarrow.table({"x": values}), tmp_path / kind)
    table = TableLoad(sink=SinkSpec(catalog=CatalogSpec(type=CatalogType.MEMORY), namespace="db", table="t"))
    for one, other in combinations(kinds, 2):
        with pytest.raises(DataError, match=f"type {one} in some files of the load and {other} in others"):
            _wider_types(table, [_types_of(str(tmp_path / kind)) for kind in (one, other)])


@pytest.mark.slow
def test_an_int_becomes_a_long_where_the_data_has_more_bits(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    unsigned = column(3 * 10**9, pyarrow.uint32(), 1)
    loaded(pipeline.run([arrow([column(1, pyarrow.int32(), 1)]), arrow([unsigned], "u")]))
    assert (type_of(lake, "t"), type_of(lake, "u")) == ("int", "long")
    assert lake.rows("u", "x") == [(3 * 10**9,)]
    loaded(pipeline.run(arrow([column(BIG, pyarrow.int64(), 2)])))
    assert (lake.rows("t", "id", "x"), type_of(lake, "t")) == ([(1, 1), (2, BIG)], "long")
    loaded(pipeline.run(arrow([column(3, pyarrow.int32(), 3)])))
    assert (lake.rows("t", "id", "x"), type_of(lake, "t")) == ([(1, 1), (2, BIG), (3, 3)], "long")
