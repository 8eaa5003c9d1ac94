"""Writes into tables of several kinds as fast as it can, until it is killed: ``writing.py FOLDER KIND...``."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

import frazil
from frazil.model.settings import RetrySettings, Settings, SparkSettings
from frazil.runtime.pump import Pump
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter
from soak.kinds import KINDS, Changes, Place

# The others take turns at one SQLite file.
PATIENT = RetrySettings(max_retries=50, initial_backoff_ms=5, max_backoff_ms=200)
ENDLESS = 10**9


def write(spark: SparkSession, place: Place) -> None:
    """Writes one table from where it ends; whatever stops that ends the process."""
    try:
        session = place.session(spark)
        writer = SinkWriter(WriterSetup(session, place.sink_id, place.kind.name, PATIENT, lambda _: None), place.sink())
        writer.open()
        Pump(writer, Changes(place.kind, ENDLESS, session), lambda _: None, retry=PATIENT).run(threading.Event(), once=True)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(1)


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    spark = frazil.session(Settings(spark=SparkSettings(master="local[2]")))
    places = [Place(Path(folder), kind) for kind in KINDS if kind.name in names]
    threads = [threading.Thread(target=write, args=(spark, place)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
