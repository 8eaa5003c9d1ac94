"""The bridge behind `df.write.format("frazil")`: Spark hands the data frame to this program, see ``jvm/SinkProvider.java``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from frazil.errors import ConfigError, EnvironmentFault, FrazilError
from frazil.spark.running_java import java_class

PROVIDER = "frazil.SinkProvider"

Write = Callable[[DataFrame, Mapping[str, str], str], None]
TakeBatch = Callable[[DataFrame, int], None]
Open = Callable[[Mapping[str, str], list[str], str], TakeBatch]


def is_known(spark: SparkSession) -> bool:
    """Whether Spark was started with frazil's jar."""
    return java_class(spark, PROVIDER) is not None


def register(spark: SparkSession, write: Write, open_: Open) -> None:
    """Lets Spark call these two: for a data frame that is written, and for a query that is started."""
    if not isinstance(spark, SparkSession):
        raise ConfigError("session-option", f"frazil.register() takes a Spark session, not {type(spark).__name__}.")
    provider = java_class(spark, PROVIDER)
    if provider is None:
        raise EnvironmentFault(
            "jars-missing",
            'Spark was started without frazil\'s jar, and does not know the format "frazil".',
            fix='Start it with `--jars "$(frazil jars)"`, or by frazil.session().',
        )
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    provider.register(_Program(spark, write, open_))


class _Program:
    """What Spark calls."""

    def __init__(self, spark: SparkSession, write: Write, open_: Open) -> None:
        self._spark = spark
        self._write = write
        self._open = open_

    def write(self, data: Any, options: Any, mode: str) -> str | None:
        """Writes a data frame; None, or what is wrong."""
        return _error_of(lambda: self._write(_frame(self._spark, data), dict(options), mode))

    def open(self, options: Any, partition_columns: Any, output_mode: str) -> _Batches:
        """A sink for the batches of one query."""
        return _Batches(self._spark, partial(self._open, dict(options), list(partition_columns), output_mode))

    class Java:
        """For py4j."""

        implements = (f"{PROVIDER}$Program",)


class _Batches:
    """What Spark calls for each batch of a query. Wrong options are reported with the first batch, since Spark passes that
    error on.
    """

    def __init__(self, spark: SparkSession, open_: Callable[[], TakeBatch]) -> None:
        self._spark = spark
        self._open = open_
        self._take: TakeBatch | None = None

    def write(self, data: Any, batch: int) -> str | None:
        """Writes one batch; None, or what is wrong."""

        def work() -> None:
            if self._take is None:
                self._take = self._open()
            self._take(_frame(self._spark, data), batch)

        return _error_of(work)

    class Java:
        """For py4j."""

        implements = (f"{PROVIDER}$Batches",)


def _frame(spark: SparkSession, data: Any) -> DataFrame:
    return DataFrame(data, SparkSession(spark.sparkContext, data.sparkSession()))


def _error_of(work: Callable[[], None]) -> str | None:
    """An error for people, as its text: an exception would reach them wrapped in two traces."""
    try:
        work()
    except FrazilError as error:
        return f"{error}"
    return None
