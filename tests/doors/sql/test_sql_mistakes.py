"""Mistakes that users make: each is reported with its statement, its line and column, and its token."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_cases import LAKE, refused, run, session

BASE = f"""{LAKE}
CREATE CONNECTION kafka TO KAFKA (BROKER 'localhost:9092');
CREATE CONNECTION pg TO POSTGRES (HOST 'localhost', DATABASE 'd', USER 'u');
CREATE CONNECTION aws TO AWS (REGION = 'eu-west-1');
CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER;
CREATE SOURCE orders (id bigint, price double precision, tags text[]) FROM KAFKA CONNECTION kafka (TOPIC 'orders') FORMAT JSON;
CREATE SOURCE people FROM KAFKA CONNECTION kafka (TOPIC 'people') KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE UPSERT;
CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (customers, items AS goods);
CREATE MATERIALIZED VIEW totals AS SELECT id, sum(price) AS total FROM orders GROUP BY id;
"""
SINK = "CREATE SINK s FROM {} INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 't')"

MISTAKES = {
    # name: (statement, what is said, statement's title, line and column, token, hint)
    "a word misspelt": ("CREAT SINK s", "a statement is expected here", "", (1, 1), "CREAT", "Did you mean CREATE?"),
    "an option misspelt": (
        SINK.format("orders") + "\n  WITH (COMIT INTERVAL = '5s')",
        "a sink has no option COMIT INTERVAL",
        "CREATE SINK s",
        (2, 9),
        "COMIT",
        "Did you mean COMMIT INTERVAL?",
    ),
    "an option twice": (
        "CREATE CONNECTION c TO AWS (REGION 'a', REGION 'b')",
        "REGION is given twice",
        "CREATE CONNECTION c",
        (1, 41),
        "REGION",
        "",
    ),
    "a source that is not there": (
        SINK.format("order"),
        "there is no source or view or materialized view 'order'",
        "CREATE SINK s",
        (1, 20),
        "order",
        "Did you mean orders?",
    ),
    "a connection of another kind": (
        "CREATE SINK s FROM orders\nINTO ICEBERG CATALOG CONNECTION kafka (NAMESPACE 'n', TABLE 't')",
        "the connection 'kafka' leads to KAFKA, and one to ICEBERG CATALOG is needed here",
        "CREATE SINK s",
        (2, 33),
        "kafka",
        "",
    ),
    "a name taken already": (
        "CREATE SECRET lake AS 'not-a-secret'",
        "the connection 'lake' is there already",
        "CREATE SECRET lake",
        (1, 15),
        "lake",
        "",
    ),
    "a quote forgotten": (
        "CREATE CONNECTION c TO AWS (REGION 'eu)",
        "this text has no end",
        "CREATE CONNECTION c",
        (1, 36),
        "'",
        "Close it with '",
    ),
    "a period without quotes": (
        SINK.format("orders") + "\nWITH (MAXIMUM PERIOD = 10s)",
        "a value with a unit is written as a text: '10s'",
        "CREATE SINK s",
        (2, 24),
        "10",
        "",
    ),
    "a period that is none": (
        SINK.format("orders") + "\nWITH (MAXIMUM PERIOD = 'soon')",
        "MAXIMUM PERIOD: 'soon' is no period",
        "CREATE SINK s",
        (2, 7),
        "MAXIMUM",
        "Write '10s', '500ms' or '1 minute 30 seconds'.",
    ),
    "a transform that is none": (
        SINK.format("orders") + "\nPARTITION BY (weekly(id))",
        "there is no transform weekly",
        "CREATE SINK s",
        (2, 15),
        "weekly",
        "",
    ),
    "a column that is not declared": (
        SINK.format("orders") + "\nKEY (idd)",
        "there is no column 'idd'",
        "CREATE SINK s",
        (2, 6),
        "idd",
        "Did you mean id?",
    ),
    "text in double quotes": (
        'CREATE SECRET s AS "x"',
        "the value of the secret is a text in single quotes",
        "CREATE SECRET s",
        (1, 20),
        '"**********"',
        "Double quotes are for names.",
    ),
    "the document's choice left open": (
        "CREATE CONNECTION c TO ICEBERG CATALOG (TYPE = 'rest' | 's3table')",
        "a comma or ) is expected here",
        "CREATE CONNECTION c",
        (1, 55),
        "|",
        "Choose one of the values.",
    ),
    "a catalog type that is none": (
        "CREATE CONNECTION c TO ICEBERG CATALOG (TYPE = 'rets', URI = 'http://x')",
        "TYPE cannot be 'rets'",
        "CREATE CONNECTION c",
        (1, 41),
        "TYPE",
        "Did you mean rest?",
    ),
    "a user without a password": (
        "CREATE CONNECTION c TO ICEBERG CATALOG (TYPE = 'rest', URI = 'http://x', USER = 'u')",
        "USER and PASSWORD belong together",
        "CREATE CONNECTION c",
        (1, 74),
        "USER",
        "",
    ),
    "an address that is none": (
        "CREATE CONNECTION c TO ICEBERG CATALOG (TYPE = 'rest', URI = 'catalog:8181')",
        "Invalid REST catalog URI: catalog:8181",
        "CREATE CONNECTION c",
        (1, 56),
        "URI",
        "",
    ),
    "a source with several tables": (
        SINK.format("shop"),
        "the source 'shop' has several tables, and a sink takes one",
        "CREATE SINK s",
        (1, 20),
        "shop",
        "Name one of them: customers, goods.",
    ),
    "a join": (
        "CREATE VIEW v AS SELECT *\nFROM orders o JOIN numbers n ON o.id = n.counter",
        "JOIN: a view reads one source: streams are not joined",
        "CREATE VIEW v",
        (2, 15),
        "JOIN",
        "",
    ),
    "an aggregate over changes": (
        "CREATE VIEW v AS SELECT city, count(*) AS n FROM customers GROUP BY city",
        "rows of this source are updated and deleted, and GROUP BY follows only rows that are added",
        "CREATE VIEW v",
        (1, 60),
        "GROUP",
        "Group when you read the table.",
    ),
    "a view of itself": (
        "CREATE VIEW v AS SELECT * FROM v",
        "there is no source or view or materialized view 'v'",
        "CREATE VIEW v",
        (1, 32),
        "v",
        "",
    ),
    "a column of files twice": (
        "CREATE SOURCE n (id int, \"ID\" text) FROM FILES (PATH = 'x', FORMAT = 'csv')",
        "column 'ID' is declared twice; names are compared without regard to case",
        "CREATE SOURCE n",
        (1, 26),
        '"ID"',
        "Give one of them another name.",
    ),
    "a column of messages twice": (
        "CREATE SOURCE n (id int, id int) FROM KAFKA CONNECTION kafka (TOPIC 't') FORMAT JSON",
        "column 'id' is declared twice",
        "CREATE SOURCE n",
        (1, 26),
        "id",
        "",
    ),
    "a partition of another type": (
        SINK.format("orders") + "\nPARTITION BY (id, day(price))",
        "day(price) cannot be applied: column 'price' has type double, and day takes date, timestamp",
        "CREATE SINK s",
        (2, 19),
        "day",
        "Choose another transform, or declare the column with another type.",
    ),
    "a partition of many values": (
        SINK.format("orders") + "\nPARTITION BY (tags)",
        "tags cannot be applied: column 'tags' has type list, which is not a single value",
        "CREATE SINK s",
        (2, 15),
        "tags",
        "",
    ),
    "buckets of fractions": (
        SINK.format("orders") + "\nPARTITION BY (bucket(4, price))",
        "bucket(4, price) cannot be applied: column 'price' has type double",
        "CREATE SINK s",
        (2, 15),
        "bucket",
        "",
    ),
    "a partition that divides nothing": (
        SINK.format("orders") + "\nPARTITION BY (void(id))",
        "void divides no rows",
        "CREATE SINK s",
        (2, 15),
        "void",
        "Leave it out.",
    ),
    "a partition twice": (
        SINK.format("numbers") + "\nPARTITION BY (bucket(4, counter), counter, bucket(counter, 4))",
        "bucket(4, counter) is given twice in PARTITION BY",
        "CREATE SINK s",
        (2, 44),
        "bucket",
        "Leave one of them out.",
    ),
    "no buckets": (
        SINK.format("orders") + "\nPARTITION BY (bucket(0, id))",
        "the width of bucket is 1 to 2147483647, not 0",
        "CREATE SINK s",
        (2, 15),
        "bucket",
        "Write bucket(16, id).",
    ),
    "the latest of sums": (
        SINK.format("totals") + "\nWITH (LATEST BY (total))",
        "LATEST BY has no meaning for a view with GROUP BY: all rows of a group are added up, and none is the last",
        "CREATE SINK s",
        (2, 7),
        "LATEST",
        "",
    ),
    "dead letters in the table itself": (
        SINK.format("orders") + "\nWITH (ON ERROR = 'dead_letter', DEAD LETTER TABLE = 't')",
        "DEAD LETTER TABLE cannot be the table of the sink itself, n.t",
        "CREATE SINK s",
        (2, 33),
        "DEAD",
        "Choose another one, or leave it out.",
    ),
    "dead letters in the table itself, by its full name": (
        SINK.format("orders") + "\nWITH (ON ERROR = 'dead_letter', DEAD LETTER TABLE = 'n.t')",
        "DEAD LETTER TABLE cannot be the table of the sink itself, n.t",
        "CREATE SINK s",
        (2, 33),
        "DEAD",
        "",
    ),
    "a time in a column that is there": (
        SINK.format("orders") + "\nWITH (TIMESTAMP COLUMN = 'Price')",
        "TIMESTAMP COLUMN adds a column, and 'Price' is a column of what is read already",
        "CREATE SINK s",
        (2, 7),
        "TIMESTAMP",
        "Choose another name.",
    ),
    "one column for two things": (
        "CREATE SOURCE d FROM KAFKA CONNECTION kafka (TOPIC 'd') FORMAT JSON ENVELOPE DEBEZIUM;\n"
        + SINK.format("d")
        + "\nMODE APPEND WITH (DIFF COLUMN = 'x', TIMESTAMP COLUMN = 'X')",
        "TIMESTAMP COLUMN adds a column, and 'X' is the DIFF COLUMN already",
        "CREATE SINK s",
        (3, 38),
        "TIMESTAMP",
        "",
    ),
    "an average": (
        "CREATE VIEW v AS SELECT id, avg(price) AS p FROM orders GROUP BY id",
        "avg cannot be kept up from what is in the table",
        "CREATE VIEW v",
        (1, 29),
        "avg",
        "Keep sum(x) and count(x), and divide when you read the table.",
    ),
    "a clause of another system": (
        "CREATE SINK s IN CLUSTER c FROM orders",
        "there are no clusters here",
        "CREATE SINK s",
        (1, 15),
        "IN",
        "Leave out IN CLUSTER.",
    ),
    "a view of columns that nobody knows": (
        "CREATE VIEW v AS SELECT name FROM people",
        "the columns of 'people' are not declared",
        "CREATE VIEW v",
        (1, 35),
        "people",
        "Declare them: CREATE SOURCE people (id bigint, ...) FROM ...",
    ),
    "changes without a key": (
        SINK.format("people"),
        "upsert sinks must specify a key",
        "CREATE SINK s",
        (1, 20),
        "people",
        "Add KEY (column, ...), or MODE APPEND.",
    ),
    "a field whose name is a number": (
        "CREATE SOURCE n (r record(\"2024\" int)) FROM FILES (PATH = 'x', FORMAT = 'json')",
        "names of fields within a type have letters, digits and _, and begin with no digit",
        "CREATE SOURCE n",
        (1, 27),
        '"2024"',
        "",
    ),
    "a table that another source has": (
        "CREATE SOURCE again FROM POSTGRES CONNECTION pg (PUBLICATION 'q') FOR TABLES (other, items, goods)",
        "'goods' is a table of the source 'shop' already",
        "CREATE SOURCE again",
        (1, 93),
        "goods",
        "Add AS and another name.",
    ),
    "the latest of rows that have no key": (
        SINK.format("orders") + " WITH (LATEST BY = id)",
        "LATEST BY has no meaning without a KEY: all rows are added",
        "CREATE SINK s",
        (1, 97),
        "LATEST",
        "",
    ),
    "a history of rows that have no order": (
        SINK.format("orders") + "\nKEY (id) WITH (HISTORY = 'scd2')",
        "HISTORY needs LATEST BY: its first column says since when a version of a row is valid",
        "CREATE SINK s",
        (2, 16),
        "HISTORY",
        "",
    ),
    "a history by a column of rows that a database deletes": (
        SINK.format("customers") + "\nKEY (id) WITH (HISTORY = 'scd2', LATEST BY = at)",
        "with HISTORY, LATEST BY cannot name columns of a row here, as 'at' is a column of the rows, of which a delete has",
        "CREATE SINK s",
        (2, 34),
        "LATEST",
        "Leave LATEST BY out: the source says when its rows were changed.",
    ),
    "the columns of a history that is none": (
        SINK.format("orders") + "\nKEY (id) WITH (VALID TO COLUMN = 'until')",
        "VALID TO COLUMN has no meaning without HISTORY = 'scd2'",
        "CREATE SINK s",
        (2, 16),
        "VALID",
        "",
    ),
    "the latest by a column that is not declared": (
        SINK.format("orders") + "\nKEY (id) WITH (LATEST BY = (id, prise))",
        "there is no column 'prise'",
        "CREATE SINK s",
        (2, 33),
        "prise",
        "Did you mean price?",
    ),
    "a number that is none": (
        "CREATE SOURCE n FROM LOAD GENERATOR SHOP (ROWS = 'x')",
        "ROWS must be a whole number, not 'x'",
        "CREATE SOURCE n",
        (1, 43),
        "ROWS",
        "",
    ),
    "a number that is too large": (
        "CREATE SOURCE n FROM LOAD GENERATOR SHOP (ROWS PER SECOND = 0)",
        "ROWS PER SECOND must be between 1 and 10,000,000, not 0",
        "CREATE SOURCE n",
        (1, 43),
        "ROWS",
        "",
    ),
    "a mechanism that is none": (
        "CREATE CONNECTION c TO KAFKA (BROKER 'a:1', SASL MECHANISMS 'PLANE', SASL USERNAME 'u', SASL PASSWORD 'p')",
        "SASL MECHANISMS cannot be 'PLANE'; there are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        "CREATE CONNECTION c",
        (1, 45),
        "SASL",
        "",
    ),
    "a name that queries cannot have": (
        "CREATE CONNECTION \"my lake\" TO ICEBERG CATALOG (TYPE = 'rest', URI = 'http://x')",
        "the name must be made of letters, digits, underscores and hyphens, and not begin with a digit",
        "CREATE CONNECTION my lake",
        (1, 19),
        '"my lake"',
        "",
    ),
    "a precision that times do not have": (
        "CREATE SOURCE n (t timestamp(9) with time zone) FROM FILES (PATH = 'x', FORMAT = 'json')",
        "a timestamp has a precision of 0 to 6",
        "CREATE SOURCE n",
        (1, 30),
        "9",
        "",
    ),
    "a subquery in a condition": (
        "CREATE VIEW v AS SELECT id FROM orders\nWHERE id IN (SELECT id FROM people)",
        "a subquery looks at other rows",
        "CREATE VIEW v",
        (2, 14),
        "SELECT",
        "Compare with other rows when you read the table.",
    ),
    "a group by a name that hides a column": (
        "CREATE VIEW v AS SELECT substr(day, 1, 7) AS day, count(*) AS n FROM orders GROUP BY day",
        "day is a column of what is read, too, and GROUP BY means that one",
        "CREATE VIEW v",
        (1, 86),
        "day",
        "Give the expression another name, or group by the expression itself, or by its place: 1.",
    ),
    "an object that others use": (
        "DROP CONNECTION kafka",
        "'kafka' is used by orders, people, totals",
        "DROP CONNECTION kafka",
        (1, 17),
        "kafka",
        "Drop these first, or add CASCADE.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_at_its_token(tmp_path: Path, mistake: str) -> None:
    statement, said, title, place, token, hint = MISTAKES[mistake]
    here = session(tmp_path)
    run(here, BASE)
    before = here.definitions.all()
    error = refused(here, statement)
    assert said in error.message
    assert error.message.endswith(f'(at "{token}" in {title})' if title else f'(at "{token}")')
    assert error.location is not None
    assert (error.location.file, error.location.line, error.location.column) == ("script.sql", *place)
    assert error.location.text.startswith(token, error.location.column - 1)
    assert not hint or error.fix == hint
    assert here.definitions.all() == before, "nothing was kept"


@pytest.mark.parametrize(
    ("columns", "partition"),
    [
        ("a text", "day(a)"),
        ("a date", "hour(a)"),
        ("a timestamp", "truncate(4, a)"),
        ("a double precision", "bucket(4, a)"),
        ("a map[text => int]", "a"),
    ],
)
def test_a_partition_fits_the_declared_type(tmp_path: Path, columns: str, partition: str) -> None:
    here = session(tmp_path)
    run(here, f"{LAKE} CREATE SOURCE f ({columns}) FROM FILES (PATH = 'x', FORMAT = 'json');")
    error = refused(here, f"{SINK.format('f')} PARTITION BY ({partition})")
    assert (error.code, f"{partition} cannot be applied" in error.message) == ("sql-partition", True)


def test_partitions_that_fit_are_taken(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, f"{LAKE} CREATE SOURCE f (id int, at timestamp, d date, v text) FROM FILES (PATH = 'x', FORMAT = 'json');")
    run(here, SINK.format("f") + " PARTITION BY (hour(at), day(D), id, bucket(4, id), bucket(8, id), truncate(3, v))")


# The words that users of the original search for.
TEXTS = {
    "upsert sinks must specify a key": (SINK.format("orders") + " MODE UPSERT", "UPSERT"),
    "KEY is not supported for MODE APPEND Iceberg sinks": (SINK.format("orders") + " KEY (id) MODE APPEND", "id"),
    "COMMIT INTERVAL must be at least 1 second": (SINK.format("orders") + " WITH (COMMIT INTERVAL = '500ms')", "COMMIT"),
    "duplicate column referenced in KEY": (SINK.format("orders") + " KEY (id, ID)", "ID"),
    "Iceberg sink must specify TABLE": ("CREATE SINK s FROM orders INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n');", ";"),
    "Iceberg sink must specify NAMESPACE": ("CREATE SINK s FROM orders TO ICEBERG CATALOG lake TABLE t;", ";"),
    "column price has type double which cannot be used as an Iceberg equality delete key": (
        SINK.format("orders") + " KEY (price)",
        "price",
    ),
    "column tags has type list which cannot be used as an Iceberg equality delete key": (
        SINK.format("orders") + " KEY (tags)",
        "tags",
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_the_words_that_users_search_for(tmp_path: Path, text: str) -> None:
    statement, token = TEXTS[text]
    here = session(tmp_path)
    run(here, BASE)
    error = refused(here, statement)
    assert error.message == f'{text}{": ID" if "duplicate" in text else ""} (at "{token}" in CREATE SINK s)'
    assert error.location is not None
    assert error.location.text.startswith(token, error.location.column - 1)


@pytest.mark.parametrize(
    ("last", "said", "place"),
    [
        ("CREATE SOURCE s FROM NOWHERE;", "", (3, 22)),
        ("CREATE VIEW v AS SELECT * FROM nobody;", "there is no source", (3, 32)),
        (SINK.format("numbers") + " WITH (COMMIT INTERVAL = '0s');", "must be at least 1 second", (3, 98)),
        ("CREATE SECRET lake AS 'taken-name';", "is there already", (3, 15)),
        ("ALTER CONNECTION lake SET (TYPE = 'rest');", "Invalid REST catalog URI", (3, 28)),
        ("DROP SECRET lake;", "'lake' is a connection", (3, 13)),
        ("DROP SOURCE numbers; SHOW CREATE SOURCE numbers;", "there is no source 'numbers'", (3, 41)),
        ("DESCRIBE nobody;", "'nobody'", (3, 10)),
        ("EXPLAIN SINK numbers;", "is a source, and a sink is needed", (3, 14)),
        ("VALIDATE CONNECTION nobody;", "there is no connection", (3, 21)),
        ("CREATE CONNECTION a TO AWS (REGION 'x'); VALIDATE CONNECTION a;", "nothing of its own to connect to", (3, 62)),
        ("SELECT * FROM numbers;", "which keeps no rows", (3, 15)),
    ],
)
def test_a_script_with_a_mistake_does_nothing_at_all(tmp_path: Path, last: str, said: str, place: tuple[int, int]) -> None:
    here = session(tmp_path)
    error = refused(here, f"{LAKE}\nCREATE SOURCE numbers FROM LOAD GENERATOR COUNTER;\n{last}")
    assert said in error.message
    assert error.location is not None
    assert (error.location.line, error.location.column) == place
    assert not here.definitions.path.exists()


def test_statements_see_what_those_before_them_change(tmp_path: Path) -> None:
    here = session(tmp_path)
    result = run(
        here,
        f"""CREATE SECRET p AS 'first-password'; {LAKE}
        CREATE CONNECTION pg TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u', PASSWORD SECRET p);
        CREATE SOURCE orders FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (items);
        {SINK.format("items")}; SHOW SINKS; ALTER SINK s SET (COMMIT INTERVAL = '5s'); ALTER SECRET p AS 'second-password';
        SHOW SINKS; DROP SINK s; CREATE SECRET IF NOT EXISTS p AS 'third-password'; {SINK.format("orders")};""",
    )
    shown = [one.rows[0][5] for one in result if one.statement == "SHOW SINKS"]
    assert shown == ["every 1 s", "every 5 s"]
    source = here.project().pipelines[0].source.model_dump()
    assert source["password"].get_secret_value() == "second-password"


def test_definitions_that_follow_each_other_are_kept_together(tmp_path: Path) -> None:
    here = session(tmp_path)
    run(here, f"{LAKE} CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER; {SINK.format('numbers')}; SHOW SINKS")
    assert here.definitions.version == 1
