"""Which jars, by component, pipelines and their sources need."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.model.pipeline import PipelineSpec
from frazil.model.source import FilesSource, KafkaSource, SourceFormat, SourceSpec
from frazil.spark.catalogs import catalog_settings


def components_of(pipelines: Sequence[PipelineSpec], sources: Sequence[SourceSpec] = ()) -> frozenset[str]:
    """The jars, by component, that these need."""
    components = [component for pipeline in pipelines for component in catalog_settings(pipeline.sink).components]
    components += ["kafka" for pipeline in pipelines if pipeline.dead_letter_topic is not None]
    components += [part for source in (*(p.source for p in pipelines), *sources) for part in _components(source)]
    return frozenset(components)


def _components(source: SourceSpec) -> tuple[str, ...]:
    """The jars that a source is read with."""
    if isinstance(source, KafkaSource):
        return ("kafka", "avro")
    return ("avro",) if isinstance(source, FilesSource) and source.format is SourceFormat.AVRO else ()
