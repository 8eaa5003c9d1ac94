"""The Java that Spark runs on: its classes by their names, and its end."""

from __future__ import annotations

import subprocess
from contextlib import suppress
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


def end_java(spark: SparkSession, seconds: float) -> None:
    """Stops Spark and lets its Java end in peace, which is when it writes what it was told to write at its end."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is None or gateway.proc is None:
        return
    gateway.shutdown()
    # Its Java lives as long as the line to it.
    gateway.proc.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(seconds)
