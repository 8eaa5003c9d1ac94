"""Statements at work, on Spark: rows that are there once, tables that follow, and runs that follow the definitions."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sql_cases import BESIDE, ROOT, blocks, refused

from frazil.doors.sql import Answer, Definitions, Session, run
from frazil.errors import ConfigError, DataError, FrazilError
from frazil.model.events import Committed, Event, Staged, Started, Stopped
from frazil.model.settings import RetrySettings, Settings
from services.kafka import Kafka, Message
from services.processes import start, wait_until
from services.rest_catalog import RestCatalog
from sources.postgres.databases import Database, database_on

# Racing commits are lost often, and each is tried again soon.
SETTINGS = Settings(retry=RetrySettings(max_retries=200, initial_backoff_ms=5, max_backoff_ms=50))


class Door:
    """A session in a folder of its own, with a lake beside it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.session = Session(Definitions(folder / "definitions.db"), SETTINGS)
        uri, warehouse = f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse"
        self.sql(f"CREATE CONNECTION lake TO ICEBERG CATALOG (TYPE = 'sql', URI = '{uri}', WAREHOUSE = '{warehouse}')")

    def sql(self, text: str) -> list[Answer]:
        return list(self.session.run(text, "script.sql"))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return list(self.sql(query)[-1].rows)

    def run(self, *only: str, listen: Callable[[Event], None] = lambda _: None) -> list[Committed]:
        """Runs what is there to its end, and tells of the commits."""
        events: list[Event] = []
        run(self.session, once=True, only=only, listeners=[events.append, listen])
        return [event for event in events if isinstance(event, Committed)]

    def write(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Puts a file of JSON lines into the folder `in`."""
        (self.folder / "in").mkdir(exist_ok=True)
        (self.folder / "in" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    @contextmanager
    def running(self) -> Iterator[list[Event]]:
        """Runs until the block ends, and tells of everything that happens."""
        events: list[Event] = []
        stop = threading.Event()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                run(self.session, listeners=[events.append], stop=stop)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield events
        finally:
            stop.set()
            thread.join()
        assert failed == []


@pytest.fixture
def door(spark: SparkSession, tmp_path: Path) -> Door:
    return Door(spark, tmp_path)


def into(table: str, clauses: str = "") -> str:
    return f"INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'shop', TABLE '{table}') {clauses}"


@pytest.mark.slow
def test_many_inserts_and_some_updates_in_one_commit_leave_one_row_a_key(door: Door) -> None:
    rows = door.spark.range(110_100).selectExpr("id % 110000 AS id", "if(id < 110000, 'old', 'new') AS v", "id AS seq")
    rows.coalesce(1).write.parquet(f"{door.folder}/in")
    door.sql(f"""CREATE SOURCE changes (id bigint, v text, seq bigint) FROM FILES (PATH = '{door.folder}/in', FORMAT = 'parquet');
                 CREATE SINK items FROM changes {into("items", "KEY (id) WITH (LATEST BY = seq)")};""")
    (commit,) = door.run()
    assert (commit.counts.read, commit.counts.written, commit.counts.superseded) == (110_100, 110_000, 100)
    assert door.rows("SELECT count(*), count(DISTINCT id), count_if(v = 'new') FROM items") == [(110_000, 110_000, 100)]


@pytest.mark.slow
def test_late_rows_are_left_out(door: Door) -> None:
    def comes(rows: str) -> None:
        door.spark.sql(f"select * from values {rows} t(id, v, seq)").coalesce(1).write.mode("append").json(f"{door.folder}/in")

    comes("(1, 'five', 5), (2, 'five', 5)")
    door.sql(f"""CREATE SOURCE changes (id bigint, v text, seq bigint) FROM FILES (PATH = '{door.folder}/in', FORMAT = 'json');
                 CREATE SINK items FROM changes {into("items", "KEY (id) WITH (LATEST BY = seq, LATE = 'ignore')")};""")
    door.run()
    comes("(1, 'four', 4), (2, 'six', 6), (3, 'one', 1)")
    (commit,) = door.run()
    assert (commit.counts.written, commit.counts.superseded) == (2, 1)
    assert door.rows("SELECT id, v FROM items ORDER BY id") == [(1, "five"), (2, "six"), (3, "one")]


def test_every_version_of_a_row_is_kept(door: Door) -> None:
    door.write("a.json", [{"id": 1, "v": "one", "seq": 1}, {"id": 1, "v": "three", "seq": 3}, {"id": 1, "v": "two", "seq": 2}])
    options = "LATEST BY = seq, HISTORY = 'scd2', VALID FROM COLUMN = 'since', OPERATION COLUMN = 'did'"
    door.sql(f"""CREATE SOURCE changes (id bigint, v text, seq bigint) FROM FILES (PATH = '{door.folder}/in', FORMAT = 'json');
                 CREATE SINK past FROM changes {into("past", f"KEY (id) WITH ({options})")};""")
    door.run()
    assert door.rows("SELECT v, since, valid_to, is_current, did FROM past ORDER BY since") == [
        ("one", 1, 2, False, "insert"),
        ("two", 2, 3, False, "update"),
        ("three", 3, None, True, "update"),
    ]


@pytest.mark.slow
def test_rows_survive_racing_commits_and_a_restart_of_a_finite_source_adds_nothing(door: Door) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    door.sql("CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER (UP TO 43)")
    names = ["a", "b", "c"]
    for name in names:
        door.sql(f"CREATE SINK {name} FROM numbers {into('numbers')}")
    door.run("a")
    other = SqlCatalog("lake", uri=f"sqlite:///{door.folder}/catalog.db", warehouse=f"{door.folder}/warehouse")
    stop, raced = threading.Event(), []

    def race() -> None:
        # In bursts: one that never ends would win every time against a commit that takes longer.
        while not (len(raced) % 10 == 9 and stop.wait(0.3)) and not stop.is_set():
            try:
                with other.load_table("shop.numbers").transaction() as change:
                    change.set_properties(turn=str(len(raced)))
                raced.append(1)
            except Exception:  # lost to the sinks, as they lose to this
                continue

    staged: dict[str, int] = {}
    amid: dict[str, int] = {}

    def race_on(event: Event) -> None:
        """Between the files of a sink and its commit others commit, for sure."""
        if isinstance(event, Staged):
            staged[event.pipeline] = len(raced)
            wait_until(lambda: len(raced) >= staged[event.pipeline] + 20, 60, "the racing commits")
        elif isinstance(event, Committed):
            amid[event.pipeline] = len(raced) - staged[event.pipeline]

    racer = threading.Thread(target=race)
    racer.start()
    try:
        door.run("b", "c", listen=race_on)
    finally:
        stop.set()
        racer.join()
    assert {name: count >= 20 for name, count in amid.items()} == {"b": True, "c": True}
    assert door.rows("SELECT counter, count(*) FROM a GROUP BY 1 ORDER BY 1") == [(number, 3) for number in range(1, 44)]
    assert door.run() == []
    assert door.rows("SELECT count(*) FROM a") == [(3 * 43,)]


@pytest.mark.slow
@pytest.mark.parametrize(("parallel", "seconds", "meet"), [(1, 1.0, False), (2, 60.0, True)])
def test_as_many_sinks_write_at_once_as_the_settings_say(door: Door, parallel: int, seconds: float, meet: bool) -> None:
    door.session = Session(door.session.definitions, SETTINGS.model_copy(update={"parallel": parallel}))
    door.sql(f"""CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER (UP TO 5);
                 CREATE SINK first FROM numbers {into("first")}; CREATE SINK a FROM numbers {into("a")};
                 CREATE SINK b FROM numbers {into("b")};""")
    door.run("first")  # the catalog is there
    staged: list[str] = []
    met: list[bool] = []
    another = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Staged):
            staged.append(event.pipeline)
            if len(staged) > 1:
                another.set()
            else:
                met.append(another.wait(seconds))

    door.run("a", "b", listen=listen)
    assert met == [meet]


@pytest.mark.slow
def test_what_stops_a_sink_names_it(door: Door) -> None:
    (door.folder / "other.db").write_text("hello, this is no database at all, however long one looks at it")
    door.sql(f"""CREATE CONNECTION gone TO ICEBERG CATALOG (TYPE 'sql', URI 'sqlite:///{door.folder}/other.db', WAREHOUSE 'w');
                 CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER (UP TO 5);
                 CREATE SINK lost FROM numbers INTO ICEBERG CATALOG CONNECTION gone (NAMESPACE 'n', TABLE 't');""")
    with pytest.raises(FrazilError, match=r"^<connection gone>:1:19: sink lost: .*catalog"):
        door.run()


@pytest.mark.slow
def test_alter_create_and_drop_take_effect_in_a_run_that_is_under_way(door: Door) -> None:
    door.sql(f"""CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '5ms');
                 CREATE SINK slow FROM ticks {into("slow", "WITH (COMMIT INTERVAL = '1h')")};
                 CREATE SINK sized FROM ticks {into("sized", "WITH (MINIMUM SIZE = '20kB')")};""")
    with door.running() as events:
        wait_until(lambda: any(isinstance(event, Started) for event in events), 120, "the run")
        door.sql(f"""CREATE SINK quick FROM ticks {into("quick", "WITH (COMMIT INTERVAL = '1s')")}""")
        wait_until(lambda: commits_of(events, "quick"), 120, "the run")
        assert commits_of(events, "slow") == []
        door.sql("ALTER SINK slow SET (COMMIT INTERVAL = '1s')")
        wait_until(lambda: commits_of(events, "slow"), 120, "the run")
        wait_until(lambda: commits_of(events, "sized"), 120, "the run")
        door.sql("DROP SINK quick")
        wait_until(lambda: any(isinstance(event, Stopped) and event.pipeline == "quick" for event in events), 120, "the run")
    counts, least, most = door.rows("SELECT count(*), min(counter), max(counter) FROM slow")[0]
    assert (least, most) == (1, counts)
    # As long as no commit has told, a row is taken for a hundred bytes.
    assert commits_of(events, "sized")[0].counts.read >= 205


def commits_of(events: list[Event], name: str) -> list[Committed]:
    return [event for event in events if isinstance(event, Committed) and event.pipeline == name]


@pytest.mark.slow
def test_a_grouped_view_keeps_its_table_up_batch_after_batch(door: Door) -> None:
    def sales(first: int, last: int) -> list[dict[str, Any]]:
        return [
            {"country": f"c{n % 3}", "price": n, "ok": n % 2 == 0, "note": None if n % 5 else "x"} for n in range(first, last)
        ]

    door.sql(f"""CREATE SOURCE sales (country text, price int, ok boolean, note text)
                 FROM FILES (PATH = '{door.folder}/in', FORMAT = 'json');
                 CREATE VIEW paid AS SELECT s.*, price * 2 AS double FROM sales s WHERE price > 1;
                 CREATE MATERIALIZED VIEW totals AS SELECT country, count(*) AS n, count(note, ok) AS notes, sum(double) AS total,
                     min(price) AS least, max(price) FILTER (WHERE ok) AS most, bool_and(ok) AS fine FROM paid GROUP BY country;
                 CREATE SINK totals_sink FROM totals {into("totals")};""")
    written: list[dict[str, Any]] = []
    for number, rows in enumerate((sales(0, 10), sales(10, 31), [{"country": "new", "price": 7, "ok": True, "note": None}])):
        written += rows
        door.write(f"{number}.json", rows)
        (commit,) = door.run()
        assert commit.counts.read == len(rows)
        assert commit.counts.balanced
        kept = [row for row in written if row["price"] > 1]
        countries = sorted({row["country"] for row in kept})
        assert door.rows("SELECT * FROM totals_sink ORDER BY country") == [expected(kept, country) for country in countries]
    assert door.run() == []
    (described,) = door.sql("DESCRIBE totals_sink")
    assert [row[:2] for row in described.rows][:4] == [("country", "string"), ("n", "long"), ("notes", "long"), ("total", "long")]
    assert [row[0] for row in described.rows if row[3] == "key"] == ["country"]


def expected(kept: list[dict[str, Any]], country: str) -> tuple[Any, ...]:
    rows = [row for row in kept if row["country"] == country]
    prices = [row["price"] for row in rows]
    most = max((row["price"] for row in rows if row["ok"]), default=None)
    notes = sum(row["note"] is not None for row in rows)
    return (country, len(rows), notes, 2 * sum(prices), min(prices), most, all(row["ok"] for row in rows))


@pytest.mark.slow
def test_sinks_that_add_to_the_same_groups_at_the_same_time_lose_nothing(door: Door) -> None:
    door.sql("""CREATE SOURCE numbers FROM LOAD GENERATOR COUNTER (UP TO 100);
                CREATE VIEW parity AS SELECT counter % 2 AS odd, count(*) AS n, sum(counter) AS total FROM numbers GROUP BY 1;""")
    for name in ("a", "b", "c"):
        door.sql(f"CREATE SINK {name} FROM parity {into('parity')}")
    door.run()
    assert door.rows("SELECT * FROM a ORDER BY odd") == [(0, 150, 3 * 2550), (1, 150, 3 * 2500)]


@pytest.mark.slow(seconds=30)
def test_a_run_that_was_killed_goes_on_where_its_tables_end(door: Door) -> None:
    door.sql(f"""CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '5ms');
                 CREATE VIEW parity AS SELECT counter % 2 AS odd, count(*) AS n, sum(counter) AS total FROM ticks GROUP BY 1;
                 CREATE SINK plain FROM ticks {into("plain")}; CREATE SINK sums FROM parity {into("sums")};""")
    settings = door.folder / "settings.yaml"
    settings.write_text("settings: {health: {port: 0}, metrics: {port: 0}, spark: {master: 'local[1]'}}")
    program = "import sys; from frazil.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["--run", "--definitions", str(door.session.definitions.path), "--settings", str(settings)]
    child = start("frazil sql", [sys.executable, "-c", program, "sql", *options], door.folder / "run.log")
    try:
        for name in ("plain", "sums"):
            child.await_line(rf"batch_committed\s+pipeline={name}\b", 180)
    finally:
        child.process.kill()
        child.process.wait()
    with door.running() as events:
        wait_until(lambda: commits_of(events, "plain") and commits_of(events, "sums"), 120, "the run")
    ((count, least, most),) = door.rows("SELECT count(DISTINCT counter), min(counter), max(counter) FROM plain")
    assert (least, most) == (1, count)
    assert door.rows("SELECT count(*) FROM plain") == [(count,)]
    ((n, total),) = door.rows("SELECT sum(n), sum(total) FROM sums")
    assert total == n * (n + 1) // 2


def test_queries_read_tables_as_they_are_and_as_they_were(door: Door) -> None:
    door.sql(f"""CREATE SOURCE lines (id bigint) FROM FILES (PATH = '{door.folder}/in', FORMAT = 'json');
                 CREATE SINK ids FROM lines {into("ids", "PARTITION BY (bucket(4, id))")};""")
    for number in (1, 2):
        door.write(f"{number}.json", [{"id": number}])
        door.run()
    assert door.rows("SELECT id FROM ids ORDER BY id") == [(1,), (2,)]
    assert door.rows("WITH x AS (SELECT id + 1 AS id FROM lake.shop.ids) SELECT sum(id) AS s FROM x") == [(5,)]
    first = door.rows("SELECT snapshot_id, committed_at FROM lake.shop.ids.snapshots ORDER BY committed_at")
    old = door.rows("SELECT snapshot_id FROM lake.shop.ids.snapshots WHERE summary['added-records'] = '1' ORDER BY committed_at")[
        0
    ][0]
    assert door.rows(f"SELECT id FROM ids VERSION AS OF {old}") == [(1,)]
    assert door.rows(f"SELECT id FROM ids TIMESTAMP AS OF '{first[-1][1]}' ORDER BY 1") == [(1,), (2,)]
    assert door.rows("SELECT count(*) FROM ids.files")[0][0] >= 1
    few = Session(door.session.definitions, SETTINGS, limit=1)
    (answer,) = few.run("SELECT id FROM ids ORDER BY id")
    assert (answer.rows, answer.notes) == (((1,),), ("only the first 1 rows are shown",))
    for query, said, token in (
        ("SELECT 1;\nSELECT ids_ FROM ids", "ids_", "ids_"),
        ("SELECT id FROM ids\nWERE id = 1", "'id'", "id = 1"),
        ("SELECT * FROM lake.shop.nothing", "nothing", "lake.shop"),
        ("SELECT * FROM lines", "is a source, which keeps no rows", "lines"),
    ):
        error = refused(door.session, query)
        assert said in error.message
        assert "Exception" not in error.message
        assert error.location is not None
        assert error.location.text[error.location.column - 1 :].startswith(token)
    (described,) = door.sql("DESCRIBE ids")
    assert described.rows == (("id", "long", "", ""),)
    assert described.notes == ("partitioned by bucket(4, id)",)
    (explained,) = door.sql("EXPLAIN SINK ids")
    facts = dict(explained.rows)
    assert (facts["reads"], facts["table"], facts["mode"]) == ("lines", "keep shop.ids", "append")
    assert (facts["partitioned by"], facts["commits"]) == ("bucket(4, id)", "every 1 s")
    (validated,) = door.sql("VALIDATE CONNECTION lake")
    assert "connected to the sql catalog" in validated.message
    assert "it has 1 namespaces" in validated.message


def test_the_block_of_the_page_runs_as_it_is_pasted(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(door.folder)
    page = (ROOT / "docs" / "sql.md").read_text()
    script, query = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)[:2]
    here = Session(Definitions(), SETTINGS)
    list(here.run(script))
    run(here, once=True)
    (answer,) = here.run(query)
    assert len(answer.rows) == 10
    assert sum(row[1] for row in answer.rows) > 0


@pytest.mark.skipif(not BESIDE, reason="the document is not beside the project")
def test_the_blocks_of_the_document_run(door: Door, rest_catalog: RestCatalog) -> None:
    """On a REST catalog of this machine, whose tables are files of this machine: without the object store."""
    catalog_block, _, sink_block = blocks(BESIDE[0])
    block = catalog_block.replace("'rest' | 's3table'", "'rest'").replace(
        "https://my.awesome.cat:8081/api/catalog", rest_catalog.uri
    )
    block = re.sub(r"(?m)^ *(AWS CONNECTION|WAREHOUSE).*\n", "", block)
    door.sql(f"CREATE SECRET iceberg_pass AS 'of-the-catalog'; {block}; CREATE SOURCE n FROM LOAD GENERATOR COUNTER (UP TO 5);")
    door.sql("CREATE MATERIALIZED VIEW my_favorite_materialized_view AS SELECT counter, -counter AS less FROM n")
    door.sql(re.sub(r"USING AWS CONNECTION \w+", "", sink_block).replace("namespace_name", f"ns_{door.folder.name}"))
    (commit,) = door.run()
    assert commit.counts.written == 5
    assert door.rows("SELECT sum(counter), sum(less) FROM iceberg_sink") == [(15, -15)]
    assert "connected to the rest catalog" in door.sql("VALIDATE CONNECTION iceberg_catalog_connection")[0].message


def test_a_topic_with_keys_is_followed(door: Door, kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [Message(json.dumps({"name": f"n{n}"}), json.dumps({"id": n % 3})) for n in range(6)])
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}');
                 CREATE SOURCE people (name text) FROM KAFKA CONNECTION kafka (TOPIC '{topic}')
                 KEY FORMAT JSON VALUE FORMAT JSON INCLUDE OFFSET AS place ENVELOPE UPSERT;
                 CREATE VIEW named AS SELECT id, upper(name) AS name, place FROM people;
                 CREATE SINK known FROM named {into("known", "KEY (id)")};""")
    door.run()
    assert door.rows("SELECT * FROM known ORDER BY id") == [(0, "N3", 3), (1, "N4", 4), (2, "N5", 5)]
    kafka.produce(topic, [Message(None, json.dumps({"id": 1}))])
    door.run()
    assert door.rows("SELECT id FROM known ORDER BY id") == [(0,), (2,)]
    assert door.sql("VALIDATE CONNECTION kafka")[0].message == f"connected to the Kafka cluster at {kafka.address()}"


