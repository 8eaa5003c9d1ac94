"""The first batch of a sink is staged without compiling if it is small; the session's options stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.lakes import Lake

pytestmark = pytest.mark.spark

WHOLE_STAGE, FACTORY = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"


def rows(number: int, many: int = 100) -> str:
    """Code that was compiled once is kept: each query has a number of its own in it."""
    return f"SELECT id, id % {number} AS kind, concat('n-{number}-', id) AS name FROM range({many}) WHERE id <> {number}"


def classes_compiled(lake: Lake, work: Callable[[], object]) -> int:
    times = lake.spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    before = int(times.getCount())
    work()
    return int(times.getCount()) - before


def options(lake: Lake) -> tuple[str | None, str | None]:
    return lake.spark.conf.get(WHOLE_STAGE), lake.spark.conf.get(FACTORY)


def test_the_first_batch_is_compiled_only_if_it_is_large(lake: Lake) -> None:
    large = classes_compiled(lake, lake.sink(rows(7_001, 1_000_000), "db.large").write)
    small = classes_compiled(lake, lake.sink(rows(7_002), "db.small").write)
    assert (small, large > 0) == (0, True)
    assert (lake.count("db.small"), lake.count("db.large")) == (100, 999_999)
    assert options(lake) == ("true", "FALLBACK")


def test_a_session_that_has_its_own_option_is_left_alone(lake: Lake) -> None:
    lake.spark.conf.set(FACTORY, "CODEGEN_ONLY")
    try:
        assert classes_compiled(lake, lake.sink(rows(7_003)).write) > 0
        assert options(lake) == ("true", "CODEGEN_ONLY")
    finally:
        lake.spark.conf.unset(FACTORY)


def test_a_batch_that_fails_leaves_the_options_as_they_were(lake: Lake) -> None:
    with pytest.raises(Exception, match="no number"):
        lake.sink("SELECT id, cast(raise_error('no number') AS string) AS text FROM range(3)").write()
    assert options(lake) == ("true", "FALLBACK")
