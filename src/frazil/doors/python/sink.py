"""The Python door: `frazil.sink(df).to("lake.db.t").write()`, and a callable for foreachBatch."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from pydantic import BaseModel, ValidationError

from frazil.doors.python.options import CatalogOptions, RetryOptions, SinkOptions, TriggerOptions
from frazil.errors import ConfigError
from frazil.model.arguments import argument_errors, located_at_caller, unknown
from frazil.model.catalog import CatalogSpec
from frazil.model.events import Committed, Listener, notify_all
from frazil.model.html import facts_html
from frazil.model.secrets import masked, remember, secret_values
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from frazil.model.publishing import Publication
    from frazil.runtime.single_write import BatchSink
    from frazil.write.many_tables import RoutedWriter
    from frazil.write.writer import SinkWriter

log = logging.getLogger("frazil.python")

CODE = "sink-option"
_TABLE_EXAMPLE = 'Write for example .to("lake.sales.orders").'


@dataclass(frozen=True)
class Sink:
    """A sink being described. Every method gives a new one; `write`, `start` and a call do the work.

    A wrong option is refused by the method that is given it; what does not fit together, by `write` and `start`.

    As a callable it is what `foreachBatch` takes: `df.writeStream.foreachBatch(frazil.sink().to("lake.db.t"))`.
    """

    frame: DataFrame | None = None
    options_given: tuple[tuple[str, Any], ...] = ()
    checkpoint_location: str | None = None
    trigger_given: tuple[tuple[str, Any], ...] = ()
    listeners: tuple[Listener, ...] = ()
    retry_given: tuple[tuple[str, Any], ...] = ()
    _cell: _Cell | None = None

    @located_at_caller
    def __post_init__(self) -> None:
        if self.frame is not None:
            from frazil.runtime.single_write import is_data_frame

            if not is_data_frame(self.frame):
                raise ConfigError(
                    "no-data-frame",
                    f"frazil.sink() takes a Spark data frame, not {type(self.frame).__name__}.",
                    fix="Make one with spark.createDataFrame(...), or describe a sink without: frazil.sink().",
                )

    @located_at_caller
    def to(self, table: str) -> Sink:
        """The table, behind its catalog and namespace: `lake.sales.orders`, `lake.eu.sales.orders`."""
        parts = table.split(".") if isinstance(table, str) else []
        if len(parts) < 3 or not all(parts):
            raise ConfigError("table-name", f"{table!r} is not catalog.namespace.table.", fix=_TABLE_EXAMPLE)
        catalog = self._catalog_given or {"type": "spark"}
        return self.options(catalog=catalog | {"name": parts[0]}, namespace=".".join(parts[1:-1]), table=parts[-1])

    @located_at_caller
    def catalog(self, spec: CatalogSpec | Mapping[str, Any] | None = None, /, **settings: Unpack[CatalogOptions]) -> Sink:
        """The catalog, where the Spark session does not know it yet: `catalog(type="sql", sql={...})`."""
        if spec is not None and settings:
            raise ConfigError(CODE, "catalog: it is given as a value and by its options.", fix="Keep one of the two.")
        if spec is not None and not isinstance(spec, CatalogSpec | Mapping):
            raise ConfigError(
                CODE,
                f"catalog: {spec!r} is not the description of a catalog.",
                fix='Write .catalog(type="sql", sql={...}). One that Spark knows is named in .to("name.namespace.table").',
            )
        given = spec.model_dump(exclude_unset=True) if isinstance(spec, CatalogSpec) else dict(spec or settings)
        name = self._catalog_given.get("name")
        return self.options(catalog=given | ({"name": name} if name else {}))

    @located_at_caller
    def mode(self, commit_mode: str) -> Sink:
        """What becomes of rows that are there: `append`, `upsert`, `overwrite` and the others that the pipeline file knows."""
        return self.options(commit_mode=commit_mode)

    @located_at_caller
    def keys(self, *columns: str) -> Sink:
        """The columns that identify a row."""
        return self.options(key_fields=columns)

    @located_at_caller
    def partition_by(self, *fields: str) -> Sink:
        """Partition fields: `partition_by("day(ts)", "bucket(16, id)")`."""
        return self.options(partition_by=fields)

    @located_at_caller
    def id(self, sink_id: str) -> Sink:
        """The sink's stable identity in the table's ledger; each program that writes to the table needs one of its own."""
        return self.options(id=sink_id)

    @located_at_caller
    def options(self, **settings: Unpack[SinkOptions]) -> Sink:
        """Any option of a sink, by its name in the pipeline file."""
        _require_each(SinkSpec, {"catalog": _ANY_CATALOG, **settings})
        return replace(self, options_given=tuple((self._options | dict(settings)).items()), _cell=None)

    @located_at_caller
    def checkpoint(self, location: str | Path) -> Sink:
        """Where Spark keeps the position of a streaming data frame."""
        if not isinstance(location, str | os.PathLike) or not str(location):
            raise ConfigError(CODE, f"checkpoint: {location!r} is not a folder.", fix='Write .checkpoint("/path/of/its/own").')
        return replace(self, checkpoint_location=str(location))

    @located_at_caller
    def trigger(self, **trigger: Unpack[TriggerOptions]) -> Sink:
        """Spark's trigger: `trigger(availableNow=True)`, `trigger(processingTime="10 seconds")`."""
        known = TriggerOptions.__annotations__
        for name in trigger:
            if name not in known:
                raise unknown(name, known, code=CODE, path=f"trigger.{name}")
        if len(trigger) != 1:
            raise ConfigError(CODE, f"trigger: there is one, and {len(trigger)} are given.", fix=f"One of: {', '.join(known)}.")
        return replace(self, trigger_given=tuple(trigger.items()))

    @located_at_caller
    def listen(self, listener: Listener) -> Sink:
        """Adds a function that is called with every event."""
        if not callable(listener):
            raise ConfigError(CODE, f"listen: {listener!r} is not a function.", fix="Give one that takes an event.")
        return replace(self, listeners=(*self.listeners, listener), _cell=None)

    @located_at_caller
    def retry(self, **settings: Unpack[RetryOptions]) -> Sink:
        """How a failed call to the catalog or the store is tried again: `retry(max_retries=3)`, by the names of the file."""
        _require_each(RetrySettings, settings, of="retry")
        return replace(self, retry_given=tuple((dict(self.retry_given) | dict(settings)).items()), _cell=None)

    @located_at_caller
    def write(self, batch: str | None = None) -> Committed:
        """Writes the data frame as one batch and commits it.

        Delivery: this call commits its rows once, whatever answers are lost. A call that is repeated, by a script that is started
        again or by a scheduler, is another batch, and an append adds its rows a second time, unless ``batch`` names it: a name
        that the table has seen is skipped.
        """
        from frazil.runtime.single_write import write_once
        from frazil.spark.running_java import java_watched

        if batch is not None and (not isinstance(batch, str) or not batch):
            raise ConfigError(CODE, f"batch: {batch!r} is not a name.", fix='Write for example write(batch="2026-11-15").')
        frame = self._require_frame(streaming=False)
        with java_watched(frame.sparkSession):
            writer = self._writer(frame, "python")
            done = write_once(writer, frame, batch)
        if done.skipped:
            log.warning(
                "%s has the batch %r of %r already: nothing was written. If another program has given this name, give each an "
                "id of its own: .id(...).",
                done.table, batch, writer.sink_id,
            )  # fmt: skip
        return done

    @located_at_caller
    def start(self) -> StreamingQuery:
        """Starts a streaming query. Delivery: each micro-batch once as long as the checkpoint lives."""
        frame = self._require_frame(streaming=True)
        if self.checkpoint_location is None:
            raise ConfigError(
                "checkpoint-missing",
                "A streaming data frame needs a checkpoint to be exactly-once over restarts.",
                fix='Add .checkpoint("/path/of/its/own").',
            )
        self.spec, self.retry_settings  # noqa: B018 - a wrong option is reported here, not in the stream's thread
        # Each query has a writer of its own: the table and its owner may be others than when the last one ended.
        writer = frame.writeStream.foreachBatch(replace(self, _cell=None)).option("checkpointLocation", self.checkpoint_location)
        if self.trigger_given:
            writer = writer.trigger(**dict(self.trigger_given))
        return writer.start()

    @located_at_caller
    def publish(self, *, dry_run: bool = False) -> Publication:
        """Checks what was written to the branch, and gives it to main if nothing is wrong; with ``dry_run`` it only checks."""
        from frazil.runtime.publish import current_session, publish_sink
        from frazil.spark.running_java import java_watched

        spec, retry, listen = self.spec, self.retry_settings, notify_all(self.listeners)
        session = current_session(self.frame)
        sink_id = spec.id or f"python/{spec.full_name}"
        with java_watched(session):
            return publish_sink(session, spec, sink_id, name=sink_id, retry=retry, listen=listen, dry_run=dry_run)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What `foreachBatch` calls."""
        self._batch_sink(frame, batch_id)

    @property
    @located_at_caller
    def spec(self) -> SinkSpec:
        """The sink as the engine takes it."""
        self._require_table()
        try:
            spec = SinkSpec.model_validate(self._options)
            if problems := spec.unmet_by(keys=False, operations=False):
                raise ConfigError(CODE, f"sink: {problems[0]}")
        except ValidationError as error:
            raise argument_errors(error, SinkSpec, code=CODE) from None
        remember(secret_values(spec))
        return spec

    @property
    def retry_settings(self) -> RetrySettings:
        """How failed calls are tried again, as the engine takes it."""
        return RetrySettings.model_validate(dict(self.retry_given))

    def __repr__(self) -> str:
        return f"Sink({', '.join(filter(None, [self._name, *(f'{name}={value!r}' for name, value in self._facts())]))})"

    def _repr_html_(self) -> str:
        return facts_html(f"Sink {self._name}", self._facts())

    @property
    def _name(self) -> str:
        parts = (self._of_catalog("name"), self._options.get("namespace"), self._options.get("table"))
        return ".".join(str(part) for part in parts if part)

    def _facts(self) -> list[tuple[str, Any]]:
        """What was said so far. It may be wrong still, so that no model has sorted out which of it is secret."""
        rest = {name: value for name, value in self._options.items() if name not in ("catalog", "namespace", "table")}
        facts = {"catalog": self._of_catalog("type"), **rest, "retry": dict(self.retry_given) or None}
        shown = masked(facts | {"checkpoint": self.checkpoint_location})
        return [(name, value) for name, value in shown.items() if value is not None]

    @property
    def _catalog_given(self) -> dict[str, Any]:
        """What was said of the catalog so far."""
        given = self._options.get("catalog", {})
        return given.model_dump(exclude_unset=True) if isinstance(given, CatalogSpec) else dict(given)

    def _of_catalog(self, key: str) -> Any:
        catalog = self._options.get("catalog")
        return catalog.get(key) if isinstance(catalog, Mapping) else getattr(catalog, key, None)

    @property
    def _options(self) -> dict[str, Any]:
        return dict(self.options_given)

    @property
    def _batch_sink(self) -> BatchSink:
        from frazil.runtime.single_write import BatchSink

        if self._cell is None:
            object.__setattr__(self, "_cell", _Cell(BatchSink(self._stream_writer)))
        return self._cell.batch_sink  # type: ignore[union-attr]

    def _stream_writer(self, frame: DataFrame) -> SinkWriter | RoutedWriter:
        return self._writer(frame, "python-stream")

    def _writer(self, frame: DataFrame, kind: str) -> SinkWriter | RoutedWriter:
        """A writer whose id, where none was given, says what kind of writes it makes: both may go into one table."""
        from frazil.columns.schema import require_data
        from frazil.spark.catalogs import catalog_settings
        from frazil.spark.session import require_iceberg, session_for
        from frazil.write.many_tables import RoutedWriter
        from frazil.write.setup import WriterSetup
        from frazil.write.writer import SinkWriter

        spec = self.spec
        require_data(frame.columns, "The data frame")
        require_iceberg(frame.sparkSession)
        session = session_for(frame.sparkSession, catalog_settings(spec))
        sink_id = spec.id or f"{kind}/{spec.full_name}"
        make = SinkWriter if spec.route is None else RoutedWriter
        return make(WriterSetup(session, sink_id, sink_id, self.retry_settings, notify_all(self.listeners)), spec)

    def _require_table(self) -> None:
        """Nothing is said of the table when `.to()` is forgotten, and only a part with options alone."""
        given = self._options
        parts = {"catalog": "catalog", "namespace": "namespace", "table": "route" if given.get("route") else "table"}
        missing = [what for what, option in parts.items() if given.get(option) is None]
        if missing:
            said = "It is not said which table is written" if len(missing) == len(parts) else f"The sink has no {missing[0]}"
            raise ConfigError(CODE, f"{said}.", fix=_TABLE_EXAMPLE)

    def _require_frame(self, *, streaming: bool) -> DataFrame:
        from frazil.spark.running_java import java_watched

        if self.frame is None:
            raise ConfigError("no-data-frame", "There is no data frame to write.", fix="Begin with frazil.sink(df).")
        with java_watched(self.frame.sparkSession):
            is_streaming = self.frame.isStreaming
        if is_streaming != streaming:
            call, other = ("start", "write") if streaming else ("write", "start")
            kind = "not a streaming" if streaming else "a streaming"
            raise ConfigError("wrong-call", f"This is {kind} data frame, which {call}() cannot take.", fix=f"Call {other}().")
        return self.frame


# In place of the sink's own, where single options are looked at.
_ANY_CATALOG = {"type": "memory"}


def _require_each(model: type[BaseModel], given: Mapping[str, Any], of: str = "") -> None:
    """Refuses options that are wrong whatever the others are. Whether all fit together is not known before the last is given."""
    try:
        model.model_validate(dict(given))
    except ValidationError as error:
        # Whether the options fit together is looked at when each of them is right, and is wrong at no place of its own.
        if error.errors(include_url=False)[0]["loc"]:
            raise argument_errors(error, model, code=CODE, of=of) from None


@dataclass(frozen=True)
class _Cell:
    """The one piece of state of a callable sink: the writer that owns the sink over all batches of a process."""

    batch_sink: BatchSink


def sink(frame: DataFrame | None = None) -> Sink:
    """Begins the description of a sink, with the data frame to write or, for foreachBatch, without."""
    return Sink(frame)
