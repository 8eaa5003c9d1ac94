"""Folders of files, read as they arrive, by a real Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

from frazil.columns.schema import data_columns, quoted
from frazil.errors import ConfigError, DataError, FrazilError
from frazil.model.hidden import ERROR, RAW
from frazil.model.source import FilesSource
from frazil.sources.base import Lag, Slice
from frazil.sources.failures import asking_spark
from frazil.sources.files import Files

MINUTE = 60
NOW = 1_800_000_000


def data_of(frame: DataFrame) -> DataFrame:
    """The columns that go into a table; a record that could not be read is an error here, as it is to a sink that stops."""
    if ERROR in frame.columns and (bad := frame.where(f"{ERROR} is not null").select(f"{ERROR}.*").first()) is not None:
        raise DataError(bad.code, bad.text)
    return frame.select(*(quoted(name) for name in data_columns(frame)))


class Inbox:
    """A folder, and what a pipeline does with it: plan, read, commit."""

    def __init__(
        self, spark: SparkSession, folder: Path, kind: str = "json", clock: Callable[[], float] = lambda: NOW, **settings: Any
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.clock = clock
        self.spec = FilesSource.model_validate({"path": str(folder), "format": kind, **settings})
        self.ledger: str | None = None
        self.restart()

    def restart(self) -> None:
        self.source = Files(self.spec, lambda: self.spark, clock=self.clock)

    def put(self, name: str, text: str, mtime: float = NOW) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (mtime, mtime))
        return path

    def plan(self, limit: int = 1_000_000) -> Slice | None:
        return self.source.plan(self.ledger, limit)

    def batch(self, limit: int = 1_000_000) -> list[str]:
        """Commits one batch; the names of its files."""
        part = self.plan(limit)
        if part is None:
            return []
        self.ledger = part.end
        return [entry.path for entry in part.detail]

    def records(self) -> DataFrame:
        part = self.plan()
        assert part is not None
        return self.source.read(part)

    def frame(self) -> DataFrame:
        return data_of(self.records())

    def rows(self) -> list[Row]:
        return self.frame().collect()

    def failure(self) -> FrazilError:
        """The error that a user sees, wherever Spark noticed."""
        try:
            frame = self.frame()
        except FrazilError as error:
            return error
        with pytest.raises(Exception) as caught:
            frame.write.format("noop").mode("overwrite").save()
        explained = self.source.explain(caught.value)
        assert explained is not None
        return explained


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "in box"
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


# Which files, when.


def test_an_empty_folder_has_nothing(spark: SparkSession, folder: Path) -> None:
    assert Inbox(spark, folder).batch() == []


def test_each_file_is_read_once_over_restarts(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("b.json", '{"id":1}\n', NOW - 20)
    inbox.put("a.json", '{"id":2}\n', NOW - 10)
    assert inbox.batch() == ["b.json", "a.json"]
    assert inbox.batch() == []
    inbox.restart()
    assert inbox.batch() == []
    inbox.put("moved-in.json", '{"id":3}\n', NOW - 30 * MINUTE)
    inbox.put("c.json", '{"id":4}\n', NOW)
    assert inbox.batch() == ["moved-in.json", "c.json"]


def test_a_batch_that_was_not_committed_is_planned_again(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("a.json", '{"id":1}\n')
    first = inbox.plan()
    inbox.put("b.json", '{"id":2}\n', NOW + 1)
    second = inbox.plan()
    assert first is not None
    assert second is not None
    assert [len(part.detail) for part in (first, second)] == [1, 2]
    assert data_of(inbox.source.read(first)).collect() == [Row(id=1)], "the first slice still means the same"


def test_files_of_the_same_time_are_read_in_the_order_of_names_also_over_batches(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    names = [f"part-{number:05}.json" for number in range(8)]
    for number, name in enumerate(names):
        inbox.put(name, f'{{"id":1,"n":{number}}}\n')
    assert [inbox.batch(limit=1) for _ in names] == [[name] for name in names]
    inbox.restart()
    assert inbox.batch() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_that_comes_after_the_clock_was_set_back_is_read(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture, restarts: bool
) -> None:
    """The clock of the test stands in 2027, and files come into the folder by the machine's clock, which is behind."""
    inbox = Inbox(spark, folder)
    inbox.put("a.json", '{"id":1}\n', NOW)
    assert inbox.batch() == ["a.json"]
    assert inbox.batch() == []
    if restarts:
        inbox.restart()
    inbox.put("b.json", '{"id":2}\n', NOW - 90_000)
    assert inbox.batch() == ["b.json"]
    inbox.restart()
    assert inbox.batch() == []
    assert caplog.messages == []


