"""Tables that Spark knows: what was appended to them, or every change of their rows."""

from frazil.sources.table.appended import SparkTable
from frazil.sources.table.changes import TableChanges

__all__ = ["SparkTable", "TableChanges"]
