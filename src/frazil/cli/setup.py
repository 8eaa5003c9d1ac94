"""`frazil setup`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.cli.call import Call
from frazil.cli.jars import Components

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def setup(call: Call, components: Components = None) -> None:
    """Fetch the jars, and prepare Java's classes so that Spark starts in a third of the time. Once for each installation."""
    from frazil.spark.jars import needed_jars

    def say(text: str) -> None:
        call.output.say(text, "dim")

    jars = needed_jars(components or (), report=say)
    archive = _archive(say)
    if call.output.json:
        call.output.document({"jars": [str(jar) for jar in jars], "classes": archive and str(archive)})


def _archive(say: Callable[[str], None]) -> Path | None:
    from frazil.spark.class_archive import archive_of, make_archive

    if (there := archive_of()).is_file():
        return there
    say("preparing Java's classes, for quick starts: this takes about half a minute, once")
    made = make_archive(_typical_work)
    if made is None:
        say("this Java cannot keep its classes; Spark starts without")
    return made


def _typical_work(java_options: str) -> SparkSession:
    """What most pipelines do, so that the classes for it are known: read JSON, append, upsert in both ways, settle."""
    import frazil
    from frazil.model.settings import SparkSettings
    from frazil.spark.session import spark_session

    conf = {"spark.driver.extraJavaOptions": java_options, "spark.sql.shuffle.partitions": "1"}
    spark = spark_session(SparkSettings(master="local[2]", app_name="frazil-setup", conf=conf))
    with tempfile.TemporaryDirectory(prefix="frazil-setup-") as folder:
        lines = [json.dumps({"id": number, "name": f"n{number}", "at": "2026-11-15T12:00:00Z"}) for number in range(100)]
        Path(folder, "rows.json").write_text("\n".join(lines))
        rows = spark.read.schema("id long, name string, at timestamp").json(f"{folder}/rows.json")
        catalog = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}
        sink = frazil.sink(rows).catalog(type="sql", sql=catalog).to("lake.setup.rows").partition_by("day(at)")
        sink.write(batch="first")
        by_key = sink.keys("id").mode("upsert")
        for options in ({"upsert_strategy": "equality_delete"}, {"max_equality_deletes": 0}, {"upsert_strategy": "merge"}):
            by_key.options(**options).write()
    return spark
