"""A pipeline from a database into a lake, a process of its own: ``following.py MOMENT NTH ACT FOLDER SPEC``.

``SPEC`` is a file with the source and what the sink has beside its catalog.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from exactly_once.programs.moments import act_at
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.settings import SparkSettings
from frazil.runtime.runner import run_project
from helpers.lakes import IMPATIENT


def name_of(folder: Path) -> str:
    """One for each folder: a Spark that has met a catalog keeps it under its name."""
    return re.sub(r"\W", "_", f"lake_{folder.name}")


def catalog(folder: Path) -> dict[str, object]:
    sql = {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": (folder / "warehouse").as_uri()}
    return {"type": "sql", "name": name_of(folder), "sql": sql}


def pipeline_of(folder: Path, spec: Path) -> PipelineSpec:
    """The pipeline that a file describes."""
    answer = json.loads(spec.read_text())
    sink = {"namespace": "db", **answer["sink"], "catalog": catalog(folder)}
    given = {"name": "p", "source_name": "db", "source": answer["source"], "sink_name": "lake", "sink": sink}
    return PipelineSpec.model_validate(given)


def main(moment: str, nth: str, act: str, folder: str, spec: str) -> None:
    act_at(moment, int(nth), act)
    spark = SparkSettings(master="local[1]")
    settings = IMPATIENT.model_copy(update={"spark": spark})
    run_project(ProjectSpec(file="t.yaml", pipelines=(pipeline_of(Path(folder), Path(spec)),), settings=settings), once=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
