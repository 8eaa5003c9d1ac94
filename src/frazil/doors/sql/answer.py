"""What statements answer: a word that something was done, or rows."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from frazil.doors.sql.definitions import Definition
from frazil.doors.sql.given import World
from frazil.doors.sql.grammar import Kind
from frazil.doors.sql.render import render, shown_options
from frazil.doors.sql.sinks import pipeline
from frazil.doors.sql.statements import (
    Create,
    CreateConnection,
    CreateSink,
    CreateSource,
    CreateView,
    FromFiles,
    FromGenerator,
    FromKafka,
    Show,
)
from frazil.doors.sql.uses import names_in
from frazil.model.changes import CommitMode
from frazil.model.plan import PipelinePlan
from frazil.model.sink import SinkSpec


@dataclass(frozen=True)
class Answer:
    """The answer to one statement. ``notes`` are worth reading, and no part of the data.

    ``is_data``: the rows hold no values of frazil's own options, so that whatever stands in them is no secret of its.
    """

    statement: str
    message: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    notes: tuple[str, ...] = ()
    is_data: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        made: dict[str, Any] = {"statement": self.statement}
        if self.message:
            made["message"] = self.message
        if self.columns:
            names = _apart(self.columns)
            made["columns"] = names
            made["rows"] = [dict(zip(names, row, strict=True)) for row in self.rows]
        return made | ({"notes": list(self.notes)} if self.notes else {})


def _apart(columns: Sequence[str]) -> list[str]:
    """Names of which no two are the same: the second `id` of a join is `id_2`."""
    made: list[str] = []
    for name in columns:
        number, unique = 1, name
        while unique in made or (number > 1 and unique in columns):
            number += 1
            unique = f"{name}_{number}"
        made.append(unique)
    return made


def show(statement: Show, definitions: Mapping[str, Definition], world: World) -> Answer:
    """`SHOW SINKS` and its like."""
    chosen = [one for one in definitions.values() if statement.kind in (None, one.kind) and _matches(one.name, statement.like)]
    match statement.kind:
        case Kind.SINK:
            columns: tuple[str, ...] = ("name", "from", "connection", "table", "mode", "commits", "created")
            rows = [(one.name, *_sink_facts(world, one.statement), _time(one)) for one in chosen]
        case Kind.CONNECTION | Kind.SOURCE:
            columns = ("name", "type", "created")
            rows = [(one.name, _type(one.statement), _time(one)) for one in chosen]
        case Kind.VIEW | Kind.MATERIALIZED_VIEW:
            columns = ("name", "from", "created")
            rows = [(one.name, ", ".join(word.text for word in names_in(one.statement)), _time(one)) for one in chosen]
        case Kind.SECRET:
            columns, rows = ("name", "created"), [(one.name, _time(one)) for one in chosen]
        case _:
            columns, rows = ("name", "type", "created"), [(one.name, one.kind.lower(), _time(one)) for one in chosen]
    return Answer(statement.title, columns=columns, rows=tuple(rows), is_data=True)


def _matches(name: str, like: str | None) -> bool:
    """LIKE of SQL: % for any characters, _ for one."""
    if like is None:
        return True
    pattern = "".join({"%": "*", "_": "?"}.get(mark, f"[{mark}]" if mark in "*?[" else mark) for mark in like)
    return fnmatch.fnmatchcase(name, pattern)


def _time(one: Definition) -> str:
    return datetime.fromtimestamp(one.created_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _type(statement: Create) -> str:
    if isinstance(statement, CreateConnection):
        return statement.to.lower()
    assert isinstance(statement, CreateSource), "its kind says so"
    match statement.reads:
        case FromKafka():
            return "kafka"
        case FromFiles():
            return "files"
        case FromGenerator():
            return "load generator"
        case _:
            return "postgres"


def _sink_facts(world: World, statement: Create) -> tuple[str, ...]:
    assert isinstance(statement, CreateSink), "its kind says so"
    sink = pipeline(world, statement).sink
    item = ".".join(part.text for part in statement.item)
    return item, statement.connection.text, sink.full_name, sink.commit_mode.value, pace(sink)


def pace(sink: SinkSpec) -> str:
    """When commits are made, in words."""
    if sink.batch_bytes is None:
        return f"every {sink.flush_interval_secs} s"
    return f"at {sink.batch_bytes:,} bytes, or after {sink.flush_interval_secs} s"


def show_create(title: str, statement: Create) -> Answer:
    """`SHOW CREATE SINK`: the statement, without secrets."""
    return Answer(title, columns=("name", "create_sql"), rows=((statement.name.text, f"{render(statement, secrets=False)};"),))


def describe(title: str, world: World, statement: Create) -> Answer:
    """What an object is, as names and values. The columns of a sink's table come from :func:`table_columns`."""
    pairs: list[tuple[str, str]] = [("type", statement.kind.lower())]
    match statement:
        case CreateConnection():
            pairs = [("type", statement.to.lower()), *shown_options(statement)]
        case CreateSource():
            pairs.append(("reads", _type(statement)))
            pairs += [(f"column {one.name.text}", one.type.text) for one in statement.columns]
        case CreateView():
            pairs += [("from", ", ".join(word.text for word in names_in(statement))), ("query", statement.query.text)]
        case _:
            pass
    used_by = world.dependents(statement.name.text)
    if used_by:
        pairs.append(("used by", ", ".join(used_by)))
    return Answer(title, columns=("property", "value"), rows=tuple(pairs))


def table_columns(title: str, sink: SinkSpec) -> Answer:
    """The columns of a sink's table, as its catalog tells them. Starts no Spark."""
    from frazil.observe.lake import table_facts

    facts = table_facts(sink)
    if facts is None:
        return Answer(title, f"The table {sink.full_name} is not there yet: it is made when the first rows come.")
    keys = set(facts.identifier_fields)
    rows = tuple(
        (one.name, one.type, "not null" if one.required else "", "key" if one.name in keys else "") for one in facts.columns
    )
    notes = (f"partitioned by {', '.join(facts.partition)}",) if facts.partition else ()
    return Answer(title, columns=("column", "type", "null", "key"), rows=rows, notes=notes, is_data=True)


def explain(title: str, sink: CreateSink, made: PipelinePlan, spec: SinkSpec) -> Answer:
    """What a run of the sink would do first."""
    action = "create" if made.create_table else "change" if made.changes_anything else "keep"
    pairs = [
        ("reads", ".".join(part.text for part in sink.item)),
        ("catalog", made.catalog),
        ("table", f"{action} {made.table}"),
        ("mode", made.mode),
        ("key", ", ".join(made.identifier_fields) if spec.commit_mode is CommitMode.UPSERT else ""),
        ("combined", ", ".join(f"{name}: {way}" for name, way in spec.combine.items())),
        ("partitioned by", ", ".join(made.partition)),
        ("commits", pace(spec)),
        ("reads from", made.start or "the beginning"),
        ("rows to read", made.rows_text),
        *((f"column {one.name}", f"{one.type} ({one.change})" if one.change else one.type) for one in made.columns),
    ]
    return Answer(title, columns=("property", "value"), rows=tuple((k, str(v)) for k, v in pairs if v), notes=made.notes)
