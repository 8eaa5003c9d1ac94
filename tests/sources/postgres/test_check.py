"""What keeps a source from running is reported before it runs, with the way out."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, FrazilError, Halted, Retryable
from frazil.model.source import PostgresCdcSource
from frazil.sources.postgres import slot as slot_module
from frazil.sources.postgres import stream as stream_module
from frazil.sources.postgres.position import PostgresPlace
from frazil.sources.postgres.protocol import lsn_number, lsn_text
from frazil.sources.postgres.source import PostgresCdc
from services.postgres import Postgres, running_postgres, unprivileged_user
from services.processes import wait_until
from sources.postgres.databases import ArrowReader, Database, Reader, database_on, drop_slots

Follow = Callable[..., Reader]
Watch = Callable[..., ArrowReader]


@pytest.fixture
def orders(database: Database) -> Database:
    database.run("create table orders (id int primary key, item text)")
    return database


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slot_module, stream_module):
        monkeypatch.setattr(module, "IN_USE_SECONDS", 0.3)


def refusal(spark: SparkSession, spec: PostgresCdcSource) -> FrazilError:
    with pytest.raises(FrazilError) as caught:
        PostgresCdc(spec, spark).check()
    assert "\n" not in caught.value.message
    password = spec.password.get_secret_value() if spec.password else ""
    assert password not in str(caught.value)
    return caught.value


def test_all_is_well_and_nothing_was_made(spark: SparkSession, orders: Database) -> None:
    PostgresCdc(orders.spec("orders"), spark).check()
    assert orders.value("select count(*) from pg_replication_slots where database = current_database()") == 0
    assert orders.value("select count(*) from pg_publication") == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"password": "wrong-password"}, "database-login"),
        ({"user": "nobody-knows"}, "database-login"),
        ({"database": "no_such_database"}, "database-missing"),
        ({"streams": [{"name": "ordres"}]}, "table-missing"),
        ({"streams": [{"name": "orders", "namespace": "shop"}]}, "table-missing"),
        ({"streams": [{"name": "recent"}]}, "not-a-table"),
        ({"streams": [{"name": "keyless"}]}, "replica-identity"),
        ({"streams": [{"name": "silent"}]}, "replica-identity"),
        ({"streams": [{"name": "people"}]}, "replica-identity"),
        ({"streams": [{"name": "unindexed"}]}, "replica-identity"),
        ({"create_publication": False}, "publication-missing"),
        ({"streams": []}, "publication-missing"),
        ({"publication": "of_others"}, "not-published"),
        ({"create_slot": False}, "slot-missing"),
    ],
)
def test_what_is_wrong_is_said(spark: SparkSession, orders: Database, options: dict[str, Any], code: str) -> None:
    orders.run(
        "create view recent as select * from orders",
        "create table keyless (a int)",
        "create table silent (a int primary key)",
        "alter table silent replica identity nothing",
        "create publication of_others for table silent",
        "create table people (id int primary key, mail text not null unique)",
        "alter table people replica identity using index people_mail_key",
        "create table unindexed (id int primary key, mail text not null unique)",
        "alter table unindexed replica identity using index unindexed_mail_key",
        "alter table unindexed drop constraint unindexed_mail_key",
    )
    error = refusal(spark, orders.spec("orders", **options))
    assert isinstance(error, ConfigError)
    assert (error.code, bool(error.fix)) == (code, True)


def test_the_cure_for_a_table_without_a_key_works(spark: SparkSession, orders: Database) -> None:
    orders.run("create table keyless (a int)")
    assert "ALTER TABLE public.keyless REPLICA IDENTITY FULL" in refusal(spark, orders.spec("keyless")).fix
    orders.run("ALTER TABLE public.keyless REPLICA IDENTITY FULL")
    PostgresCdc(orders.spec("keyless"), spark).check()


def test_the_cures_for_an_index_without_the_primary_key_work(spark: SparkSession, orders: Database) -> None:
    orders.run(
        "create table people (id int, branch int, mail text not null, primary key (id, branch))",
        "create unique index by_mail on people (branch, mail) include (id)",
        "create unique index by_all on people (mail, branch, id)",
        "alter table people replica identity using index by_mail",
    )
    error = refusal(spark, orders.spec("people"))
    assert "public.people name rows by the index by_mail, which does not have the primary key's id" in error.message
    assert "ALTER TABLE public.people REPLICA IDENTITY DEFAULT, or FULL, or USING INDEX" in error.fix
    for cure in ("DEFAULT", "FULL", "USING INDEX by_all"):
        orders.run("alter table people replica identity using index by_mail")
        assert refusal(spark, orders.spec("people")).code == "replica-identity"
        orders.run(f"ALTER TABLE public.people REPLICA IDENTITY {cure}")
        PostgresCdc(orders.spec("people"), spark).check()


def test_a_publication_of_inserts_alone_needs_no_key(spark: SparkSession, orders: Database) -> None:
    orders.run("create table log (a int)", "create publication inserts for table log with (publish = 'insert')")
    PostgresCdc(orders.spec("log", publication="inserts"), spark).check()


@pytest.fixture
def plain_user(orders: Database) -> Iterator[str]:
    name = f"plain_{uuid4().hex[:8]}"
    orders.run(f"create role {name} login password 'secret-of-plain'")
    yield name
    orders.run(f"drop owned by {name}", f"drop role {name}")


@pytest.mark.slow
def test_rights_are_looked_at_one_by_one(spark: SparkSession, orders: Database, plain_user: str) -> None:
    spec = orders.spec("orders", user=plain_user, password="secret-of-plain")
    error = refusal(spark, spec)
    assert error.code == "replication-right"
    orders.run(f"alter role {plain_user} replication")
    error = refusal(spark, spec)
    assert error.code == "database-rights"
    assert "GRANT SELECT" in error.fix
    orders.run(f"grant select on orders to {plain_user}")
    PostgresCdc(spec, spark).check()
    with pytest.raises(ConfigError) as caught:
        PostgresCdc(spec, spark).plan(None, 10)
    assert caught.value.code == "database-rights", "the publication cannot be made by this user"
    orders.run("create publication theirs for table orders")
    reader = Reader(spark, orders.spec("orders", user=plain_user, password="secret-of-plain", publication="theirs"))
    assert reader.batch() == []
    reader.source.close()


def test_a_server_that_is_not_there_may_come_back(spark: SparkSession, orders: Database) -> None:
    error = refusal(spark, orders.spec("orders", port=9))
    assert isinstance(error, Retryable)
    assert error.code == "source-unreachable"


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of this machine's address that vouches for itself, and its key."""
    made, key = folder / f"{name}.crt", folder / f"{name}.key"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made), "-keyout", str(key)]
    subprocess.run([*request, *files], check=True, capture_output=True)
    if user := unprivileged_user():
        shutil.chown(key, user)
    key.chmod(0o600)
    return made, key


