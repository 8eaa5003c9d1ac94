"""The tables of a Bizon file: which there are, which topics are written to them, and how each is laid out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frazil.doors.bizon.columns import ENVELOPE, bizon_column, table_type, with_partition_columns
from frazil.doors.bizon.context import Context
from frazil.doors.bizon.destination import SchemaField, TableEntry, TimePartition
from frazil.doors.bizon.source import KafkaEntry
from frazil.model.changes import CommitMode, Reader
from frazil.model.names import nearest
from frazil.model.partition import PartitionField, Transform, transform_problem
from frazil.model.types import parse_type
from frazil.reading.document import Path
from frazil.reading.explain import suggestion


@dataclass(frozen=True)
class BizonTable:
    """A table: its options with their positions in the file, and the topics that are written to it."""

    entry: TableEntry
    path: Path
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """How a table is laid out: its columns, and the options of the sink that they decide."""

    fields: tuple[SchemaField, ...]
    options: dict[str, Any]


def layout_of(context: Context, table: BizonTable) -> Layout | None:
    """The layout of a table; None when problems were found, which are then in the document."""
    before = len(context.document.problems)
    fields, partitions = _fields(context, table)
    options = _keys(context, table, fields) | {
        "partition_by": _partition(context, table, fields, partitions),
        "sort_by": _sorted(context, table, fields),
    }
    return Layout(fields, options) if len(context.document.problems) == before else None


def declared_tables(context: Context) -> list[BizonTable] | None:
    """The tables that the document declares; None when it does not."""
    entries = context.config.destination_table_config
    if entries is None:
        return None
    base = (*context.home("destination_table_config"), "destination_table_config")
    known = [BizonTable(entry, (*base, number)) for number, entry in enumerate(entries)]
    names = [table.entry.destination_id for table in known]
    for number, name in enumerate(names):
        if name in names[:number]:
            message = f"the table {name} stands there twice"
            context.problem("invalid-value", message, (*base, number, "destination_id"))
    return known


def tables_of(context: Context) -> list[BizonTable]:
    """All tables of a document that reads topics: those that are declared, and those that only topics name."""
    known = [_under_its_own_name(context, table) for table in declared_tables(context) or ()]
    topics = _topics(context)
    if not topics and context.file.source is None and not known:
        # A part that names no table is checked as one of any.
        return [BizonTable(TableEntry(destination_id=context.config.destination_id or "bigquery_iceberg"), ())]
    names = [table.entry.destination_id for table in known]
    declared = [
        replace(table, topics=tuple(topic for _, topic in topics.get(name, ()))) for name, table in zip(names, known, strict=True)
    ]
    if context.file.source is not None:
        context.notices += [
            ((*table.path, "destination_id"), f"no topic feeds the table `{table.entry.destination_id}`: it is not written")
            for table in declared
            if not table.topics
        ]
    others = {name: led for name, led in topics.items() if name not in names}
    if known:
        for name, led in others.items():
            tell_undeclared(context, name, names, ("source", "topics", led[0][0]))
    return declared + [
        BizonTable(TableEntry(destination_id=name), ("source", "topics", led[0][0]), tuple(topic for _, topic in led))
        for name, led in others.items()
    ]


def tell_undeclared(context: Context, name: str, known: Sequence[str], path: Path) -> None:
    """Reports a table that none of the declared ones is: Bizon makes one of its own columns then."""
    near = suggestion(name, known, f"Declared are: {', '.join(known)}.")
    words = f"no table is declared for the destination_id `{name}`: it is made with the columns of Bizon's envelope. {near}"
    context.notices.append((path, words))


def _topics(context: Context) -> dict[str, list[tuple[int, str]]]:
    """The topics, with their numbers, by the table that they are written to."""
    led: dict[str, list[tuple[int, str]]] = {}
    source = context.file.source
    for number, topic in enumerate(source.topics if isinstance(source, KafkaEntry) else ()):
        path: Path = ("source", "topics", number)
        name = topic.destination_id or context.config.destination_id
        if name is None:
            message = f"the topic {topic.name} has no destination_id, and neither has the destination"
            context.problem("missing-key", message, path, "Add `destination_id`.")
        elif (table := _table_name(context, name, path)) is None:
            message = f"`{name}` is no name of a table: a dot would begin a namespace"
            fix = "Write the table's name, or project.dataset.table."
            context.problem("invalid-value", message, (*path, "destination_id"), fix, at_value=True)
        else:
            led.setdefault(table, []).append((number, topic.name))
    return led


def _under_its_own_name(context: Context, table: BizonTable) -> BizonTable:
    name = _table_name(context, table.entry.destination_id, table.path) or table.entry.destination_id
    return replace(table, entry=table.entry.model_copy(update={"destination_id": name}))


def _table_name(context: Context, name: str, path: Path) -> str | None:
    """The table that a destination_id means: as for Bizon it may be the whole name that the table has in BigQuery."""
    *place, table = name.split(".")
    if not place:
        return table
    if len(place) != 2 or not all((*place, table)):
        return None
    shown = (context.config.project_id, context.config.dataset_id)
    if tuple(place) != shown:
        words = f"the table of `{name}` is called `{table}`; BigQuery shows it in the dataset_id of the destination"
        context.notices.append((path, words))
    return table


def _fields(context: Context, table: BizonTable) -> tuple[tuple[SchemaField, ...], tuple[TimePartition, ...]]:
    entry = table.entry
    fields = entry.iceberg_schema or context.file.iceberg_schema or (ENVELOPE if context.file.source is not None else ())
    partitions = context.config.time_partitioning if entry.time_partitioning is None else entry.time_partitioning
    names = [one.column.lower() for one in fields]
    for number, one in enumerate(fields):
        if one.column.lower() in names[:number]:
            context.problem("invalid-value", f"column {one.column!r} is declared twice", (*table.path, "iceberg_schema"))
    return with_partition_columns(fields, partitions or ()) if fields else (), partitions or ()


def _partition(
    context: Context, table: BizonTable, fields: Sequence[SchemaField], partitions: Sequence[TimePartition]
) -> tuple[PartitionField, ...]:
    """Partition fields by the names of the columns; in the file stand those of the data."""
    # Those of Bizon's own have two names in the older form.
    by_source = {name: one for one in fields for name in (one.source, bizon_column(one)) if name is not None}
    own = table.entry.time_partitioning is not None
    base = (*(table.path if own else context.home("time_partitioning")), "time_partitioning")
    made = []
    for number, one in enumerate(partitions):
        column = by_source.get(one.field)
        path: Path = (*base, number, "field")
        transform = Transform(one.type.lower())
        if not fields:  # a part of a file, which does not say what the table has
            made.append(PartitionField(source=one.field, transform=transform))
            continue
        if column is None:
            near = nearest(one.field, by_source)
            renamed = next((known.source for known in fields if known.column == one.field), None)
            name = table.entry.destination_id
            message = f"time_partitioning: there is no field `{one.field}` in the data of `{name}`"
            fix = f"Did you mean `{renamed or near}`?" if renamed or near else f"Fields: {', '.join(by_source)}."
            context.problem("invalid-value", message, path, fix, at_value=True)
            continue
        field_ = PartitionField(source=column.column, transform=transform)
        if problem := transform_problem(field_, parse_type(table_type(column)).name):
            context.problem("invalid-value", problem, path, at_value=True)
        made.append(field_)
    return tuple(made)


def _keys(context: Context, table: BizonTable, fields: Sequence[SchemaField]) -> dict[str, Any]:
    upsert = table.entry.upsert or context.config.upsert
    if upsert is None or not upsert.enabled:
        return {}
    path = (*(table.path if table.entry.upsert is not None else context.home("upsert")), "upsert")
    if not (upsert.when_matched_update_all or upsert.when_not_matched_insert_all):
        message = "when_matched_update_all and when_not_matched_insert_all are both false: a batch would change nothing"
        context.problem("invalid-value", message, (*path, "when_matched_update_all"))
        return {}
    names = _named(context, table, fields, upsert.join_cols, (*path, "join_cols"), case_sensitive=upsert.case_sensitive)
    return {
        "commit_mode": CommitMode.UPSERT,
        "key_fields": names,
        "case_sensitive": upsert.case_sensitive,
        "when_matched_update_all": upsert.when_matched_update_all,
        "when_not_matched_insert_all": upsert.when_not_matched_insert_all,
        # Those who read tables of Bizon's: neither PyIceberg nor BigQuery has to read equality deletes.
        "readers": (Reader.PYICEBERG,),
    }


def _named(
    context: Context, table: BizonTable, fields: Sequence[SchemaField], names: Iterable[str], path: Path, *, case_sensitive: bool
) -> tuple[str, ...]:
    """Columns of the table that an option names."""
    if not fields:
        return tuple(names)
    known = {one.column if case_sensitive else one.column.lower(): one.column for one in fields}
    found = []
    for number, name in enumerate(names):
        column = known.get(name if case_sensitive else name.lower())
        if column is None:
            message = f"{path[-1]}: the table `{table.entry.destination_id}` has no column `{name}`"
            fix = suggestion(name, known.values(), f"Columns: {', '.join(known.values())}.")
            context.problem("invalid-value", message, (*path, number), fix, at_value=True)
        else:
            found.append(column)
    return tuple(found)


def _sorted(context: Context, table: BizonTable, fields: Sequence[SchemaField]) -> tuple[str, ...]:
    """The columns that rows are sorted by. Bizon takes no notice of names that are no columns."""
    keys = table.entry.clustering_keys
    known = {one.column for one in fields}
    unknown = [(number, name) for number, name in enumerate(keys) if fields and name not in known]
    for number, name in unknown:
        near = suggestion(name, known, f"Columns: {', '.join(sorted(known))}.")
        words = f"`{name}` has no effect: the table `{table.entry.destination_id}` has no column of this name. {near}"
        context.notices.append(((*table.path, "clustering_keys", number), words))
    return tuple(name for name in keys if not fields or name in known)
