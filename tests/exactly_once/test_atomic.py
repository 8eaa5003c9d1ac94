"""A debit in one table and its credit in another: at no moment is one there without the other."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from exactly_once.bank import BATCH, CREDIT, DEBIT, HOME, Bank, apart, postgres_bank, sqlite_bank, watched
from exactly_once.children import end, ended, started
from exactly_once.ground import QUICK, Foreign, rest_ground
from exactly_once.programs.transfering import FILES, ROWS, prepare, run_all
from frazil.errors import ConfigError, DataError, Fenced, OutcomeUnknown
from frazil.iceberg import Lake
from frazil.model.events import CommitFailed, Committed
from frazil.model.sink import SinkSpec
from services.between import Asked, Made, between
from services.faults import COMMIT_FAULTS, applied_late, applied_then, refused
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog
from tiers import few_or_all, first_or_all

FEW_FAULTS = (applied_then(503, retry_after=0), refused(409), applied_late(504, after=0.2))


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path) -> Bank:
    return sqlite_bank(spark, tmp_path)


@pytest.fixture
def behind_proxy(spark: SparkSession, rest_catalog: RestCatalog, faulty_rest: FaultyRest) -> Bank:
    return Bank(rest_ground(spark, faulty_rest.uri, rest_catalog.uri))


# What a reader sees.


def written_while_watched(bank: Bank, batches: int, **options: Any) -> list[dict[str, int]]:
    """Writes batches, and tells what a reader of the catalog's database saw of the ledgers."""
    writer = bank.writer(**options)
    writer.open()
    writer.write(0, BATCH)
    with watched(bank) as seen:
        for number in range(1, batches):
            writer.write(number * BATCH, (number + 1) * BATCH)
    assert bank.batches() == dict.fromkeys((DEBIT, CREDIT, HOME), batches)
    bank.assert_exactly_once(batches * BATCH)
    return seen


def test_a_reader_sees_a_batch_in_all_tables_or_in_none(bank: Bank) -> None:
    seen = written_while_watched(bank, 6)
    assert apart(seen) == []
    assert len(seen) >= 4, "the reader was too slow to see anything"