@pytest.mark.slow
def test_messages_that_delete_rows_are_ordered_by_what_they_have(door: Door, kafka: Kafka) -> None:
    """Which columns the keys have is seen when messages come."""
    begin = int(time.time() * 1000)

    def message(key: int, at: int, name: str | None) -> Message:
        value = None if name is None else json.dumps({"at": at, "name": name})
        return Message(value, json.dumps({"id": key}), timestamp_ms=begin + at)

    topic = kafka.create_topic()
    kafka.produce(topic, [message(1, 1, "a"), message(1, 3, None), message(2, 1, "a")])
    source = f"CREATE SOURCE people (at int, name text) FROM KAFKA CONNECTION kafka (TOPIC '{topic}')"
    keyed = "KEY FORMAT JSON VALUE FORMAT JSON {} ENVELOPE UPSERT;"
    sink = "CREATE SINK known FROM people {}"
    late = "KEY (id) WITH (LATE = 'ignore', LATEST BY = {})"
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}'); {source} {keyed.format("")}
                 {sink.format(into("known", late.format("at")))};""")
    with pytest.raises(ConfigError, match="sink known: order_by: 'at' is a column of the rows") as raised:
        door.run()
    assert (raised.value.code, "write INCLUDE TIMESTAMP, OFFSET in the source" in raised.value.fix) == ("order-of-row", True)
    door.sql(f"""DROP SOURCE people CASCADE; {source} {keyed.format("INCLUDE TIMESTAMP, OFFSET")}
                 {sink.format(into("known", late.format("(timestamp, offset)")))};""")
    door.run()
    assert door.rows("SELECT id, name FROM known") == [(2, "a")]
    kafka.produce(topic, [message(1, 2, "late"), message(2, 4, None)])
    (commit,) = door.run()
    assert (door.rows("SELECT id, name FROM known"), commit.counts.superseded) == ([], 1)


@pytest.mark.slow
def test_a_topic_with_a_broken_message_is_followed_by_key_and_as_a_history(door: Door, kafka: Kafka) -> None:
    """Rows of a key are in two partitions, where the times of the messages decide which is last."""

    begin = int(time.time() * 1000)  # old messages would be deleted by the broker

    def message(key: int, name: str | None, partition: int, later: int) -> Message:
        value = name if name is None or "{" in name else json.dumps({"name": name})
        return Message(value, json.dumps({"id": key}), partition=partition, timestamp_ms=begin + later)

    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [message(1, "new", 0, 2000), message(2, "two", 0, 2500), message(3, "{broken", 0, 2600)])
    kafka.produce(topic, [message(1, "old", 1, 1000), message(2, None, 1, 3000)])
    options = "TIMESTAMP COLUMN = 'seen', ON ERROR = 'dead_letter', DEAD LETTER TABLE = 'bad', MAX DEAD LETTERS = 1"
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}');
                 CREATE SOURCE people (name text) FROM KAFKA CONNECTION kafka (TOPIC '{topic}')
                 KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE UPSERT;
                 CREATE SINK known FROM people {into("known", "KEY (id)")};
                 CREATE SINK history FROM people {into("history", f"MODE APPEND WITH ({options})")};""")
    with pytest.raises(DataError, match="sink known: ") as raised:
        door.run("known")
    assert raised.value.location is not None
    assert raised.value.location.file == "<sink known>"
    cure = re.search(r"ALTER SINK .*\)", raised.value.fix)
    assert cure is not None
    door.sql(cure[0])
    assert door.rows("SHOW CREATE SINK known")[0][1].endswith("WITH (ON ERROR = 'dead_letter');")
    door.run()
    assert door.rows("SELECT id, name FROM known") == [(1, "new")]
    assert door.rows("SELECT id, name, seen IS NULL FROM history ORDER BY 1, 2") == [
        (1, "new", False),
        (1, "old", False),
        (2, "two", False),
    ]
    for letters in ("known__dead_letters", "bad"):
        assert door.rows(f"SELECT code, string(raw) FROM lake.shop.{letters}") == [("json-malformed", "{broken")]


