"""A lake in a temporary folder: a SQLite catalog, a warehouse, and pipelines that write there instead of elsewhere."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from frazil import files
from frazil.doors.python.pipeline import Pipeline
from frazil.errors import ConfigError
from frazil.model.arguments import argument_errors, functions, located_at_caller
from frazil.model.catalog import DEFAULT_CATALOG_NAME, CatalogSpec
from frazil.model.dead_letters import SUFFIX
from frazil.model.events import Committed, Event, Listener
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.settings import Settings, SparkSettings
from frazil.model.sink import SinkSpec
from frazil.testing.script import ScriptedSource

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

# A test has few rows.
_SPARK = SparkSettings(master="local[2]", app_name="frazil-testing", conf={"spark.sql.shuffle.partitions": "2"})
# What a sink says of places outside of its catalog's warehouse, where a test has no business.
_ELSEWHERE = ("location", "s3", "gcs", "azure", "biglake")
_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
# Values that have no order, or none that is of use.
_UNORDERED = ("map", "struct", "array", "variant")


class TemporaryLake:
    """A catalog and a warehouse of their own, which are gone at the end of the block::

        with TemporaryLake() as lake:
            lake.run("pipeline.yaml", ScriptedSource([{"id": 1}]))
            assert lake.rows("sales.orders") == [{"id": 1}]

    ``name`` is the catalog's: `lake.sales.orders` in Spark. A Spark that runs already is used; otherwise one with two cores is
    started, and stays for the lakes that follow. Each lake has a session of its own, which is the active one until the lake is
    closed.
    """

    @located_at_caller
    def __init__(self, name: str = DEFAULT_CATALOG_NAME) -> None:
        self._open = ExitStack()
        self.name = name
        self.folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="frazil-lake-")))
        sql = {"uri": f"sqlite:///{self.folder / 'catalog.db'}", "warehouse": str(self.folder / "warehouse")}
        self.catalog: dict[str, Any] = {"type": "sql", "name": name, "sql": sql}
        """The catalog as it stands in a pipeline file, and as Python takes it: `frazil.sink(df).catalog(**lake.catalog)`."""
        try:
            self._spec = CatalogSpec.model_validate(self.catalog)
        except ValidationError as error:
            self.close()
            raise argument_errors(error, CatalogSpec, code="run-option") from None

    def __enter__(self) -> TemporaryLake:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Deletes everything. The Spark session that was active before is active again."""
        self._open.close()

    @property
    def connection(self) -> str:
        """The SQL statement that makes the catalog known under its name."""
        options = {"TYPE": "sql", "URI": self.catalog["sql"]["uri"], "WAREHOUSE": self.catalog["sql"]["warehouse"]}
        quoted = {option: value.replace("'", "''") for option, value in options.items()}
        given = ", ".join(f"{option} = '{value}'" for option, value in quoted.items())
        return f'CREATE CONNECTION "{self.name}" TO ICEBERG CATALOG ({given});'

    @cached_property
    def spark(self) -> SparkSession:
        """A Spark session that knows the catalog."""
        from frazil.iceberg import active
        from frazil.spark.catalogs import catalog_settings
        from frazil.spark.session import session_for, spark_session

        known = catalog_settings(SinkSpec(catalog=self._spec))
        session = session_for(spark_session(_SPARK).newSession(), known)
        # PySpark makes a session the active one in passing, and never goes back: what follows the lake would run in it.
        self._open.enter_context(active(session))
        return session

    @located_at_caller
    def run(
        self,
        pipeline: str | Path | Pipeline | PipelineSpec,
        source: ScriptedSource | Mapping[str, ScriptedSource] | None = None,
        *,
        only: Sequence[str] = (),
        once: bool = True,
        env: Mapping[str, str] | None = None,
        listeners: Sequence[Listener] = (),
        stop: threading.Event | None = None,
    ) -> list[Committed]:
        """Runs a pipeline with this lake in place of its catalog; returns the batches that it committed.

        ``pipeline`` is a pipeline file, its text, or a `frazil.Pipeline`. ``source`` replaces its source; where several pipelines
        are run, it is a mapping of their names to sources. What is left of the pipeline is as it is in production: keys,
        transforms, types, options. Only what writes elsewhere is left out: locations and stores of the sink, BigLake, and the
        topic of dead letters. Health and metrics are not served.
        """
        from frazil.runtime.runner import run_project, selected

        project, own = _project(pipeline, env)
        chosen = selected(project, only)
        names = [one.name for one in chosen]
        sources = _by_name(source, names)
        here = tuple(self._here(one) for one in chosen)
        project = project.model_copy(update={"pipelines": here, "settings": _local(project.settings)})
        committed: list[Committed] = []

        def note(event: Event) -> None:
            if event.pipeline in sources:
                sources[event.pipeline].listen(event)
            if isinstance(event, Committed) and not event.skipped:
                committed.append(event)

        everybody = (note, *own, *functions("listeners", listeners, code="run-option"))
        opened = {name: one.on for name, one in sources.items()}
        run_project(project, once=once, listeners=everybody, stop=stop, only=names, sources=opened, session=self.spark)
        return committed

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, `namespace.table`, ordered by its columns from the first to the last."""
        frame = self._frame(table)
        order = [f"`{name.replace('`', '``')}`" for name, kind in frame.dtypes if kind.partition("<")[0] not in _UNORDERED]
        found: list[dict[str, Any]] = (frame.orderBy(*order) if order else frame).toArrow().to_pylist()
        return found

    def arrow(self, table: str) -> pyarrow.Table:
        """The rows of a table as Arrow has them, in no particular order."""
        return self._frame(table).toArrow()

    def snapshots(self, table: str) -> list[dict[str, str]]:
        """The summaries of a table's snapshots from the oldest to the newest, those without rows included."""
        found = sorted(self._frame(table, ".snapshots").collect(), key=lambda row: row.committed_at)
        return [{"operation": row.operation, **row.summary} for row in found]

    def dead_letters(self, table: str) -> list[dict[str, Any]]:
        """The rows that could not be written to a table whose sink has no `dead_letter_table`, and why."""
        self._require(table)
        letters = f"{table}{SUFFIX}"
        return self.rows(letters) if self._has(letters) else []

    def _here(self, pipeline: PipelineSpec) -> PipelineSpec:
        """The pipeline, with a sink that writes to this lake and nowhere else."""
        return pipeline.model_copy(update={"sink": self._sink(pipeline.sink), "dead_letter_topic": None})

    def _sink(self, sink: SinkSpec) -> SinkSpec:
        changed: dict[str, Any] = {name: None for name in _ELSEWHERE if name in sink.model_fields_set}
        changed["catalog"] = self._spec
        changed["write_properties"] = _without_paths(sink.write_properties)
        if sink.route is not None:
            tables = {value: own if isinstance(own, str) else _within(own) for value, own in sink.route.tables.items()}
            changed["route"] = sink.route.model_copy(update={"tables": tables})
        return sink.with_options(**changed)

    def _has(self, table: str) -> bool:
        return self.spark.catalog.tableExists(f"`{self.name}`.{table}")

    def _require(self, table: str) -> None:
        if not self._has(table):
            fix = "Give the name of a table that a run made: namespace.table."
            raise ConfigError("table-missing", f"The lake has no table {table}.", fix=fix)

    def _frame(self, table: str, metadata: str = "") -> DataFrame:
        self._require(table)
        return self.spark.table(f"`{self.name}`.{table}{metadata}")


