"""The quick reader of JSON messages: what it takes is what the careful reader makes of it, and it takes what is plain."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, DecimalType, StringType, StructField, StructType

from frazil.sources.decode import objects
from frazil.sources.decode.objects import ObjectReader, Reading, plain_rows
from frazil.spark import json_rows as bridge
from sources.decode.made_up import Author, one_by_one
from sources.decode.records import decoded

MESSAGES = 2000
DECIMAL = DecimalType(38, 10)


# What messages have; the key of the object that counts; and what is wanted where a variant is read.
CASES: dict[str, tuple[str, str, DataType]] = {
    "values": ("id bigint, n int, ratio double, small float, ok boolean, name string, blob binary, price variant", "", DECIMAL),
    "nested": (
        "inner struct<a: int, b: variant, c: struct<d: string, e: double>>, tags array<string>, numbers array<variant>, "
        "rows array<struct<a: int, b: variant>>, "
        "attrs map<string, bigint>, lists map<string, array<double>>, mixed map<string, variant>",
        "",
        DECIMAL,
    ),
    "texts": ("id variant, `odd name.` variant, `größe €` string, `😀` bigint", "", StringType()),
    "payload": ("id bigint, name string, inner struct<ratio: double, ok: boolean>", "payload", DECIMAL),
}


def reading(case: str) -> Reading:
    carrier, root, variants = CASES[case]
    kind = DataType.fromDDL(carrier)
    assert isinstance(kind, StructType)
    wanted = json.loads(kind.json().replace('"variant"', variants.json()))
    return Reading(kind, StructType.fromJson(wanted), root)


def whole(how: Reading) -> StructType:
    """The type of a message."""
    return StructType([StructField(how.root, how.carrier)]) if how.root else how.carrier


def frame_of(spark: SparkSession, folder: Path, messages: list[bytes | None]) -> DataFrame:
    """From a file, so that Spark generates code as it does for a topic."""
    pyarrow.parquet.write_table(pyarrow.table({"n": range(len(messages)), "value": messages}), folder / "messages.parquet")
    return spark.read.parquet(str(folder / "messages.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_both_readers_agree(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    fresh = random.randrange(2**32)
    print(f"seeds 1 and {fresh}")
    how = reading(case)
    made = [message for seed in (1, fresh) for message in Author(seed).messages(whole(how), MESSAGES)]
    messages: list[bytes | None] = [None, b"", *one_by_one(whole(how)), *made]
    frame = frame_of(spark, tmp_path, messages)

    together = ObjectReader().read(frame, "value", "it", how)
    monkeypatch.setattr(objects, "plain_rows", lambda *_: None)
    careful = ObjectReader().read(frame, "value", "it", how)

    assert together.schema == careful.schema
    quick, slow = ({row.n: row for row in one.select("n", "it", "it_fault").collect()} for one in (together, careful))
    # As text, which tells a zero from a negative one.
    differing = [(message, quick[n], slow[n]) for n, message in enumerate(messages) if repr(quick[n]) != repr(slow[n])]
    assert differing[:3] == []
    bad = [row.it_fault.code for row in slow.values() if row.it_fault is not None]
    assert 0.1 < len(bad) / len(slow) < 0.9
    assert {"json-malformed", "json-type", "text-encoding", "json-unicode"} <= set(bad)


@pytest.mark.parametrize("case", CASES)
def test_plain_messages_take_the_quick_way(spark: SparkSession, tmp_path: Path, case: str) -> None:
    how, author = reading(case), Author(2)
    messages: list[bytes | None] = [author.plain(whole(how)) for _ in range(300)]
    if how.root:
        messages = [message for message in messages if isinstance(json.loads(message or b"").get(how.root), dict)]
    assert len(messages) > 100
    column = plain_rows(spark, "value", how)
    assert column is not None
    assert [bytes(row.value) for row in frame_of(spark, tmp_path, messages).where(column.isNull()).limit(3).collect()] == []


def test_a_session_without_the_quick_reader_reads_with_care(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "READER", "frazil.NotThere")
    assert plain_rows(spark, "value", reading("values")) is None
    options = {"type": "json", "schema": {"id": "long", "price": "decimal(10, 2)"}}
    found = decoded(spark, options, ['{"id": 1, "price": 2.50}', '{"id": 2, "id": 3}', '{"id": "x"}', None])
    assert [(row["id"], row["price"]) for row in found.rows] == [(1, Decimal("2.50")), (3, None), (None, None), (None, None)]
    assert found.codes == [None, None, "json-type", None]