@pytest.mark.slow
def test_a_grouped_view_over_a_topic_keeps_its_table_up(door: Door, kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)

    def produce(*numbers: int) -> None:
        rows = [Message(json.dumps({"timestamp": n, "version": f"v{n % 2}"}), partition=n % 2) for n in numbers]
        kafka.produce(topic, [*rows, Message(None, "nothing")])

    source = f"""CREATE SOURCE events (timestamp int, version text) FROM KAFKA CONNECTION kafka (TOPIC '{topic}') FORMAT JSON;"""
    grouped = "SELECT right(version, 1) AS parity, count(*) AS offset, {} AS total FROM events WHERE timestamp > 0 GROUP BY 1"
    sink = f"CREATE SINK sums FROM totals {into('sums')};"
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}'); {source}
                 CREATE VIEW totals AS {grouped.format("sum(timestamp)")}; {sink}""")
    produce(0, 1, 2, 3)
    (commit,) = door.run()
    assert commit.counts.balanced
    produce(4, 5, 7)
    door.run()
    assert door.rows("SELECT sums.parity, offset, total FROM sums ORDER BY 1") == [("0", 2, 6), ("1", 4, 16)]
    door.sql(f"DROP SINK sums; {sink}")
    assert door.run() == []
    door.sql(f"DROP VIEW totals CASCADE; CREATE VIEW totals AS {grouped.format('sum(timestamp * 2)')}")
    assert "holds sums of another view" in refused(door.session, sink).message


@pytest.mark.slow
def test_another_topic_under_the_name_of_a_sink_is_refused(door: Door, kafka: Kafka) -> None:
    source = "CREATE SOURCE events FROM KAFKA CONNECTION kafka (TOPIC '{}') FORMAT TEXT;"
    first, second = kafka.create_topic(), kafka.create_topic()
    kafka.produce(first, [Message("a")])
    sink = f"CREATE SINK texts FROM events {into('texts')};"
    door.sql(f"CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}'); {source.format(first)} {sink}")
    door.run()
    door.sql(f"DROP SOURCE events CASCADE; {source.format(second)}")
    assert f"a sink of this name has written topic {first} into lake.shop.texts" in refused(door.session, sink).message


@pytest.mark.parametrize("kind", ["TEXT", "BYTES"])
def test_a_key_that_is_one_value_is_the_column_key(door: Door, kafka: Kafka, kind: str) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [Message("a", "k1"), Message("b", "k2"), Message("c", "k1"), Message(None, "k2"), Message("d", "k3")])
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}');
                 CREATE SOURCE notes FROM KAFKA CONNECTION kafka (TOPIC '{topic}')
                 KEY FORMAT {kind} VALUE FORMAT TEXT INCLUDE KEY AS raw, PARTITION ENVELOPE UPSERT;
                 CREATE SINK kept FROM notes {into("notes", "KEY (key)")};""")
    door.run()
    assert door.rows("SELECT string(kept.key), kept.value, string(raw), partition FROM kept ORDER BY 1") == [
        ("k1", "c", "k1", 0),
        ("k3", "d", "k3", 0),
    ]


