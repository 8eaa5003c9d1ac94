"""A server that took another's place goes on where that one ended, unless it lacks what was read from it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from frazil.errors import Halted
from frazil.sources.postgres.position import PostgresPlace
from frazil.sources.postgres.protocol import lsn_number
from services import postgres as service
from services.postgres import Postgres
from services.processes import LOCALHOST
from sources.postgres.databases import ArrowReader, Database, connect

PASSWORD = "secret-of-cluster"
DATABASE = "shop"


@pytest.fixture
def empty_cluster() -> Iterator[Path]:
    # As the server's own user needs it: not under pytest's folder, which is closed to others.
    folder = Path(tempfile.mkdtemp(prefix="frazil-failover-"))
    folder.chmod(0o755)
    try:
        made = folder / "made"
        made.mkdir()
        service._initialise(service.find_programs() or service.install(), made, service.unprivileged_user(), PASSWORD)
        yield made
    finally:
        shutil.rmtree(folder)


@contextmanager
def running_copy(of: Path, name: str, *, restored: bool = False) -> Iterator[Database]:
    """A server on a copy of a cluster, which stays there. ``restored``: it has a timeline of its own, as one that took over."""
    folder = of.with_name(name)
    subprocess.run(["cp", "-a", str(of), str(folder)], check=True)
    for log in folder.glob("*.log"):
        log.unlink()  # that of the server before says that it is ready
    if restored:
        (folder / "data" / "recovery.signal").touch()
    programs = service.find_programs() or service.install()
    settings = {"restore_command": "false"} if restored else {}
    server, port = service._start(programs, folder, service.unprivileged_user(), settings)
    try:
        at = Postgres(LOCALHOST, port, "frazil", PASSWORD)
        with connect(at, "postgres") as main:
            if main.execute("select 1 from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
                at.create_database(DATABASE)
        with connect(at, DATABASE) as connection:
            yield Database(at, DATABASE, connection)
    finally:
        server.stop(signal.SIGINT)


def followed(database: Database, ledger: str | None) -> tuple[list[tuple[object, ...]], str | None]:
    """All that there is to read now, and where it ends."""
    reader = ArrowReader(database.spec("t"), ledger)
    try:
        return reader.all_changes(), reader.ledger
    finally:
        reader.source.close()


def test_a_server_that_took_over_with_all_that_was_read_goes_on(empty_cluster: Path) -> None:
    with running_copy(empty_cluster, "first") as first:
        first.run("create table t (id int primary key)", "insert into t values (1)")
        rows, ledger = followed(first, None)
        assert rows == [("insert", 1)]
        first.run("insert into t values (2)")
    with running_copy(empty_cluster.with_name("first"), "second", restored=True) as second:
        second.run("insert into t values (3)")
        rows, later = followed(second, ledger)
        assert rows == [("insert", 2), ("insert", 3)]
    assert ledger is not None
    assert later is not None
    assert [PostgresPlace.from_position(text).timeline for text in (ledger, later)] == [1, 2]


def test_a_server_that_lacks_what_was_read_stops_even_when_its_log_is_longer_by_now(empty_cluster: Path) -> None:
    with running_copy(empty_cluster, "backup") as backup:
        backup.run("create table t (id int primary key)")
        _, ledger = followed(backup, None)
    saved = empty_cluster.with_name("backup")
    with running_copy(saved, "first") as first:
        first.run("insert into t select i from generate_series(1, 5000) i")
        rows, ledger = followed(first, ledger)
        assert len(rows) == 5000
    assert ledger is not None
    read = PostgresPlace.from_position(ledger).lsn or 0
    with running_copy(saved, "second", restored=True) as second:
        assert log_end(second) < read
        assert refusal(second, ledger).code == "log-behind"
        second.run("insert into t select i from generate_series(1, 20000) i")
        assert log_end(second) > read
        assert refusal(second, ledger).code == "log-behind"


def log_end(database: Database) -> int:
    return lsn_number(database.value("select pg_current_wal_insert_lsn()::text"))


def refusal(database: Database, ledger: str) -> Halted:
    with pytest.raises(Halted) as caught:
        followed(database, ledger)
    return caught.value
