"""A pipeline from a topic into twenty tables and one of dead letters: ``topics.py FOLDER BOOTSTRAP TOPIC``.

It can be started again and again: each start goes on where the tables end.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.runtime.runner import run_project

TABLES, PARTITIONS = 20, 4
COLUMNS = {"id": "long", "kind": "string", "n": "int", "text": "string"}


def messages(count: int, seed: int = 7) -> Iterator[bytes | None]:
    """Most are good; one in a hundred is bad in each of several ways. One has 10 MB, one is nothing at all."""
    chance = random.Random(seed)
    for number in range(count):
        good = {"id": number, "kind": f"t{number % TABLES}", "n": number % 1000, "text": "x" * 50}
        text = json.dumps(good)
        poison = [
            text[: len(text) // 2],
            json.dumps([good]),
            json.dumps(good | {"n": "many"}),
            json.dumps(good | {"kind": "nowhere"}),
            json.dumps({"id": number}),
            "\x00\x01\x02",
            "",
        ]
        place = int(chance.random() * 100)
        if number == count // 2:
            yield json.dumps(good | {"text": "y" * 10_000_000}).encode()
        elif number == count // 3:
            yield None
        else:
            yield (poison[place] if place < len(poison) else text).encode()


def name_of(folder: Path) -> str:
    """One for each folder: a Spark that has met a catalog keeps it under its name."""
    return re.sub(r"\W", "_", f"lake_{folder.name}")


def pipeline(folder: Path, servers: str, topic: str) -> PipelineSpec:
    """The pipeline."""
    source = {
        "connector": "kafka",
        "bootstrap_servers": servers,
        "topics": [topic],
        "start_offset": "earliest",
        "format": {"type": "json", "schema": COLUMNS},
        "metadata": ["partition", "offset"],
        "tombstones": "error",
    }
    sql = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}
    sink = {
        "catalog": {"type": "sql", "name": name_of(folder), "sql": sql},
        "namespace": "many",
        "route": {"field": "kind", "tables": {f"t{n}": f"t{n}" for n in range(TABLES)}, "unknown": "dead_letter"},
        "on_error": "dead_letter",
        "batch_size": 25_000,
    }
    given = {"name": "p", "source_name": "topic", "source": source, "sink_name": "lake", "sink": sink}
    return PipelineSpec.model_validate(given)


def main(folder: str, servers: str, topic: str) -> None:
    """Writes everything that is not written yet."""
    project = ProjectSpec(file="t.yaml", pipelines=(pipeline(Path(folder), servers, topic),))
    run_project(project, once=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