def test_a_server_that_cannot_be_trusted_is_not_spoken_to(spark: SparkSession, orders: Database) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        own, key = certificate(folder, "own")
        other, _ = certificate(folder, "other")
        settings = {"ssl": "on", "ssl_cert_file": str(own), "ssl_key_file": str(key)}
        with running_postgres(**settings) as server, database_on(server) as encrypted:
            encrypted.run("create table orders (id int primary key)")
            PostgresCdc(encrypted.spec("orders", sslmode="require"), spark).check()
            PostgresCdc(encrypted.spec("orders", sslmode="verify-full", sslrootcert=str(own)), spark).check()
            refused = [
                refusal(spark, encrypted.spec("orders", sslmode="verify-full", sslrootcert=str(other))),
                refusal(spark, encrypted.spec("orders", sslmode="verify-ca", sslrootcert="/no/such/file")),
                refusal(spark, orders.spec("orders", sslmode="require")),
            ]
    assert [error.code for error in refused] == ["database-tls"] * 3
    assert "certificate" in refused[0].message


def test_a_log_that_lacks_what_changes_need(spark: SparkSession) -> None:
    with running_postgres(wal_level="replica") as server, database_on(server) as made:
        made.run("create table orders (id int primary key)")
        error = refusal(spark, made.spec("orders"))
    assert error.code == "wal-level"
    assert "wal_level = logical" in error.fix


