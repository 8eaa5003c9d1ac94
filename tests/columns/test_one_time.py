"""Conditions that are asked several times, and mean one time."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from frazil.columns.fixed_time import at_one_time
from frazil.errors import ConfigError


@pytest.mark.parametrize(
    ("condition", "fixed"),
    [
        ("at < current_timestamp()", "at < timestamp_micros("),
        ("at < CURRENT_TIMESTAMP", "at < timestamp_micros("),
        ("at < now ( )", "at < timestamp_micros("),
        ("at < localtimestamp() - interval 1 hour", "at < timestamp_ntz'"),
        ("day = curdate()", "day = date'"),
        ("s < unix_timestamp()", "s < "),
    ],
)
def test_the_time_of_now_is_fixed(spark: SparkSession, condition: str, fixed: str) -> None:
    made = at_one_time(spark, condition, "where")
    assert made.startswith(fixed)
    columns = "timestamp'2020-01-01' at, date'2020-01-01' day, 1L s"
    assert spark.sql(f"select {columns}").where(made).count() == (0 if condition.startswith("day") else 1)


@pytest.mark.parametrize(
    "condition",
    ["v = 'now()'", "`now()` = 1", 'v = "current_date"', "t.now() = 1", "known(1)", "at = timestamp'2020-01-01'", "brand(1)"],
)
def test_what_only_looks_like_it_stays(spark: SparkSession, condition: str) -> None:
    assert at_one_time(spark, condition, "where") == condition


@pytest.mark.parametrize("changing", ["rand()", "uuid()", "timestamp'now'", "date 'today'", 'timestamp_ntz"now"', "random(1)"])
def test_what_cannot_be_fixed_is_refused(spark: SparkSession, changing: str) -> None:
    with pytest.raises(ConfigError, match=r"where: .* gives another value each time") as caught:
        at_one_time(spark, f"v = {changing}", "where")
    assert caught.value.code == "condition-changes"
