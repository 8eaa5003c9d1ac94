"""Changes of a table's columns and partition specs, made in a transaction that nobody commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

from frazil.iceberg.jvm import Jvm, items
from frazil.model.evolution import (
    AddColumn,
    AddUnpartitionedSpec,
    DropColumn,
    MakeOptional,
    RenameColumn,
    SetPartition,
    TableChange,
    WidenColumn,
)
from frazil.model.partition import PartitionField, Transform
from frazil.model.types import Column


def evolve(jvm: Jvm, transaction: Any, changes: Sequence[TableChange]) -> None:
    """Makes the changes in the transaction, whose metadata has them from then on; the table itself is not changed."""
    # Iceberg looks names up in the schema that an update began with, and the other changes name columns by their new names.
    for renames in _steps([change for change in changes if isinstance(change, RenameColumn)]):
        _update_columns(jvm, transaction, renames)
    others = (AddColumn, WidenColumn, MakeOptional, DropColumn)
    _update_columns(jvm, transaction, [change for change in changes if isinstance(change, others)])
    for change in changes:
        if isinstance(change, SetPartition):
            _set_partition(jvm, transaction, change.fields)
    if any(isinstance(change, AddUnpartitionedSpec) for change in changes):
        update = transaction.updateSpec()
        for field in list(items(transaction.table().spec().fields())):
            update.removeField(field.name())
        update.addNonDefaultSpec().commit()


def _steps(renames: Iterable[RenameColumn]) -> list[list[RenameColumn]]:
    """The renames in as few updates as can be: a name that is given away and taken again is so in different ones."""
    steps: list[list[RenameColumn]] = []
    for change in renames:
        if not steps or {change.path, change.name} & {name for one in steps[-1] for name in (one.path, one.name)}:
            steps.append([])
        steps[-1].append(change)
    return steps


def _update_columns(jvm: Jvm, transaction: Any, changes: Iterable[TableChange]) -> None:
    update = None
    for change in changes:
        update = update or transaction.updateSchema()
        _in_schema(change, update, jvm)
    if update is not None:
        update.commit()


@singledispatch
def _in_schema(change: object, _update: Any, _jvm: Jvm) -> None:
    raise TypeError(type(change))


@_in_schema.register
def _add(change: AddColumn, update: Any, jvm: Jvm) -> None:
    # With a parent, even none: without one a dot in the name would be taken for the way to a nested column.
    column = change.column
    update.addColumn(change.parent or None, column.name, jvm.column_type(column), column.doc)


@_in_schema.register
def _widen(change: WidenColumn, update: Any, jvm: Jvm) -> None:
    update.updateColumn(change.path, jvm.column_type(Column("wider", change.new)))


@_in_schema.register
def _make_optional(change: MakeOptional, update: Any, _jvm: Jvm) -> None:
    update.makeColumnOptional(change.path)


@_in_schema.register
def _rename(change: RenameColumn, update: Any, _jvm: Jvm) -> None:
    update.renameColumn(change.path, change.name)


@_in_schema.register
def _drop(change: DropColumn, update: Any, _jvm: Jvm) -> None:
    update.deleteColumn(change.path)


def _set_partition(jvm: Jvm, transaction: Any, fields: Sequence[PartitionField]) -> None:
    """Takes away the fields that are not asked for, and adds those that are missing; Iceberg gives an earlier one its old id."""
    table = transaction.table()
    wanted = {(field.source, field.iceberg_transform): field for field in fields if field.transform is not Transform.VOID}
    update = transaction.updateSpec()
    for have in list(items(table.spec().fields())):
        source, transform = str(table.schema().findColumnName(have.sourceId())), str(have.transform().toString())
        if transform != Transform.VOID.value and wanted.pop((source, transform), None) is None:
            update.removeField(have.name())
    for field in wanted.values():
        update.addField(field.field_name, _term(jvm, field))
    update.commit()


def _term(jvm: Jvm, field: PartitionField) -> Any:
    expressions = jvm.iceberg.expressions.Expressions
    if field.transform is Transform.IDENTITY:
        return expressions.ref(field.source)
    make = getattr(expressions, field.transform.value)
    return make(field.source) if field.width is None else make(field.source, field.width)
