"""A table that a command names, opened at the place where it is, and the tables that belong to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from frazil.errors import CatalogUnborn
from frazil.iceberg import IcebergTable, Lake
from frazil.model.places import only_place
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import export_environment, session_for, spark_session, with_scratch, with_settings
from frazil.write.deadletters import letters_sink
from frazil.write.tombstones import tombstones_sink


@dataclass(frozen=True)
class Opened:
    """A table, and the sink that says where it is."""

    sink: SinkSpec
    session: SparkSession
    lake: Lake
    table: IcebergTable


def spark_for(sinks: Iterable[SinkSpec], settings: Settings) -> SparkSession:
    """The process's Spark; if it is started, then with what the catalogs and stores of all these sinks need."""
    catalogs = [catalog_settings(sink) for sink in sinks]
    export_environment(catalogs)
    wanted = with_scratch(settings)
    components = sorted({name for catalog in catalogs for name in catalog.components})
    return with_settings(spark_session(wanted, components), wanted, insist=False)


def opened(places: Sequence[SinkSpec], settings: Settings, *, read_only: bool) -> Opened:
    """The table at the one place where it is; of a sink with many tables its home."""
    spark = spark_for(places, settings)

    def look(sink: SinkSpec) -> Opened | None:
        catalog = catalog_settings(sink)
        if catalog.is_unborn:
            # Opening a SQLite catalog makes its file; a file that is not there holds no tables.
            return None
        session = session_for(spark, catalog.read_only if read_only else catalog)
        try:
            lake = Lake(session, catalog.name, sink.catalog.address)
            table = lake.load(sink.namespace_levels, sink.home_table or "", sink.written_branch)
        except CatalogUnborn:
            return None
        return None if table is None else Opened(sink, session, lake, table)

    return only_place(places, look)[1]


def tables_of(home: Opened, sink_id: str | None) -> list[SinkSpec]:
    """The table, and those beside it that the sink with this id has written to, as far as they are there.

    These are the tables of a route and of dead letters, which the ledger names, and the tables of deleted keys.
    """
    sink = home.sink
    state = home.table.states(sink_id).get(sink_id) if sink_id is not None else None
    own = [sink] if sink.route is None else []
    beside: list[SinkSpec] = []
    for name in state.followers if state is not None else ():
        namespace, _, table = name.rpartition(".")
        if sink.route is not None and (namespace, table) != sink.letters_name:
            own.append(sink.routed(table))
        else:
            beside.append(letters_sink(sink.model_copy(update={"dead_letter_table": name})))
    if sink_id is not None:
        beside += [tombstones_sink(one) for one in own if one.ignores_late]
    followers = [one for one in (*own, *beside) if one is not sink]
    return [sink if sink.route is None else sink.home, *_that_exist(home.lake, followers)]


def _that_exist(lake: Lake, sinks: Iterable[SinkSpec]) -> Iterator[SinkSpec]:
    for sink in sinks:
        if lake.load(sink.namespace_levels, sink.table or "") is not None:
            yield sink
