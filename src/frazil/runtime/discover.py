"""What a source has to offer, as Spark finds it: looked up, never changed."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from frazil.columns.schema import schema_of
from frazil.errors import FrazilError
from frazil.model.discovery import Discovery, OfferedColumn
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.model.source import KafkaSource, SourceSpec
from frazil.runtime.plan import first_rows
from frazil.runtime.runner import start_spark
from frazil.sources import open_source
from frazil.sources.base import Offering, Source
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for

# The number of rows from which columns are inferred.
SAMPLE_ROWS = 1000


def discover(name: str, spec: SourceSpec, readers: Sequence[PipelineSpec], settings: Settings) -> Discovery:
    """What the source's system offers, and the columns of the source's first rows. ``readers`` are the pipelines that read it.

    If the source can list what there is, an error in reading its own rows is only a note: the listing helps to find the cause.
    """
    source = open_source(_from_the_beginning(spec), lambda: looking_session(spec, readers, settings))
    try:
        if not isinstance(source, Offering):
            columns, notes = _columns(source)
            return Discovery(name, spec.connector, columns=columns, notes=notes)
        topics = tuple(source.offers())
        try:
            columns, notes = _columns(source)
        except FrazilError as error:
            columns, notes = (), (f"The columns cannot be looked up: {error.message} {error.fix}".rstrip(),)
        return Discovery(name, spec.connector, topics=topics, columns=columns, notes=notes)
    finally:
        source.close()


def looking_session(spec: SourceSpec, readers: Sequence[PipelineSpec], settings: Settings) -> SparkSession:
    """One in which the catalog of a pipeline that reads the source is known by name, unless looking at it would make it."""
    spark = start_spark(readers, settings, [spec])
    catalog = catalog_settings(readers[0].sink) if readers else None
    return spark if catalog is None or catalog.is_unborn else session_for(spark, catalog.read_only)


def _from_the_beginning(spec: SourceSpec) -> SourceSpec:
    """The source, reading from the earliest position. It has no group, so that no offsets are committed to the cluster."""
    if not isinstance(spec, KafkaSource):
        return spec
    return spec.model_copy(
        update={"start_offset": "earliest", "start_timestamp": None, "start_offsets": {}, "consumer_group": None}
    )


def _columns(source: Source) -> tuple[tuple[OfferedColumn, ...], tuple[str, ...]]:
    """The columns as they would be read, or why they are not known."""
    source.check()
    read = first_rows(source, None, SAMPLE_ROWS).read
    if read is None:
        return (), ("The source has nothing to read now: its columns are not known before it has.",)
    columns = tuple(OfferedColumn(column.name, str(column.type)) for column in schema_of(read()).fields)
    return columns, () if columns else ("The columns are not known before the source has data.",)
