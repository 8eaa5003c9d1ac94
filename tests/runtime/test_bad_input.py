"""What cannot work ends with a clear message, the right kind of error and exit code, and nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import frazil
from frazil.model.events import Event, Stopped
from helpers.lakes import IMPATIENT, Lake, fresh_name, run
from services.postgres import Postgres
from services.processes import free_port
from services.rest_catalog import RestCatalog

GENERATOR = {"connector": "generator", "rows": 5}


DOORS: dict[str, Callable[[Lake], object]] = {
    "pipeline": lambda lake: run(lake.pipeline(GENERATOR)),
    "python": lambda lake: lake.sink("select 1 id").write(),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_catalog_that_cannot_be_reached_may_be_tried_again(lake: Lake, door: str) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    there = lake.with_catalog({"type": "rest", "rest": {"uri": address}})
    began = time.monotonic()
    with pytest.raises(frazil.Retryable) as caught:
        DOORS[door](there)
    assert time.monotonic() - began < 60
    assert caught.value.message.startswith(f"Failed to connect to catalog at {address}: ")
    assert caught.value.exit_code == 75


def test_a_database_that_cannot_be_reached_may_be_tried_again(lake: Lake) -> None:
    sql = {"uri": f"postgresql://me:hidden-word@127.0.0.1:{free_port()}/cat", "warehouse": str(lake.folder)}
    with pytest.raises(frazil.Retryable, match="Failed to connect to catalog at postgresql://me:") as caught:
        run(lake.with_catalog({"type": "sql", "sql": sql}).pipeline(GENERATOR))
    assert "hidden-word" not in str(caught.value)
    assert caught.value.exit_code == 75


def test_a_missing_table_is_reported_when_it_may_not_be_made(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError) as caught:
        run(lake.pipeline(GENERATOR, auto_create_table=False))
    assert caught.value.message == "Table db.t does not exist and auto_create_table is disabled"
    assert caught.value.exit_code == 78
    assert lake.nothing_written()


def test_a_table_that_is_there_needs_not_be_made(lake: Lake) -> None:
    run(lake.pipeline(GENERATOR))
    run(lake.pipeline({"connector": "generator", "rows": 8}, auto_create_table=False))
    assert lake.count() == 8


@pytest.mark.parametrize(
    ("namespace", "table", "message"), [(None, "t", "Namespace is required"), ("db", None, "Table name is required")]
)
def test_a_sink_without_its_table_is_reported(lake: Lake, namespace: str | None, table: str | None, message: str) -> None:
    pipeline = lake.pipeline(GENERATOR)
    sink = pipeline.sink.model_copy(update={"namespace": namespace, "table": table})
    with pytest.raises(frazil.ConfigError, match=message):
        run(pipeline.model_copy(update={"sink": sink}))


def test_a_user_of_the_database_without_rights_is_reported(lake: Lake, postgres: Postgres) -> None:
    name = fresh_name()
    address = postgres.create_database(name)
    reader = f"reader_{name}"
    connection = postgres.connect(name)
    connection.cursor().execute(f"create role {reader} login password 'only-looks'")
    connection.cursor().execute("revoke create on schema public from public")
    connection.close()
    sql = {"uri": address, "user": reader, "password": "only-looks", "warehouse": str(lake.folder / "warehouse")}
    with pytest.raises(frazil.FrazilError, match="permission denied") as caught:
        run(lake.with_catalog({"type": "sql", "sql": sql}).pipeline(GENERATOR))
    assert caught.value.exit_code in (1, 78), "trying again would not help"
    assert not (lake.folder / "warehouse").exists()


def test_a_wrong_password_is_reported_without_it(lake: Lake, postgres: Postgres) -> None:
    sql = {"uri": f"postgresql://{postgres.user}:not-the-word@{postgres.host}:{postgres.port}/postgres", "warehouse": "/nowhere"}
    with pytest.raises(frazil.FrazilError, match="password authentication failed") as caught:
        run(lake.with_catalog({"type": "sql", "sql": sql}).pipeline(GENERATOR))
    assert "not-the-word" not in str(caught.value)
    assert caught.value.exit_code == 78


def test_a_warehouse_that_cannot_be_written_is_reported(lake: Lake) -> None:
    # A folder below a file cannot be made by anybody, not even by the superuser.
    (lake.folder / "file").touch()
    sql = {"uri": f"sqlite:///{lake.folder / 'catalog.db'}", "warehouse": str(lake.folder / "file" / "warehouse")}
    there = lake.with_catalog({"type": "sql", "sql": sql})
    with pytest.raises(frazil.FrazilError) as caught:
        run(there.pipeline(GENERATOR))
    assert str(lake.folder / "file") in caught.value.message
    assert "Failed to connect to catalog" not in caught.value.message
    assert not there.exists()


def test_a_source_folder_that_is_not_there_is_reported(lake: Lake) -> None:
    missing = lake.folder / "nowhere"
    with pytest.raises(frazil.ConfigError, match=str(missing)):
        run(lake.pipeline({"connector": "files", "path": str(missing), "format": "json"}))
    assert lake.nothing_written()


def test_a_catalog_that_is_no_catalog_is_reported(lake: Lake, rest_catalog: RestCatalog) -> None:
    there = lake.with_catalog({"type": "rest", "rest": {"uri": f"{rest_catalog.uri}/not/here"}})
    with pytest.raises(frazil.FrazilError) as caught:
        run(there.pipeline(GENERATOR))
    assert "Traceback" not in str(caught.value)
    assert f"{rest_catalog.uri}/not/here" in str(caught.value)


def test_one_pipeline_that_fails_does_not_stop_the_other(lake: Lake) -> None:
    missing = {"connector": "files", "path": "/nowhere/at/all", "format": "json"}
    away = lake.with_catalog({"type": "rest", "rest": {"uri": f"http://127.0.0.1:{free_port()}"}})
    bad = lake.pipeline(missing, "db.bad", name="bad"), away.pipeline(GENERATOR, name="away")
    events: list[Event] = []
    with pytest.raises(frazil.FrazilError):
        run(*bad, lake.pipeline(GENERATOR, name="good"), events=events)
    assert lake.count() == 5
    assert not lake.exists("db.bad")
    ended = {event.pipeline: event.error for event in events if isinstance(event, Stopped)}
    assert ended["good"] is None
    assert "/nowhere/at/all" in str(ended["bad"])
    assert "Failed to connect to catalog" in str(ended["away"])


def test_one_pipeline_that_fails_stops_the_others_when_asked_to(lake: Lake) -> None:
    missing = {"connector": "files", "path": "/nowhere/at/all", "format": "json"}
    endless = lake.pipeline({"connector": "generator", "rows_per_second": 10}, name="endless")
    events: list[Event] = []
    settings = IMPATIENT.model_copy(update={"on_failure": "stop"})
    with pytest.raises(frazil.FrazilError, match="nowhere"):
        run(lake.pipeline(missing, "db.bad", name="bad"), endless, settings=settings, events=events)
    assert {event.pipeline for event in events if isinstance(event, Stopped)} == {"bad", "endless"}


@pytest.mark.parametrize("first", [[], ["select 1 id"]])
def test_names_that_iceberg_keeps_for_itself_are_refused(lake: Lake, first: list[str]) -> None:
    for query in first:
        lake.sink(query).write()
    with pytest.raises(frazil.DataError, match="Iceberg keeps these names for columns of its own: _partition") as caught:
        lake.sink("select 2 id, 1 `_partition`").write()
    assert caught.value.code == "column-reserved"
    assert not first or lake.count() == 1


RESERVED: dict[str, Callable[[Lake, str], object]] = {
    "data frame": lambda lake, query: lake.sink(query, commit_mode="upsert", key_fields=["id"]).write(),
    "query": lambda lake, query: run(lake.pipeline({"connector": "query", "query": query}), once=True),
    "table": lambda lake, query: (lake.frame(query).createTempView("theirs"), run(lake.pipeline(OF_TABLE), once=True)),
    "parquet": lambda lake, query: of_files(lake, query, "parquet"),
    "avro": lambda lake, query: of_files(lake, query, "avro"),
    "json": lambda lake, query: of_files(lake, query, "json"),
    "csv": lambda lake, query: of_files(lake, query, "csv"),
}
OF_TABLE = {"connector": "table", "table": "theirs"}


def of_files(lake: Lake, query: str, file_format: str) -> None:
    folder = lake.folder / "theirs"
    lake.frame(query).write.format(file_format).option("header", True).save(str(folder))
    run(lake.pipeline({"connector": "files", "path": str(folder), "format": file_format}), once=True)


@pytest.mark.parametrize("door", RESERVED)
def test_columns_that_are_named_as_frazils_own_are_refused(lake: Lake, door: str) -> None:
    """One of them would delete the row, and others would be left out unseen."""
    with pytest.raises(frazil.DataError, match="__FRAZIL_op, __frazil_x") as caught:
        RESERVED[door](lake, "select 1 id, 'delete' `__FRAZIL_op`, 1 `__frazil_x`")
    assert caught.value.code == "column-reserved"
    assert lake.nothing_written()
