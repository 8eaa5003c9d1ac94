"""The PostgreSQL server asks for its password and keeps to this machine."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import psycopg2  # type: ignore[import-untyped]
import pytest

from services.postgres import Postgres

pytestmark = pytest.mark.slow


def answer(server: Postgres, query: str, database: str = "postgres") -> object:
    connection = server.connect(database)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]
    finally:
        connection.close()


def test_it_answers_with_the_password(postgres: Postgres) -> None:
    assert answer(postgres, "select 6 * 7") == 42


def test_it_refuses_another_password(postgres: Postgres) -> None:
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        replace(postgres, password="wrong").connect()


def test_it_listens_on_this_machine_alone(postgres: Postgres) -> None:
    assert answer(postgres, "show listen_addresses") == "127.0.0.1"


def test_databases_are_made_on_request(postgres: Postgres) -> None:
    name = f"of_a_test_{uuid4().hex}"
    assert postgres.create_database(name) == f"postgresql://127.0.0.1:{postgres.port}/{name}"
    assert answer(postgres, "select current_database()", name) == name
