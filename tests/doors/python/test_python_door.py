"""`frazil.sink(...)` and `frazil.run(...)`, as a program uses them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import frazil
from frazil.model.catalog import CatalogSpec
from frazil.model.events import CommitFailed, Event
from frazil.model.settings import RetrySettings, Settings, SparkSettings
from frazil.model.sink import SinkSpec
from frazil.spark import session as sessions
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from helpers.lakes import Lake, commits
from services.faults import refused as refused_by_catalog
from services.faulty_rest import FaultyRest
from services.rest_catalog import RestCatalog


def stream(lake: Lake, *batches: str) -> Any:
    """A streaming data frame that reads one file a micro-batch, in the order given."""
    folder = lake.folder / "stream"
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(batches, start=len(list(folder.iterdir()))):
        (folder / f"{number:03}.csv").write_text(text)
    reader = lake.spark.readStream.schema("id int, name string").option("maxFilesPerTrigger", 1)
    return reader.csv(str(folder))


def finish(query: Any) -> None:
    query.awaitTermination(120)
    assert query.exception() is None


def test_every_step_gives_a_new_sink_and_leaves_the_old_one_as_it_was(lake: Lake) -> None:
    base = lake.sink("select 1 id, 'x' name")
    keyed = base.keys("id").mode("append").partition_by("bucket(2, id)").id("mine")
    assert (base.spec.key_fields, base.spec.partition_by, base.spec.id) == ((), (), None)
    assert (keyed.spec.key_fields, keyed.spec.id) == (("id",), "mine")
    assert [str(field) for field in keyed.spec.partition_by] == ["bucket(2, id)"]
    with pytest.raises(AttributeError):
        base.frame = None  # type: ignore[misc]


def test_a_write_says_what_it_did(lake: Lake) -> None:
    events: list[Event] = []
    done = lake.sink("select id from range(5)").listen(events.append).write()
    assert (done.counts.written, done.batch, done.skipped, done.table) == (5, 1, False, "db.t")
    assert done.snapshot == lake.data_snapshots()[-1].snapshot_id
    assert commits(events) == [done]


def test_what_a_running_spark_cannot_be_given_any_more_is_reported(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test may have given this process the jars.
    monkeypatch.setitem(sessions._CLASSES, "gcp", "of.no.Jar")
    with pytest.raises(frazil.FrazilError, match="without the jars of gcp") as caught:
        lake.sink("select 1 id").options(gcs={"project_id": "p"}).write()
    assert caught.value.code == "jars-missing"
    glue = {"type": "glue", "name": "glue", "warehouse": "/lake", "glue": {"region": "eu-west-1", "profile": "of-another"}}
    settings = catalog_settings(frazil.sink().catalog(**glue).options(namespace="db", table="t").spec)
    with pytest.raises(frazil.FrazilError, match="without AWS_PROFILE, which") as caught:
        session_for(lake.spark, replace(settings, components=("core",)))
    assert caught.value.code == "credentials-late"


def test_writes_without_a_name_all_count(lake: Lake) -> None:
    sink = lake.sink("select 1 id")
    assert [sink.write().batch, sink.write().batch] == [1, 2]
    assert lake.rows() == [(1,), (1,)]


def test_a_write_with_a_name_counts_once(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    first = lake.sink("select 1 id").write(batch="monday")
    again = lake.sink("select 1 id").write(batch="monday")
    lake.sink("select 2 id").write(batch="tuesday")
    late = lake.sink("select 1 id").write(batch="monday")
    assert [done.skipped for done in (first, again, late)] == [False, True, True]
    assert (again.counts.written, late.counts.written) == (0, 0)
    messages = [record.getMessage() for record in caplog.records if record.name == "frazil.python"]
    assert len(messages) == 2
    assert messages[0].startswith("db.t has the batch 'monday' of 'python/db.t' already: nothing was written.")
    assert lake.rows() == [(1,), (2,)]


@pytest.mark.slow
def test_a_name_outlives_the_snapshot_of_its_write(lake: Lake) -> None:
    for day in ("monday", "tuesday", "wednesday"):
        lake.sink(f"select '{day}' day").write(batch=day)
    call = "expire_snapshots(table => 'db.t', older_than => timestamp'2100-01-01', retain_last => 1)"
    lake.spark.sql(f"CALL {lake.name}.system.{call}").collect()
    assert len(lake.meta("snapshots")) == 1
    assert lake.sink("select 'monday' day").write(batch="monday").skipped
    assert not lake.sink("select 'thursday' day").write(batch="thursday").skipped
    assert lake.count() == 4


def test_the_order_of_to_and_catalog_does_not_matter(lake: Lake) -> None:
    settings = {key: value for key, value in lake.catalog.items() if key != "name"}
    frazil.sink(lake.frame("select 1 id")).to(f"{lake.name}.db.t").catalog(**settings).write()
    frazil.sink(lake.frame("select 2 id")).catalog(**settings).to(f"{lake.name}.db.t").write()
    assert lake.rows() == [(1,), (2,)]


def test_a_catalog_that_was_given_as_a_value_can_be_named_and_replaced() -> None:
    given = CatalogSpec.model_validate({"type": "sql", "name": "lake", "sql": {"uri": "sqlite:///c.db", "warehouse": "w"}})
    described = frazil.sink().options(catalog=given, namespace="db", table="t")
    assert described.catalog(type="memory").spec.catalog == CatalogSpec.model_validate({"type": "memory", "name": "lake"})
    assert described.to("other.db.t").spec.catalog == given.model_copy(update={"name": "other"})


def test_for_each_batch_of_a_users_own_query(lake: Lake, tmp_path: Path) -> None:
    lake.introduced()
    for batches in (["1,a\n2,b", "3,c"], ["4,d"]):
        frame = stream(lake, *batches)
        writer = frame.writeStream.foreachBatch(lake.sink(None)).option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(writer.trigger(availableNow=True).start())
    assert lake.rows() == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert [snapshot.summary["frazil.rows-out"] for snapshot in lake.data_snapshots()] == ["2", "1", "1"]


def test_a_batch_that_spark_repeats_is_written_once(lake: Lake, tmp_path: Path) -> None:
    lake.introduced()
    checkpoint = tmp_path / "checkpoint"
    sink = lake.sink(stream(lake, "1,a", "2,b")).checkpoint(checkpoint).trigger(availableNow=True)
    finish(sink.start())
    newest = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    newest.unlink()  # as if the process had died between the table's commit and Spark's own
    (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
    finish(sink.start())
    assert lake.rows() == [(1, "a"), (2, "b")]


def test_another_checkpoint_on_the_same_sink_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake.introduced()
    sink = lake.sink(stream(lake, "1,a")).trigger(availableNow=True)
    finish(sink.checkpoint(tmp_path / "one").start())
    query = sink.checkpoint(tmp_path / "two").start()
    with pytest.raises(Exception, match="written through another checkpoint"):
        query.awaitTermination(120)
    assert lake.rows() == [(1, "a")]


def test_a_sink_that_another_took_over_from_can_be_started_again(lake: Lake, tmp_path: Path) -> None:
    def begun(sink: frazil.Sink, number: int) -> Any:
        query = stream(lake, f"{number},x").writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
        return query.trigger(availableNow=True).start()

    mine = lake.sink(None)
    finish(begun(mine, 1))
    finish(begun(lake.sink(None), 2))
    with pytest.raises(StreamingQueryException, match="Another instance"):
        begun(mine, 3).awaitTermination(120)
    finish(begun(mine, 4))
    started = lake.sink(stream(lake, "5,x")).checkpoint(tmp_path / "c").trigger(availableNow=True)
    finish(started.start())
    finish(begun(lake.sink(None), 6))
    stream(lake, "7,x")
    finish(started.start())
    assert lake.introduced().rows("id") == [(number,) for number in range(1, 8)]


def test_a_table_is_filled_by_writes_and_by_a_stream(lake: Lake, tmp_path: Path) -> None:
    lake.introduced()

    def run(text: str, checkpoint: str, **options: Any) -> None:
        sink = lake.sink(stream(lake, text), **options).trigger(availableNow=True)
        finish(sink.checkpoint(tmp_path / checkpoint).start())

    lake.sink("select 0 id, 'w' name").write(batch="first")
    run("1,a", "one")
    lake.sink("select 2 id, 'w' name").write(batch="second")
    run("3,b", "one")
    assert lake.rows() == [(0, "w"), (1, "a"), (2, "w"), (3, "b")]
    with pytest.raises(frazil.Halted, match=r"'python-stream/db\.t' is in the ledger of db\.t for a stream"):
        lake.sink("select 6 id, 'w' name").id("python-stream/db.t").write()
    with pytest.raises(Exception, match=r"'python/db\.t' is in the ledger of db\.t for single writes"):
        run("6,e", "three", id="python/db.t")


@pytest.mark.parametrize("name", ["t", "db.t", "lake..t", ""])
def test_a_table_needs_its_catalog_and_namespace(name: str) -> None:
    with pytest.raises(frazil.ConfigError, match=r"is not catalog\.namespace\.table") as caught:
        frazil.sink().to(name)
    assert "lake.sales.orders" in caught.value.fix


def test_wrong_calls_say_what_to_call_instead(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match=r"There is no data frame[^$]*Begin with frazil.sink\(df\)"):
        lake.sink(None).write()
    with pytest.raises(frazil.ConfigError, match=r"not a streaming data frame[^$]*Call write\(\)"):
        lake.sink("select 1 id").start()
    streaming = lake.sink(stream(lake, "1,a"))
    with pytest.raises(frazil.ConfigError, match=r"This is a streaming data frame[^$]*Call start\(\)"):
        streaming.write()
    with pytest.raises(frazil.ConfigError, match="needs a checkpoint"):
        streaming.start()
    assert lake.nothing_written()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_sise": 5}, "batch_sise"),
        ({"batch_size": 0}, "batch_size"),
        ({"target_file_size_mb": 2000}, "target_file_size_mb"),
        ({"compression": "rar"}, "compression"),
        (
            {"file_format": "avro", "compression": "lz4"},
            "avro files cannot be compressed with lz4; known: none, snappy, gzip, zstd",
        ),
        ({"commit_mode": "upsert"}, "upsert sinks must specify a key"),
        ({"partition_by": ["weekly(ts)"]}, "unknown transform 'weekly'"),
    ],
)
def test_a_wrong_option_is_reported_before_anything_is_done(lake: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(frazil.ConfigError) as caught:
        lake.sink("select 1 id", **options).write()
    assert message in str(caught.value)
    assert lake.nothing_written()


def test_every_option_of_a_sink_and_of_retries_can_be_described() -> None:
    for method, model in (("options", SinkSpec), ("retry", RetrySettings)):
        prefix = "retry." if model is RetrySettings else ""
        for key in (field.alias or name for name, field in model.model_fields.items()):
            with pytest.raises(frazil.ConfigError) as caught:
                refused(getattr(frazil.sink().to("lake.db.t"), method)(**{f"{key}x": 1}))
            assert f"{prefix}{key}x: there is no option of this name.\nDid you mean '{key}'?" in str(caught.value)
            try:
                refused(getattr(frazil.sink().to("lake.db.t"), method)(**{key: object()}))
            except frazil.ConfigError as error:
                assert f"{prefix}{key}: there is no option" not in str(error)  # noqa: PT017 - the error may be about the value


def refused(sink: Any) -> None:
    """Looks at all that was said of a sink, which raises what is wrong with it."""
    assert sink.spec
    assert sink.retry_settings


def test_retries_are_those_that_were_asked_for(rest_catalog: RestCatalog, faulty_rest: FaultyRest, spark: SparkSession) -> None:
    events: list[Event] = []
    sink = (
        frazil.sink(spark.range(1)).catalog(type="rest", rest={"uri": faulty_rest.uri}).to("lake.tries.t").listen(events.append)
    )
    sink.write()
    faulty_rest.script([refused_by_catalog(503)] * 10)
    with pytest.raises(frazil.Retryable):
        sink.retry(max_retries=2, initial_backoff_ms=1).write()
    assert len([event for event in events if isinstance(event, CommitFailed)]) == 3


def test_a_session_that_runs_takes_the_settings_that_it_can_and_refuses_others(spark: SparkSession) -> None:
    def session(**settings: Any) -> SparkSession:
        return frazil.session(Settings(spark=SparkSettings(**settings)))

    with pytest.raises(frazil.ConfigError, match=r"already, with spark\.master=local\[2\], and local\[7\] is asked for"):
        session(master="local[7]")
    option = "spark.sql.files.maxPartitionBytes"
    try:
        assert session(master="local[2]", conf={option: "1000000"}).conf.get(option) == "1000000"
    finally:
        spark.conf.unset(option)


@pytest.mark.slow
def test_a_session_without_iceberg_is_refused() -> None:
    code = (
        "import frazil\n"
        "from frazil.spark.java import java_home\n"
        "import os; os.environ['JAVA_HOME'] = str(java_home())\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "try:\n"
        "    frazil.sink(spark.range(1)).catalog(type='memory').to('lake.db.t').write()\n"
        "except frazil.EnvironmentFault as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "was started without Iceberg's extensions" in done.stdout
    assert "spark.sql.extensions=org.apache.iceberg" in done.stdout


def pipeline_file(lake: Lake, **extra: str) -> Path:
    path = lake.folder / "pipeline.yaml"
    path.write_text(
        f"""