@pytest.mark.slow
def test_what_is_included_under_another_name_leaves_a_column_of_its_own_name_alone(door: Door, kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [Message(json.dumps({"offset": 7, "left": "abc"}))])
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}');
                 CREATE SOURCE events (offset int, left text) FROM KAFKA CONNECTION kafka (TOPIC '{topic}')
                 FORMAT JSON INCLUDE OFFSET AS place;
                 CREATE VIEW named AS SELECT * EXCEPT (left), left(left, 2) AS l, TIMESTAMP '2026-01-31 12:00:00' AS t
                 FROM events;
                 CREATE SINK placed FROM named {into("placed")};""")
    door.run()
    assert door.rows("SELECT offset, place, l, date(t) FROM placed") == [(7, 0, "ab", date(2026, 1, 31))]


@pytest.mark.slow
def test_a_sink_that_was_dropped_and_created_again_is_started_again(door: Door) -> None:
    def started(events: list[Event], name: str) -> int:
        return sum(isinstance(event, Started) and event.pipeline == name for event in events)

    again = f"CREATE SINK again FROM few {into('again')}"
    door.sql(f"""CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '100ms');
                 CREATE SOURCE few FROM LOAD GENERATOR COUNTER (UP TO 3);
                 CREATE SINK on_and_on FROM ticks {into("ticks")}; {again};""")
    with door.running() as events:
        wait_until(lambda: any(isinstance(e, Stopped) and e.pipeline == "again" for e in events), 120, "the end of the source")
        door.sql(f"DROP SINK again; CREATE SINK beside FROM few {into('beside')}")
        wait_until(lambda: started(events, "beside"), 120, "the run to have seen the drop")
        door.sql(again)
        wait_until(lambda: started(events, "again") == 2, 120, "the second start")
    assert door.rows("SELECT count(*) FROM again") == [(3,)]


@pytest.mark.slow
def test_changes_that_debezium_tells_are_followed_by_sinks_and_through_views(door: Door, kafka: Kafka) -> None:
    def tell(key: int, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Message:
        return Message(json.dumps({"op": op, "before": before, "after": after}), json.dumps({"id": key}))

    topic = kafka.create_topic()
    kafka.produce(topic, [tell(n, "c", None, {"id": n, "status": "paid", "n": n}) for n in range(4)])
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}');
                 CREATE SOURCE orders (id bigint, status text, n int) FROM KAFKA CONNECTION kafka (TOPIC '{topic}')
                 KEY FORMAT JSON VALUE FORMAT JSON INCLUDE OFFSET AS place ENVELOPE DEBEZIUM;
                 CREATE VIEW paid AS SELECT id AS nr, n * 2 AS twice, place FROM orders WHERE status = 'paid';
                 CREATE SINK all_orders FROM orders {into("all_orders")};
                 CREATE SINK paid_orders FROM paid {into("paid_orders")};""")
    door.run()
    assert door.rows("SELECT * FROM all_orders ORDER BY id") == [(n, "paid", n, n) for n in range(4)]
    moved = {"id": 30, "status": "paid", "n": 3}
    changes = [
        tell(0, "u", None, {"id": 0, "status": "open", "n": 0}),
        tell(1, "d", {"id": 1}, None),
        Message(None, json.dumps({"id": 1})),
        tell(30, "u", {"id": 3}, moved),
    ]
    kafka.produce(topic, changes)
    door.run()
    assert door.rows("SELECT * FROM all_orders ORDER BY id") == [(0, "open", 0, 4), (2, "paid", 2, 2), (30, "paid", 3, 7)]
    assert door.rows("SELECT * FROM paid_orders ORDER BY nr") == [(2, 4, 2), (30, 6, 7)]