def test_a_slot_of_another_kind(spark: SparkSession, orders: Database) -> None:
    slot = f"slot_{uuid4().hex[:8]}"
    orders.run(f"select pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    assert refusal(spark, orders.spec("orders", slot_name=slot)).code == "slot-of-another-kind"


@pytest.mark.usefixtures("impatient")
def test_a_slot_has_one_reader(orders: Database, follow: Follow) -> None:
    first, second = follow("orders"), follow("orders")
    first.batch()
    first.batch()
    for ask in (second.source.check, lambda: second.source.plan(first.ledger, 10)):
        with pytest.raises(Retryable) as caught:
            ask()
        assert caught.value.code == "slot-in-use"
    first.source.check()
    first.source.close()
    orders.run("insert into orders values (1, 'x')")
    second.ledger = first.ledger
    wait_until(lambda: not orders.value("select bool_or(active) from pg_replication_slots"), 10, "the slot to be free")
    assert [row.id for row in second.batch() or ()] == [1]


def test_a_slot_that_was_dropped_stops(orders: Database, follow: Follow) -> None:
    reader = follow("orders")
    reader.batch()
    reader.source.close()
    drop_slots(orders.connection)
    with pytest.raises(Halted) as caught:
        follow("orders", ledger=reader.ledger).batch()
    assert caught.value.code == "slot-gone"
    assert "new sink id" in caught.value.fix


def test_a_slot_that_was_made_anew_stops(orders: Database, follow: Follow) -> None:
    reader = follow("orders")
    reader.batch()
    reader.source.close()
    drop_slots(orders.connection)
    orders.run("insert into orders values (1, 'lost')")
    orders.run(f"select pg_create_logical_replication_slot('{reader.source._spec.slot}', 'pgoutput')")
    with pytest.raises(Halted) as caught:
        follow("orders", ledger=reader.ledger).batch()
    assert caught.value.code == "slot-moved"


def test_a_slot_that_the_server_gave_up_stops(spark: SparkSession) -> None:
    with (
        running_postgres(max_slot_wal_keep_size="1MB", max_wal_size="32MB", min_wal_size="32MB") as server,
        database_on(server) as made,
    ):
        made.run("create table orders (id int primary key, item text)")
        reader = Reader(spark, made.spec("orders"))
        reader.batch()
        reader.source.close()
        status = "select wal_status from pg_replication_slots"

        def lost() -> bool:
            made.run("insert into orders select coalesce(max(id), 0) + 1, repeat('x', 100) from orders")
            made.run("select pg_switch_wal()", "checkpoint")
            return bool(made.value(status) == "lost")

        wait_until(lost, 60, "the slot to be lost")
        assert refusal(spark, made.spec("orders")).code == "slot-lost"
        again = Reader(spark, made.spec("orders"), reader.ledger)
        with pytest.raises(Halted) as caught:
            again.batch()
        assert caught.value.code == "slot-lost"
        again.source.close()


def test_a_position_of_another_server_stops(orders: Database, follow: Follow) -> None:
    reader = follow("orders")
    reader.batch()
    assert reader.ledger is not None
    server = str(orders.value("select system_identifier from pg_control_system()"))
    assert server in reader.ledger
    reader.ledger = reader.ledger.replace(server, "1234567890")
    with pytest.raises(Halted) as caught:
        reader.batch()
    assert caught.value.code == "other-database"


def test_a_position_ahead_of_the_server_stops(orders: Database, watch: Watch) -> None:
    reader = watch("orders")
    reader.changes()
    orders.run("insert into orders values (1, 'x')")
    reader.changes()
    reader.source.close()
    assert reader.ledger is not None
    place = PostgresPlace.from_position(reader.ledger)
    ahead = lsn_number(orders.value("select (pg_current_wal_insert_lsn() + 100000)::text"))
    for tables in (("orders",), ("orders", "more")):
        orders.run("create table if not exists more (id int primary key)")
        with pytest.raises(Halted) as caught:
            watch(*tables, ledger=place.after(ahead).to_position()).changes()
        assert caught.value.code == "log-behind"
        assert lsn_text(ahead) in caught.value.message
        assert "new sink id" in caught.value.fix
    orders.run("insert into orders values (2, 'y')")
    assert watch("orders", ledger=reader.ledger).changes() == [("insert", 2, "y")]


def test_a_position_of_an_earlier_version_goes_on(orders: Database, watch: Watch) -> None:
    reader = watch("orders")
    reader.changes()
    reader.source.close()
    assert reader.ledger is not None
    answer = json.loads(reader.ledger)
    assert answer.pop("timeline") == 1
    orders.run("insert into orders values (1, 'x')")
    later = watch("orders", ledger=json.dumps(answer))
    assert later.changes() == [("insert", 1, "x")]
    assert later.ledger is not None
    assert json.loads(later.ledger)["timeline"] == 1


def test_a_position_of_another_source_stops(orders: Database, follow: Follow) -> None:
    with pytest.raises(Halted) as caught:
        follow("orders", ledger='{"snapshot":1}').batch()
    assert caught.value.code == "position-unknown"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"streams": [{"name": "a"}, {"name": "a", "namespace": "public"}]}, "named twice"),
        ({"unbounded_numeric": "decimal(40, 2)"}, "precision"),
        ({"slot_name": "Has-Capitals"}, "pattern"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PostgresCdcSource.model_validate({"host": "h", "database": "d", "user": "u", **options})


def test_names_follow_from_the_database() -> None:
    spec = PostgresCdcSource(host="h", database="My-Shop", user="u")
    assert (spec.slot, spec.publication_name) == ("frazil_my_shop", "frazil_My-Shop")


def test_the_password_is_in_no_text(orders: Database, follow: Follow, postgres: Postgres) -> None:
    reader = follow("orders")
    part = reader.plan()
    assert part is not None
    frame = reader.source.read(part)
    texts = [repr(part), repr(reader.source._login), reader.source.fingerprint, frame._jdf.queryExecution().toString()]
    assert all(postgres.password not in text for text in texts)
