"""Who may import whom: cli -> doors -> observe, engine, sources, reading -> model -> errors; and foreign libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

BASE = ("frazil.errors", "frazil.version")
MODEL = ("frazil.model", "frazil.model.*", *BASE)
ENGINE = ("frazil.engine", "frazil.engine.*")
SOURCES = ("frazil.sources", "frazil.sources.*")
# What the engine knows of values and types, which whoever reads them needs, too.
SHARED = ("types", "common_type", "schema", "kafka", "json_rows", "avro", "coerce")
OBSERVE = ("frazil.observe", "frazil.observe.*")
READING = ("frazil.reading", "frazil.reading.*")
BELOW_DOORS = (*ENGINE, *SOURCES, *OBSERVE, *READING, *MODEL)

# What each part may import besides itself. A part that is not here is a new part: say where it belongs.
ALLOWED = {
    "errors": (),
    "version": (),
    "model": BASE,
    # Declared columns become Spark's types in one place for both; Kafka's clients live in Spark's JVM.
    # A message's values become those of declared columns as a row's do.
    # Plain JSON messages are read by frazil's own Java. JSON that is made of values is the same everywhere.
    "sources": (
        *(f"frazil.engine.{name}" for name in ("types", "common_type", "schema", "kafka", "json_rows", "avro", "coerce")),
        *MODEL,
    ),
    # The engine opens sources by their front door and knows none of them by name.
    "engine": ("frazil.sources", "frazil.sources.base", *MODEL),
    # Status and inspect translate catalogs as the engine does, and start no Spark.
    "observe": ("frazil.spark.catalogs", *MODEL),
    # Doors that take a YAML file share how one is read and explained; it knows the models, and no door.
    "reading": MODEL,
    "doors": BELOW_DOORS,
    # What users import of a door, under a name of its own.
    "dlt": ("frazil.doors.dlt", "frazil.doors.dlt.*", *BASE),
    "bytewax": ("frazil.doors.bytewax", "frazil.doors.bytewax.*", *BASE),
    # No door imports another: which of them knows a file is decided above them, once for the command line and for Python.
    "files": ("frazil.doors", "frazil.doors.*", *BELOW_DOORS),
    "cli": ("frazil", "frazil.files", "frazil.doors", "frazil.doors.*", *BELOW_DOORS),
    "": ("frazil.files", "frazil.doors", "frazil.doors.*", *BELOW_DOORS),
}

RUN_SPARK = ("engine", "sources")
JAVA_BRIDGES = tuple(f"frazil.engine.{name}" for name in ("iceberg", "kafka", "avro", "running_java", "data_source"))
JAVA_HANDLES = {"_jvm", "_jsparkSession", "_gateway"}


@dataclass(frozen=True)
class Import:
    """One module that another imports. ``runs``: it is imported when the program runs, not for its types alone."""

    module: str
    line: int
    runs: bool


def imports_of(source: str, module: str, *, is_package: bool = False) -> Iterator[Import]:
    """Every module that a source text imports, wherever in it the import stands."""
    tree = ast.parse(source)
    for_types = {inner for node in ast.walk(tree) if is_type_checking(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        runs = node not in for_types
        if isinstance(node, ast.Import):
            yield from (Import(name.name, node.lineno, runs) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = node.module or ""
            if node.level:
                names = module.split(".")
                package = names[: len(names) - node.level + is_package]
                parent = ".".join([*package, parent]).rstrip(".")
            for name in node.names:
                inner = f"{parent}.{name.name}"
                yield Import(inner if is_module(inner) else parent, node.lineno, runs)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def is_module(name: str) -> bool:
    path = SRC.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def faults_of(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What a module does against the arrows, as sentences."""
    part = part_of(module)
    # A door is a part of its own: no door imports another.
    own = ".".join(module.split(".")[: 3 if part == "doors" else 2])
    faults = [
        f"{module}:{found.line} imports {found.module}"
        for found in imports_of(source, module, is_package=is_package)
        if not may_import(part, own, module, found)
    ]
    handles = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and node.attr in JAVA_HANDLES)
    faults += [f"{module}:{node.lineno} reaches for {node.attr}" for node in handles if not is_java_bridge(module)]
    return faults


def is_java_bridge(module: str) -> bool:
    """Whether the module is one of those that speak to the JVM."""
    return any(module == bridge or module.startswith(f"{bridge}.") for bridge in JAVA_BRIDGES)


def part_of(module: str) -> str:
    """The part of frazil that a module belongs to; empty for the package itself, which is the public API."""
    return module.removeprefix("frazil").removeprefix(".").split(".")[0]


def may_import(part: str, own: str, module: str, found: Import) -> bool:
    library = found.module.split(".")[0]
    if library == "frazil":
        is_own = part != "" and (found.module == own or found.module.startswith(f"{own}."))
        return is_own or any(fnmatchcase(found.module, pattern) for pattern in ALLOWED[part])
    if library == "pyspark":
        return part in RUN_SPARK or (part != "model" and not found.runs)
    return library != "py4j" or is_java_bridge(module)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted((SRC / "frazil").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_the_arrows_hold() -> None:
    faults = [
        fault
        for module, path in modules()
        for fault in faults_of(path.read_text(), module, is_package=path.name == "__init__.py")
    ]
    assert faults == []


def test_every_part_has_its_place() -> None:
    assert {part_of(module) for module, _ in modules()} <= set(ALLOWED)


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("frazil.errors", "import frazil.model.types", "imports frazil.model.types"),
        ("frazil.model.x", "from frazil.engine import java", "imports frazil.spark.java"),
        ("frazil.model.x", "from ..engine.java import java_home", "imports frazil.spark.java"),
        ("frazil.model.x", "if TYPE_CHECKING:\n    import pyspark", "imports pyspark"),
        ("frazil.engine.x", "def f():\n    from frazil.doors import yaml", "imports frazil.doors"),
        ("frazil.engine.x", "import frazil.sources.generator", "imports frazil.sources.generator"),
        ("frazil.sources.x", "from frazil.spark.session import spark_session", "imports frazil.spark.session"),
        ("frazil.sources.kafka.source", "spark._jvm", "reaches for _jvm"),
        ("frazil.observe.x", "from frazil.engine import session", "imports frazil.spark.session"),
        ("frazil.observe.x", "import pyspark.sql", "imports pyspark.sql"),
        ("frazil.doors.python.sink", "from frazil.doors.yaml import load", "imports frazil.doors.yaml"),
        ("frazil.doors.python.sink", "from frazil.cli import main", "imports frazil.cli"),
        ("frazil.reading.x", "from frazil.doors.yaml import load", "imports frazil.doors.yaml"),
        ("frazil.spark.session", "import py4j.java_gateway", "imports py4j.java_gateway"),
        ("frazil.spark.session", "spark.sparkContext._jvm", "reaches for _jvm"),
    ],
)
def test_an_arrow_the_wrong_way_is_seen(module: str, source: str, fault: str) -> None:
    assert [fault in told for told in faults_of(source, module)] == [True]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("frazil.run.runner", "from frazil.sources import open_source\nimport pyspark"),
        ("frazil.iceberg.jvm", "from py4j.protocol import Py4JJavaError\nspark._jvm"),
        ("frazil.doors.python.sink", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("frazil.doors.yaml.load", "from frazil.reading.document import Document\nfrom .file import SOURCES"),
        ("frazil.cli.run", "from frazil.doors.yaml import load\nfrom frazil.model import events"),
    ],
)
def test_an_arrow_the_right_way_is_left_alone(module: str, source: str) -> None:
    assert faults_of(source, module) == []
