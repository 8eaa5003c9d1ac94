"""The same load as a database's own changes and as Debezium's envelopes in topics, in JSON and in Avro: tables are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.model.events import Committed
from frazil.model.pipeline import PipelineSpec
from helpers.lakes import Lake, commits, run, sqlite_lake
from services.debezium import IN_JSON, Debezium, in_avro, running_debezium
from services.kafka import Kafka
from services.processes import wait_until
from services.registry import SchemaRegistry
from sources.postgres.databases import Database
from sources.postgres.test_pipeline import described
from sources.postgres.test_tables import ROUTED, TABLES, assert_equal, filled, loaded

OPTIONS = {**ROUTED, "schema_evolution": "type_widen"}


@pytest.fixture(scope="module")
def debezium(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debezium]:
    with running_debezium(tmp_path_factory.mktemp("debezium"), kafka) as running:
        yield running


@dataclass
class Followed:
    """Tables of a database in three lakes: by frazil's own source, and by Debezium's messages in JSON and in Avro."""

    database: Database
    lakes: dict[str, Lake] = field(default_factory=dict)
    pipelines: dict[str, PipelineSpec] = field(default_factory=dict)
    slots: list[str] = field(default_factory=list)

    def brought(self) -> dict[str, list[Committed]]:
        """Brings everything that the database has now into the lakes."""
        position = self.database.value("select pg_current_wal_insert_lsn()")
        self.database.run("insert into marks default values")
        for slot in self.slots:
            reached = f"select 1 from pg_replication_slots where slot_name = '{slot}' and confirmed_flush_lsn >= '{position}'"
            wait_until(lambda query=reached: self.database.rows(query), 240, "Debezium to have written everything")
        return {name: commits(run(pipeline, once=True)) for name, pipeline in self.pipelines.items()}

    def types(self, table: str) -> dict[str, dict[str, str]]:
        return {name: dict(lake.table(f"db.public_{table}").dtypes) for name, lake in self.lakes.items()}


@pytest.fixture
def follow(
    database: Database, spark: SparkSession, debezium: Debezium, schema_registry: SchemaRegistry, tmp_path: Path
) -> Iterator[Callable[..., Followed]]:
    """Follows tables of the database, until the test ends."""
    embedded = {"type": "json", "infer": "embedded"}
    registered = {"type": "avro", "schema_registry": {"url": schema_registry.url}}
    formats = {"json": (IN_JSON, embedded), "avro": (in_avro(schema_registry), registered)}

    def lake(name: str) -> Lake:
        (tmp_path / name).mkdir()
        return sqlite_lake(spark, tmp_path / name)

    with ExitStack() as opened:

        def followed(*tables: str) -> Followed:
            database.run("create table marks (id serial primary key)")
            made = Followed(database)
            made.lakes["own"] = lake("own")
            made.pipelines["own"] = made.lakes["own"].pipeline(described(database, *tables), **OPTIONS)
            run(made.pipelines["own"], once=True)
            for name, (converters, message_format) in formats.items():
                connector = debezium.following(database.server, database.name, [*tables, "marks"], converters)
                prefix = opened.enter_context(connector)
                made.slots.append(prefix)
                made.lakes[name] = lake(name)
                source: dict[str, Any] = {
                    "connector": "kafka",
                    "bootstrap_servers": debezium.kafka.address(),
                    "topics": [f"{prefix}.public.{table}" for table in tables],
                    "start_offset": "earliest",
                    "format": {**message_format, "envelope": "debezium"},
                    "key_format": message_format,
                }
                made.pipelines[name] = made.lakes[name].pipeline(source, **OPTIONS, change_format="debezium")
            return made

        yield followed


@pytest.mark.slow(seconds=180)
def test_the_same_load_gives_the_same_tables(database: Database, follow: Callable[..., Followed]) -> None:
    filled(database)
    followed = follow(*TABLES)
    with loaded(database, 1, 2) as loads:
        wait_until(lambda: all(load.transactions > 30 for load in loads), 240, "some transactions")
    done = followed.brought()
    for name, lake in followed.lakes.items():
        assert_equal(database, lake)
        assert sum(commit.counts.deleted for commit in done[name]) > 0, name
    for table in TABLES:
        own, *others = followed.types(table).values()
        assert others == [own, own]


# PostgreSQL's type, and two values. Where Debezium's schemas say what a value is, tables are as those of frazil's own source.
ALIKE = {
    "b": ("boolean", "true", "false"),
    "i2": ("smallint", "-32768", "32767"),
    "f4": ("real", "1.5", "3.4028235e38"),
    "n38": ("numeric(38, 10)", "1234567890123456789012345678.0123456789", "0"),
    "nfree": ("numeric", "1234567890.00000001", "-12"),
    "c": ("char(4)", "'ab'", "'abcd'"),
    "by": ("bytea", "'\\x00ff10'", "'\\x'"),
    "d": ("date", "'2024-02-29'", "'0001-01-01'"),
    "ts": ("timestamp", "'2024-02-29 23:59:59.999999'", "'1582-10-10 00:00:00'"),
    "ts3": ("timestamp(3)", "'2024-02-29 23:59:59.999'", "'1969-12-31 23:59:59.001'"),
    "tz": ("timestamptz", "'2024-03-31 02:30:00.000001+02'", "'1900-01-01 00:00:00.5+05:30'"),
    "tm": ("time", "'12:34:56.789'", "'24:00:00'"),
    "tm3": ("time(3)", "'12:34:56.789'", "'00:00:00'"),
    "u": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"),
    "j": ("json", "'{\"a\": [1, 2,  3]}'", "'null'"),
    "e": ("mood", "'happy'", "'very sad'"),
    "at": ("text[]", "array['a,b', 'q\"x', '', null]", "'{}'"),
    "an": ("numeric(5, 1)[]", "'{1.5,2}'", "'{NULL}'"),
    "ats": ("timestamp[]", "array['2024-01-01 12:00'::timestamp]", "'{}'"),
}
# What Debezium writes in its own way is at least the same in JSON and in Avro.
OTHERWISE = {
    "iv": ("interval", "'1 year 2 days 03:04:05.6'", "'-5 minutes'"),
    "p": ("point", "'(1.5,2)'", "'(0,0)'"),
    "bits": ("bit(12)", "B'101010101010'", "B'000000000000'"),
}


@pytest.mark.slow(seconds=300)
def test_every_type_and_schemas_that_change(database: Database, follow: Callable[..., Followed]) -> None:
    types = ALIKE | OTHERWISE
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in types.items())
    database.run("create type mood as enum ('happy', 'very sad')")
    database.run(f"create table things (id int primary key, large text, gone int, size int, {columns})")
    database.run("alter table things alter large set storage external")

    def insert(first: int) -> None:
        for number in (0, 1):
            values = ", ".join(texts[1 + number] for texts in types.values())
            database.run(
                f"insert into things (id, large, size, {', '.join(types)}) "
                f"values ({first + number}, repeat('large {first} ', 2000), 7, {values})"
            )
        database.run(f"insert into things (id) values ({first + 2})")

    insert(0)
    followed = follow("things")
    followed.brought()
    insert(10)
    database.run("update things set size = 8 where id = 0")
    database.run("alter table things add column new numeric(6, 2)", "alter table things drop column gone")
    insert(20)
    database.run("update things set new = 1.5 where id in (1, 10, 20)")
    database.run("alter table things alter column size type bigint", "update things set size = 9000000000 where id = 1")
    database.run("update things set id = 100 where id = 12", "delete from things where id = 11")
    followed.brought()
    rows = {name: rows_of(lake) for name, lake in followed.lakes.items()}
    there = database.rows("select id, md5(large), size, new from things")
    for name, found in rows.items():
        shown = [(row["id"], md5(row["large"]), row["size"], row["new"]) for row in found.values()]
        assert sorted(shown) == sorted(there), name
    kinds = followed.types("things")
    assert kinds["avro"] == kinds["json"]
    assert rows["avro"] == rows["json"]
    names = (*ALIKE, "large", "gone", "size", "new")
    assert {name: kinds["avro"][name] for name in names} == {name: kinds["own"][name] for name in names}
    for number, own in rows["own"].items():
        assert {name: rows["avro"][number][name] for name in names} == {name: own[name] for name in names}, number


def rows_of(lake: Lake) -> dict[int, dict[str, Any]]:
    return {row["id"]: row.asDict() for row in lake.table("db.public_things").collect()}


def md5(text: str | None) -> str | None:
    return None if text is None else hashlib.md5(text.encode()).hexdigest()
