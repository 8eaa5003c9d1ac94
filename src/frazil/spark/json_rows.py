"""The quick reader of plain JSON messages, which is Java and a column in Spark: see ``jvm/JsonRows.java``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.spark.running_java import java_class

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

READER = "frazil.JsonRows"


def json_rows(spark: SparkSession, messages: Column, carrier: StructType, root: str = "") -> Column | None:
    """The messages of a binary column as structs, with texts for variants; null where a message is not plain.

    ``root`` is the key of the object that counts, or empty for the message itself. None when the session was started without
    frazil's jar, and for a schema with something that is never plain.
    """
    from pyspark.sql.classic.column import Column as ClassicColumn

    reader = java_class(spark, READER)
    if reader is None:
        return None
    made = reader.column(messages._jc, carrier.json(), root)
    return None if made is None else ClassicColumn(made)
