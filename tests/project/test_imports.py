"""Who may import whom, who may use PySpark, and who may reach into the JVM.

::

    cli -> doors -> runtime -> write, sources -> iceberg -> spark, columns, commit -> model -> errors

Beside them: `observe` (tables and runs without Spark) and `reading` (YAML with its places). No two modules import each other,
however far around. This is the one statement of these rules: CONTRIBUTING and the architecture page repeat it for readers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

import frazil

SRC = Path(__file__).parents[2] / "src"

BASE = ("frazil.errors", "frazil.version")
MODEL = ("frazil.model", "frazil.model.*", *BASE)
SPARK = ("frazil.spark", "frazil.spark.*")
COLUMNS = ("frazil.columns", "frazil.columns.*")
COMMIT = ("frazil.commit", "frazil.commit.*")
ICEBERG = ("frazil.iceberg", "frazil.iceberg.*")
SOURCES = ("frazil.sources", "frazil.sources.*")
SOURCES_FRONT = ("frazil.sources", "frazil.sources.base")
WRITE = ("frazil.write", "frazil.write.*")
RUNTIME = ("frazil.runtime", "frazil.runtime.*")
OBSERVE = ("frazil.observe", "frazil.observe.*")
UI = ("frazil.ui", "frazil.ui.*")
READING = ("frazil.reading", "frazil.reading.*")
BELOW_DOORS = (*RUNTIME, *WRITE, *SOURCES, *ICEBERG, *SPARK, *COLUMNS, *COMMIT, *OBSERVE, *READING, *MODEL)

# What each part may import besides itself. A part that is not here is a new part: say where it belongs.
ALLOWED = {
    "errors": (),
    "version": (),
    "model": BASE,
    # The protocol runs under a model checker, too: it knows neither Spark nor Iceberg.
    "commit": MODEL,
    "columns": MODEL,
    "spark": MODEL,
    "iceberg": (*SPARK, *COLUMNS, *COMMIT, *MODEL),
    # A source knows nothing of what becomes of its rows. Which rows a table has changed its files tell, which Java reads.
    "sources": ("frazil.iceberg.changed_rows", *SPARK, *COLUMNS, *MODEL),
    # A batch is written in one way, whatever source it came from.
    "write": (*ICEBERG, *SPARK, *COLUMNS, *COMMIT, *MODEL),
    # Sources are opened by their front door; none is known by name.
    # A plan looks for tables without Spark.
    "runtime": (*WRITE, *ICEBERG, *SPARK, *COLUMNS, *COMMIT, *SOURCES_FRONT, "frazil.observe.described", *MODEL),
    # Status and inspect translate catalogs as a run does, and start no Spark.
    "observe": ("frazil.spark.catalogs", "frazil.spark.databases", *MODEL),
    # Pages are made from what can be seen without Spark, whoever runs the pipelines.
    "ui": (*OBSERVE, *MODEL),
    # Doors that take a YAML file share how one is read and explained; it knows the models, and no door.
    "reading": MODEL,
    "doors": BELOW_DOORS,
    # What users import of a door, under a name of its own.
    "dlt": ("frazil.doors.dlt", "frazil.doors.dlt.*", *BASE),
    "bytewax": ("frazil.doors.bytewax", "frazil.doors.bytewax.*", *BASE),
    # No door imports another: which of them knows a file is decided above them, once for the command line and for Python.
    "files": ("frazil.doors", "frazil.doors.*", *BELOW_DOORS),
    "cli": ("frazil", "frazil.files", "frazil.doors", "frazil.doors.*", *UI, *BELOW_DOORS),
    # For users' own tests: it runs pipelines as the command line does, and nothing of frazil needs it.
    "testing": ("frazil.files", "frazil.doors.python.pipeline", *BELOW_DOORS),
    "": ("frazil.files", "frazil.doors", "frazil.doors.*", *BELOW_DOORS),
}

# Who may use PySpark when the program runs. The others may name its types.
USE_PYSPARK = ("spark", "columns", "iceberg", "sources", "write", "runtime")
# Who may reach into the JVM: by py4j, or by the attributes of PySpark that lead there.
REACH_THE_JVM = ("spark", "iceberg")
JAVA_HANDLES = {"_jvm", "_jsparkSession", "_gateway", "_jdf", "_jc", "_jsc", "_jreader", "_jwrite", "_jschema"}


@dataclass(frozen=True)
class Import:
    """One module that another imports. ``runs``: it is imported when the program runs, not for its types alone."""

    module: str
    line: int
    runs: bool


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """The syntax tree of a source text, which several tests look at."""
    return tuple(ast.walk(ast.parse(source)))


def imports_of(source: str, module: str, *, is_package: bool = False) -> Iterator[Import]:
    """Every module that a source text imports, wherever in it the import stands."""
    nodes = nodes_of(source)
    for_types = {inner for node in nodes if is_type_checking(node) for inner in ast.walk(node)}
    for node in nodes:
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
        if not may_import(part, own, found)
    ]
    handles = (node for node in nodes_of(source) if isinstance(node, ast.Attribute) and node.attr in JAVA_HANDLES)
    faults += [f"{module}:{node.lineno} reaches for {node.attr}" for node in handles if part not in REACH_THE_JVM]
    return faults


def part_of(module: str) -> str:
    """The part of frazil that a module belongs to; empty for the package itself, which is the public API."""
    return module.removeprefix("frazil").removeprefix(".").split(".")[0]


def may_import(part: str, own: str, found: Import) -> bool:
    library = found.module.split(".")[0]
    if library == "frazil":
        is_own = part != "" and (found.module == own or found.module.startswith(f"{own}."))
        return is_own or any(fnmatchcase(found.module, pattern) for pattern in ALLOWED[part])
    if library == "pyspark":
        return part in USE_PYSPARK or (part != "model" and not found.runs)
    return library != "py4j" or part in REACH_THE_JVM


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


def test_no_two_modules_import_each_other_however_far_around() -> None:
    known = dict(modules())
    graph = {
        module: {found.module for found in imports_of(path.read_text(), module, is_package=path.name == "__init__.py")}
        & set(known)
        for module, path in known.items()
    }
    left = dict(graph)
    while True:
        # Who imports none of those that are left, or is imported by none of them, is part of no circle.
        needed = {other for module, needs in left.items() for other in needs - {module}}
        free = [module for module, needs in left.items() if module not in needed or not (needs - {module}) & set(left)]
        if not free:
            break
        left = {module: needs for module, needs in left.items() if module not in free}
    assert sorted(left) == []


def test_the_drawing_of_the_packages_is_that_of_the_imports() -> None:
    """Every arrow of the page is an import, and every import between the packages follows from the arrows."""
    page = (SRC.parent / "docs" / "architecture.md").read_text()
    drawing = page.partition("## Packages")[2].partition("```mermaid")[2].partition("```")[0]
    drawn = {
        (one, other)
        for ones, others in re.findall(r"^ *([\w &]+?) -->(?:\|\w+\|)? ([\w &]+)$", drawing, re.MULTILINE)
        for one in ones.split(" & ")
        for other in others.split(" & ")
    }
    packages = {name for arrow in drawn for name in arrow}
    imported = {
        (part_of(module), part_of(found.module))
        for module, path in modules()
        for found in imports_of(path.read_text(), module, is_package=path.name == "__init__.py")
        if found.module.startswith("frazil.")
    }
    between = {(one, other) for one, other in imported if one != other and {one, other} <= packages}
    follows = drawn
    while more := {(one, last) for one, other in follows for first, last in drawn if first == other} - follows:
        follows = follows | more
    assert (drawn - between, between - follows) == (set(), set())
    assert {part for part in ALLOWED if (SRC / "frazil" / part / "__init__.py").is_file()} - packages <= {"", "testing"}


def test_no_part_has_the_name_of_something_public() -> None:
    """Importing a part makes it an attribute of the package: `frazil.run` would be a module, and no function."""
    parts = {path.stem for path in (SRC / "frazil").iterdir()}
    assert parts & set(frazil.__all__) == set()


def test_every_part_has_its_place() -> None:
    assert {part_of(module) for module, _ in modules()} <= set(ALLOWED)


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("frazil.errors", "import frazil.model.types", "imports frazil.model.types"),
        ("frazil.model.x", "from frazil.spark import java", "imports frazil.spark.java"),
        ("frazil.model.x", "from ..spark.java import java_home", "imports frazil.spark.java"),
        ("frazil.model.x", "if TYPE_CHECKING:\n    import pyspark", "imports pyspark"),
        ("frazil.commit.protocol", "import pyspark", "imports pyspark"),
        ("frazil.commit.protocol", "from frazil.iceberg import Lake", "imports frazil.iceberg"),
        ("frazil.columns.x", "from frazil.iceberg.lake import Lake", "imports frazil.iceberg.lake"),
        ("frazil.columns.x", "frame._jdf", "reaches for _jdf"),
        ("frazil.runtime.x", "def f():\n    from frazil.doors import yaml", "imports frazil.doors"),
        ("frazil.runtime.x", "import frazil.sources.generator", "imports frazil.sources.generator"),
        ("frazil.write.x", "from frazil.sources.base import Source", "imports frazil.sources.base"),
        ("frazil.write.x", "from frazil.runtime.pump import Pump", "imports frazil.runtime.pump"),
        ("frazil.write.x", "import py4j.java_gateway", "imports py4j.java_gateway"),
        ("frazil.sources.x", "from frazil.write.part import Part", "imports frazil.write.part"),
        ("frazil.sources.kafka.source", "spark._jvm", "reaches for _jvm"),
        ("frazil.observe.x", "from frazil.spark import session", "imports frazil.spark.session"),
        ("frazil.observe.x", "import pyspark.sql", "imports pyspark.sql"),
        ("frazil.doors.python.sink", "from frazil.doors.yaml import load", "imports frazil.doors.yaml"),
        ("frazil.doors.python.sink", "from frazil.cli import main", "imports frazil.cli"),
        ("frazil.reading.x", "from frazil.doors.yaml import load", "imports frazil.doors.yaml"),
        ("frazil.ui.x", "from frazil.spark.session import Session", "imports frazil.spark.session"),
        ("frazil.ui.x", "from frazil.cli.output import Output", "imports frazil.cli.output"),
        ("frazil.cli.test", "from frazil.testing import TemporaryLake", "imports frazil.testing"),
    ],
)
def test_an_arrow_the_wrong_way_is_seen(module: str, source: str, fault: str) -> None:
    assert [fault in found for found in faults_of(source, module)] == [True]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("frazil.runtime.runner", "from frazil.sources import open_source\nimport pyspark"),
        ("frazil.iceberg.jvm", "from py4j.protocol import Py4JJavaError\nspark._jvm"),
        ("frazil.doors.python.sink", "if TYPE_CHECKING:\n    from pyspark.sql import DataFrame"),
        ("frazil.doors.yaml.load", "from frazil.reading.document import Document\nfrom .file import SOURCES"),
        ("frazil.cli.run", "from frazil.doors.yaml import load\nfrom frazil.model import events"),
    ],
)
def test_an_arrow_the_right_way_is_left_alone(module: str, source: str) -> None:
    assert faults_of(source, module) == []
