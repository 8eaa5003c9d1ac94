"""Changes of a table's columns and partition specs, made in a transaction that nobody commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.engine.iceberg.jvm import Jvm, items
from frazil.model.evolution import AddColumn, AddUnpartitionedSpec, TableChange


def evolve(jvm: Jvm, transaction: Any, changes: Sequence[TableChange]) -> None:
    """Makes the changes in the transaction, whose metadata has them from then on; the table itself is not changed."""
    columns = [change for change in changes if isinstance(change, AddColumn)]
    if columns:
        update = transaction.updateSchema()
        for addition in columns:
            # With a parent, even none: without one a dot in the name would be taken for the way to a nested column.
            column = addition.column
            update.addColumn(addition.parent or None, column.name, jvm.column_type(column), column.doc)
        update.commit()
    if any(isinstance(change, AddUnpartitionedSpec) for change in changes):
        update = transaction.updateSpec()
        for field in list(items(transaction.table().spec().fields())):
            update.removeField(field.name())
        update.addNonDefaultSpec().commit()