def test_late_files_are_read_in_order_over_restarts_and_a_batch_that_was_cut_off_is_found_again(
    spark: SparkSession, folder: Path
) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("old.json", '{"id":0}\n', NOW - 90_000)
    inbox.put("a.json", '{"id":1}\n', NOW)
    assert inbox.batch() == ["old.json", "a.json"]
    for number, name in enumerate(("older.json", "ancient.json", "b.json"), start=2):
        inbox.put(name, f'{{"id":{number}}}\n', NOW - 80_000 * (4 - number))
    inbox.restart()
    first = inbox.plan(1)
    assert first is not None, "and killed before it is committed"
    inbox.put("came-since.json", '{"id":7}\n', NOW - 200_000)
    inbox.restart()
    cut_off = inbox.source.between(inbox.ledger, first.end)
    assert cut_off.detail == first.detail
    inbox.ledger = first.end
    assert [inbox.batch(1) for _ in range(3)] == [["came-since.json"], ["ancient.json"], ["b.json"]]
    inbox.restart()
    assert inbox.batch() == []


def test_the_window_of_earlier_versions_is_accepted_and_reported(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Inbox(spark, folder, late_window_secs=60)
    assert "late_window_secs has no effect any more" in caplog.text


def test_the_limit_takes_whole_files_and_at_least_one(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    for number in range(4):
        inbox.put(f"{number}.json", '{"id":1, "text":"' + "x" * 400 + '"}\n', NOW + number)
    part = inbox.plan(limit=1)
    assert part is not None
    assert (len(part.detail), part.full) == (1, True)
    assert inbox.batch(limit=4) == ["0.json", "1.json"]
    part = inbox.plan(limit=100)
    assert part is not None
    assert (len(part.detail), part.full) == (2, False)


def test_estimates_learn_from_what_was_read(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("a.json", '{"id":1}\n' * 100)
    part = inbox.plan()
    assert part is not None
    assert part.rows is not None
    assert part.rows < 10
    inbox.source.observed(part, 100)
    again = inbox.plan()
    assert again is not None
    assert again.rows == 100


def test_local_parquet_files_tell_how_many_rows_they_have(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "parquet")
    spark.range(321).coalesce(1).write.mode("append").parquet(f"file:{folder}")
    part = inbox.plan()
    assert part is not None
    assert part.rows == inbox.source.total_rows(None) == 321
    assert inbox.source.total_rows(part.end) == 0


def test_a_changed_file_stops(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    path = inbox.put("a.json", '{"id":1}\n')
    part = inbox.plan()
    assert part is not None
    path.write_text('{"id":1}\n{"id":2}\n')
    with pytest.raises(DataError, match=r"a\.json changed while") as caught:
        inbox.source.read(part)
    assert caught.value.code == "file-changed"
    inbox.ledger = part.end
    with pytest.raises(DataError, match=r"a\.json was read before") as caught:
        inbox.plan()
    assert caught.value.code == "file-changed"
    path.unlink()
    assert inbox.batch() == [], "moving it out is the way on"


def test_a_missing_folder_is_reported_by_check_and_by_plan(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(spark, tmp_path / "none")
    for ask in (inbox.source.check, inbox.plan):
        with pytest.raises(ConfigError, match=r"none does not exist") as caught:
            ask()
        assert caught.value.code == "source-missing"


def test_another_place_or_pattern_is_another_source(spark: SparkSession, folder: Path) -> None:
    one = Inbox(spark, folder).source.fingerprint
    assert Inbox(spark, folder, "csv", options={"sep": ";"}).source.fingerprint == one, "how it is read may change"
    assert Inbox(spark, folder, path=folder.as_uri()).source.fingerprint == one
    assert Inbox(spark, folder, pattern="*.json").source.fingerprint != one
    assert Inbox(spark, folder / "x").source.fingerprint != one


@pytest.fixture
def elsewhere(spark: SparkSession, folder: Path) -> str:
    """The folder under an address of another file system, which only Spark can read."""
    cluster = f"c{uuid.uuid4().hex[:8]}"
    spark.conf.set(f"fs.viewfs.mounttable.{cluster}.link./in", folder.as_uri())
    return f"viewfs://{cluster}/in"


def test_a_folder_elsewhere_is_listed_and_read_by_spark(spark: SparkSession, folder: Path, elsewhere: str) -> None:
    inbox = Inbox(spark, folder, "csv", path=elsewhere, recursive=True, pattern="*.csv")
    inbox.put("a b.csv", "id,name\n1,one\n", NOW - 20)
    inbox.put("sub/b.csv", "name,id\ntwo,2\n", NOW - 10)
    inbox.put("_hidden.csv", "id\n9\n")
    assert sorted((row.id, row.name) for row in inbox.rows()) == [(1, "one"), (2, "two")]
    assert inbox.batch() == ["a b.csv", "sub/b.csv"]
    inbox.restart()
    assert inbox.batch() == []
    inbox.put("late.csv", "id,name\n3\n", NOW - 30 * MINUTE)
    failure = inbox.failure()
    assert (failure.code, failure.message.endswith(": 3")) == ("bad-record", True)
    assert f"{elsewhere}/late.csv" in failure.message
    shutil.rmtree(folder)
    with pytest.raises(ConfigError, match=elsewhere) as caught:
        inbox.source.check()
    assert caught.value.code == "source-missing"


def test_a_file_system_that_spark_does_not_have_is_named(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(ConfigError, match="gopher://host/in could not be read") as caught:
        Inbox(spark, folder, path="gopher://host/in").source.check()
    assert caught.value.code == "source-driver-missing"
    assert "\n" not in caught.value.message


# What is read.


def test_json_columns_are_those_of_all_files(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("a.json", '{"id":1,"at":{"x":1}}\n')
    inbox.put("b.json", '{"id":2.5,"new":["p"]}\n')
    rows = sorted(inbox.rows(), key=lambda row: row.id)
    assert rows == [Row(at=Row(x=1), id=1.0, new=None), Row(at=None, id=2.5, new=["p"])]


@pytest.mark.parametrize(("kind", "text"), [("json", '{"id":1,"_metadata":{"file_path":"x"}}\n'), ("csv", "id,_metadata\n1,x\n")])
def test_a_field_may_be_named_as_spark_names_what_it_knows_of_files(
    spark: SparkSession, folder: Path, kind: str, text: str
) -> None:
    inbox = Inbox(spark, folder, kind)
    inbox.put(f"a.{kind}", text)
    inbox.put(f"b.{kind}", text)
    (row, _) = inbox.rows()
    assert row.id == 1
    assert row["_metadata"] in ("x", Row(file_path="x"))
    broken = Inbox(spark, folder, "json", schema={"id": "int", "_metadata": "string"})
    broken.put("c.json", '{"id":"?","_metadata":1}\n')
    assert "c.json" in broken.failure().message


def test_declared_json_columns_are_read_as_declared(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, schema={"id": "decimal(10, 2)", "when": "timestamptz", "missing": "list<int>"})
    inbox.put("a.json", '{"id":1.25,"when":"2027-01-15T08:00:00+02:00","extra":1}\n')
    frame = inbox.frame()
    assert frame.dtypes == [("id", "decimal(10,2)"), ("when", "timestamp"), ("missing", "array<int>")]
    row = frame.selectExpr("cast(id AS string) AS id", "unix_seconds(when) AS s", "missing").collect()[0]
    assert row == Row(id="1.25", s=1_799_992_800, missing=None)


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_declared_values_are_what_was_written(spark: SparkSession, folder: Path, kind: str) -> None:
    """Spark's reader would round, take numbers for seconds, and cut digits off."""
    schema = {"id": "long", "amount": "decimal(10, 2)", "at": "timestamptz", "day": "date"}
    inbox = Inbox(spark, folder, kind, schema=schema)
    good = ("1", "1.25", '"2027-01-15T08:00:00.123456Z"', '"2027-01-15"')
    bad = {
        "amount": ("2", "1.255", '"2027-01-15T08:00:00Z"', '"2027-01-15"'),
        "at": ("3", "1.25", '"2027-01-15T08:00:00.1234567Z"', '"2027-01-15"'),
        "day": ("4", "1.25", '"2027-01-15T08:00:00Z"', '"2027-01-15T23:00:00"'),
    }

    def written(row: tuple[str, ...]) -> str:
        pairs = ", ".join(f'"{name}": {value}' for name, value in zip(schema, row, strict=True))
        return ",".join(row) if kind == "csv" else f"{{{pairs}}}"

    inbox.put("a.x", "\n".join([*([",".join(schema)] if kind == "csv" else []), written(good), *map(written, bad.values())]))
    rows = inbox.records().selectExpr("*", "date_format(at, 'HH:mm:ss.SSSSSS') s").orderBy(ERROR).collect()
    assert [(row.id, str(row.amount), str(row.day), row.s) for row in rows if row[ERROR] is None] == [
        (1, "1.25", "2027-01-15", "08:00:00.123456")
    ]
    astray = {row[ERROR].text.partition("column ")[2].split("'")[1]: row for row in rows if row[ERROR] is not None}
    assert astray.keys() == bad.keys()
    for name, row in astray.items():
        value = bad[name][list(schema).index(name)].strip('"')
        assert (row[ERROR].code, row.id) == ("bad-record", None)
        assert "a.x has a record that does not fit: " in row[ERROR].text
        assert value in row[ERROR].text
        assert value in row[RAW].decode()


@pytest.mark.parametrize("options", [{}, {"encoding": "utf-8"}, {"encoding": "UTF-16LE", "lineSep": "\n"}])
def test_numbers_in_json_keep_their_digits_or_are_refused_in_every_encoding(
    spark: SparkSession, folder: Path, options: dict[str, str]
) -> None:
    inbox = Inbox(spark, folder, schema={"d": "decimal(20, 2)"}, options=options)
    wrong = ("1e-400", '"1e-400"', f"1.{'0' * 44}1", "1.255")
    text = "\n".join(f'{{"d": {number}}}' for number in ("12345678901234567.89", '"15e-1"', *wrong))
    (folder / "a.json").write_bytes(text.encode(options.get("encoding", "utf-8")))
    rows = inbox.records().select("d", ERROR).collect()
    assert [str(row.d) for row in rows if row[ERROR] is None] == ["12345678901234567.89", "1.50"]
    assert len(rows) == 2 + len(wrong)


@pytest.mark.parametrize(
    ("kind", "text", "settings"),
    [
        ("csv", "day,at\n2026-01-02,\n0000-01-01,\n,9999-12-31T23:59:59-14:00\n", {}),
        (
            "csv",
            "day,at\n2026-01-02,\n0000-01-01,\n,9999-12-31T23:59:59-14:00\n",
            {"schema": {"day": "date", "at": "timestamptz"}},
        ),
        (
            "json",
            '{"day": "02.01.2026"}\n{"day": "01.01.+10000"}\n',
            {"schema": {"day": "date"}, "options": {"dateFormat": "dd.MM.y"}},
        ),
    ],
    ids=["found", "declared", "as-an-option-says"],
)
def test_years_that_python_does_not_have_are_refused(
    spark: SparkSession, folder: Path, kind: str, text: str, settings: dict[str, Any]
) -> None:
    inbox = Inbox(spark, folder, kind, **settings)
    inbox.put("a.x", text)
    rows = inbox.records().selectExpr("string(day) day", f"{ERROR} error", f"string({RAW}) raw").collect()
    assert [row.day for row in rows if row.error is None] == ["2026-01-02"]
    refused = [row for row in rows if row.error is not None]
    assert len(refused) == len(text.splitlines()) - (2 if kind == "csv" else 1)
    for row in refused:
        assert (row.error.code, row.day) == ("bad-record", None)
        assert "a.x has a record that" in row.error.text
        assert row.raw


def test_options_that_say_what_values_look_like_are_followed(spark: SparkSession, folder: Path) -> None:
    options = {"timestampFormat": "dd.MM.yyyy HH:mm", "dateFormat": "dd.MM.yy"}
    inbox = Inbox(spark, folder, schema={"at": "timestamptz", "day": "date"}, options=options)
    inbox.put("a.json", '{"at": "15.01.2027 08:00", "day": "16.01.27"}\n')
    assert inbox.frame().selectExpr("date_format(at, 'yyyy-MM-dd HH:mm') a", "string(day) d").collect() == [
        Row(a="2027-01-15 08:00", d="2027-01-16")
    ]


@pytest.mark.parametrize("name", ["a b.json", "a%20b.json", "a[1].json", "a{b,c}.json", "ü?*.json", "a,b.json", "a#b.json"])
def test_names_are_taken_as_they_are(spark: SparkSession, folder: Path, name: str) -> None:
    inbox = Inbox(spark, folder, schema={"id": "int"})
    inbox.put(name, '{"id":1}\n')
    assert inbox.rows() == [Row(id=1)]
    inbox.put(name + "x", '{"id":oops}\n', NOW + 1)
    assert name in inbox.failure().message


def test_folders_within_do_not_become_columns(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, recursive=True)
    inbox.put("day=1/a.json", '{"id":1}\n')
    inbox.put("day=2/b.json", '{"id":2}\n')
    assert sorted(inbox.rows()) == [Row(id=1), Row(id=2)]


def test_csv_columns_go_by_the_header(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "csv")
    inbox.put("a.csv", "id,name\n1,one\n2,two\n")
    inbox.put("b.csv", "name,id\nthree,3\n")
    inbox.put("c.csv", "\nid,price\n4,1.5\n")
    inbox.put("blank.csv", "\n\n")
    frame = inbox.frame()
    assert dict(frame.dtypes) == {"id": "int", "name": "string", "price": "double"}
    rows = sorted(tuple(row[name] for name in ("id", "name", "price")) for row in frame.collect())
    assert rows == [(1, "one", None), (2, "two", None), (3, "three", None), (4, None, 1.5)]


def test_csv_types_that_do_not_meet_become_text_as_it_stands(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "csv")
    inbox.put("a.csv", "id,code\n1,007\n")
    inbox.put("b.csv", "code,id\nx7,2\n")
    assert sorted((row.id, row.code) for row in inbox.rows()) == [(1, "007"), (2, "x7")]


def test_declared_csv_columns_go_by_name_too(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "csv", schema={"id": "long", "name": "string", "none": "date"}, options={"sep": ";"})
    inbox.put("a.csv", "name;extra;id\none;x;1\n")
    frame = inbox.frame()
    assert frame.dtypes == [("id", "bigint"), ("name", "string"), ("none", "date")]
    assert frame.collect() == [Row(id=1, name="one", none=None)]


def test_csv_without_a_header_goes_by_position(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "csv", options={"header": False}, schema={"id": "long", "name": "string"})
    inbox.put("a.csv", "1,one\n")
    inbox.put("b.csv", "2,two\n")
    assert sorted(inbox.rows()) == [Row(id=1, name="one"), Row(id=2, name="two")]


def test_files_with_nothing_but_blank_lines_have_no_rows(spark: SparkSession, folder: Path) -> None:
    for kind in ("json", "csv"):
        inbox = Inbox(spark, folder, kind, pattern=f"*.{kind}")
        inbox.put(f"a.{kind}", "\n")
        inbox.put(f"b.{kind}", "\n")
        assert inbox.rows() == []


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_an_evolved_file_shows_its_new_columns(spark: SparkSession, folder: Path, kind: str) -> None:
    inbox = Inbox(spark, folder, kind)
    for query in ("1L AS id, named_struct('x', 1) AS s", "2L AS id, 'n' AS name, named_struct('x', 2, 'y', 'z') AS s"):
        spark.sql(f"SELECT {query}").write.format(kind).mode("append").save(f"file:{folder}")
    rows = sorted((row.id, row.name, row.s.x, row.s.y) for row in inbox.rows())
    assert rows == [(1, None, 1, None), (2, "n", 2, "z")]


def test_avro_columns_widen(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "avro")
    spark.sql("SELECT 1 AS id, float(1) AS f").write.format("avro").mode("append").save(f"file:{folder}")
    spark.sql("SELECT 5000000000L AS id, 2D AS f").write.format("avro").mode("append").save(f"file:{folder}")
    assert sorted((row.id, row.f) for row in inbox.rows()) == [(1, 1.0), (5_000_000_000, 2.0)]


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_columns_that_do_not_fit_together_stop_until_they_are_declared(spark: SparkSession, folder: Path, kind: str) -> None:
    spark.sql("SELECT 1 AS id").write.format(kind).mode("append").save(f"file:{folder}")
    spark.sql("SELECT 'x' AS id").write.format(kind).mode("append").save(f"file:{folder}")
    failure = Inbox(spark, folder, kind).failure()
    assert (type(failure), failure.code) == (DataError, "file-schemas-conflict")
    assert "schema" in failure.fix


def test_parquet_of_two_widths_is_read_once_declared(spark: SparkSession, folder: Path) -> None:
    spark.sql("SELECT 1 AS id").write.mode("append").parquet(f"file:{folder}")
    spark.sql("SELECT 5000000000L AS id").write.mode("append").parquet(f"file:{folder}")
    assert sorted(Inbox(spark, folder, "parquet", schema={"id": "long"}).rows()) == [Row(id=1), Row(id=5_000_000_000)]


# What cannot be read.


@pytest.mark.parametrize(
    ("kind", "schema", "text", "shown"),
    [
        ("json", {}, '{"id":1}\n{"id": \n', '{"id":'),
        ("json", {"id": "int", "n": "int"}, '{"id":1}\n{"id":2,"n":"x"}\n', '{"id":2,"n":"x"}'),
        ("csv", {}, "a,b\n1,2\n3\n", ": 3"),
        ("csv", {"b": "int"}, "a,b\n1,2\nlong text,x\n", "long text,x"),
    ],
)
def test_a_record_that_cannot_be_read_is_shown_with_its_file(
    spark: SparkSession, folder: Path, kind: str, schema: dict[str, str], text: str, shown: str
) -> None:
    inbox = Inbox(spark, folder, kind, schema=schema)
    inbox.put("good.x", text.splitlines()[0] + "\n" + (text.splitlines()[1] + "\n" if kind == "csv" else ""))
    inbox.put("bad one.x", text)
    failure = inbox.failure()
    assert (type(failure), failure.code) == (DataError, "bad-record")
    assert "bad one.x" in failure.message
    assert failure.message.endswith(shown)


def test_a_long_record_is_cut(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("a.json", '{"id":"' + "x" * 5000 + "\n")
    assert len(inbox.failure().message) < 500


@pytest.mark.parametrize("schema", [{}, {"id": "int"}])
@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_file_of_another_format_is_named(spark: SparkSession, folder: Path, kind: str, schema: dict[str, str]) -> None:
    inbox = Inbox(spark, folder, kind, schema=schema)
    inbox.put("not.really", "just text, and enough of it")
    failure = inbox.failure()
    assert (type(failure), failure.code) == (DataError, "file-unreadable")
    assert "not.really" in failure.message
    assert "Exception" not in failure.message
    assert "\n" not in failure.message


ODD_PARQUET = {
    "FLOAT16": pyarrow.array([None], pyarrow.float16()),
    "TIME": pyarrow.array([dt.time(1, 2)]),
    "TIMESTAMP(NANOS)": pyarrow.array([1], pyarrow.timestamp("ns")),
    "DECIMAL(50, 2)": pyarrow.array([None], pyarrow.decimal256(50, 2)),
}


def test_parquet_files_with_types_that_spark_does_not_know_are_reported_with_column_and_type(
    spark: SparkSession, folder: Path
) -> None:
    inbox = Inbox(spark, folder, "parquet")
    for number, values in enumerate(ODD_PARQUET.values()):
        pyarrow.parquet.write_table(pyarrow.table({"id": [number], "odd": values}), folder / f"{number}.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"id": [7]}), folder / "good.parquet")
    inbox.put("not.really", "just text, and enough of it")
    rows = inbox.records().collect()
    (good,) = [row for row in rows if row[ERROR] is None]
    assert good.id == 7
    messages = {row[ERROR].text for row in rows if row[ERROR] is not None}
    assert {row[ERROR].code for row in rows if row[ERROR] is not None} == {"file-unreadable"}
    assert messages == {
        f"The file file:{folder}/{number}.parquet cannot be read as parquet: Spark cannot read its column 'odd', "
        f"which is of type {kind}"
        for number, kind in enumerate(ODD_PARQUET)
    } | {
        f"The file file:{folder}/not.really cannot be read as parquet: it has no footer of Parquet: "
        "it is another format, or not whole"
    }


def test_a_declared_column_of_another_type_in_parquet_is_reported_with_both_types(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "parquet", schema={"odd": "timestamp"})
    pyarrow.parquet.write_table(pyarrow.table({"odd": ODD_PARQUET["TIMESTAMP(NANOS)"]}), folder / "a.parquet")
    failure = inbox.failure()
    assert (type(failure), failure.code) == (DataError, "file-unreadable")
    assert failure.message.endswith("its column 'odd' is of type INT64, and not timestamp_ntz")


def test_a_file_that_was_set_aside_is_reported_with_its_own_slice_alone(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "parquet", schema={"id": "long"})
    for name, values in (("a", [1]), ("b", ["x"])):
        pyarrow.parquet.write_table(pyarrow.table({"id": values}), folder / f"{name}.parquet")
        os.utime(folder / f"{name}.parquet", (NOW, NOW))
    both, first = inbox.plan(), inbox.plan(limit=1)
    assert both is not None
    assert first is not None
    with pytest.raises(Exception, match="DATA_TYPE_MISMATCH") as raised:
        inbox.source.read(both).collect()
    error = inbox.source.explain(raised.value)
    assert error is not None
    assert inbox.source.set_aside(error)
    assert [row[ERROR] is not None for row in inbox.source.read(both).orderBy("id").collect()] == [True, False]
    assert [row.id for row in inbox.source.read(first).collect()] == [1]


def test_a_format_whose_jars_the_session_lacks_is_a_config_error() -> None:
    with (
        pytest.raises(ConfigError, match="Failed to find data source: avro") as caught,
        asking_spark("The folder /in"),
    ):
        raise AnalysisException(
            "Failed to find data source: avro. Avro is built-in but external data source module since Spark 2.4."
        )
    assert caught.value.code == "source-driver-missing"


def test_an_option_that_spark_refuses_is_a_config_error_at_once(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, options={"multiLine": "perhaps"})
    inbox.put("a.json", '{"id":1}\n')
    failure = inbox.failure()
    assert (type(failure), failure.code) == (ConfigError, "source-not-readable")
    assert "perhaps" in failure.message


def test_a_file_removed_between_plan_and_read_is_named(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, schema={"id": "int"})
    path = inbox.put("a.json", '{"id":1}\n')
    part = inbox.plan()
    assert part is not None
    frame = inbox.source.read(part)
    path.unlink()
    with pytest.raises(Exception) as caught:
        frame.collect()
    explained = inbox.source.explain(caught.value)
    assert explained is not None
    with pytest.raises(DataError) as at_once:
        inbox.source.read(part)
    for error in (explained, at_once.value):
        assert error.code == "file-missing"
        assert "a.json" in error.message


def test_what_is_not_about_files_is_left_to_others(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("a.json", '{"id":1}\n')
    inbox.plan()
    assert inbox.source.explain(RuntimeError("the catalog is down")) is None


@pytest.mark.parametrize(
    ("options", "hint"),
    [({"mode": "PERMISSIVE"}, "hide"), ({"Mode": "dropmalformed"}, "hide"), ({"pathGlobFilter": "*.x"}, "pattern")],
)
def test_options_that_would_hide_rows_are_refused(spark: SparkSession, folder: Path, options: dict[str, str], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Inbox(spark, folder, options=options)
    assert caught.value.code == "source-option"
    assert hint in str(caught.value)


def test_a_type_that_the_format_cannot_have_is_a_config_error(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder, "csv", schema={"id": "struct<a: int>"})
    inbox.put("a.csv", "id\n1\n")
    failure = inbox.failure()
    assert (type(failure), failure.code) == (ConfigError, "source-schema")


def test_a_position_is_small_and_readable(spark: SparkSession, folder: Path) -> None:
    inbox = Inbox(spark, folder)
    inbox.put("a.json", '{"id":1}\n')
    inbox.batch()
    assert inbox.ledger is not None
    assert json.loads(inbox.ledger).keys() == {"seen"}


def test_how_far_it_is_behind_is_known_in_bytes_and_seconds(spark: SparkSession, tmp_path: Path) -> None:
    inbox = Inbox(spark, tmp_path)
    assert inbox.source.lag(None) == Lag(bytes=0, seconds=0.0)
    first = inbox.put("a.json", '{"n": 1}', NOW - 2 * MINUTE)
    second = inbox.put("b.json", '{"n": 22}', NOW - MINUTE)
    assert inbox.source.lag(None) == Lag(bytes=first.stat().st_size + second.stat().st_size, seconds=2 * MINUTE)
    assert inbox.batch(limit=1) == ["a.json"]
    assert inbox.source.lag(inbox.ledger) == Lag(bytes=second.stat().st_size, seconds=MINUTE)
