"""What can be known of columns, functions and types when an object is created is refused then, and not in the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sql_cases import LAKE, refused, run, session

from frazil.doors.sql import Session
from frazil.doors.sql.expressions import without_windows
from frazil.doors.sql.functions import BUILT_IN
from frazil.doors.sql.sinks import pipeline
from frazil.doors.sql.statements import CreateSink
from frazil.model.pipeline import PipelineSpec
from frazil.model.source import KafkaSource
from frazil.sources.decode import decoder
from frazil.write.modes.combine import combined
from frazil.write.shape import sink_rows
from sources.decode.records import records

SCRIPT = f"""{LAKE}
CREATE CONNECTION kafka TO KAFKA (BROKER 'k:9092');
CREATE SOURCE e (id bigint, at timestamptz, tags text[], who record(name text), price numeric(10, 2))
  FROM KAFKA CONNECTION kafka (TOPIC 't') FORMAT JSON INCLUDE OFFSET AS place;
CREATE SOURCE changes (id bigint, email text) FROM KAFKA CONNECTION kafka (TOPIC 'c') FORMAT JSON ENVELOPE DEBEZIUM;
CREATE SOURCE notes FROM KAFKA CONNECTION kafka (TOPIC 'n') KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT;
CREATE SOURCE users (id bigint, email text) FROM KAFKA CONNECTION kafka (TOPIC 'u')
  KEY FORMAT AVRO USING SCHEMA '{{"type": "record", "name": "k", "fields": [{{"name": "id", "type": "long"}}]}}'
  VALUE FORMAT JSON ENVELOPE UPSERT;