@pytest.mark.slow(seconds=30)
def test_a_reader_sees_that_in_postgresql_too(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    bank = postgres_bank(spark, tmp_path, request.getfixturevalue("postgres"))
    seen = written_while_watched(bank, 10)
    assert apart(seen) == []
    assert len(seen) >= 6


@pytest.mark.slow
def test_without_it_the_reader_sees_them_apart(bank: Bank) -> None:
    assert apart(written_while_watched(bank, 6, atomic=False))


# What goes wrong on the way.


def test_each_fault_of_the_one_commit_while_others_write_to_its_tables(behind_proxy: Bank, faulty_rest: FaultyRest) -> None:
    bank, writer = behind_proxy, behind_proxy.writer()
    writer.open()
    writer.write(0, BATCH)
    foreign = {name: Foreign(bank.table(name)) for name in (DEBIT, CREDIT)}
    faults = few_or_all(FEW_FAULTS, COMMIT_FAULTS)
    before = len(faulty_rest.commits)
    for number, fault in enumerate(faults, 1):
        faulty_rest.script([replace(fault, meanwhile=foreign[(DEBIT, CREDIT)[number % 2]].append)])
        writer.write(number * BATCH, (number + 1) * BATCH)
        assert len(set(bank.batches().values())) == 1
    faulty_rest.settle()
    # Small files are merged between batches, in each table by itself.
    commits = [one for one in faulty_rest.commits[before:] if one.request.target == "/v1/transactions/commit"]
    assert [one.fault.name for one in commits if one.fault] == [fault.name for fault in faults]
    assert {len(one.content["table-changes"]) for one in commits} == {3}
    bank.assert_exactly_once((len(faults) + 1) * BATCH, foreign)


@pytest.mark.slow
def test_a_commit_that_arrives_after_another_instance_took_over(behind_proxy: Bank, faulty_rest: FaultyRest) -> None:
    bank, older = behind_proxy, behind_proxy.writer(QUICK.model_copy(update={"max_retries": 0}))
    older.open()
    older.write(0, BATCH)
    faulty_rest.script([applied_late(504)])
    with pytest.raises(OutcomeUnknown):
        older.write(BATCH, 2 * BATCH)
    newer = bank.writer()
    assert newer.open() == BATCH
    newer.write(BATCH, 2 * BATCH)
    faulty_rest.release()
    newer.write(2 * BATCH, 3 * BATCH)
    with pytest.raises(Fenced):
        older.write(BATCH, 2 * BATCH)
    bank.assert_exactly_once(3 * BATCH)


def test_somebody_else_comes_first_in_one_of_the_tables(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are made anew, however often, and nothing is left of what did not come to be."""
    writer = bank.writer(QUICK.model_copy(update={"max_retries": 1}))
    writer.open()
    writer.write(0, BATCH)
    foreign = {name: Foreign(bank.table(name)) for name in (DEBIT, CREDIT)}
    turns = [DEBIT, CREDIT, CREDIT]
    real = Lake.swap_together

    def swap_together(self: Lake, swaps: Mapping[Any, Any]) -> None:
        if turns:
            foreign[turns.pop()].append()
        real(self, swaps)

    monkeypatch.setattr(Lake, "swap_together", swap_together)
    writer.write(BATCH, 2 * BATCH)
    assert [event.kind for event in writer.events if isinstance(event, CommitFailed)] == ["conflict"] * 3
    bank.assert_exactly_once(2 * BATCH, foreign)
    for name in (DEBIT, CREDIT, HOME):
        table = bank.table(name).table()
        named = {entry.metadata_file for entry in table.metadata.metadata_log} | {table.metadata_location}
        files = Path(urlsplit(table.metadata_location).path).parent.glob("*.metadata.json")
        assert {file.name for file in files} == {path.rpartition("/")[2] for path in named}


def test_a_table_that_was_changed_meanwhile_gets_its_files_anew(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its columns are others when the files are there already: all tables wait for it."""
    writer = bank.writer()
    writer.open()
    writer.write(0, BATCH)
    real, changed = Lake.swap_together, []

    def swap_together(self: Lake, swaps: Mapping[Any, Any]) -> None:
        if not changed:
            changed.append(bank.ground.administrator.sql(f"alter table lake.{bank.table(CREDIT).name} add column note string"))
        real(self, swaps)

    monkeypatch.setattr(Lake, "swap_together", swap_together)
    writer.write(BATCH, 2 * BATCH)
    assert changed
    assert [(event.table, event.counts.written) for event in writer.events if isinstance(event, Committed)][-3:-1] == [
        (bank.table(name).name, BATCH) for name in (DEBIT, CREDIT)
    ]
    bank.assert_exactly_once(2 * BATCH)


def test_an_older_instance_is_fenced_and_leaves_nothing_behind(bank: Bank) -> None:
    older, newer = bank.writer(), bank.writer()
    older.open()
    older.write(0, BATCH)
    assert newer.open() == BATCH
    with pytest.raises(Fenced):
        older.write(BATCH, 2 * BATCH)
    assert set(bank.batches().values()) == {1}
    newer.write(BATCH, 2 * BATCH)
    bank.assert_exactly_once(2 * BATCH)


def test_a_table_that_fails_keeps_the_others_from_their_rows(bank: Bank) -> None:
    writer = bank.writer()
    writer.open()
    writer.write(0, BATCH)
    bank.ground.administrator.sql(f"alter table lake.{bank.table(CREDIT).name} drop column id")
    strict = bank.writer(schema_evolution="strict")
    strict.open()
    with pytest.raises(DataError, match=rf"Table {bank.table(CREDIT).name}: Schema evolution not allowed"):
        strict.write(BATCH, 2 * BATCH)
    assert set(bank.batches().values()) == {1}


# kill -9.


def test_killed_at_the_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Rows are appended to one table and upserted into another, and some are dead letters."""
    prepare(tmp_path)
    moments = (("together-applied", 2), ("together-unsent", 2), ("together-sent", 1), ("together-applied", 1))
    for number, (moment, nth) in enumerate(first_or_all(moments)):
        child = started("transfering", moment, str(nth), "kill-all", tmp_path, log=tmp_path / f"killed-{number}")
        try:
            assert ended(child) == -signal.SIGKILL, child.log_text()
        finally:
            end(child)
        batches, rows = state_of(spark, tmp_path)
        assert len(set(batches.values())) == 1, "a batch is in some of its tables"
        assert rows == rows_of(batches[HOME])
    run_all(tmp_path)
    assert state_of(spark, tmp_path) == (
        dict.fromkeys((DEBIT, CREDIT, HOME, "frazil__dead_letters"), FILES),
        rows_of(FILES),
    )


def rows_of(batches: int) -> dict[str, int]:
    """How many rows the tables have after so many batches."""
    return {DEBIT: batches * ROWS, CREDIT: batches * ROWS, "frazil__dead_letters": 2 * batches * ROWS}


def state_of(spark: SparkSession, folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The last batch of each table, and how many different rows it holds, which are there once each."""
    bank = sqlite_bank(spark, folder)
    session = bank.ground.session()
    batches, rows = {}, {}
    for name in (DEBIT, CREDIT, HOME, "frazil__dead_letters"):
        shown = session.sql(f"show tblproperties lake.many.{name}").collect()
        ledger = json.loads(next(row.value for row in shown if row.key.startswith("frazil.sink.")))
        batches[name] = int(ledger.get("lead", ledger["batch"]))
        if name != HOME:
            key = "cast(raw as string)" if "letters" in name else "id"
            held = [row[0] for row in session.table(f"lake.many.{name}").selectExpr(key).collect()]
            assert len(held) == len(set(held))
            rows[name] = len(held)
    return batches, rows


# Where it cannot be had.


@pytest.mark.parametrize(
    ("catalog", "section"),
    [
        ("hive", {"uri": "thrift://metastore:9083"}),
        ("glue", {"region": "eu-central-1"}),
        ("nessie", {"uri": "http://nessie:19120/api/v2"}),
        ("bigquery", {"project_id": "p"}),
        ("hadoop", {"warehouse": "/lake"}),
        ("memory", None),
    ],
)
def test_a_catalog_that_commits_one_table_at_a_time_is_refused(catalog: str, section: dict[str, str] | None) -> None:
    given = {"type": catalog, "warehouse": "s3://lake/w"} | ({catalog: section} if section else {})
    sink = {"catalog": given, "namespace": "db", "route": {"field": "kind", "atomic": True}}
    with pytest.raises(ValidationError, match=f"atomic cannot be used with a catalog of type {catalog}"):
        SinkSpec.model_validate(sink)


def test_a_server_without_transactions_is_refused_before_anything_is_written(
    spark: SparkSession, rest_catalog: RestCatalog
) -> None:
    def change(asked: Asked) -> Asked | Made:
        if not asked.target.startswith("/v1/config"):
            return asked
        offered = ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}", "POST /v1/{prefix}/namespaces/{namespace}/tables"]
        body = json.dumps({"defaults": {}, "overrides": {}, "endpoints": offered})
        return Made(200, body.encode(), {"Content-Type": "application/json"})

    with between(rest_catalog.uri, change) as uri:
        bank = Bank(rest_ground(spark, uri, rest_catalog.uri))
        with pytest.raises(ConfigError, match="it does not offer transactions/commit") as refusal:
            bank.writer()
    assert refusal.value.code == "atomic-unsupported"
    assert (bank.ground.namespace,) not in bank.ground.direct.list_namespaces()
