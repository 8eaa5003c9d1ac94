"""A user's own Structured Streaming query with a frazil sink: ``structured_streaming.py MOMENT NTH ACT FOLDER``.

The folder has JSON files with numbers in `in`; everything else is made there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import frazil
from exactly_once.programs.moments import act_at
from frazil.doors.python.sink import Sink
from frazil.model.settings import Settings, SparkSettings

SINK_ID = "numbers"


def numbers(spark: SparkSession, folder: Path) -> DataFrame:
    """One file a batch, in the order of their age."""
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(folder / "in"))


def described(frame: DataFrame, folder: Path, checkpoint: Path) -> Sink:
    """The sink, as a user writes it."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", (folder / "warehouse").as_uri()
    return (
        frazil.sink(frame)
        .to("lake.streams.numbers")
        .catalog(type="sql", sql={"uri": uri, "warehouse": warehouse})
        .id(SINK_ID)
        .checkpoint(checkpoint)
        .trigger(availableNow=True)
    )


if __name__ == "__main__":
    moment, nth, act, place = sys.argv[1:]
    act_at(moment, int(nth), act)
    session = frazil.session(Settings(spark=SparkSettings(master="local[1]")))
    described(numbers(session, Path(place)), Path(place), Path(place) / "checkpoint").start().awaitTermination()
