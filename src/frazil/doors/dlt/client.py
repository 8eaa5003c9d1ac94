"""The client that dlt's loader talks to: tables made, files committed, dlt's own tables kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from dlt.common import json, logger
from dlt.common.configuration.container import Container
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.client import (
    FollowupJobRequest,
    JobClientBase,
    LoadJob,
    StateInfo,
    StorageSchemaInfo,
    WithStateSync,
)
from dlt.common.destination.exceptions import DestinationUndefinedEntity
from dlt.common.destination.typing import PreparedTableSchema
from dlt.common.pipeline import PipelineContext
from dlt.common.schema import Schema, TSchemaTables
from dlt.common.schema.typing import TLoaderReplaceStrategy, TTableSchemaColumns
from dlt.common.storages.load_package import LoadJobInfo, ParsedLoadJobFileName
from dlt.destinations.job_impl import ReferenceFollowupJobRequest
from dlt.destinations.sql_client import SqlClientBase, WithSqlClient
from dlt.destinations.utils import (
    verify_schema_merge_disposition,
    verify_schema_replace_disposition,
    verify_unsupported_merge_options,
)

from frazil.doors.dlt import hints
from frazil.doors.dlt.configuration import IcebergRestConfiguration, warn_once
from frazil.doors.dlt.errors import dlt_errors
from frazil.doors.dlt.jobs import CommitJob, FileJob
from frazil.doors.dlt.opened import OpenTables
from frazil.doors.dlt.planner import LoadPlanner
from frazil.doors.dlt.quick_look import QuickLook, quick_look
from frazil.doors.dlt.reading import SparkSqlClient, answer, quoted, text
from frazil.doors.dlt.storage import newest_metadata
from frazil.doors.dlt.stored import columns_of
from frazil.model.events import CommitFailed, Event
from frazil.model.sink import SinkSpec
from frazil.runtime.loads import Loader, is_starting, load_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What dlt offers for merges and this destination does not do.
UNSUPPORTED = ("source_filter", "destination_scope", "skip_unchanged_rows", "row_version_column_name")


class IcebergRestClient(JobClientBase, WithStateSync, WithSqlClient, OpenTables):
    """Loads packages into Iceberg tables.

    A file that dlt has written becomes part of a table when all files of the table, and of those nested in it, are there: then
    one job commits each table once, under the load's id. A load that is repeated finds that id in the tables that have it.
    """

    def __init__(self, schema: Schema, config: IcebergRestConfiguration, capabilities: DestinationCapabilitiesContext) -> None:
        config = config.of_dataset(config.normalize_dataset_name(schema))
        super().__init__(schema, config, capabilities)
        self.config: IcebergRestConfiguration = config
        self._sql_client: SparkSqlClient | None = None

    def of_dataset(self, name: str) -> IcebergRestClient:
        """A client for the tables of the same schema in another dataset."""
        other = copy(self)
        other.config = self.config.of_dataset(name)
        other._sql_client = None
        return other

    def __enter__(self) -> IcebergRestClient:
        return self

    def __exit__(self, exc_type: type[BaseException], exc_val: BaseException, exc_tb: TracebackType) -> None:
        """Spark goes on: the next client uses it."""

    # What is there.

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Makes the namespace, and empties tables."""
        self._warn_of_shared_namespace()
        with dlt_errors(f"namespace {self.config.namespace}"):
            self._loader.ensure_namespace(self._sink("any"))
            if self.config.register_new_tables:
                self._register_new_tables()
        for name in truncate_tables or ():
            with dlt_errors(f"table {name}"):
                self._loader.remove(self._sink(name), self._planner.sink_id, "true")

    def is_storage_initialized(self) -> bool:
        """Whether the namespace is there, and the dataset in it has not been dropped.

        A namespace may hold tables of others, and stays when the dataset is dropped. In one that is not empty a dataset is there
        when one of its tables is.
        """
        with dlt_errors(f"namespace {self.config.namespace}"):
            if not self._loader.has_namespace(self._sink("any")):
                return False
            if not self._loader.has_tables(self._sink("any")):
                return True
        own = self.schema.version_table_name
        return not all(self._missing(name) for name in (own, *(name for name in self.schema.tables if name != own)))

    def drop_storage(self) -> None:
        """Drops the tables of the schema and dlt's own, and the namespace when nothing else is in it."""
        self.drop_tables(*self.schema.tables, delete_schema=False)
        with dlt_errors(f"namespace {self.config.namespace}"):
            self._loader.drop_namespace(self._sink("any"))

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Drops tables with their files; those that are not there are as good."""
        for name in tables:
            with dlt_errors(f"table {name}"):
                self._loader.drop(self._sink(name))
        if delete_schema:
            condition = f"{quoted(self._named('schema_name'))} = {text(self.schema.name)}"
            with dlt_errors(f"table {self.schema.version_table_name}"):
                self._loader.remove(self._sink(self.schema.version_table_name), self._planner.sink_id, condition)

    def get_storage_tables(self, table_names: Iterable[str]) -> Iterator[tuple[str, TTableSchemaColumns]]:
        """The columns of tables as they are in the catalog; none of a table that is not there."""
        for name in table_names:
            with dlt_errors(f"table {name}"):
                there = self._loader.columns(self._sink(name))
            yield name, {} if there is None else columns_of(there, self.capabilities)

    def get_storage_table(self, table_name: str) -> tuple[bool, TTableSchemaColumns]:
        """Whether a table is there, and its columns."""
        ((_, columns),) = self.get_storage_tables([table_name])
        return bool(columns), columns

    # The schema.

    def verify_schema(
        self, only_tables: Iterable[str] | None = None, new_jobs: Iterable[ParsedLoadJobFileName] | None = None
    ) -> list[PreparedTableSchema]:
        """Tells of hints that cannot be followed, before anything is written."""
        tables = super().verify_schema(cast(Iterable[str], only_tables), cast(Iterable[ParsedLoadJobFileName], new_jobs))
        problems = verify_schema_merge_disposition(self.schema, tables, self.capabilities, warnings=True)
        problems += verify_schema_replace_disposition(
            self.schema, tables, self.capabilities, cast(TLoaderReplaceStrategy, self.config.replace_strategy), warnings=True
        )
        unsupported = (self.schema, tables, self.capabilities, self.config.destination_type, UNSUPPORTED)
        problems += verify_unsupported_merge_options(*unsupported)
        if problems:
            raise problems[0]
        for table in tables:
            self._planner.require_loadable(table)
        return tables

    def update_stored_schema(
        self, only_tables: Iterable[str] | None = None, expected_update: TSchemaTables | None = None, force: bool = False
    ) -> TSchemaTables | None:
        """Makes the tables that are missing, and remembers the schema. Columns that are new come with the rows that have them."""
        applied = super().update_stored_schema(cast(Iterable[str], only_tables), cast(TSchemaTables, expected_update), force)
        known = self.get_stored_schema_by_hash(self.schema.stored_version_hash)
        if known is not None and not force:
            return {}
        for name in only_tables or self.schema.tables:
            table = self.prepare_load_table(name)
            if table["columns"]:
                with dlt_errors(f"table {name}"):
                    self._loader.create(self._planner.sink_as_loaded(name))
        if known is None:
            self._store_schema()
        return applied

    def should_truncate_table_before_load(self, table_name: str) -> bool:  # noqa: ARG002 - of no table
        """Never: what is replaced goes in the same snapshot in which the new rows come."""
        return False

    # Loads.

    def create_load_job(
        self,
        table: PreparedTableSchema,  # noqa: ARG002 - the loader gives it to the job
        file_path: str,
        load_id: str,  # noqa: ARG002
        restore: bool = False,  # noqa: ARG002 - a job that is done again finds out by itself
    ) -> LoadJob:
        """A job for a file, or for the commit of a chain."""
        return (CommitJob if ReferenceFollowupJobRequest.is_reference_job(file_path) else FileJob)(file_path)

    def create_table_chain_completed_followup_jobs(
        self, table_chain: Sequence[PreparedTableSchema], completed_table_chain_jobs: Sequence[LoadJobInfo] | None = None
    ) -> list[FollowupJobRequest]:
        """One job for the whole chain: several could be cut off between them, and those that are missing are not made again."""
        files = sorted(job.job_file_info.file_id for job in completed_table_chain_jobs or ())
        if not files:
            return []
        name = ParsedLoadJobFileName(hints.name_of(table_chain[0]), files[0], 0, "reference").file_name()
        return [ReferenceFollowupJobRequest(name, [hints.name_of(table) for table in table_chain])]

    def chain_of(self, table_name: str) -> list[PreparedTableSchema]:
        """A table's root and all tables nested in that, as far as they have ever had data."""
        return self._planner.chain_of(table_name)

    def commit(self, load_id: str, chain: Sequence[PreparedTableSchema], files: Mapping[str, Sequence[Path]]) -> None:
        """Commits the files of a chain of tables."""
        with dlt_errors(f"table {chain[0]['name']}"):
            load = self._planner.load(load_id, chain, files)
            for done in self._loader.commit(load):
                logger.info(f"{done.table}: {'was there' if done.skipped else f'snapshot {done.snapshot}'}, {done.counts}")

    def complete_load(self, load_id: str) -> None:
        """Writes down that the load is complete, once."""
        row = {
            "load_id": load_id,
            "schema_name": self.schema.name,
            "status": 0,
            "inserted_at": datetime.now(UTC),
            "schema_version_hash": self.schema.version_hash,
        }
        self._append(self.schema.loads_table_name, row, load_id)

    # What dlt keeps of itself.

    def get_stored_schema(self, schema_name: str | None = None) -> StorageSchemaInfo | None:
        """The newest schema of a name, or of all."""
        return self._schema_row({} if schema_name is None else {self._named("schema_name"): schema_name})

    def get_stored_schema_by_hash(self, version_hash: str) -> StorageSchemaInfo | None:  # type: ignore[override]
        """The schema with a hash."""
        return self._schema_row({self._named("version_hash"): version_hash})

    def get_stored_state(self, pipeline_name: str) -> StateInfo | None:
        """The state of a pipeline that its last complete load has left."""
        state, loads = self.schema.state_table_name, self.schema.loads_table_name

        def find(look: QuickLook) -> dict[str, Any] | None:
            complete = look.values(loads, self._named("load_id"), {self._named("status"): 0})
            by = self._named("_dlt_load_id")
            return look.newest(state, by, by, {self._named("pipeline_name"): pipeline_name}, among=set(complete))

        if (found := self._quickly(find)) is not None:
            return StateInfo.from_normalized_mapping(found[0], self.schema.naming) if found else None
        for name in (state, loads):
            if self._missing(name):
                raise DestinationUndefinedEntity(name)
        load_id = quoted(self._named("_dlt_load_id"))
        rows = self._rows(
            f"SELECT s.* FROM {self._table(state)} s "
            f"JOIN {self._table(loads)} l ON s.{load_id} = l.{quoted(self._named('load_id'))} "
            f"WHERE s.{quoted(self._named('pipeline_name'))} = {text(pipeline_name)} AND l.{quoted(self._named('status'))} = 0 "
            f"ORDER BY s.{load_id} DESC LIMIT 1"
        )
        return StateInfo.from_normalized_mapping(rows[0], self.schema.naming) if rows else None

    def _schema_row(self, equal: Mapping[str, str]) -> StorageSchemaInfo | None:
        name, by = self.schema.version_table_name, self._named("inserted_at")
        try:
            found = self._quickly(lambda look: look.newest(name, by, self._named("version_hash"), equal))
        except DestinationUndefinedEntity:
            return None
        if found is not None:
            return StorageSchemaInfo.from_normalized_mapping(found[0], self.schema.naming) if found else None
        if self._missing(name):
            return None
        where = " AND ".join(f"{quoted(column)} = {text(value)}" for column, value in equal.items()) or "true"
        rows = self._rows(f"SELECT * FROM {self._table(name)} WHERE {where} ORDER BY {quoted(by)} DESC LIMIT 1")
        return StorageSchemaInfo.from_normalized_mapping(rows[0], self.schema.naming) if rows else None

    def _quickly(self, find: Callable[[QuickLook], dict[str, Any] | None]) -> list[dict[str, Any]] | None:
        """The row that is found in dlt's own tables, if any, while Spark is starting; None where Spark has to be asked."""
        if not is_starting():
            return None
        try:
            with quick_look(self.config) as look:
                row = find(look)
        except DestinationUndefinedEntity:
            raise
        except Exception as error:  # noqa: BLE001 - Spark says what is wrong if it cannot read them either
            logger.debug(f"{self.config}: PyIceberg cannot read dlt's own tables, and Spark is waited for: {error}")
            return None
        return [] if row is None else [row]

    def _store_schema(self) -> None:
        row = {
            "version": self.schema.version,
            "engine_version": self.schema.ENGINE_VERSION,
            "inserted_at": datetime.now(UTC),
            "schema_name": self.schema.name,
            "version_hash": self.schema.stored_version_hash,
            "schema": json.dumps(self.schema.to_dict()),
        }
        self._append(self.schema.version_table_name, row)

    def _append(self, name: str, row: Mapping[str, Any], key: str | None = None) -> None:
        sink = self._planner.sink_as_loaded(name)
        with dlt_errors(f"table {name}"):
            self._loader.append_rows(
                sink, self._planner.sink_id, [{self._named(column): value for column, value in row.items()}], key
            )

    # Reading.

    @property
    def session(self) -> SparkSession:
        """The session of Spark that reads and writes the tables."""
        return self._loader.session

    @property
    def sql_client(self) -> SqlClientBase[Any]:
        """Reads the tables through Spark."""
        if self._sql_client is None:
            self._sql_client = SparkSqlClient(self.config.normalize_dataset_name(self.schema), self.capabilities, self)
        return self._sql_client

    @sql_client.setter
    def sql_client(self, client: SparkSqlClient) -> None:
        self._sql_client = client

    @property
    def sql_client_class(self) -> type[SqlClientBase[Any]]:
        """The class of the client that answers queries."""
        return SparkSqlClient

    def _rows(self, query: str) -> list[dict[str, Any]]:
        with dlt_errors():
            rows: list[dict[str, Any]] = answer(self.session.sql(query)).to_pylist()
            return rows

    def _missing(self, name: str) -> bool:
        with dlt_errors(f"table {name}"):
            return self._loader.columns(self._sink(name)) is None

    def _table(self, name: str) -> str:
        return self.config.qualified(name)

    # Values of the model.

    @cached_property
    def _loader(self) -> Loader:
        retry = self.config.retry_settings()
        return Loader(load_lake(self._sink("any"), self.config.spark_settings, retry, _tell), retry, _tell)

    @property
    def _planner(self) -> LoadPlanner:
        return LoadPlanner(self.schema, self.config, self.capabilities, self.prepare_load_table)

    def _sink(self, name: str) -> SinkSpec:
        return self.config.sink(name)

    def _named(self, column: str) -> str:
        return self.schema.naming.normalize_identifier(column)

    def _warn_of_shared_namespace(self) -> None:
        """With `dev_mode` each run has a dataset of its own, which is empty: so its users believe."""
        active = Container()[PipelineContext]
        if not active.is_active() or not getattr(active.pipeline(), "dev_mode", False):
            return
        if self.config.any_namespace == self.config.namespace:
            warn_once(
                f"dev_mode: all runs share the namespace {self.config.namespace!r}, whatever their datasets are called, so that "
                'this one finds the rows of those before it. With namespace="{dataset_name}" each has a namespace of its own.'
            )

    def _register_new_tables(self) -> None:
        for name, metadata in newest_metadata(self.config.searched()):
            sink = self.config.sink("any").model_copy(update={"table": name})
            if self._loader.register(sink, metadata):
                logger.info(f"Registered the table {sink.full_name} from {metadata}")


def _tell(event: Event) -> None:
    if isinstance(event, CommitFailed):
        logger.warning(f"{event.pipeline}: {event.message}{' Trying again.' if event.will_retry else ''}")
