"""A pipeline from files into many tables and one of dead letters: ``routing.py MOMENT NTH ACT FOLDER``.

Each file is a batch. It can be started again and again: each start goes on where the tables end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exactly_once.programs.moments import act_at
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.settings import Settings, SparkSettings
from frazil.runtime.runner import run_project

FILES, ROWS, TABLES = 3, 30, 3


def prepare(folder: Path) -> None:
    """The files: numbered rows of several kinds, some of which do not fit, and some of which belong nowhere."""
    (folder / "in").mkdir()
    for file in range(FILES):
        rows = [_row(number) for number in range(file * ROWS, (file + 1) * ROWS)]
        (folder / "in" / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))


def _row(number: int) -> dict[str, object]:
    kind = "nowhere" if number % 11 == 5 else f"t{number % TABLES}"
    return {"id": number, "kind": kind, "n": "x" if is_letter(number) and kind != "nowhere" else str(number)}


def is_letter(number: int) -> bool:
    """Whether a row cannot be written."""
    return number % 7 == 3 or number % 11 == 5


def pipeline(folder: Path) -> PipelineSpec:
    """The pipeline."""
    columns = {"id": "long", "kind": "string"}
    tables = {f"t{number}": {"schema": columns | {"n": "int"}} for number in range(TABLES)}
    source = {"connector": "files", "path": str(folder / "in"), "format": "json", "schema": columns | {"n": "string"}}
    sink = {
        "catalog": {
            "type": "sql",
            "sql": {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()},
        },
        "namespace": "many",
        "route": {"field": "kind", "tables": tables, "unknown": "dead_letter"},
        "on_error": "dead_letter",
        "batch_size": 1,
    }
    given = {"name": "p", "source_name": "files", "source": source, "sink_name": "lake", "sink": sink}
    return PipelineSpec.model_validate(given)


def run_all(folder: Path, settings: Settings | None = None) -> None:
    """Writes everything that is not written yet."""
    run_project(
        ProjectSpec(file="routing.yaml", pipelines=(pipeline(folder),), settings=settings or Settings()),
        once=True,
    )


if __name__ == "__main__":
    moment, nth, act, place = sys.argv[1:]
    act_at(moment, int(nth), act)
    run_all(Path(place), Settings(spark=SparkSettings(master="local[1]")))