def _project(
    given: str | Path | Pipeline | PipelineSpec, env: Mapping[str, str] | None
) -> tuple[ProjectSpec, Sequence[Listener]]:
    """What is to be run, and who listens to it."""
    if isinstance(given, Pipeline):
        return ProjectSpec(file="<test>", pipelines=(given.spec,), settings=given.settings), given.listeners
    if isinstance(given, PipelineSpec):
        return ProjectSpec(file="<test>", pipelines=(given,)), ()
    is_text = isinstance(given, str) and "\n" in given
    return (files.load_text(str(given), "<test>", env) if is_text else files.load(given, env)), ()


def _by_name(source: ScriptedSource | Mapping[str, ScriptedSource] | None, names: Sequence[str]) -> Mapping[str, ScriptedSource]:
    """The sources by the names of the pipelines that read them."""
    if source is None:
        return {}
    if isinstance(source, ScriptedSource):
        if len(names) > 1:
            fix = f'Choose one with only=["{names[0]}"], or write {{"{names[0]}": source, ...}}.'
            raise ConfigError("run-option", f"source: it is one source for {len(names)} pipelines.", fix=fix)
        return {names[0]: source}
    if unknown := [name for name in source if name not in names]:
        raise ConfigError("unknown-pipeline", f"source: no pipeline {unknown[0]!r} is run.", fix=f"Known: {', '.join(names)}.")
    if len(set(map(id, source.values()))) < len(source):
        raise ConfigError("run-option", "source: two pipelines have the same source.", fix="Give each its own ScriptedSource.")
    return source


def _local(settings: Settings) -> Settings:
    """The settings for a Spark that runs here, whatever cluster they name."""
    return settings.model_copy(update={"state_dir": None, "spark": settings.spark.model_copy(update={"master": None})})


def _within(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one table of a route, without places outside of the lake."""
    kept = {name: value for name, value in options.items() if name not in _ELSEWHERE}
    return kept | ({"write_properties": _without_paths(kept["write_properties"])} if "write_properties" in kept else {})


def _without_paths(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in _PATHS}
