"""Objects: created, kept over sessions, shown without secrets, altered, dropped."""

from __future__ import annotations

import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sql_cases import LAKE, refused, run, session

from frazil.doors.sql import Answer, Definitions, Session, parse, render
from frazil.doors.sql import run as run_sinks
from frazil.doors.sql.definitions import DefinitionChange
from frazil.doors.sql.grammar import Kind
from frazil.doors.sql.select import with_tables
from frazil.doors.sql.sinks import trace_of
from frazil.doors.sql.statements import CreateSink, Query
from frazil.errors import ConfigError, DataError, Retryable
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.runtime.query import Rows
from frazil.spark.catalogs import CatalogSettings

SCRIPT = f"""{LAKE.replace("'w'", "'s3://w'")}
CREATE SECRET pass AS 'hunter2hunter2';
CREATE CONNECTION pg TO POSTGRES (HOST 'db.example', DATABASE 'shop', USER 'me', PASSWORD SECRET pass);
CREATE CONNECTION s3 TO AWS (ACCESS KEY ID = 'AKIA-inline', SECRET ACCESS KEY = 'inline-secret-key', REGION = 'eu-west-1');
CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (orders, customers AS people);
CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER (UP TO 10);
CREATE VIEW odd AS SELECT counter FROM numbers WHERE counter % 2 = 1;
CREATE SINK odds FROM odd INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'odds') WITH (COMMIT INTERVAL = '10s');
CREATE SINK bought FROM orders INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'orders') USING AWS CONNECTION s3;
"""


def test_what_is_created_is_there_in_the_next_session(tmp_path: Path) -> None:
    assert [one.message for one in run(session(tmp_path), SCRIPT)][:2] == ["created connection lake", "created secret pass"]
    (answer,) = run(session(tmp_path), "SHOW SINKS")
    assert answer.columns == ("name", "from", "connection", "table", "mode", "commits", "created")
    assert [row[:-1] for row in answer.rows] == [
        ("odds", "odd", "lake", "n.odds", "append", "every 10 s"),
        ("bought", "orders", "lake", "n.orders", "upsert", "every 1 s"),
    ]
    (everything,) = run(session(tmp_path), "SHOW OBJECTS LIKE '%odd%'")
    assert [row[:2] for row in everything.rows] == [("odd", "view"), ("odds", "sink")]