@pytest.mark.slow
def test_rows_of_a_topic_are_followed_by_a_key_of_the_sinks_own_or_refused(door: Door, kafka: Kafka) -> None:
    def row(number: int, email: str, amount: int) -> dict[str, Any]:
        return {"id": number, "email": email, "amount": amount}

    def tell(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Message:
        return Message(
            json.dumps({"op": op, "before": before, "after": after}), json.dumps({"id": (before or after or {})["id"]})
        )

    topic, compacted = kafka.create_topic(), kafka.create_topic()
    kafka.produce(topic, [tell("c", None, row(1, "a@x", 1)), tell("c", None, row(2, "b@x", 2))])
    kafka.produce(compacted, [Message(json.dumps(row(1, "a@x", 1)), json.dumps({"id": 1}))])
    source = "CREATE SOURCE {} (id bigint, email text, amount int) FROM KAFKA CONNECTION kafka (TOPIC '{}') KEY FORMAT JSON VALUE"
    door.sql(f"""CREATE CONNECTION kafka TO KAFKA (BROKER '{kafka.address()}');
                 {source.format("users", topic)} FORMAT JSON ENVELOPE DEBEZIUM;
                 CREATE VIEW v AS SELECT email, amount FROM users;
                 CREATE SINK s FROM v {into("emails", "KEY (email)")};
                 {source.format("latest", compacted)} FORMAT JSON ENVELOPE UPSERT;
                 CREATE VIEW w AS SELECT email, amount FROM latest;
                 CREATE SINK t FROM w {into("others", "KEY (email)")}""")
    door.run("s")
    kafka.produce(topic, [tell("u", row(1, "a@x", 1), row(1, "z@x", 1)), tell("u", row(2, "b@x", 2), row(2, "b@x", 3))])
    door.run("s")
    assert door.rows("SELECT * FROM s ORDER BY email") == [("b@x", 3), ("z@x", 1)]
    kafka.produce(topic, [tell("d", row(2, "b@x", 3), None), Message(None, json.dumps({"id": 2}))])
    door.run("s")
    assert door.rows("SELECT * FROM s") == [("z@x", 1)]
    with pytest.raises(FrazilError, match="by other columns in the source") as raised:
        door.run("t")
    assert (raised.value.code, "replica identity" in raised.value.fix) == ("key-differs", True)


@pytest.fixture
def database(postgres: Any) -> Iterator[Database]:
    with database_on(postgres) as made:
        yield made


def test_a_table_of_a_database_is_followed(door: Door, database: Database) -> None:
    database.run(
        "create table orders (id int primary key, item text)",
        "insert into orders select i, 'item ' || i from generate_series(1, 5) i",
        "create publication p for table orders",
    )
    server = database.server
    door.sql(f"""CREATE SECRET pw AS '{server.password}';
                 CREATE CONNECTION pg TO POSTGRES (HOST '{server.host}', PORT {server.port}, DATABASE '{database.name}',
                                                   USER '{server.user}', PASSWORD SECRET pw);
                 CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (orders);
                 CREATE SINK s FROM orders {into("orders")};""")
    assert door.sql("VALIDATE CONNECTION pg")[0].message.startswith("connected to PostgreSQL at")
    door.run()
    database.run("update orders set item = 'changed' where id = 2", "delete from orders where id = 3")
    door.run()
    assert door.rows("SELECT * FROM s ORDER BY id") == [(1, "item 1"), (2, "changed"), (4, "item 4"), (5, "item 5")]


@pytest.mark.slow
def test_rows_of_a_table_are_followed_by_a_key_of_the_sinks_own_where_it_logs_what_they_were(
    door: Door, database: Database
) -> None:
    database.run(
        "create table users (id int primary key, email text, amount int)",
        "insert into users values (1, 'a@x', 1), (2, 'b@x', 2), (3, null, 3)",
        "create publication p for table users",
    )
    server = database.server
    door.sql(f"""CREATE CONNECTION pg TO POSTGRES (HOST '{server.host}', PORT {server.port}, DATABASE '{database.name}',
                                                   USER '{server.user}', PASSWORD '{server.password}');
                 CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (users);
                 CREATE VIEW v AS SELECT email, amount FROM users WHERE email IS NOT NULL;""")
    for item in ("v", "users"):
        error = refused(door.session, f"CREATE SINK s FROM {item} {into('emails', 'KEY (email) MODE UPSERT')}")
        assert (error.code, "ALTER TABLE public.users REPLICA IDENTITY FULL" in error.fix) == ("sql-key", True)
    database.run("alter table users replica identity full")
    door.sql(f"CREATE SINK s FROM v {into('emails', 'KEY (email) MODE UPSERT')}")
    door.run()
    database.run("update users set email = 'z@x' where id = 1", "update users set amount = 9 where id = 2")
    door.run()
    assert door.rows("SELECT * FROM s ORDER BY email") == [("b@x", 9), ("z@x", 1)]
    database.run("delete from users where id >= 2")
    door.run()
    assert door.rows("SELECT * FROM s") == [("z@x", 1)]
