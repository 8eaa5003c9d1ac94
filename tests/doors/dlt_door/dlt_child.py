"""A load that is killed at the worst moment: one table has all its rows and nobody was told, of two others only the nested."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dlt_lakes import DltLake, resource

from frazil.runtime.loads import Loader

APPENDED = threading.Event()


def main(folder: str, load: str) -> None:
    written = Loader._write

    def write(self: Loader, sink: Any, *rest: Any) -> Any:
        if sink.table == "t":
            APPENDED.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        done = written(self, sink, *rest)
        if sink.table == "log":
            APPENDED.set()
            threading.Event().wait()
        return done

    Loader._write = write  # type: ignore[method-assign]
    given = json.loads(load)
    pipeline = DltLake(Path(folder)).pipeline(spark_master="local[1]")
    pipeline.run([resource(given["t"], "t", **given["hints"]), resource(given["log"], "log")])


if __name__ == "__main__":
    main(*sys.argv[1:])
