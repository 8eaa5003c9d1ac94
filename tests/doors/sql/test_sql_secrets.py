"""Secrets that were written where something was wrong: no error shows them, and no history keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sql_cases import LAKE, refused, run, session

from frazil.cli import main
from frazil.cli.prompt import QuietHistory

WRONG = [
    "CREATE SECRET s AS 'hunter2hunter2' NOW",
    "CREATE SECRET s AS 'hunter2hunter2",
    "CREATE SECRET s AS hunter2hunter2",
    "CREATE SECRET s AS $$hunter2hunter2$$",
    "CREATE SECRET s AS decode('hunter2hunter2', 'hex')",
    "CREATE SECRET s AS 'a''hunter2''hunter2' NOW",
    "CREATE SECRET s 'hunter2hunter2'",
    "CREATE OR REPLACE SECRET s AS 'hunter2hunter2'",
    "CREATE SECRT s AS 'hunter2hunter2'",
    "CREAT SECRT s AS hunter2hunter2",
    "CREATE KEY s AS 'hunter2hunter2'",
    "ALTER SECRET nobody AS 'hunter2hunter2'",
    "SHOW SINKS\nCREATE SECRET s AS 'hunter2hunter2'",
    "CREATE SOURCE n FROM LOAD GENERATOR COUNTER CREATE SECRET s AS hunter2hunter2",
    "CREATE VIEW v AS SELECT 1 FROM nobody CREATE SECRET s AS 'hunter2hunter2'",
    r"CREATE VIEW v AS SELECT 'it\'s' FROM nobody; CREATE SECRET s AS 'hunter2hunter2' NOW",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h', PASSWORD = 'hunter2hunter2', PROT 1)",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h', PASWORD = 'hunter2hunter2')",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h', PASSWORT hunter2hunter2)",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h', PW 'hunter2hunter2')",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h', PASSWORD hunter2hunter2', USER 'me')",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h, PASSWORD 'hunter2hunter2')",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h', PASSWORD 12hunter2hunter2)",
    "CREATE CONECTION c TO POSTGRES (HOST 'h', PW 'hunter2hunter2')",
    'CREATE CONNECTION c TO AWS (SECRET ACCESS KEY = "hunter2hunter2", REGION 1 2)',
    "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't', SASL PASSWORD = hunter2hunter2) FORMAT JSON",
    "CREATE SOURCE s FROM KAFKA CONNECTION k (SASL PASSWORD = hunter2hunter2, TOPIC 't') FORMAT JSON",
    "CREATE SECRET s AS decode(hunter2hunter2 'hex')",
    "-- a comment\nCREATE KEY s AS 'hunter2hunter2'",
    "ALTER SECRET nobody TO hunter2hunter2",
    "ALTER CONNECTION nobody SET (PASSWORD TO hunter2hunter2)",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h', SECRET = hunter2hunter2)",
    "CREATE CONNECTION c TO POSTGRES (HOST 'h' /* was hunter2hunter2 */, PROT 1)",
    "CREATE SECRET s AS 'two;\nlines hunter2hunter2' NOW",
    "KREATE s AS hunter2hunter2",
]


@pytest.mark.parametrize("script", WRONG)
def test_no_error_shows_a_secret(tmp_path: Path, script: str) -> None:
    error = refused(session(tmp_path), script)
    assert error.location is not None
    assert "hunter2" not in f"{error} {error.fix} {error.location.text}"


@pytest.mark.parametrize("script", [*WRONG, "CREATE SECRET s AS 'hunter2hunter2'", "SHOW SECRETS"])
def test_what_may_hold_a_secret_is_not_kept_in_the_history(tmp_path: Path, script: str) -> None:
    kept = QuietHistory(tmp_path / "history")
    kept.store_string(f"{script};")
    assert list(kept.load_history_strings()) == []


HARMLESS = [
    "SHOW SINKS;",
    LAKE,
    "CREATE CONNECTION k TO KAFKA (BROKERS ('a:9092', 'b:9092'), SSL KEY 'k');",
    "CREATE VIEW v AS SELECT replace(a, 'x', 'y') AS created FROM s;",
]


@pytest.mark.parametrize("script", HARMLESS)
def test_what_holds_none_is_kept_in_the_history(tmp_path: Path, script: str) -> None:
    kept = QuietHistory(tmp_path / "history")
    kept.store_string(script)
    assert list(kept.load_history_strings()) == [script]


def test_what_is_no_secret_is_shown_beside_one(tmp_path: Path) -> None:
    error = refused(session(tmp_path), "CREATE CONNECTION c TO POSTGRES (HOST 'db.example', PASSWORD 'hunter2hunter2', PROT 1)")
    assert error.location is not None
    assert error.location.text == "CREATE CONNECTION c TO POSTGRES (HOST 'db.example', PASSWORD '**********', PROT **********)"
    assert "has no option PROT" in error.message
    error = refused(session(tmp_path), "-- no password\nCREATE SOURCE s FROM FILES (PATH = 'in', FORMT = 'json')")
    assert error.location is not None
    assert error.location.text == "CREATE SOURCE s FROM FILES (PATH = 'in', FORMT = 'json')"


@pytest.mark.parametrize(
    ("script", "said", "shown"),
    [
        ("CREATE CONNECTION mine TO MYSQL (HOST 'h')", "MYSQL", "CREATE CONNECTION mine TO MYSQL (HOST 'h')"),
        ("SELCT total FROM orders", "SELCT", "SELCT ********** FROM **********"),
        (
            "CREATE SOURCE s (id int, token txt) FROM LOAD GENERATOR COUNTER",
            "txt",
            "CREATE SOURCE s (id int, token txt) FROM LOAD",
        ),
    ],
)
def test_the_words_that_an_error_is_about_are_shown(tmp_path: Path, script: str, said: str, shown: str) -> None:
    error = refused(session(tmp_path), script)
    assert said in error.message
    assert error.location is not None
    assert error.location.text.startswith(shown)


def test_a_word_of_the_language_may_be_a_password(tmp_path: Path) -> None:
    error = refused(session(tmp_path), "CREATE CONNECTION c TO POSTGRES (HOST = h, PASSWORD = postgres)")
    assert error.location is not None
    assert error.location.text == "CREATE CONNECTION c TO POSTGRES (HOST = h, PASSWORD = **********)"


def test_a_secret_that_was_understood_is_in_no_later_error(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(
        here,
        r"CREATE SOURCE s FROM LOAD GENERATOR SHOP; CREATE VIEW v AS SELECT 'it\'s' AS a FROM s; CREATE SECRET p AS 'hunter2'",
    )
    assert "hunter2" not in str(refused(here, "DROP VIEW hunter2"))


def test_names_that_say_the_same_as_a_secret_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(session(tmp_path), "CREATE SECRET p AS 'orders'; CREATE SOURCE orders FROM LOAD GENERATOR SHOP")
    asked = ["sql", "--definitions", str(tmp_path / "frazil-sql.db"), "-c", "SHOW SOURCES"]
    assert main(asked) == 0
    assert "orders" in capsys.readouterr().out
    assert main(["--json", *asked]) == 0
    assert json.loads(capsys.readouterr().out)["statements"][0]["rows"][0]["name"] == "orders"