def test_show_create_gives_a_script_that_creates_the_same_and_holds_no_secret(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    world = here.world
    for name, statement in world.objects.items():
        (answer,) = run(here, f'SHOW CREATE {statement.kind} "{name}"')
        (row,) = answer.rows
        assert row[0] == name
        if statement.kind not in (Kind.SECRET,) and name != "s3":
            assert parse(row[1]) == (statement,)
        assert "hunter2" not in row[1]
        assert "inline" not in row[1]


def test_secrets_are_in_no_answer_and_in_a_file_of_the_owner_alone(tmp_path: Path) -> None:
    here = session(tmp_path)
    answers = run(here, SCRIPT)
    answers += run(here, "SHOW SECRETS; SHOW CONNECTIONS; DESCRIBE pg; DESCRIBE s3; DESCRIBE pass; SHOW CREATE SECRET pass")
    assert not [one for one in answers if "hunter2" in str(one) or "inline-secret" in str(one)]
    assert ("password", "SECRET pass") in next(one for one in answers if one.statement == "DESCRIBE pg").rows
    file = tmp_path / "frazil-sql.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    run(session(tmp_path), "SHOW SINKS")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with sqlite3.connect(file) as plain:
        assert not [row for row in plain.execute("SELECT sql FROM definitions") if "hunter2" in row[0]]


def test_if_not_exists_leaves_what_is_there(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    (answer,) = run(here, "CREATE SECRET IF NOT EXISTS pass AS 'another-one'")
    assert "nothing was changed" in answer.message
    assert here.definitions.secrets()["pass"] == "hunter2hunter2"
    assert "is there already" in refused(here, "CREATE SOURCE IF NOT EXISTS pass FROM LOAD GENERATOR COUNTER").message
    assert "is a table of the source 'shop' already" in refused(here, "CREATE SECRET people AS 'x'").message


def test_alter_changes_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    before = here.definitions.version
    run(here, "ALTER SINK odds SET (COMMIT INTERVAL = '5s', FORMAT = 'orc')")
    assert here.definitions.version == before + 1
    sink = {one.name: one for one in here.project().pipelines}["odds"].sink
    assert (sink.flush_interval_secs, sink.file_format) == (5, "orc")
    run(here, "ALTER SINK odds RESET (COMMIT INTERVAL)")
    sink = {one.name: one for one in here.project().pipelines}["odds"].sink
    assert (sink.flush_interval_secs, sink.file_format) == (1, "orc")
    run(here, "ALTER SECRET pass AS 'newer-password'; ALTER CONNECTION pg SET (PORT = 6432)")
    source = {one.name: one for one in here.project().pipelines}["bought"].source.model_dump()
    assert (source["password"].get_secret_value(), source["port"]) == ("newer-password", 6432)


@pytest.mark.parametrize(
    ("statement", "said", "token"),
    [
        ("ALTER SINK odds SET (COMMIT INTERVAL = '0.5s')", "COMMIT INTERVAL must be at least 1 second", "COMMIT"),
        ("ALTER SINK odds SET (FORMAT = 'orc', COMPRESSION = 'brotli')", "orc files cannot be compressed with brotli", "FORMAT"),
        ("ALTER SINK odds RESET (FORMAT)", "FORMAT is not set", "FORMAT"),
        ("ALTER CONNECTION pg SET (BROKER = 'x')", "a PostgreSQL connection has no option BROKERS", "BROKER"),
        ("ALTER CONNECTION lake SET (TYPE = 'rest')", "Invalid REST catalog URI", "TYPE"),
        ("ALTER VIEW odd SET (X = 1)", "a view cannot be altered", "VIEW"),
        ("ALTER SINK odd SET (FORMAT = 'orc')", "'odd' is a view, and a sink is needed here", "odd"),
    ],
)
def test_an_alter_that_does_not_fit_changes_nothing(tmp_path: Path, statement: str, said: str, token: str) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    before = here.definitions.all()
    error = refused(here, statement)
    assert said in error.message
    assert error.location is not None
    assert error.location.file == "script.sql"
    assert error.location.text.startswith(token, error.location.column - 1)
    assert here.definitions.all() == before


def test_drop_takes_what_uses_it_along_only_when_asked_to(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    assert "'pass' is used by pg, shop, bought" in refused(here, "DROP SECRET pass").message
    (answer,) = run(here, "DROP SECRET pass CASCADE")
    assert answer.message == "dropped pass, pg, shop, bought"
    assert answer.notes[0] == "the tables of bought stay as they are"
    assert "SELECT pg_drop_replication_slot('frazil_bought')" in answer.notes[1]
    assert "the database shop" in answer.notes[1]
    assert list(here.definitions.all()) == ["lake", "s3", "numbers", "odd", "odds"]
    assert here.definitions.secrets() == {}
    (again,) = run(here, "DROP SECRET IF EXISTS pass")
    assert "nothing was changed" in again.message
    assert "there is no secret 'pass'" in refused(here, "DROP SECRET pass").message


def test_drop_finds_what_uses_an_object_that_was_created_later(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    run(here, "CREATE SECRET key AS 'later-secret-key'")
    run(here, "CREATE CONNECTION later TO AWS (ACCESS KEY ID = 'A', SECRET ACCESS KEY SECRET key)")
    run(here, "ALTER CONNECTION lake SET (AWS CONNECTION = later)")
    (answer,) = run(here, "DROP SECRET key CASCADE")
    assert answer.message == "dropped key, lake, odds, bought, later"
    assert here.project().pipelines == ()


def test_two_columns_of_one_name_are_both_in_a_document() -> None:
    answer = Answer("SELECT", columns=("id", "id", "id_2"), rows=((1, 2, 3),))
    assert answer.to_json()["rows"] == [{"id": 1, "id_3": 2, "id_2": 3}]


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as plain:
        plain.execute("CREATE TABLE mine (a)")
    text = tmp_path / "text.db"
    text.write_text("hello, this is no database at all, however long one looks at it")
    for file in (other, text):
        before = file.read_bytes()
        with pytest.raises(ConfigError, match="holds no definitions of frazil"):
            Definitions(file).apply([DefinitionChange(added=parse("CREATE SECRET s AS 'x'")[0])])  # type: ignore[arg-type]
        assert file.read_bytes() == before


def test_two_sessions_do_not_make_the_same_object_twice(tmp_path: Path) -> None:
    first, second = Definitions(tmp_path / "d.db"), Definitions(tmp_path / "d.db")
    (secret,) = parse("CREATE SECRET s AS 'one-value'")
    first.apply([DefinitionChange(added=secret)])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is there already"):
        second.apply([DefinitionChange(added=secret)])  # type: ignore[arg-type]
    assert (second.version, list(second.all())) == (1, ["s"])


def test_what_another_session_changes_meanwhile_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, other = session(tmp_path), session(tmp_path)
    run(here, SCRIPT)
    kept, raced = Definitions.apply, []

    def apply(self: Definitions, changes: Sequence[DefinitionChange], version: int | None = None) -> bool:
        if not raced:
            raced.append(1)
            run(other, "DROP VIEW odd CASCADE")
        return kept(self, changes, version)

    monkeypatch.setattr(Definitions, "apply", apply)
    assert "there is no source" in refused(here, "CREATE VIEW more AS SELECT * FROM odd").message
    assert "more" not in here.definitions.all()


def test_what_cannot_be_read_any_more_can_be_dropped(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    with sqlite3.connect(here.definitions.path) as plain:
        plain.execute("UPDATE definitions SET sql = 'CREATE VIEW odd AS SOMETHING ELSE' WHERE name = 'odd'")
    with pytest.raises(ConfigError, match="<view odd>:1:20: a query is expected here") as raised:
        here.project()
    assert raised.value.fix == "DROP VIEW odd, and create it anew."
    assert ("odd", "view") in [row[:2] for row in run(here, "SHOW OBJECTS")[0].rows]
    assert "'odd' is used by odds" in refused(here, "DROP VIEW odd").message
    assert "'odd' is a view, and a sink is needed here" in refused(here, "DROP SINK IF EXISTS odd CASCADE").message
    (beside,) = run(here, "CREATE SINK beside FROM numbers INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'beside')")
    assert beside.message == "created sink beside"
    (answer,) = run(here, "DROP VIEW odd CASCADE")
    assert answer.message == "dropped odd, odds"
    assert [one.name for one in here.project().pipelines] == ["bought", "beside"]


def test_a_change_that_could_not_be_read_at_once_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run looks again at definitions that were out of reach for a moment; those that are wrong are reported once."""
    here, other = session(tmp_path), session(tmp_path)
    sink = "CREATE SINK {0} FROM numbers INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE '{0}');"
    run(here, f"{LAKE}CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER;{sink.format('first')}")
    stop, started, said = threading.Event(), [], []
    faults: list[Exception] = []

    def running(pipeline: PipelineSpec, *arguments: object, **_: object) -> None:
        started.append(pipeline.name)
        if pipeline.name == "first":
            faults.extend([ConfigError("wrong", "They are wrong."), Retryable("definitions-unreachable", "They are locked.")])
            run(other, sink.format("second"))
        elif pipeline.name == "second":
            stop.set()
        own = arguments[3]
        assert isinstance(own, threading.Event)
        own.wait()

    def say(words: str) -> None:
        said.append(words)
        if "wrong" in words:
            run(other, sink.format("third"))  # another change

    def project(self: Session) -> ProjectSpec:
        if faults:
            raise faults.pop(0)
        return kept(self)

    kept = Session.project
    monkeypatch.setattr(Session, "project", project)
    monkeypatch.setattr(sys.modules["frazil.doors.sql.run"], "WATCH_SECONDS", 0.01)
    monkeypatch.setattr("frazil.runtime.runner.start_spark", lambda *_: None)
    monkeypatch.setattr("frazil.runtime.runner.run_pipeline", running)
    late = threading.Timer(30, stop.set)  # a change that is lost would never start anything
    late.start()
    run_sinks(here, stop=stop, say=say)
    late.cancel()
    assert sorted(started) == ["first", "second", "third"]
    assert [words.split(": ", 1)[1] for words in said] == ["They are wrong.", "They are locked."]


def test_each_of_several_failures_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = session(tmp_path)
    sink = "CREATE SINK {0} FROM numbers INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE '{0}');"
    run(here, f"{LAKE}CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER;{''.join(map(sink.format, 'abc'))}")

    def running(pipeline: PipelineSpec, *_: object, **__: object) -> None:
        raise KeyError("c is broken") if pipeline.name == "c" else DataError("wrong", f"{pipeline.name} is wrong.")

    monkeypatch.setattr("frazil.runtime.runner.start_spark", lambda *_: None)
    monkeypatch.setattr("frazil.runtime.runner.run_pipeline", running)
    with pytest.raises(DataError) as caught:
        run_sinks(here, once=True)
    messages = {caught.value.message, *(error.message for error in caught.value.beside)}
    assert messages == {"sink a: a is wrong.", "sink b: b is wrong.", "KeyError('c is broken')"}


def test_a_table_goes_on_with_what_it_has(tmp_path: Path) -> None:
    here = session(tmp_path)
    into = "INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE '{}')"
    source = "CREATE SOURCE topic (a text, n int) FROM KAFKA CONNECTION kafka (TOPIC '{}') FORMAT JSON;"
    sums = "CREATE VIEW sums AS SELECT a, sum({}) AS n FROM topic GROUP BY a;"
    plain, grouped = f"CREATE SINK plain FROM topic {into.format('p')};", f"CREATE SINK grouped FROM sums {into.format('g')};"
    run(here, f"{LAKE}CREATE CONNECTION kafka TO KAFKA (BROKER 'k:9092'); {source.format('a')}{sums.format('n')}{plain}{grouped}")

    def begin_anew(topic: str, expression: str) -> None:
        run(here, f"DROP SOURCE topic CASCADE; {source.format(topic)}{sums.format(expression)}")

    begin_anew("b", "n * 2")
    run(here, plain + grouped)  # nothing was written yet
    for made in here.project().pipelines:
        here.definitions.note(trace_of(made))
    begin_anew("b", "n * 2")
    run(here, plain + grouped)
    begin_anew("b", "n")
    error = refused(here, grouped)
    assert "lake.n.g holds sums of another view" in error.message
    assert error.location is not None
    assert error.location.text.startswith("sums", error.location.column - 1)
    run(here, f"CREATE SINK grouped FROM sums {into.format('g2')};")
    begin_anew("c", "n")
    error = refused(here, plain)
    assert "a sink of this name has written topic b into lake.n.p" in error.message
    run(here, plain.replace("SINK plain", "SINK other"))


SUMS = f"""{LAKE}
CREATE SOURCE rows (id bigint, n int, v text) FROM FILES (PATH = 'in', FORMAT = 'json');
CREATE VIEW plain AS SELECT id, n FROM rows;
CREATE VIEW sums AS SELECT id, sum(n) AS n FROM rows GROUP BY id;
CREATE VIEW again AS select id, SUM( N ) as n\n  FROM rows GROUP BY 1;
CREATE VIEW counts AS SELECT id, count(*) AS n FROM rows GROUP BY id;
CREATE VIEW wide AS SELECT id, count(*) AS n FROM rows WHERE v = 'a  b' GROUP BY id;
CREATE VIEW narrow AS SELECT id, count(*) AS n FROM rows WHERE v = 'a b' GROUP BY id;
CREATE CONNECTION same TO ICEBERG CATALOG (TYPE = 'sql', URI = 'sqlite:///c.db', WAREHOUSE = 'w', NAME = 'lake');
"""


def sink_of(name: str, item: str, table: str = "t", connection: str = "lake", clauses: str = "") -> str:
    return (
        f"CREATE SINK {name} FROM {item} INTO ICEBERG CATALOG CONNECTION {connection} (NAMESPACE 'n', TABLE '{table}') {clauses};"
    )


MIXED = {
    ("sums", "counts", ""): "n.t holds sums of another view, that of the sink 'first', to which those of this one would be added",
    ("wide", "narrow", ""): "n.t holds sums of another view, that of the sink 'first', to which those of this one would be added",
    (
        "sums",
        "rows",
        "",
    ): "n.t holds sums of another view, that of the sink 'first', to which rows that are no sums cannot be added",
    ("sums", "plain", "KEY (id)"): "to which rows that are no sums cannot be added",
    ("plain", "sums", ""): "n.t holds the rows of the sink 'first', with which sums cannot be mixed",
}


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("case", MIXED)
def test_sums_have_a_table_of_their_own(tmp_path: Path, case: tuple[str, str, str], is_written: bool) -> None:
    first, second, clauses = case
    here = session(tmp_path)
    run(here, SUMS + sink_of("first", first))
    if is_written:
        here.definitions.note(trace_of(here.project().pipelines[0]))
        run(here, "DROP SINK first")
    error = refused(here, sink_of("second", second, clauses=clauses))
    assert error.code == "sql-view-changed"
    assert MIXED[case] in error.message
    assert error.message.endswith(f'(at "{second}" in CREATE SINK second)')
    run(here, sink_of("second", second, "own", clauses=clauses))
    if not is_written:
        assert MIXED[case] in refused(here, sink_of("third", second, connection="same", clauses=clauses)).message


def test_what_is_the_same_goes_into_one_table(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SUMS + sink_of("one", "sums") + sink_of("two", "again") + sink_of("a", "rows", "p") + sink_of("b", "plain", "p"))
    for made in here.project().pipelines:
        here.definitions.note(trace_of(made))
    run(here, "ALTER SINK one SET (COMMIT INTERVAL = '5s'); ALTER SINK a SET (COMMIT INTERVAL = '5s')")
    run(here, "DROP SINK one; DROP SINK b;" + sink_of("one", "sums") + sink_of("b", "plain", "p"))
    run(here, sink_of("c", "plain", "p", clauses="KEY (id)"))


def test_a_run_refuses_sums_that_would_be_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions that were kept before such sinks were refused are not run, either."""
    here = session(tmp_path)
    run(here, SUMS + sink_of("one", "sums"))
    (late,) = parse(sink_of("late", "counts"))
    assert isinstance(late, CreateSink)
    here.definitions.apply([DefinitionChange(added=late)])
    monkeypatch.setattr("frazil.runtime.runner.start_spark", lambda *_: pytest.fail("nothing is to start"))
    with pytest.raises(ConfigError, match=r"sink late: n\.t holds sums of another view, that of the sink 'one'"):
        run_sinks(here, once=True)


def test_another_table_of_a_database_under_the_name_of_a_sink_is_refused(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    for made in here.project().pipelines:
        here.definitions.note(trace_of(made))
    sink = "DROP SINK bought; CREATE SINK bought FROM {} INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'orders')"
    run(here, sink.format("orders"))
    assert "has written public.orders of the database shop into lake.n.orders" in refused(here, sink.format("people")).message


def test_not_enforced_changes_nothing_and_says_so(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    sink = "CREATE SINK k FROM odd INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'k') KEY (counter) NOT ENFORCED"
    (answer,) = run(here, sink)
    assert "NOT ENFORCED changes nothing" in answer.notes[0]
    assert "NOT ENFORCED" in render(here.world.objects["k"])


TOPICS = """
CREATE CONNECTION kafka TO KAFKA (BROKER 'k:9092');
CREATE SOURCE clicks (id bigint, at timestamptz) FROM KAFKA CONNECTION kafka (TOPIC 'clicks') FORMAT JSON;
CREATE SOURCE message (id bigint) FROM KAFKA CONNECTION kafka (TOPIC 'message') FORMAT JSON ENVELOPE DEBEZIUM;
CREATE SOURCE files (id bigint) FROM FILES (PATH = '/data', FORMAT = 'json');
CREATE VIEW counts AS SELECT id, count(*) AS n FROM clicks GROUP BY id;
"""


@pytest.mark.parametrize(
    ("item", "more", "message"),
    [
        ("clicks", "", "the latest message counts"),
        ("clicks", "WITH (LATEST BY = 'at')", "the last one counts, by LATEST BY (at)"),
        ("clicks", "WITH (LATEST BY = at, LATE = ignore)", "the last one counts, by LATEST BY (at), in whatever batch it comes"),
        ("message", "", "the last one counts, by the database's log"),
        ("orders", "", "the last one counts, by the database's log"),
        ("files", "", "none counts: different ones stop the sink, unless LATEST BY tells which is the last"),
        ("counts", "", "all are added up"),
    ],
)
def test_which_of_several_rows_of_a_key_counts_is_reported(tmp_path: Path, item: str, more: str, message: str) -> None:
    here = session(tmp_path)
    run(here, SCRIPT + TOPICS)
    into = "INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'k')"
    (answer,) = run(here, f"CREATE SINK k FROM {item} {into} KEY (id) NOT ENFORCED {more}")
    assert answer.notes[0].endswith(f"and of several rows with the same one {message}")


@pytest.mark.parametrize("names", [("MAXIMUM PERIOD", "COMMIT INTERVAL"), ("COMMIT INTERVAL", "MAXIMUM PERIOD")])
def test_an_option_with_two_names_is_altered_by_either(tmp_path: Path, names: tuple[str, str]) -> None:
    here = session(tmp_path)
    one, other = names
    run(here, SCRIPT)
    run(here, f"CREATE SINK k FROM odd INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'k') WITH ({one} = '10s')")

    def commits() -> str:
        (shown,) = run(here, "SHOW SINKS LIKE 'k'")
        return str(shown.rows[0][5])

    assert commits() == "every 10 s"
    run(here, f"ALTER SINK k SET ({other} = '20s')")
    assert commits() == "every 20 s"
    (shown,) = run(here, "SHOW CREATE SINK k")
    assert f"{other} = '20s'" in shown.rows[0][1]
    assert one not in shown.rows[0][1]
    run(here, f"ALTER SINK k RESET ({one})")
    assert commits() == "every 1 s"
    assert f"{one} is not set" in refused(here, f"ALTER SINK k RESET ({one})").message
    error = refused(here, f"ALTER SINK k SET ({one} = '5s', {other} = '5s')")
    assert "MAXIMUM PERIOD and COMMIT INTERVAL say the same" in error.message
    assert error.fix == "Keep one of them."


@pytest.mark.parametrize(("size", "message"), [("1GB", ""), ("2GB", "where a row takes 22 bytes or more")])
def test_a_size_that_the_rows_of_a_commit_may_not_reach_is_reported(tmp_path: Path, size: str, message: str) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    sink = "CREATE SINK k FROM odd INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'k')"
    for statement in (f"{sink} WITH (MINIMUM SIZE = '{size}')", f"ALTER SINK odds SET (MINIMUM SIZE = '{size}')"):
        (answer,) = run(here, statement)
        assert ["100,000,000 rows at most" in note and message in note for note in answer.notes] == ([True] if message else [])


@pytest.mark.parametrize(
    ("query", "rewritten"),
    [
        ("SELECT * FROM odds", "SELECT * FROM `lake`.`n`.`odds`"),
        ("SELECT 'FROM odds' FROM Odds o JOIN lake.n.odds p", "SELECT 'FROM odds' FROM `lake`.`n`.`odds` o JOIN lake.n.odds p"),
        ("SELECT * FROM odds.files", "SELECT * FROM `lake`.`n`.`odds`.files"),
        ("WITH odds AS (SELECT 1) SELECT * FROM odds", "WITH odds AS (SELECT 1) SELECT * FROM odds"),
        (
            "WITH odds AS (SELECT * FROM odds), b AS (SELECT * FROM Odds) SELECT * FROM odds, b",
            "WITH odds AS (SELECT * FROM `lake`.`n`.`odds`), b AS (SELECT * FROM Odds) SELECT * FROM odds, b",
        ),
        ("SELECT bought.id FROM bought", "SELECT bought.id FROM `lake`.`n`.`orders` AS `bought`"),
        ("SELECT b.id FROM Bought AS b", "SELECT b.id FROM `lake`.`n`.`orders` AS b"),
        (
            "SELECT bought.id FROM bought VERSION AS OF 3 WHERE bought.id > 1",
            "SELECT bought.id FROM `lake`.`n`.`orders` VERSION AS OF 3 AS `bought` WHERE bought.id > 1",
        ),
        (
            "SELECT * FROM (SELECT id FROM bought FOR TIMESTAMP AS OF '2026-01-01')",
            "SELECT * FROM (SELECT id FROM `lake`.`n`.`orders` FOR TIMESTAMP AS OF '2026-01-01' AS `bought`)",
        ),
        ("SELECT * FROM range(3)", "SELECT * FROM range(3)"),
        ("SELECT * FROM range(3) r, odds o", "SELECT * FROM range(3) r, `lake`.`n`.`odds` o"),
        (
            "SELECT extract(year FROM odds), trim(BOTH 'x' FROM odd) FROM range(3) WHERE a IS DISTINCT FROM odds",
            "SELECT extract(year FROM odds), trim(BOTH 'x' FROM odd) FROM range(3) WHERE a IS DISTINCT FROM odds",
        ),
    ],
)
def test_sinks_stand_for_their_tables_in_queries(tmp_path: Path, query: str, rewritten: str) -> None:
    here = session(tmp_path)
    run(here, SCRIPT)
    (statement,) = parse(query)
    assert isinstance(statement, Query)
    made = with_tables(here.world, statement)
    assert made.text == rewritten
    assert (made.offset(0), made.offset(len(made.text))) == (0, len(query))
    assert [there.catalog.name for there in made.lakes] == (["lake"] if "lake" in rewritten else [])


FILES = f"""{SCRIPT}
CREATE CONNECTION other TO AWS (ACCESS KEY ID = 'AKIA-other', SECRET ACCESS KEY = 'other-secret-key');
CREATE SINK again FROM people INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'people') USING AWS CONNECTION other;
CREATE SINK same FROM people INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 'same') USING AWS CONNECTION s3;
"""


@pytest.fixture
def read_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str | None]:
    """Tells the key with which Spark would read the files of a query's tables."""
    asked: list[CatalogSettings] = []

    def ask(text: str, catalogs: Sequence[CatalogSettings], *_: object) -> Rows:
        asked[:] = catalogs
        return Rows(("text",), ((text,),))

    monkeypatch.setattr("frazil.runtime.query.ask", ask)

    def read(query: str) -> str | None:
        run(session(tmp_path), query)
        (catalog,) = asked
        return catalog.options.get("s3.access-key-id")

    return read


def test_a_query_reads_files_as_the_sinks_of_its_tables_write_them(tmp_path: Path, read_key: Callable[[str], str | None]) -> None:
    run(session(tmp_path), FILES)
    assert read_key("SELECT * FROM odds") is None
    assert read_key("SELECT * FROM bought") == "AKIA-inline"
    assert read_key("SELECT * FROM lake.n.orders.snapshots") == "AKIA-inline"
    assert read_key("SELECT * FROM again, lake.n.people") == "AKIA-other"
    assert read_key("SELECT * FROM lake.n.elsewhere JOIN bought JOIN same") == "AKIA-inline"


@pytest.mark.parametrize("second", ["again", "lake.n.people", "odds"])
def test_a_query_over_tables_that_are_reached_in_different_ways_is_refused(tmp_path: Path, second: str) -> None:
    here = session(tmp_path)
    run(here, FILES)
    error = refused(here, f"SELECT *\nFROM bought, {second}")
    assert f"{second} and bought are reached in different ways" in error.message
    assert error.location is not None
    assert (error.location.line, error.location.column) == (2, 14)
