"""The Java that Spark runs on: its classes by their names, and its end."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaPackage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Names:
    """A package of Java, or all of them, with what was found in it: to ask for a name makes Java look through all of its jars."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._package, name)
        unknown = isinstance(found, JavaPackage)
        kept = _Names(found) if unknown else found
        # A name that the JVM does not know is taken for a package's. A class may come later, with its jar.
        if name[:1].islower() or not unknown:
            setattr(self, name, kept)
        return kept


_known: WeakKeyDictionary[Any, _Names] = WeakKeyDictionary()


def java_names(jvm: Any) -> Any:
    """All packages and classes of a Java, to be asked for by their names, each of which is looked up once."""
    return _known.setdefault(jvm, _Names(jvm))


def java_class(spark: SparkSession, name: str) -> Any:
    """A class; None where Spark was started without the jar that has it."""
    found = reduce(getattr, name.split("."), java_names(spark._jvm))
    return None if isinstance(found, _Names) else found


def java_environment(spark: SparkSession, name: str) -> str | None:
    """What Java's process has in its environment: what this process had when Java was started."""
    found = java_names(spark._jvm).java.lang.System.getenv(name)
    return None if found is None else str(found)


def task_memory(spark: SparkSession) -> int:
    """The bytes of heap that a task can count on, when as many run beside it as there can be in one process."""
    context: Any = spark.sparkContext
    conf = context.getConf()
    if local := re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?])?", context.master):
        runtime = java_names(spark._jvm).java.lang.Runtime.getRuntime()
        slots = int(runtime.availableProcessors()) if local[1] == "*" else int(local[1] or 1)
        return int(runtime.maxMemory()) // slots
    text = java_names(spark._jvm).org.apache.spark.network.util.JavaUtils
    heap = int(text.byteStringAsMb(conf.get("spark.executor.memory", "1g"))) * 1024 * 1024
    # Where nobody says how many cores an executor has, it may have all that there are.
    cores = int(conf.get("spark.executor.cores", str(context.defaultParallelism)))
    return heap // max(1, cores // int(conf.get("spark.task.cpus", "1")))


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