version: 1
sources:
  events: {{connector: generator, config: {{rows: 30}}}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog:
        type: sql
        name: {lake.name}
        sql: {{uri: "sqlite:///{lake.folder / "catalog.db"}", warehouse: "${{PLACE}}"}}
      namespace: db
      table: t
      batch_size: 20
pipelines:
  events: {{source: events, sink: lake}}
  asleep: {{source: events, sink: lake, enabled: false}}
"""
    )
    return path


def test_a_file_is_run(lake: Lake) -> None:
    events: list[Event] = []
    file = pipeline_file(lake)
    frazil.run(file, once=True, env={"PLACE": str(lake.folder / "warehouse")}, listeners=[events.append])
    assert [done.counts.written for done in commits(events)] == [20, 10]
    assert lake.count() == 30
    assert all(path.is_relative_to(lake.folder / "warehouse") for path in lake.files())


def test_a_pipeline_that_is_not_in_the_file_is_reported(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match=r"no pipeline 'evnets'[^$]*events, asleep"):
        frazil.run(pipeline_file(lake), only=["evnets"], env={"PLACE": "/lake"})
    assert lake.nothing_written()


def test_an_unset_variable_of_a_file_is_reported_with_its_place(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match=r"pipeline\.yaml:\d+:\d+") as caught:
        frazil.run(pipeline_file(lake), env={})
    assert "PLACE" in str(caught.value)
