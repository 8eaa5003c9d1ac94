"""Debezium's envelopes unwrapped by a transform: those after it see rows, and the table follows what is done to them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.model.cases import CaseSpec
from frazil.runtime.cases import run_case
from helpers.lakes import Lake, commits, run

IMAGE = "struct<id: long, v: string, n: int>"
SCHEMA = {"before": IMAGE, "after": IMAGE, "op": "string", "source": "struct<lsn: long>"}
UPSERT = {"commit_mode": "upsert", "key_fields": ["id"], "order_by": ["lsn"]}
UNWRAP = {"type": "unwrap_debezium", "add": {"lsn": "source.lsn"}}
FULL = {"type": "where", "condition": "n > 0"}


def row(number: int, text: str | None = None, n: int | None = None) -> dict[str, Any]:
    return {"id": number, "v": text, "n": n}


def change(op: str, lsn: int, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}


class Log:
    """A folder of changes, of which each batch is a file."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake.introduced()
        self.folder = folder
        folder.mkdir()

    def tell(self, *changes: dict[str, Any]) -> None:
        (self.folder / f"{len(list(self.folder.iterdir()))}.json").write_text("\n".join(map(json.dumps, changes)))

    def pipeline(self, *transforms: dict[str, Any], **options: Any) -> Any:
        source = {"connector": "files", "path": str(self.folder), "format": "json", "schema": SCHEMA}
        return self.lake.pipeline(source, transforms=list(transforms), **options)

    def run(self, *transforms: dict[str, Any], **options: Any) -> Any:
        return commits(run(self.pipeline(*transforms, **options), once=True))[-1].counts


@pytest.fixture
def log(lake: Lake, tmp_path: Path) -> Log:
    return Log(lake, tmp_path / "in")


@pytest.mark.parametrize("strategy", ["equality_delete", "merge"])
def test_the_table_holds_the_rows_of_a_filter_after_every_change(log: Log, lake: Lake, strategy: str) -> None:
    steps = (UNWRAP, FULL, {"type": "add_field", "field": "loud", "expression": "upper(v)"})
    options = UPSERT | {"upsert_strategy": strategy}
    log.tell(*(change("r", 1, after=row(number, "a", number)) for number in range(5)))
    counts = log.run(*steps, **options)
    assert (counts.read, counts.written, counts.deleted) == (5, 4, 1)
    assert lake.meta("delete_files") == [], "there is nothing in a new table that could be deleted"
    log.tell(
        change("u", 2, row(0, "a", 0), row(0, "comes", 7)),
        change("u", 3, row(1, "a", 1), row(1, "goes", 0)),
        change("d", 4, row(2)),
        change("u", 5, row(3), row(30, "moves", 3)),
        change("u", 6, row(4), row(40, "moves and goes", 0)),
        change("c", 7, after=row(5, "never there", 0)),
        change("r", 8, after=row(30, "read once more", 0)),
    )
    counts = log.run(*steps, **options)
    assert lake.rows("id, v, n, loud, lsn") == [(0, "comes", 7, "COMES", 2)]
    assert (counts.read, counts.filtered, counts.extra, counts.balanced) == (7, 1, 2, True)


@pytest.mark.slow
def test_keys_may_be_renamed_after_they_are_named(log: Log, lake: Lake) -> None:
    steps = (UNWRAP | {"keys": ["id"]}, {"type": "rename_field", "from": "id", "to": "nr"})
    options = UPSERT | {"key_fields": ["nr"]}
    log.tell(change("c", 1, after=row(1, "a")), change("c", 2, after=row(2, "b")))
    log.run(*steps, **options)
    log.tell(change("u", 3, row(1), row(3, "a moved")), change("d", 4, row(2)))
    log.run(*steps, **options)
    assert lake.rows("nr, v") == [(3, "a moved")]


@pytest.mark.slow
def test_rows_are_followed_by_a_key_of_the_sinks_own(log: Log, lake: Lake) -> None:
    chosen = {"type": "select", "expressions": ["v AS email", "n", "lsn"]}
    options = UPSERT | {"key_fields": ["email"]}
    log.tell(*(change("r", number, after=row(number, text, n)) for number, text, n in ((1, "a", 1), (2, "b", 1), (3, "c", 0))))
    with pytest.raises(frazil.ConfigError, match="'email' is not among the columns of `before` and `after`: id, v, n") as caught:
        log.run(UNWRAP, FULL, chosen, **options)
    assert (caught.value.code, "keys: [id]" in (caught.value.fix or "")) == ("key-missing", True)
    steps = (UNWRAP | {"keys": ["id"]}, FULL, chosen)
    log.run(*steps, **options)
    assert lake.rows("email, n") == [("a", 1), ("b", 1)]
    # The third row never was in the table: that it takes and leaves the key of another changes nothing.
    log.tell(
        change("u", 4, row(1, "a", 1), row(1, "z", 1)),
        change("u", 5, row(3, "c", 0), row(3, "b", 0)),
        change("u", 6, row(2, "b", 1), row(2, "b", 2)),
        change("d", 7, row(3, "b", 0)),
    )
    counts = log.run(*steps, **options)
    assert lake.rows("email, n") == [("b", 2), ("z", 1)]
    assert (counts.read, counts.filtered, counts.balanced) == (4, 2, True)
    log.tell(change("d", 8, row(2, "b", 2)), change("u", 9, row(1, "z", 1), row(1, "y", 0)))
    log.run(*steps, **options)
    assert lake.rows("email, n") == []
    log.tell(change("d", 10, row(1)))
    with pytest.raises(frazil.DataError, match=r"has no `before`, .* REPLICA IDENTITY FULL") as lost:
        log.run(*steps, **options)
    assert lost.value.code == "before-missing"


