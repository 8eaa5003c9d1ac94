"""`frazil discover`: what a source has to offer, without a trace in it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cli.commands import Frazil, everything_in, sql_pipeline
from services.kafka import Kafka
from services.postgres import Postgres

TABLES = """
create schema shop;
create table shop.orders (
  id bigint primary key, line int not null, price numeric(10, 2), at timestamptz, made timestamp, tags text[], doc jsonb);
create table public.plain (name text);
create table public.parts (id int, at date, primary key (at, id)) partition by range (at);
create table public.parts_2026 partition of public.parts for values from ('2026-01-01') to ('2027-01-01');
create view public.seen as select 1 as one;
create table public.hidden (id int primary key);
create role {user} login password 'only-reads-0815';
grant usage on schema shop to {user};
grant select on shop.orders, public.plain, public.parts to {user};
"""


def source_file(folder: Path, source: dict[str, Any], name: str = "given") -> Path:
    """A file with one source, and nothing else."""
    connector = source.pop("connector")
    file = folder / "frazil.yaml"
    file.write_text(json.dumps({"version": "1.0", "sources": {name: {"connector": connector, "config": source}}}))
    return file


def columns(described: Any) -> dict[str, str]:
    return {column["name"]: column["type"] for column in described["columns"]}


def test_a_source_that_is_not_in_the_file(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    result = frazil("discover", "numbres", "--json")
    assert (result.code, result.json["error"]["code"]) == (2, "unknown-source")
    assert result.json["error"]["fix"] == "Did you mean numbers?"


def test_a_database_is_asked_without_spark_and_without_the_right_to_replicate(
    frazil: Frazil, tmp_path: Path, postgres: Postgres
) -> None:
    database, user = f"discover_{uuid.uuid4().hex[:8]}", f"reader_{uuid.uuid4().hex[:8]}"
    postgres.create_database(database)
    opened = postgres.connect(database)
    try:
        with opened.cursor() as cursor:
            cursor.execute(TABLES.format(user=user))
            login = {"host": postgres.host, "port": postgres.port, "database": database, "user": user}
            streams = [{"name": "orders", "namespace": "shop"}, {"name": "plian"}, {"name": "hidden"}]
            given = {"connector": "postgres-cdc", **login, "password": "only-reads-0815", "streams": streams}
            source_file(tmp_path, given)
            result = frazil("discover", "given", "--json")
            shown = frazil("discover", "given")
            cursor.execute("select count(*) from pg_publication")
            publications = cursor.fetchone()
            cursor.execute("select count(*) from pg_replication_slots where database = %s", (database,))
            slots = cursor.fetchone()
    finally:
        opened.close()
    assert result.code == 0, result.text
    tables = {table["name"]: table for table in result.json["tables"]}
    assert list(tables) == ["public.parts", "public.plain", "shop.orders", "public.hidden"]
    assert columns(tables["shop.orders"]) == {
        "id": "long", "line": "int", "price": "decimal(10, 2)", "at": "timestamptz", "made": "timestamp", "tags": "list<string>",
        "doc": "string",
    }  # fmt: skip
    assert {name: set(table["primary_key"]) for name, table in tables.items()} == {
        "public.parts": {"id", "at"}, "public.plain": set(), "shop.orders": {"id"}, "public.hidden": {"id"},
    }  # fmt: skip
    assert [name for name, table in tables.items() if table["taken"]] == ["shop.orders", "public.hidden"]
    assert result.json["notes"] == [
        "There is no table public.plian, which streams names. Did you mean public.plain?",
        f"The user {user} may not read public.hidden, which the source takes.",
    ]
    assert (publications, slots) == ((0,), (0,))
    assert "decimal(10, 2)" in shown.out
    assert "only-reads-0815" not in shown.text


def test_a_database_that_does_not_answer(frazil: Frazil, tmp_path: Path) -> None:
    given = {"connector": "postgres-cdc", "host": "127.0.0.1", "port": 9, "database": "shop", "user": "u"}
    source_file(tmp_path, given)
    assert frazil("discover", "given").code == 75


def test_topics_of_a_cluster_and_the_columns_of_their_messages(
    frazil: Frazil, tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    mark = uuid.uuid4().hex[:8]
    orders, other = kafka.create_topic(f"{mark}.orders", partitions=2), kafka.create_topic(f"{mark}.other")
    kafka.produce(orders, ['{"id": 1, "price": 1.5}', '{"id": 2, "tags": ["a"]}'])
    kafka.produce(orders, ['{"id": 3}'], partition=1)
    kafka.produce(other, [b"\xff"])
    group = f"group-{mark}"
    given = {"bootstrap_servers": kafka.address(), "topics": [f"{mark}.ord*"], "format": "json", "consumer_group": group}
    source_file(tmp_path, {"connector": "kafka", **given})
    result = frazil("discover", "given", "--json")
    assert result.code == 0, result.text
    topics = {topic["name"]: topic for topic in result.json["topics"]}
    assert topics[orders] == {"name": orders, "partitions": 2, "messages": 3, "taken": True}
    assert topics[other] == {"name": other, "partitions": 1, "messages": 1, "taken": False}
    assert columns(result.json) == {"id": "long", "price": "double", "tags": "list<string>"}
    assert kafka.group_offset(group, orders) is None
    shown = frazil("discover", "given").out
    assert [orders, "2", "3", "yes"] in [line.split() for line in shown.splitlines()]


def test_topics_are_shown_also_where_the_source_names_one_that_is_not_there(
    frazil: Frazil, tmp_path: Path, spark: SparkSession, kafka: Kafka
) -> None:
    there = kafka.create_topic()
    gone = f"gone-{uuid.uuid4().hex[:8]}"
    source_file(tmp_path, {"connector": "kafka", "bootstrap_servers": kafka.address(), "topics": [gone]})
    result = frazil("discover", "given", "--json")
    assert result.code == 0, result.text
    assert there in {topic["name"] for topic in result.json["topics"]}
    (note,) = result.json["notes"]
    assert note.startswith("The columns cannot be looked up: ")
    assert gone in note
    assert gone not in kafka.topics()


def test_columns_of_files_tables_queries_and_made_up_rows(frazil: Frazil, tmp_path: Path, spark: SparkSession) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.json").write_text('{"id": 1, "at": {"x": 1.5}}\n')
    file = sql_pipeline(tmp_path)
    more = {
        "files": {"connector": "files", "config": {"path": str(inbox), "format": "json"}},
        "empty": {"connector": "files", "config": {"path": str(tmp_path / "inbox"), "format": "json", "pattern": "*.none"}},
        "query": {"connector": "query", "config": {"query": "select 1 as one, current_date() as today"}},
        "table": {"connector": "table", "config": {"table": "lake.shop.events"}},
    }
    entries = "".join(f"  {name}: {json.dumps(entry)}\n" for name, entry in more.items())
    text = file.read_text().replace("sinks:\n", f"{entries}sinks:\n", 1)
    file.write_text(f"{text}  copy: {{source: table, sink: lake}}\n")
    before = everything_in(tmp_path)
    assert columns(frazil("discover", "files", "--json").json) == {"id": "long", "at": "struct<x: double>"}
    assert columns(frazil("discover", "query", "--json").json) == {"one": "int", "today": "date"}
    made_up = frazil("discover", "numbers", "--json").json
    assert (made_up["connector"], columns(made_up)["event_time"]) == ("generator", "timestamptz")
    nothing = frazil("discover", "empty", "--json")
    assert (nothing.code, nothing.json["columns"]) == (0, [])
    assert "nothing to read now" in nothing.json["notes"][0]
    assert frazil("discover", "table").code != 0, "its catalog is not there yet"
    assert everything_in(tmp_path) == before
