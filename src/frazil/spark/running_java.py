"""The Java that Spark runs on: PySpark's line to it, its classes by their names, whether it still runs, and its end."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from frazil.errors import SparkDied
from frazil.spark.java_process import end_java_now, has_died, spark_died, start_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Environment variables that spark-submit sets for the Python program that it runs.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
_SUBMITTED_SECRET = "PYSPARK_GATEWAY_SECRET"


# The Java option with which jars can be added while it is running.
LATE_JARS = "--add-opens=java.base/jdk.internal.loader=ALL-UNNAMED"


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
    # If the number of an executor's cores is not set, it may have all of them.
    cores = int(conf.get("spark.executor.cores", str(context.defaultParallelism)))
    return heap // max(1, cores // int(conf.get("spark.task.cpus", "1")))


# Life and death


def launch_java(conf: Mapping[str, str], java_home: Path) -> None:
    """Starts a Java with these settings, and lets PySpark use it."""
    from pyspark import SparkContext
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return  # one is there, whose Spark was stopped
    spark_home: str = _find_spark_home()  # type: ignore[no-untyped-call]
    made = start_java(Path(spark_home) / "bin" / "spark-submit", conf, java_home)
    # As spark-submit hands its Java over to a program.
    os.environ |= {SUBMITTED: str(made.port), _SUBMITTED_SECRET: made.secret}
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in (SUBMITTED, _SUBMITTED_SECRET):
            del os.environ[name]
    gateway.proc = made.process
    _processes[gateway.jvm] = made.process
    SparkContext._ensure_initialized(gateway=gateway)


# The process of each Java that was started here; sessions outlive it.
_processes: WeakKeyDictionary[Any, subprocess.Popen[bytes]] = WeakKeyDictionary()


def _process_of(jvm: Any) -> subprocess.Popen[bytes] | None:
    """The process of a Java; None when it was started elsewhere, as by spark-submit."""
    from pyspark import SparkContext

    if jvm in _processes:
        return _processes[jvm]
    gateway: Any = SparkContext._gateway
    return gateway.proc if gateway is not None and gateway.jvm is jvm else None


def java_died(spark: SparkSession) -> bool:
    """Whether the Java of a session has ended by itself."""
    return has_died(_process_of(spark._jvm))


def require_java(spark: SparkSession) -> None:
    """Raises when the Java of a session has ended: nothing that does not call it would notice."""
    if java_died(spark):
        raise spark_died(_process_of(spark._jvm))


@contextmanager
def java_watched(spark: SparkSession) -> Iterator[None]:
    """Whatever goes wrong within while Java has ended is reported as that: every other error is only what came of it."""
    try:
        yield
    except SparkDied:
        raise
    except Exception as error:
        process = _process_of(spark._jvm)
        if has_died(process, is_ending=_is_lost(error)):
            raise spark_died(process) from error
        raise


def require_answer(error: BaseException) -> None:
    """Raises when an error of a call to Java means that Java has ended."""
    from pyspark import SparkContext

    if not _is_lost(error):
        return
    process = None if SparkContext._jvm is None else _process_of(SparkContext._jvm)
    # A call may have been made to a Java that was replaced meanwhile: then only the error shows that.
    if has_died(process, is_ending=True) or isinstance(error, (Py4JNetworkError, ConnectionError)):
        raise spark_died(process) from error


def _is_lost(error: BaseException) -> bool:
    """Whether an error may come of a Java that does not answer. Some of them have no words of their own."""
    return isinstance(error, (Py4JError, ConnectionError)) and not isinstance(error, Py4JJavaError)


def forget_dead_java() -> bool:
    """Lets PySpark forget a Java that has ended, so that another can be started; whether there was one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    gateway: Any = SparkContext._gateway
    if gateway is None or not has_died(gateway.proc):
        return False
    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # nobody waits for the end
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    end_java_now(gateway.proc)  # it has; what is left of the line to it is closed
    return True


def extend_class_path(spark: SparkSession, jars: Iterable[Path]) -> bool:
    """Lets the Java that runs look for classes in these jars, too; whether it can.

    Java's own class loader has a method for that, whose name the specification of its agents promises. It is open to a Java that
    was started with :data:`LATE_JARS`.
    """
    gateway: Any = spark.sparkContext._gateway
    names = java_names(spark._jvm).java.lang
    loader = names.ClassLoader.getSystemClassLoader()
    types, values = gateway.new_array(names.Class, 1), gateway.new_array(names.Object, 1)
    types[0] = names.Class.forName("java.lang.String")
    try:
        append = loader.getClass().getDeclaredMethod("appendToClassPathForInstrumentation", types)
        append.setAccessible(True)
        for jar in jars:
            values[0] = str(jar)
            append.invoke(loader, values)
    except Py4JJavaError:
        return False
    return True


def is_stopped(spark: SparkSession) -> bool:
    """Whether Spark was stopped in this process."""
    return spark.sparkContext._jsc is None


def end_java(spark: SparkSession, seconds: float) -> None:
    """Stops Spark and lets its Java end normally, so that it writes its files at exit."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is None or gateway.proc is None:
        return
    gateway.shutdown()
    # Its Java lives as long as the line to it.
    gateway.proc.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(seconds)