CREATE SOURCE people FROM KAFKA CONNECTION kafka (TOPIC 'p') KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE UPSERT;
"""


@pytest.fixture
def here(tmp_path: Path) -> Session:
    made = session(tmp_path)
    run(made, SCRIPT)
    return made


def sink(item: str, clauses: str = "", table: str = "t") -> str:
    return f"CREATE SINK s FROM {item} INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE '{table}') {clauses}"


def made(here: Session, name: str = "s") -> PipelineSpec:
    found = here.world.objects[name]
    assert isinstance(found, CreateSink)
    return pipeline(here.world, found)


@pytest.mark.parametrize(
    ("query", "code", "said", "token", "fix"),
    [
        ("SELECT idd FROM e", "sql-unknown-column", "there is no column 'idd'", "idd", "Did you mean id?"),
        ("SELECT id FROM e WHERE x.y > 1", "sql-unknown-column", "there is no column 'x'", "x.y", "There are: id, at"),
        ("SELECT n FROM (SELECT id AS m FROM e)", "sql-unknown-column", "there is no column 'n'", "n", "There are: m"),
        ("SELECT id, uper(who.name) AS u FROM e", "sql-unknown-function", "there is no function uper", "uper", "upper"),
        ("SELECT id, explode(tags) AS t FROM e", "sql-view", "a view makes one row of each row", "explode", "when you read"),
        ("SELECT id FROM e WHERE mz_now() < at", "sql-view", "does not change as time goes on", "mz_now", "current_timestamp()"),
        (
            "SELECT session_window(at, '5 minutes').start AS s, count(*) AS n FROM e GROUP BY 1",
            "sql-view",
            "a session grows",
            "session_window",
            "window(at, '15 minutes').start",
        ),
        (
            "SELECT window(at, '2 hours', '1 hour').start AS s, count(*) AS n FROM e GROUP BY 1",
            "sql-view",
            "windows that overlap",
            "window",
            "add those up",
        ),
        (
            "SELECT window(at, '1 hour') AS w, count(*) AS n FROM e GROUP BY window(at, '1 hour')",
            "sql-key",
            "column w has type struct",
            "window",
            ".start",
        ),
        ("SELECT who, count(*) AS n FROM e GROUP BY who", "sql-key", "column who has type struct", "who", "one field"),
        ("SELECT cast(id AS double) AS d, count(*) AS n FROM e GROUP BY 1", "sql-key", "type double", "cast", "a cast"),
    ],
)
def test_what_a_view_cannot_compute_is_refused_when_it_is_created(
    here: Session, query: str, code: str, said: str, token: str, fix: str
) -> None:
    error = refused(here, f"CREATE VIEW v AS {query}")
    assert (error.code, said in error.message, fix in error.fix) == (code, True, True), error
    assert error.location is not None
    assert error.location.text[error.location.column - 1 :].startswith(token)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id AS a, a + 1 AS b, place FROM e",
        "SELECT transform(tags, x -> concat(x, who.name)) AS t FROM e WHERE `AT` < localtimestamp OR current_date > '2026-01-01'",
        "SELECT timestampadd(HOUR, 1, at) AS h, extract(year FROM at) AS y, e.who.name, trim(BOTH 'x' FROM who.name) AS n FROM e",
        "SELECT * EXCEPT (tags), CASE WHEN price > 1 THEN 'a' END AS c FROM e",
        "SELECT w.start, w.`end` FROM (SELECT window(at, '1 hour') AS w FROM e)",
        "SELECT named_struct('a', id).a AS a, count(*) AS n FROM e GROUP BY 1",
    ],
)
def test_what_spark_can_compute_is_left_to_it(here: Session, query: str) -> None:
    run(here, f"CREATE VIEW v AS {query}")


@pytest.mark.parametrize(
    ("view", "clauses", "code", "said"),
    [
        ("SELECT who, id AS nr FROM e", "KEY (who)", "sql-key", "column who has type struct"),
        ("SELECT who, id AS nr FROM e", "KEY (id)", "sql-unknown-column", "there is no column 'id'"),
        ("SELECT id, email AS d FROM changes", "MODE APPEND WITH (DIFF COLUMN = 'D')", "sql-option", "'D' is a column"),
        ("SELECT key, value FROM notes", "KEY (value)", "sql-key", "ENVELOPE UPSERT"),
        ("SELECT concat(key, value) AS k FROM notes", "KEY (k)", "sql-key", "ENVELOPE UPSERT"),
        ("SELECT id, email FROM users", "KEY (id, email)", "sql-key", "email is not made from the key"),
        ("SELECT key, value FROM notes", "KEY (key) WITH (LATEST BY = value)", "sql-option", "'value' is a column of the rows"),
        ("SELECT id, upper(email) AS e FROM users", "KEY (id) WITH (LATEST BY = e)", "sql-option", "'e' is a column of the rows"),
        ("SELECT * FROM users", "KEY (id) WITH (LATEST BY = (EMAIL, id))", "sql-option", "'EMAIL' is a column of the rows"),
    ],
)
def test_what_a_sink_cannot_write_is_refused_when_it_is_created(
    here: Session, view: str, clauses: str, code: str, said: str
) -> None:
    run(here, f"CREATE VIEW v AS {view}")
    error = refused(here, sink("v", clauses))
    assert (error.code, said in error.message, bool(error.fix)) == (code, True, True), error


def test_a_key_that_is_made_from_that_of_the_messages_is_accepted(here: Session) -> None:
    run(here, f"CREATE VIEW v AS SELECT upper(key) AS k, value FROM notes; {sink('v', 'KEY (k)')}")
    assert run(here, sink("users", "KEY (id)").replace("SINK s", "SINK t"))[0].notes == ()


@pytest.mark.parametrize(
    ("view", "latest"),
    [
        ("SELECT id, email, timestamp, offset FROM timed", "(timestamp, offset)"),
        ("SELECT id, email, coalesce(email, string(offset)) AS place FROM timed", "place"),
        ("SELECT * FROM people", "anything"),
    ],
)
def test_an_order_that_messages_without_a_value_may_have_is_accepted(here: Session, view: str, latest: str) -> None:
    timed = SCRIPT[SCRIPT.index("CREATE SOURCE users") : SCRIPT.index("CREATE SOURCE people")]
    included = "INCLUDE TIMESTAMP, OFFSET ENVELOPE UPSERT"
    run(here, timed.replace("SOURCE users", "SOURCE timed").replace("ENVELOPE UPSERT", included))
    ordered = sink("v", f"KEY (id) WITH (LATEST BY = {latest}, LATE = 'ignore')")
    run(here, f"CREATE VIEW v AS {view}; {ordered}")


def test_a_key_of_which_only_messages_tell_the_columns_is_created_with_a_note(here: Session) -> None:
    (answer,) = run(here, sink("people", "KEY (email)"))
    assert any("key-differs" in note for note in answer.notes)
    error = refused(here, sink("notes", "KEY (value)").replace("SINK s", "SINK t"))
    assert "KEY (key)" in error.fix


def test_the_keys_of_debeziums_messages_need_no_format_of_their_own(here: Session) -> None:
    run(here, sink("changes"))
    source = made(here).source
    assert isinstance(source, KafkaSource)
    assert source.tells_keys


def test_an_aws_connection_does_not_lead_to_a_folder(here: Session) -> None:
    run(here, "CREATE CONNECTION aws TO AWS (REGION = 'eu-west-1')")
    catalog = (
        "CREATE CONNECTION c TO ICEBERG CATALOG (TYPE = 'sql', URI = 'sqlite:///c.db', WAREHOUSE = '{}', AWS CONNECTION = aws)"
    )
    for place in ("w", "/data/w", "file:///data/w", "gs://w"):
        assert "leads to files in S3" in refused(here, catalog.format(place)).message
    assert (
        "leads to files in S3"
        in refused(here, sink("notes", "KEY (key)").replace("lake", "lake USING AWS CONNECTION aws")).message
    )
    run(here, catalog.format("s3://bucket/w"))


def test_what_a_connection_is_to_is_shown(here: Session) -> None:
    error = refused(here, "CREATE CONNECTION c TO MYSQL (HOST 'db', PASSWORD 'hunter2hunter2')")
    assert "MYSQL" in f"{error.message} {error.location.text if error.location else ''}"
    assert "hunter2" not in str(error)


WINDOWS = [
    "window(at, '1 hour')",
    "window(at, '1 hour 30 minutes', '1 hour 30 minutes', '5 minutes')",
    "window(at, '1 week')",
]


def test_functions_and_windows_are_those_of_spark(spark: SparkSession) -> None:
    listed = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    assert {name for name in listed if name.isidentifier()} == BUILT_IN
    times = ("timestamp'1969-12-31 22:59:59.999999'", "timestamp'2026-03-01 10:00:00'", "timestamp'2026-03-01 11:31:07.5'")
    for kind in ("timestamp", "timestamp_ntz", "string"):
        frame = spark.sql(" UNION ALL ".join(f"SELECT {one}::{kind} AS at" for one in times))
        for window in WINDOWS:
            theirs = frame.selectExpr(f"{window} AS w").select("w.start", "w.end")
            ours = frame.selectExpr(f"{without_windows(window)} AS w").select("w.start", "w.end")
            assert ours.dtypes == theirs.dtypes
            assert ours.collect() == theirs.collect()
    assert (
        spark.sql(f"SELECT {without_windows(WINDOWS[0])}.start FROM VALUES (cast(NULL AS timestamp)) AS t(at)").collect()[0][0]
        is None
    )


@pytest.mark.slow
def test_a_grouped_view_over_messages_reads_each_once(here: Session, spark: SparkSession) -> None:
    query = "SELECT window(at, '1 hour').start AS hour, count(*) AS n, sum(price) AS total FROM e WHERE price > 0 GROUP BY 1"
    run(here, f"CREATE VIEW v AS {query}; {sink('v')}")
    found = made(here)
    assert isinstance(found.source, KafkaSource)
    texts = ['{"id": 1, "at": "2026-01-02T03:04:05Z", "price": 1.5}', '{"id": 2, "at": "2026-01-02T03:59:00Z", "price": 2}', "{"]
    frame = sink_rows(decoder(found.source, spark).decode(records(spark, texts)), found.sink, found.transforms)
    sums = combined(frame.where("__frazil_error IS NULL"), found.sink.key_fields, found.sink)
    assert sums._jdf.queryExecution().optimizedPlan().toString().count("from_json(") == 1  # type: ignore[attr-defined]
    assert [(str(row.hour), row.n, str(row.total)) for row in sums.collect()] == [("2026-01-02 03:00:00", 2, "3.50")]
    # A record that cannot be read has no time, and is reported nevertheless.
    assert frame.where("__frazil_error IS NOT NULL").count() == 1
