"""A query over tables of several catalogs, answered as plain rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import ParseException, PySparkException

from frazil.errors import ConfigError, DataError
from frazil.iceberg import fault_of
from frazil.iceberg.faults import explain
from frazil.model.settings import Settings
from frazil.spark.catalogs import CatalogSettings
from frazil.spark.session import export_environment, session_for, spark_session, with_scratch
from frazil.write.shape.expressions import PLACE, spark_words


@dataclass(frozen=True)
class Rows:
    """What a query answers. ``more``: there are further rows than these."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False


class QueryRefused(ConfigError):
    """Spark does not understand a query. ``offset`` is where in its text, if that is known."""

    def __init__(self, message: str, offset: int | None) -> None:
        super().__init__("query-refused", message)
        self.offset = offset


def ask(text: str, catalogs: Sequence[CatalogSettings], settings: Settings, limit: int) -> Rows:
    """The first rows of a query's answer. The catalogs are known to it by their names, and to nobody else."""
    export_environment(catalogs)
    spark = spark_session(with_scratch(settings), [component for catalog in catalogs for component in catalog.components])
    session = spark.newSession()
    for catalog in catalogs:
        session = session_for(session, catalog)
    try:
        frame = session.sql(text)
        found = frame.limit(limit + 1).collect()
    except PySparkException as error:
        raise QueryRefused(spark_words(error), _offset(error, text)) from error
    except Exception as error:
        fault = fault_of(error)
        raise explain(fault) or DataError("query-failed", f"The query failed: {fault.line}") from error
    return Rows(tuple(frame.columns), tuple(tuple(row) for row in found[:limit]), len(found) > limit)


def _offset(error: PySparkException, text: str) -> int | None:
    if isinstance(error, ParseException) and (place := PLACE.search(str(error))):
        line, column = int(place[1]), int(place[2])
        return sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column
    contexts = error.getQueryContext()
    return int(contexts[0].startIndex()) if contexts else None
