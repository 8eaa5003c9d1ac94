"""What is wrong when a table of Spark's catalogs cannot be read."""

from __future__ import annotations

from contextlib import AbstractContextManager

from pyspark.errors import AnalysisException

from frazil.errors import ConfigError, FrazilError, Halted, SourceMissing
from frazil.sources.failures import asking_spark, one_line, whole_text

_UNKNOWN_TABLE = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE")


def asking(table: str) -> AbstractContextManager[None]:
    """Turns what Spark raises within, when it is asked for a table, into frazil's errors."""

    def explain(error: Exception) -> FrazilError | None:
        if not isinstance(error, AnalysisException):
            return files_gone(table, error)
        if error.getCondition() in _UNKNOWN_TABLE:
            return SourceMissing(
                "source-missing",
                f"Spark knows no table {table}.",
                fix="Write it as catalog.namespace.table, and check that the catalog is configured.",
            )
        return ConfigError("source-not-readable", f"The table {table} cannot be read: {one_line(error)}")

    return asking_spark(f"The table {table}", explain)


def files_gone(table: str, error: Exception) -> FrazilError | None:
    """What an error means that a missing file has caused; None for others."""
    text = whole_text(error)
    if "NotFoundException" in text and "Failed to open" in text:
        return Halted(
            "source-files-gone",
            f"A data file of {table} is gone while it is read: {one_line(error)}",
            fix="A snapshot expired too early. Start again; keep snapshots for longer than a batch takes.",
        )
    return None
