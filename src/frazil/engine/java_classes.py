"""Java's classes by their names."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaPackage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """A class; None where Spark was started without the jar that has it."""
    found: Any = reduce(getattr, name.split("."), spark._jvm)
    # A name that the JVM does not know is taken for a package's.
    return None if isinstance(found, JavaPackage) else found
