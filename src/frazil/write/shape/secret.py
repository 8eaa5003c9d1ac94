"""A secret in an expression. Spark shows the literals of a query in plans, in its UI and event log, and in errors."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession


def secret_text(session: SparkSession, text: str) -> Column:
    """A text that no plan shows: the value of a table of one row, of which plans name the columns only."""
    import pyarrow

    return session.createDataFrame(pyarrow.table({"secret": [text]})).scalar()