def test_a_key_that_is_made_from_the_sources_key_needs_no_row_of_before(log: Log, lake: Lake) -> None:
    steps = (UNWRAP | {"keys": ["id"]}, {"type": "select", "expressions": ["concat('u', id) AS uid", "v", "lsn"]})
    options = UPSERT | {"key_fields": ["uid"]}
    log.tell(change("c", 1, after=row(1, "a")), change("c", 2, after=row(2, "b")))
    log.run(*steps, **options)
    log.tell(change("u", 3, None, row(1, "new")), change("d", 4, row(2)))
    log.run(*steps, **options)
    assert lake.rows("uid, v") == [("u1", "new")]


def test_a_key_of_which_a_part_is_lost_is_refused(log: Log) -> None:
    log.tell(change("c", 1, after=row(1, "a")))
    unwrap = UNWRAP | {"keys": ["id", "v"]}
    upsert = {"commit_mode": "upsert"}
    shorter = {"type": "select", "expressions": ["id", "upper(v) AS v", "lsn"]}
    with pytest.raises(frazil.ConfigError, match="by 2 columns, of which only id is left") as caught:
        log.run(unwrap, shorter, **upsert)
    assert caught.value.code == "key-lost"
    hashed = {"type": "hash_field", "field": "v", "salt": "a long salt"}
    assert log.run(unwrap, hashed, **upsert).written == 1


def test_changes_are_appended_with_what_they_did(log: Log, lake: Lake) -> None:
    log.tell(change("c", 1, after=row(1, "a")), change("u", 2, row(1, "a"), row(1, "b")), change("d", 3, row(1, "b")))
    log.run(UNWRAP, op_column="did")
    assert lake.rows("lsn, id, v, did") == [(1, 1, "a", "insert"), (2, 1, "b", "update"), (3, 1, "b", "delete")]


def test_rows_that_went_are_counted_with_all_their_values(log: Log, lake: Lake) -> None:
    log.tell(change("c", 1, after=row(1, "7", 1)), change("u", 2, row(1, "7", 1), row(1, "8", 1)), change("d", 3, row(1, "8", 1)))
    log.run({"type": "unwrap_debezium"}, diff_column="diff", schema={"id": "long", "v": "decimal(5, 2)", "n": "string"})
    assert lake.rows("v, n, diff") == [(Decimal(text), "1", diff) for text in ("7.00", "8.00") for diff in (-1, 1)]


@pytest.mark.slow
def test_a_change_that_cannot_be_understood_is_a_dead_letter(log: Log, lake: Lake) -> None:
    log.tell(change("c", 1, after=row(1, "a", 1)), change("?", 2, after=row(2, "b", 1)))
    log.run(UNWRAP, FULL, **UPSERT, on_error="dead_letter")
    assert lake.rows("id, v") == [(1, "a")]
    assert lake.rows("code", "db.t__dead_letters") == [("operation-unknown",)]


@pytest.mark.parametrize(
    ("steps", "options", "message"),
    [
        ([UNWRAP], {"change_format": "debezium"} | UPSERT, "the sink would look for envelopes once more"),
        ([{"type": "remove_field", "field": "before"}, UNWRAP], UPSERT, "there is no column 'before'"),
        ([{"type": "unwrap_debezium", "add": {"v": "op"}}], {"op_column": "did"}, "'v', which was added to Debezium's envelopes"),
        ([{"type": "unwrap_debezium", "add": {"x": "source.pos"}}], {}, "there is no field 'pos' in 'source'"),
        ([UNWRAP, FULL], {"diff_column": "diff"}, "it is not known whether it was counted"),
        ([UNWRAP], {"commit_mode": "overwrite"}, "the rows are changes, which commit_mode: overwrite does not follow"),
        ([UNWRAP | {"add": {"did": "op"}}], {"op_field": "did"}, "and so would op_field"),
    ],
)
def test_what_does_not_fit_is_refused(log: Log, lake: Lake, steps: Any, options: dict[str, Any], message: str) -> None:
    log.tell(change("c", 1, after=row(1, "a", 1)))
    with pytest.raises(frazil.ConfigError, match=message):
        log.run(*steps, **options)
    assert lake.nothing_written()


def test_tests_of_a_pipeline_are_given_envelopes(log: Log) -> None:
    given = [change("c", 1, after=row(1, "a", 1)), change("u", 2, row(2), row(2, "goes", 0)), change("d", 3, row(3))]
    case = CaseSpec.model_validate({"name": "unwrapped", "given": given, "expect": [row(1, "a", 1) | {"lsn": 1}]})
    result = run_case(log.lake.spark, log.pipeline(UNWRAP, FULL, **UPSERT), case)
    assert (result.error, result.passed) == (None, True)
