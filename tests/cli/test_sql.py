"""`frazil sql`: files, statements, JSON, runs, and the prompt."""

from __future__ import annotations

import io
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from cli.commands import Frazil
from frazil.cli.call import Call
from frazil.cli.output import Output
from frazil.cli.prompt import Words, history_file, prompt
from frazil.doors.sql import Definitions, Session

LAKE = "CREATE CONNECTION lake TO ICEBERG CATALOG (TYPE = 'sql', URI = 'sqlite:///c.db', WAREHOUSE = 'w');"
NUMBERS = "CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER (UP TO 5);"
SINK = "CREATE SINK s FROM numbers INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 't');"


def test_a_file_is_run_and_kept_for_the_next_call(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(f"{LAKE}\n{NUMBERS}\n{SINK}\n")
    result = frazil("sql", "a.sql")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == ["created connection lake", "created source numbers", "created sink s"]
    shown = frazil("sql", "-c", "SHOW SINKS")
    assert "n.t" in shown.out
    created = frazil("sql", "-c", "SHOW CREATE SINK s")
    assert created.out.startswith("CREATE SINK s\n  FROM numbers\n")
    assert created.out.rstrip().endswith(";")
    document = frazil("sql", "--json", "-c", "SHOW SOURCES; SHOW SINKS LIKE 'x'").json
    assert document["statements"][0]["rows"][0]["name"] == "numbers"
    assert document["statements"][1] == {
        "statement": "SHOW SINKS",
        "columns": ["name", "from", "connection", "table", "mode", "commits", "created"],
        "rows": [],
    }


def test_other_commands_take_the_file_of_definitions(frazil: Frazil, tmp_path: Path) -> None:
    frazil("sql", "-c", LAKE + NUMBERS + SINK)
    (result,) = frazil("status", "-c", "frazil-sql.db", "--json").json["pipelines"]
    assert (result["pipeline"], result["table"], result["sink_id"], result["table_exists"]) == ("s", "n.t", "sql/s", False)
    assert frazil("-c", "frazil-sql.db", "validate", "--json").json["pipelines"][0]["source"] == "numbers (generator)"
    checked = frazil("check", "-c", "frazil-sql.db", "--json").json
    assert (checked["ok"], {one["subject"] for one in checked["checks"]}) == (True, {"sink s", "source numbers"})
    refused = frazil("run", "-c", "frazil-sql.db")
    assert (refused.code, "frazil sql --run --definitions frazil-sql.db" in refused.err) == (2, True)
    result = frazil("replay", "nobody", "-c", "frazil-sql.db")
    assert (result.code, "frazil-sql.db has no pipeline 'nobody'" in result.err) == (2, True)
    (tmp_path / "frazil.yaml").write_text('version: "1.0"\n')
    assert frazil("status", "--json").json == {"pipelines": []}


def test_statements_come_from_stdin(frazil: Frazil, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["sql", "-"], ["sql"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("SHOW OBJECTS"))
        result = frazil(*arguments)
        assert (result.code, "created" in result.out) == (0, True)


def test_a_mistake_is_shown_in_its_line(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(f"{LAKE}\n{NUMBERS}\n{SINK.replace(';', '')}\n  WITH (COMIT INTERVAL = '5s');")
    result = frazil("sql", "a.sql")
    assert result.code == 78
    assert "[sql-unknown-option] a.sql:4:9: a sink has no option COMIT INTERVAL" in result.err
    assert "  4 |   WITH (COMIT INTERVAL = '5s');\n    |         ^" in result.err
    assert "fix: Did you mean COMMIT INTERVAL?" in result.err
    document = frazil("sql", "--json", "a.sql")
    assert document.code == 78
    assert document.json["error"]["location"] == {
        "file": "a.sql", "line": 4, "column": 9, "text": "  WITH (COMIT INTERVAL = '5s');",
    }  # fmt: skip
    assert document.json["statements"] == []
    assert not (tmp_path / "frazil-sql.db").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sql", "--once"], "no meaning without --run"),
        (["-c", "frazil.yaml", "sql", "-c", "SHOW SINKS"], "reads no pipeline file"),
        (["sql", "--json"], "A prompt has no JSON"),
        (["sql", "nothing.sql"], "The file nothing.sql does not exist"),
        (["sql", "--run"], "There is no sink in frazil-sql.db"),
    ],
)
def test_calls_that_mean_nothing(frazil: Frazil, arguments: list[str], said: str) -> None:
    result = frazil(*arguments)
    assert result.code in (2, 78)
    assert said in result.text


@pytest.mark.usefixtures("spark")
def test_what_was_created_is_run(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text('version: "1.0"\nsettings: {log_level: error}\n')
    frazil("sql", "-c", LAKE + NUMBERS + SINK)
    result = frazil("sql", "--run", "--once", "--json", "--settings", "frazil.yaml", "-c", "SHOW SINKS")
    assert result.code == 0, result.err
    assert [(one["pipeline"], one["rows"]) for one in result.json["pipelines"]] == [("s", 5)]
    assert result.json["statements"][0]["rows"][0]["table"] == "n.t"
    answer = frazil("sql", "-c", "SELECT counter, CASE WHEN counter > 4 THEN 'x' END AS c FROM s ORDER BY 1 DESC LIMIT 2")
    assert [line.split() for line in answer.out.splitlines() if line.split()][2:] == [["5", "x"], ["4", "NULL"]]
    assert "2 rows" in answer.err
    assert frazil("sql", "--run", "--sink", "nobody").code == 78
    kept = ("-c", "frazil-sql.db")
    assert frazil("verify", *kept).code == 0
    result = frazil("replay", "s", *kept)
    assert (result.code, "ALTER SINK s SET (ON ERROR = 'dead_letter')" in result.err) == (78, True)
    frazil("sql", "-c", "ALTER SINK s SET (ON ERROR = 'dead_letter')")
    assert frazil("rewind", "s", "--to-snapshot", "0", "--yes", *kept).code == 0
    result = frazil("sql", "--run", "--once", "--json", "--settings", "frazil.yaml")
    assert [one["rows"] for one in result.json["pipelines"]] == [5]
    result = frazil("replay", "s", *kept)
    assert (result.code, "There is nothing to replay" in result.err) == (0, True)


def test_without_its_packages_the_extra_is_named(tmp_path: Path) -> None:
    for package, code in (("sqlglot", "main(['sql', '-c', 'SHOW SINKS'])"), ("prompt_toolkit", "import frazil.cli.prompt")):
        probe = f"import sys; sys.modules[{package!r}] = None\nfrom frazil.cli import main\n{code}"
        done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, capture_output=True, text=True)
        assert f"needs the package {package}" in done.stderr
        assert "pip install 'frazil[sql]'" in done.stderr


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Types at the prompt, and gives what was printed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def type_in(text: str) -> str:
        with create_pipe_input() as keys:
            keys.send_text(text)
            session = Session(Definitions(tmp_path / "d.db"))
            prompt(Call(None, Output()), session, source=keys, screen=DummyOutput())
        printed = capfd.readouterr()
        return printed.out + printed.err

    return type_in


def test_the_prompt_answers_goes_on_after_mistakes_and_keeps_no_secret(typed: Callable[[str], str]) -> None:
    printed = typed(
        "CREATE SECRET s AS 'hunter2hunter2';\r"
        "SHOW\rSECRETS;\r"  # over two lines
        "SHOW SINK;\r"
        "help\r\r"
        "CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER;\r"
        "CREATE CONNECTION c TO ICEBERG CATALOG (TYPE 'sql', URI 'postgresql://me:hunter2hunter2@h/d', WAREHOUSE 'w');\r"
        "exit\r"
    )
    assert "created secret s" in printed
    assert "<prompt>:1:6: what to show is expected here" in printed
    assert "VALIDATE CONNECTION" in printed
    assert "created source numbers" in printed
    assert "created connection c" in printed
    assert "hunter2" not in printed
    kept = history_file().read_text()
    assert "CREATE SOURCE numbers" in kept
    assert "hunter2" not in kept
    assert stat.S_IMODE(history_file().stat().st_mode) == 0o600


def test_the_prompt_ends_with_its_input(typed: Callable[[str], str]) -> None:
    assert "semicolon" in typed("\x04")


def test_words_and_names_are_completed(tmp_path: Path) -> None:
    session = Session(Definitions(tmp_path / "d.db"))
    list(session.run("CREATE SOURCE my_numbers FROM LOAD GENERATOR COUNTER"))

    def completed(text: str) -> set[str]:
        return {one.text for one in Words(session).get_completions(Document(text), CompleteEvent())}

    assert completed("create sink s from my") == {"my_numbers"}
    assert {"MATERIALIZED", "MAXIMUM"} <= completed("ma")
    assert completed("") == set()
