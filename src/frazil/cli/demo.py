"""`frazil demo`."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call
from frazil.cli.output import table
from frazil.cli.run import RunTotals, execute
from frazil.errors import EnvironmentFault
from frazil.model.words import iso, short

if TYPE_CHECKING:
    from frazil.model.events import Event
    from frazil.model.pipeline import PipelineSpec
    from frazil.observe.lake import TableFacts

FILE = "demo.yaml"

# Ports of 0 take free ones, so that a busy port never stops a demo.
PIPELINE = """\
# The pipeline of `frazil demo`. Run it on with:  frazil run -c {file}
version: "1.0"

sources:
  shop:
    connector: generator            # made-up shop events, numbered from 0
    config:
      rows_per_second: 2000

sinks:
  lake:
    connector: iceberg
    config:
      catalog:
        type: sql                   # a catalog in one SQLite file
        sql:
          uri: {uri}
          warehouse: {warehouse}
      namespace: demo
      table: events
      batch_size: 100000
      flush_interval_secs: 3        # a commit every three seconds

pipelines:
  demo:
    source: shop
    sink: lake

settings:
  health: {{port: 0}}
  metrics: {{port: 0}}
"""

ENOUGH_COMMITS = 3
LONGEST = 4

SHOWN_ROWS = 5
SHOWN_COLUMNS = 6
SHOWN_SNAPSHOTS = 8


def demo(
    call: Call,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long events flow.")] = 20,
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where the table, its catalog and the file go.")] = Path(
        "lake"
    ),
) -> None:
    """Write made-up events into an Iceberg table for a while, then show it. Run again, it goes on where it ended."""
    file = write_file(folder)
    demo_call = Call(file, call.output)
    project = demo_call.project()
    pipeline = project.pipelines[0]
    call.output.say(f"{file}: made-up shop events into {pipeline.sink.full_name} for {seconds:g} s")
    totals, stop = RunTotals(), threading.Event()
    from frazil.observe.progress import Progress

    with Progress() as progress:
        execute(demo_call, project, once=False, listeners=[totals, StopLater(stop, seconds), progress], stop=stop)
    show_result(call, pipeline, file, totals)


def write_file(folder: Path) -> Path:
    """Writes the pipeline file, unless it is there: a user may have changed it."""
    file = folder / FILE
    if file.exists():
        return file
    home = folder.resolve()
    uri, warehouse = yaml_text(f"sqlite:///{home / 'catalog.db'}"), yaml_text(str(home / "warehouse"))
    content = PIPELINE.format(file=file, uri=uri, warehouse=warehouse)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault("cannot-write", f"Cannot write {file}: {error.strerror}.", fix="Choose another --dir.") from error
    return file


def yaml_text(value: str) -> str:
    """A text as the pipeline file takes it, whatever characters it has. A dollar sign would begin a variable."""
    return json.dumps(value.replace("$", "$$"), ensure_ascii=False)


class StopLater:
    """Sets the event when the time is over: it begins with the pipeline, so that the start of Spark does not count.

    On a slow machine the demo goes on until there are several commits to show, but not for ever.
    """

    def __init__(self, stop: threading.Event, seconds: float) -> None:
        self._stop, self._seconds = stop, seconds
        self._over = threading.Event()
        self._commits = 0

    def __call__(self, event: Event) -> None:
        """Starts the clock, and counts."""
        from frazil.model.events import Committed, Started

        match event:
            case Started():
                self._after(self._seconds, self._time_is_over)
                self._after(self._seconds * LONGEST, self._stop.set)
            case Committed():
                self._commits += 1
                if self._over.is_set():
                    self._time_is_over()
            case _:
                pass

    def _time_is_over(self) -> None:
        self._over.set()
        if self._commits >= ENOUGH_COMMITS:
            self._stop.set()

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()


def show_result(call: Call, pipeline: PipelineSpec, file: Path, totals: RunTotals) -> None:
    """Some rows, the snapshots, and what to type next."""
    from frazil.observe.lake import sample, table_facts

    rows, found = sample(pipeline.sink, SHOWN_ROWS), table_facts(pipeline.sink)
    commands = next_commands(file, pipeline)
    if call.output.json:
        snapshots = [snapshot.id for snapshot in found.snapshots] if found else []
        call.output.document(totals.to_json() | {"table": found and found.location, "snapshots": snapshots, "next": commands})
        return
    if found is None or not rows:
        call.output.show("The demo was stopped before its first commit.")
    else:
        _show_table(call, rows, found)
    call.output.show("Next:")
    for purpose, command in commands.items():
        call.output.show(f"  # {purpose}", f"  {command}")


def _show_table(call: Call, rows: list[dict[str, Any]], found: TableFacts) -> None:
    names = list(rows[0])[:SHOWN_COLUMNS]
    more = len(rows[0]) - len(names)
    title = f"{found.name}: some rows" + (f" ({more} more columns)" if more > 0 else "")
    call.output.show(table(title, names, [[short(str(row[name]), 40) for name in names] for row in rows]))
    columns = ("snapshot", "time", "rows added", "rows", "files", "batch")
    snapshots = [
        (
            one.id,
            iso(one.at_ms),
            f"{one.added_rows:,}",
            f"{one.total_rows:,}",
            f"{one.total_files:,}",
            one.frazil.get("frazil.batch"),
        )
        for one in found.snapshots[-SHOWN_SNAPSHOTS:]
    ]
    title = f"{found.name}: the newest of {len(found.snapshots)} snapshots"
    call.output.show(table(title, columns, snapshots, right=("rows added", "rows", "files", "batch")))


def next_commands(file: Path, pipeline: PipelineSpec) -> dict[str, str]:
    """What to type next, as it works in this folder."""
    frazil, config = _frazil(), shlex.quote(str(file))
    return {
        "how far it is": f"{frazil} status -c {config}",
        "schema, snapshots, ledger": f"{frazil} inspect -c {config} {pipeline.sink.full_name}",
        "read the table with another engine": reader(pipeline),
        "go on writing; Ctrl-C stops it": f"{frazil} run -c {config}",
    }


def reader(pipeline: PipelineSpec) -> str:
    """A line of Python that queries the table: by DuckDB where it is installed, otherwise by PyIceberg alone."""
    from sqlalchemy import URL

    from frazil.observe.catalogs import sqlite_path

    catalog, name = pipeline.sink.catalog, pipeline.sink.full_name
    uri = URL.create("sqlite", database=str(sqlite_path(catalog))).render_as_string()
    opened = f'SqlCatalog("{catalog.name}", uri="{uri}").load_table("{name}").scan()'
    question = "select event_type, count(*) as events from events group by 1 order by 2 desc"
    query = f'.to_duckdb("events").sql("{question}")' if importlib.util.find_spec("duckdb") else ".to_arrow().slice(0, 5)"
    code = f"from pyiceberg.catalog.sql import SqlCatalog; print({opened}{query})"
    return f"{shlex.quote(_shown(Path(sys.executable)))} -c {shlex.quote(code)}"


def _frazil() -> str:
    """The command as a user of this folder types it."""
    beside = Path(sys.executable).with_name("frazil")
    on_path = shutil.which("frazil")
    if (on_path and Path(on_path).resolve() == beside.resolve()) or not beside.exists():
        return "frazil"
    return shlex.quote(_shown(beside))


def _shown(path: Path) -> str:
    """Relative to this folder where it is inside. Links are kept: the Python of an environment is one."""
    here = Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)
