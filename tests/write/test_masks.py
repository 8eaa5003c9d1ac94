"""Values in whose place others stand: what they show, what they still distinguish, and who can turn them back."""

from __future__ import annotations

import hashlib
import io
from contextlib import redirect_stdout
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from frazil.errors import ConfigError
from frazil.model.hidden import KEY_MARK
from write.test_transforms import after, parse

KEY = "a-key-that-nobody-may-see"
TEXTS = "select * from values (1, 'ada@x.org'), (2, 'ada@x.org'), (3, 'Zoë'), (4, ''), (5, null) as t(id, v)"


def values(frame: DataFrame, column: str = "v") -> list[Any]:
    return [row[column] for row in frame.orderBy("id").collect()]


def test_tokens_distinguish_values_and_can_be_turned_back(spark: SparkSession) -> None:
    made = after(spark.sql(TEXTS), {"type": "tokenize_field", "field": "v", "key": KEY})
    first, same, other, empty, missing = values(made)
    assert first == same
    assert missing is None
    assert len({first, other, empty}) == 3
    assert "ada" not in first
    secret = hashlib.sha256(KEY.encode()).hexdigest()
    back = made.selectExpr("id", f"cast(aes_decrypt(unbase64(v), unhex('{secret}'), 'CBC') as string) v")
    assert values(back) == ["ada@x.org", "ada@x.org", "Zoë", "", None]
    others = after(spark.sql(TEXTS), {"type": "tokenize_field", "field": "v", "key": KEY + "!"})
    assert not {*values(others)} & {first, other, empty}


def test_numbers_become_tokens_of_their_text(spark: SparkSession) -> None:
    made = after(spark.sql("select 1 id, 7L v"), {"type": "tokenize_field", "field": "v", "key": KEY})
    text = after(spark.sql("select 1 id, '7' v"), {"type": "tokenize_field", "field": "v", "key": KEY})
    assert values(made) == values(text)


def test_the_key_of_tokens_is_in_no_plan(spark: SparkSession) -> None:
    frame = after(spark.sql(TEXTS), {"type": "tokenize_field", "field": "v", "key": KEY}).where("v is not null")
    assert frame.count() == 4
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain("extended")
    assert "aes_encrypt" in shown.getvalue()
    assert KEY not in shown.getvalue() + repr(parse([{"type": "tokenize_field", "field": "v", "key": KEY}]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [None] * 5),
        ({"with": "-"}, ["-", "-", "-", "-", None]),
        ({"keep_last": 3}, ["******org", "******org", "***", "", None]),
        ({"keep_first": 1}, ["a********", "a********", "Z**", "", None]),
        ({"keep_first": 1, "keep_last": 2}, ["a******rg", "a******rg", "***", "", None]),
    ],
)
def test_texts_are_redacted(spark: SparkSession, options: dict[str, Any], expected: list[str | None]) -> None:
    assert values(after(spark.sql(TEXTS), {"type": "redact_field", "field": "v", **options})) == expected


def test_what_is_redacted_keeps_its_type(spark: SparkSession) -> None:
    frame = spark.sql("select 1 id, date'2024-02-29' v, named_struct('a', 1, 'b', 2) s")
    made = after(frame, {"type": "redact_field", "fields": ["v", "s.a"]})
    assert made.dtypes == frame.dtypes
    assert made.first() == (1, None, (None, 2))


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        ("'12345'", {"length": 3}, "123"),
        ("37", {"width": 10}, 30),
        ("-37L", {"width": 10}, -40),
        ("cast(37.5 as decimal(10, 2))", {"width": 10}, Decimal("30.00")),
        ("-0.5D", {"width": 1}, -1.0),
        ("date'2024-05-31'", {"unit": "quarter"}, date(2024, 4, 1)),
        ("timestamp'2024-05-31 12:34:56'", {"unit": "hour"}, datetime(2024, 5, 31, 12)),
        ("timestamp_ntz'2024-05-31 12:34:56'", {"unit": "month"}, datetime(2024, 5, 1)),
    ],
)
def test_values_are_truncated(spark: SparkSession, value: str, options: dict[str, Any], expected: Any) -> None:
    frame = spark.sql(f"select 1 id, {value} v")
    made = after(frame, {"type": "truncate_field", "field": "v", **options})
    assert (values(made), made.dtypes) == ([expected], frame.dtypes)


@pytest.mark.parametrize(("mask", "stays"), [({"type": "tokenize_field", "key": KEY}, True), ({"type": "redact_field"}, False)])
def test_what_identifies_a_row_still_does_if_values_stay_different(
    spark: SparkSession, mask: dict[str, Any], stays: bool
) -> None:
    frame = spark.sql("select 'a' v").withMetadata("v", {KEY_MARK: True})
    assert after(frame, mask | {"field": "v"}).schema["v"].metadata.get(KEY_MARK, False) is stays


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ({"type": "redact_field", "field": "n", "with": "-"}, "only texts are redacted in part, or to a text"),
        ({"type": "redact_field", "field": "n", "keep_last": 1}, "only texts are redacted in part"),
        ({"type": "redact_field", "field": "list"}, "only single values are redacted"),
        ({"type": "truncate_field", "field": "n", "length": 1}, "'n' is int, which length does not truncate"),
        ({"type": "truncate_field", "field": "day", "unit": "hour"}, "'day' is date, which unit does not truncate"),
        ({"type": "tokenize_field", "field": "list", "key": KEY}, "only single values are tokenized"),
    ],
)
def test_what_cannot_be_masked_is_refused(spark: SparkSession, transform: dict[str, Any], message: str) -> None:
    frame = spark.sql("select 1 n, array(1) list, date'2024-01-01' day")
    with pytest.raises(ConfigError) as caught:
        after(frame, transform)
    assert message in caught.value.message


@pytest.mark.parametrize(
    "transform",
    [
        {"type": "redact_field", "field": "a", "with": "x", "keep_last": 2},
        {"type": "truncate_field", "field": "a"},
        {"type": "truncate_field", "field": "a", "length": 1, "width": 2},
        {"type": "tokenize_field", "field": "a", "key": "short"},
    ],
)
def test_options_that_mean_nothing_together_are_refused(transform: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse([transform])
