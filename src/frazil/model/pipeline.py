"""A pipeline: one source, one sink, and what happens between. And a file's worth of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pydantic import Field

from frazil.errors import FrazilError, SourceLocation
from frazil.model.base import Model, Problem
from frazil.model.cases import CaseSpec
from frazil.model.changes import ORDER_OF_MESSAGES, WITHOUT_ORDER, CommitMode
from frazil.model.dead_letters import OnError
from frazil.model.history import LEAVE_TO_SOURCE, WITHOUT_TIME_OF_DELETES
from frazil.model.settings import RetrySettings, Settings
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaCluster, KafkaSource, PostgresCdcSource, SourceSpec, TableSource
from frazil.model.transform import (
    FilterRows,
    RemoveField,
    RenameField,
    RowTransform,
    TransformSpec,
    UnwrapDebezium,
    WhereRows,
)


class LetterTopic(Model):
    """A topic that gets a copy of the dead letters."""

    topic: str
    cluster: KafkaCluster


class Advice(Model):
    """What the user's own file adds to an error: its position, and the fix in terms of the file's keys."""

    place: SourceLocation | None = None
    fix: str = ""


class PipelineSpec(Model):
    """Everything the engine needs to know of one pipeline."""

    name: str
    source_name: str
    source: SourceSpec
    sink_name: str
    sink: SinkSpec
    transforms: tuple[TransformSpec, ...] = ()
    tests: tuple[CaseSpec, ...] = ()
    enabled: bool = True
    rate_limit: int | None = Field(None, ge=1, description="Most rows per second.")
    dead_letter_topic: LetterTopic | None = None
    once: bool = Field(False, description="Whether it reads what is there, and ends, however the others run.")
    retry: RetrySettings | None = Field(None, description="How its failed calls are tried again; as the settings say when None.")
    place: SourceLocation | None = Field(
        None, exclude=True, repr=False, description="Where it stands, for what shows only when it runs."
    )
    advice: dict[str, Advice] = Field(
        default_factory=dict,
        exclude=True,
        repr=False,
        description="Of errors that show only when it runs, by their codes or by the word that these begin with.",
    )

    @property
    def sink_id(self) -> str:
        """The identity in the table's ledger."""
        return self.sink.id or f"{self.name}/{self.sink_name}"


def tell_in_file(error: FrazilError, pipeline: PipelineSpec) -> None:
    """Adds the position and the fix that the pipeline's file has for an error, if any."""
    advise(error, pipeline.advice)


def advise(error: FrazilError, known: Mapping[str, Advice]) -> None:
    """Adds the position and the fix that are known for an error's code, or for the first word of the code."""
    advice = known.get(error.code) or known.get(error.code.partition("-")[0]) or Advice()
    error.location = error.location or advice.place
    error.fix = advice.fix or error.fix


@contextmanager
def located_in_file(pipeline: PipelineSpec) -> Iterator[None]:
    """Errors in the block are reported with the position and the fix of the pipeline's file."""
    try:
        yield
    except FrazilError as error:
        tell_in_file(error, pipeline)
        raise


def pipeline_problems(source: SourceSpec, sink: SinkSpec, transforms: Sequence[RowTransform]) -> list[Problem]:
    """What the sink needs that the source, and what is done to its rows, does not give; each at its key in the sink."""
    unwraps = any(isinstance(transform, UnwrapDebezium) for transform in transforms)
    table = isinstance(source, TableSource) and source.changes
    database = isinstance(source, PostgresCdcSource)
    messages = source if isinstance(source, KafkaSource) else None
    problems = sink.unmet_by(
        keys=table or database or (messages is not None and messages.tells_keys),
        operations=table or database or unwraps or (messages is not None and messages.tells_operations),
        images=table or unwraps or (messages is not None and messages.enveloped),
        times=table or database or unwraps or (messages is not None and messages.enveloped),
    )
    if table or database:
        problems += [
            Problem(f"history: {WITHOUT_TIME_OF_DELETES.format(one.order_by[0])}. {LEAVE_TO_SOURCE}", "order_by")
            for one in (sink, *sink.apart.values())
            if one.history is not None and one.order_by
        ][:1]
    if messages is not None:
        problems += _order_problems(messages, (sink, *sink.apart.values()), transforms)[:1]
    if isinstance(source, PostgresCdcSource) and len(source.streams) > 1 and sink.route is None:
        words = f"the source has {len(source.streams)} tables, whose columns differ: they cannot become one"
        problems.append(Problem(f"{words}; write `route: {{source: true}}` instead", "table"))
    return problems


# Transforms after which columns of other names are what they were.
_KEEPING = (RenameField, RemoveField, FilterRows, WhereRows)


def _order_problems(source: KafkaSource, sinks: Iterable[SinkSpec], transforms: Sequence[RowTransform]) -> list[Problem]:
    """Which message of a key is the last must be known of those without a value, too, as far as it shows before messages come."""
    ordered = [one.order_by[0] for one in sinks if one.commit_mode is CommitMode.UPSERT and one.order_by]
    if (keys := source.declared_key_columns) is None or not all(isinstance(one, _KEEPING) for one in transforms):
        return []
    return [
        Problem(f"order_by: {WITHOUT_ORDER.format(name)}; {ORDER_OF_MESSAGES}", "order_by")
        for name in ordered
        if source.only_of_values([_as_read(name, transforms)], keys)
    ]


def _as_read(name: str, transforms: Sequence[RowTransform]) -> str:
    """What a column, or the one that a path begins with, was called before it was renamed."""
    top = name.partition(".")[0]
    for one in reversed(transforms):
        if isinstance(one, RenameField) and one.to == top:
            top = one.from_.partition(".")[0]
    return top


def letters_refused(sink: SinkSpec) -> str | None:
    """Why the sink cannot have a topic for dead letters: its options handle bad rows in another way."""
    chosen = sink.error_handling is not OnError.STOP or "on_error" in sink.model_fields_set
    if not chosen or sink.error_handling is OnError.DEAD_LETTER:
        return None
    return f"has no meaning with on_error: {sink.error_handling}; it belongs to dead_letter"


class ProjectSpec(Model):
    """The pipelines of one file with their settings, and the file's sources and sinks, used or not."""

    file: str
    sources: dict[str, SourceSpec] = Field(default_factory=dict)
    sinks: dict[str, SinkSpec] = Field(default_factory=dict)
    pipelines: tuple[PipelineSpec, ...] = ()
    settings: Settings = Settings()
    notices: tuple[str, ...] = Field((), description="What a person should know of the file, though it is right.")
    places: dict[str, SourceLocation] = Field(
        default_factory=dict, exclude=True, repr=False, description="Where each key stands: `sinks.lake.config.table`."
    )
