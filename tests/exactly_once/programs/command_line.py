"""frazil's command line, with something that happens to it on the way: ``command_line.py MOMENT NTH ACT FOLDER ARGUMENTS...``.

Runs in the folder, and prints its metrics when it ends. Every catalog counts as a slow one here: while a batch is committed, the
files of the next one are written.
"""

from __future__ import annotations

import os
import sys
from typing import ClassVar

from exactly_once.programs.moments import act_at
from frazil.cli import main
from frazil.observe.metrics import Metrics


class RecordingMetrics(Metrics):
    """Metrics that can be read after the end of the servers."""

    made: ClassVar[list[Metrics]] = []

    def __init__(self) -> None:
        super().__init__()
        RecordingMetrics.made.append(self)


if __name__ == "__main__":
    moment, nth, act, folder, *arguments = sys.argv[1:]
    if moment != "never":
        act_at(moment, int(nth), act)
    os.chdir(folder)
    import frazil.observe.metrics
    from frazil.runtime import pump

    pump.SLOW_COMMIT_SECONDS = 0.0
    frazil.observe.metrics.Metrics = RecordingMetrics  # type: ignore[misc]
    code = main(arguments)
    for metrics in RecordingMetrics.made:
        print(metrics.exposition().decode())
    sys.exit(code)
