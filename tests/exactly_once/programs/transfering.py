"""A pipeline of transfers from files into two tables, and one of dead letters: ``transfering.py MOMENT NTH ACT FOLDER``.

Each file is a batch, which becomes visible in all tables at once. It can be started again and again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exactly_once.programs.moments import act_at
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.settings import Settings, SparkSettings
from frazil.runtime.runner import run_project

FILES, ROWS = 5, 5
"""How many files there are, and how many numbers in each."""


def prepare(folder: Path) -> None:
    """The files: for each number a debit, a credit, a row that belongs nowhere, and a debit that its table cannot take."""
    (folder / "in").mkdir()
    for file in range(FILES):
        numbers = range(file * ROWS, (file + 1) * ROWS)
        rows = [{"id": str(number), "kind": kind} for number in numbers for kind in ("debit", "credit", "nowhere")]
        rows += [{"id": f"n{number}", "kind": "debit"} for number in numbers]
        (folder / "in" / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))


def pipeline(folder: Path) -> PipelineSpec:
    """The pipeline."""
    columns = {"id": "string", "kind": "string"}
    tables = {"debit": "debit", "credit": {"table": "credit", "commit_mode": "upsert", "key_fields": ["id"]}}
    source = {"connector": "files", "path": str(folder / "in"), "format": "json", "schema": columns}
    sql = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}
    sink = {
        "catalog": {"type": "sql", "sql": sql},
        "namespace": "many",
        "route": {"field": "kind", "tables": tables, "unknown": "dead_letter", "atomic": True},
        "schema": columns | {"id": "long"},
        "on_error": "dead_letter",
        "batch_size": 1,
    }
    given = {"name": "p", "source_name": "files", "source": source, "sink_name": "lake", "sink": sink}
    return PipelineSpec.model_validate(given)


def run_all(folder: Path, settings: Settings | None = None) -> None:
    """Writes everything that is not written yet."""
    project = ProjectSpec(file="transfers.yaml", pipelines=(pipeline(folder),), settings=settings or Settings())
    run_project(project, once=True)


if __name__ == "__main__":
    moment, nth, act, place = sys.argv[1:]
    act_at(moment, int(nth), act)
    run_all(Path(place), Settings(spark=SparkSettings(master="local[1]")))
