"""Options of a branch and what is checked before it is published, as values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.model.maintenance import PastSnapshot, References, Retention, expired
from frazil.model.publishing import Step, rows_expected, rows_finding, rows_written
from frazil.model.sink import SinkSpec

CATALOG = {"type": "memory"}
ROUTE = {"field": "kind", "tables": {"a": "a"}}
CHECK = {"name": "amounts", "sql": "select * from {table} where amount < 0"}


def spec(**options: Any) -> SinkSpec:
    return SinkSpec.model_validate(
        {"catalog": CATALOG, "namespace": "db"} | ({} if "route" in options else {"table": "t"}) | options
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"branch": "main"}, "branch cannot be main"),
        ({"branch": "audit", "route": ROUTE}, "branch cannot be used with route"),
        ({"branch": "audit", "schema_evolution": "full"}, "schema_evolution: full cannot be used with branch"),
        ({"publish": {"checks": [CHECK]}}, "publish has no meaning without branch"),
        ({"branch": "audit", "publish": {"checks": [CHECK, CHECK]}}, "several checks are called 'amounts'"),
        ({"branch": "audit", "publish": {"checks": [{"name": "a", "sql": "select 1"}]}}, "'a' does not look at the branch"),
        ({"branch": ""}, "branch"),
        ({"branch": "audit", "publish": {"cheks": []}}, "cheks"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_loaded(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        spec(**options)
    assert words in str(refused.value)


def test_a_branch_with_checks_is_accepted() -> None:
    sink = spec(branch="audit", publish={"checks": [CHECK]})
    assert (sink.written_branch, spec().written_branch) == ("audit", "main")


def appended(rows: int) -> Step:
    return Step(1, "append", {"frazil.sink": "s", "frazil.kind": "data", "frazil.rows-out": str(rows), "added-data-files": "1"})


def upserted(rows: int) -> Step:
    counts = {"added-data-files": "1", "added-delete-files": "1"}
    return Step(2, "overwrite", {"frazil.sink": "s", "frazil.kind": "data", "frazil.rows-out": str(rows)} | counts)


CLAIM = Step(3, "append", {"frazil.sink": "s", "frazil.kind": "claim"})
MERGE = Step(4, "replace", {"frazil.kind": "merge", "added-data-files": "1", "deleted-data-files": "9"})
FOREIGN = Step(5, "append", {"added-data-files": "1", "added-records": "7"})
DELETED = Step(7, "delete", {"deleted-data-files": "1"})
RESET = Step(6, "delete", {"frazil.sink": "s", "frazil.kind": "rewind", "deleted-data-files": "3"})


@pytest.mark.parametrize(
    ("steps", "least", "most"),
    [
        ([CLAIM, appended(10), MERGE, appended(5)], 115, 115),
        ([upserted(10)], 10, 110),
        ([upserted(10), appended(5)], 15, 115),
        ([RESET], 0, 100),
        ([FOREIGN, DELETED], 100, 100),
    ],
)
def test_how_many_rows_a_branch_may_hold(steps: list[Step], least: int, most: int) -> None:
    expected = rows_expected(100, steps)
    assert (expected.least, expected.most) == (least, most)
    assert not rows_finding(least, 100, steps)
    assert not rows_finding(most, 100, steps)
    assert rows_finding(least - 1, 100, steps)
    assert rows_finding(most + 1, 100, steps)


def test_rows_of_batches_count_and_nobody_else_s() -> None:
    assert rows_written([appended(10), CLAIM, FOREIGN, MERGE, upserted(3)]) == 13


HOUR = 3_600_000


def line(first: int, last: int) -> list[PastSnapshot]:
    return [PastSnapshot(n, n - 1 if n > 1 else None, n * HOUR) for n in range(first, last + 1)]


def test_what_main_does_not_have_yet_stays_and_what_it_has_goes_by_the_rules() -> None:
    named = References(head=30, own=60, pinned=frozenset({30, 60}))
    gone = expired(line(1, 60), named, Retention(10, 1000 * HOUR), 60 * HOUR)
    assert set(gone) == set(range(1, 21))


def test_a_branch_that_was_published_is_no_history_to_keep() -> None:
    named = References(head=60, own=60, pinned=frozenset({60}))
    assert set(expired(line(1, 60), named, Retention(10, 1000 * HOUR), 60 * HOUR)) == set(range(1, 51))


def test_a_branch_whose_main_is_empty_stays() -> None:
    assert expired(line(1, 60), References(head=None, own=60), Retention(10, 1000 * HOUR), 60 * HOUR) == ()
