"""The sink: a table, how it is cut into batches and files, and how batches change it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from frazil.model.base import InconsistencyError, Model, Problem, Texts
from frazil.model.biglake import BigLakeSpec
from frazil.model.catalog import CatalogSpec
from frazil.model.changes import ChangeOptions, CommitMode, change_problems, unmet_by
from frazil.model.coercion import CoercionOptions, coercion_problems, with_error_columns
from frazil.model.dead_letters import SUFFIX, DeadLetterOptions, OnError, dead_letter_problems
from frazil.model.evolving import DroppedColumns, EvolutionOptions, evolution_problems
from frazil.model.expectation import Expectation, expectation_problems
from frazil.model.maintenance import MaintenanceSpec
from frazil.model.names import folder_problem
from frazil.model.partition import PartitionField, Transform, name_problems, whole_fields
from frazil.model.publishing import MAIN, BranchName, PublishSpec, publishing_problems
from frazil.model.route import RouteSpec, UnknownRoute
from frazil.model.sort import SortField
from frazil.model.storage import AzureStorage, GcsStorage, S3Storage, shared_problems
from frazil.model.types import NOT_KEYS, Column, Primitive, StructType, parse_type, unwritable

Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]

MAX_FILE_MB = 512
MOST_ROWS = 1_000_000
# For commits by size: the bytes of a row are an estimate.
MOST_ROWS_BY_SIZE = 100_000_000


class PartitionStrategy(StrEnum):
    """How a new table is partitioned."""

    NONE = "none"
    TABLE_DEFAULT = "table_default"
    IDENTITY = "identity"
    BUCKET = "bucket"
    TIME = "time"


class TimeGranularity(StrEnum):
    """The width of a time partition."""

    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"


class Compression(StrEnum):
    """How data files are compressed."""

    NONE = "none"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    ZSTD = "zstd"
    BROTLI = "brotli"


class FileFormat(StrEnum):
    """The format of data files."""

    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"


# What each format's writer in Iceberg can compress with.
CODECS: dict[FileFormat, tuple[Compression, ...]] = {
    FileFormat.PARQUET: tuple(Compression),
    FileFormat.ORC: (Compression.NONE, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD, Compression.GZIP),
    FileFormat.AVRO: (Compression.NONE, Compression.SNAPPY, Compression.GZIP, Compression.ZSTD),
}


class ColumnSpec(Model):
    """One declared column."""

    name: Name = Field(description="Name of the column.")
    type: str = Field(description="`long`, `decimal(10, 2)`, `timestamptz`, `list<string>`, `struct<a: int>`, ...")
    required: bool = Field(False, description="Whether null is refused.")
    doc: str | None = Field(None, description="Comment kept in the table.")

    @field_validator("type")
    @classmethod
    def _readable(cls, text: str) -> str:
        parse_type(text)
        return text


def columns_by_name(value: Any) -> Any:
    """Declared columns are a list, or a mapping of names to types."""
    if not isinstance(value, dict):
        return value
    return [{"name": name, **kind} if isinstance(kind, dict) else {"name": name, "type": kind} for name, kind in value.items()]


class SinkSpec(ChangeOptions, EvolutionOptions, CoercionOptions, DeadLetterOptions):
    """An Iceberg table as a destination."""

    catalog: CatalogSpec = Field(description="Who knows where the table is.")
    namespace: Name | None = Field(None, description="Namespace; dots nest: `sales.eu`.")
    table: Name | None = Field(None, description="Table name.")
    branch: BranchName | None = Field(
        None, description="Branch of the table that is written to instead of main; made from main's head if it is missing."
    )
    publish: PublishSpec | None = Field(None, description="What `frazil publish` checks before main gets what the branch has.")
    id: Name | None = Field(None, description="Stable identity of the sink in the table's ledger; `pipeline/sink` when left out.")

    batch_size: int = Field(10_000, ge=1, le=MOST_ROWS, description="Rows of a commit: one is made as soon as so many are there.")
    batch_bytes: int | None = Field(
        None,
        ge=1,
        description="Bytes of a commit's files, instead of batch_size: one is made as soon as about so many are there. "
        "What a row takes is learnt from the commits before.",
    )
    max_batch_size: int | None = Field(
        None, ge=1, description="Most rows of one commit while catching up with a backlog; batch_size when left out."
    )
    flush_interval_secs: int = Field(
        60, ge=1, le=3600, description="A commit is made after so many seconds even with fewer rows."
    )

    file_format: FileFormat = Field(FileFormat.PARQUET, description="Format of data files.")
    target_file_size_mb: int = Field(
        128, ge=1, le=1024, description=f"Size at which a file is closed and the next begun; {MAX_FILE_MB} is the cap."
    )
    compression: Compression = Field(Compression.SNAPPY, description="Codec of data files.")
    write_properties: Texts = Field(
        default_factory=dict, description="Iceberg table properties, set when the table is made and for each write."
    )
    format_version: Literal[2, 3] = Field(2, description="Version of the table format of a new table.")
    location: str | None = Field(None, description="Where a new table is put; the catalog decides when left out.")

    partitioning: PartitionStrategy = Field(PartitionStrategy.NONE, description="How a new table is partitioned.")
    partition_fields: tuple[str, ...] = Field((), description="Columns for identity, bucket and time partitioning.")
    num_buckets: int = Field(16, ge=1, description="Buckets of bucket partitioning.")
    time_granularity: TimeGranularity = Field(TimeGranularity.DAY, description="Width of time partitioning.")
    partition_by: tuple[PartitionField, ...] = Field(
        (), description="Any list of transforms: `[day(ts), bucket(16, id)]`; instead of `partitioning`."
    )
    sort_by: tuple[SortField, ...] = Field(
        (),
        description="Order of rows within the files of a new table: `[ts desc, id]`; also `ts desc nulls first`.",
    )
    distribution: Literal["auto", "none", "hash", "range"] = Field(
        "auto",
        description="Whether rows are shuffled to their partitions before writing; auto shuffles where a batch may touch many. "
        "A task holds a file open for each partition only where memory allows, and otherwise sorts its rows.",
    )

    route: RouteSpec | None = Field(None, description="Many tables from one stream, instead of `table`: how rows find theirs.")

    columns: tuple[ColumnSpec, ...] = Field(
        (), alias="schema", description="Declared columns; inferred from the data when left out."
    )
    expect: tuple[Expectation, ...] = Field(
        (), description="What is expected of each row that is written, and what becomes of one that is not like that."
    )
    auto_create_table: bool = Field(True, description="Whether a missing table (and its namespace) is made.")

    maintenance: MaintenanceSpec = Field(
        default_factory=MaintenanceSpec, description="How the table is kept healthy between batches."
    )

    s3: S3Storage | None = Field(None, description="Amazon S3 and compatible stores.")
    gcs: GcsStorage | None = Field(None, description="Google Cloud Storage.")
    azure: AzureStorage | None = Field(None, description="Azure Blob Storage and Data Lake Storage.")
    biglake: BigLakeSpec | None = Field(None, description="External table in BigQuery that follows the table.")

    @field_validator("columns", mode="before")
    @classmethod
    def _columns_by_name(cls, value: Any) -> Any:
        return columns_by_name(value)

    @field_validator("partition_by", "sort_by", mode="before")
    @classmethod
    def _whole_fields(cls, value: Any) -> Any:
        return whole_fields(value)

    @model_validator(mode="after")
    def _consistent(self) -> SinkSpec:
        if problems := sink_problems(self):
            raise InconsistencyError(problems)
        return self

    @property
    def home_table(self) -> str | None:
        """The table whose ledger says how far the sink is: its own, or that without rows of a sink with many."""
        return self.table if self.route is None else self.route.ledger_table

    @property
    def home(self) -> SinkSpec:
        """The sink of that table."""
        if self.route is None:
            return self
        kept = {name: getattr(self, name) for name in ("catalog", "namespace", "s3", "gcs", "azure")}
        return SinkSpec.model_validate(kept | {"table": self.home_table, "schema": [{"name": "batch", "type": "long"}]})

    @property
    def full_name(self) -> str:
        """`namespace.table`, of a sink with many tables that of its home."""
        return f"{self.namespace}.{self.home_table}"

    @property
    def written_branch(self) -> str:
        """The branch that is written to."""
        return self.branch or MAIN

    def with_options(self, **options: Any) -> SinkSpec:
        """A copy with other values for some options, checked as a whole."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return SinkSpec.model_validate(given | options)

    def routed(self, table: str) -> SinkSpec:
        """The sink of one table that rows are routed to."""
        own = self.route.options_of(table) if self.route is not None else {}
        given = {name: getattr(self, name) for name in self.model_fields_set if name not in ("route", "dead_letter_table")}
        for limit in ("max_dead_letters", "max_dead_letter_rate"):
            given.pop(limit, None)
        return SinkSpec.model_validate(given | own | {"table": table})

    def unmet_by(self, *, keys: bool, operations: bool, images: bool = False, times: bool = False) -> list[Problem]:
        """What the sink, or one of its tables, lacks, given whether the source provides keys, operations, previous rows, and the
        times of changes.
        """
        problems = unmet_by(self, keys=keys, operations=operations, images=images, times=times)
        for value, sink in self.apart.items():
            if not problems:
                unmet = unmet_by(sink, keys=keys, operations=operations, images=images, times=times)
                problems += [Problem(f"the table of {value!r}: {one}", "route", "tables", value) for one in unmet]
        return problems

    @property
    def apart(self) -> dict[str, SinkSpec]:
        """What the sink is for those tables of its route that have options of their own, by the value that leads there."""
        given = self.route.tables if self.route is not None else {}
        return {value: self.routed(str(own.get("table", value))) for value, own in given.items() if isinstance(own, dict)}

    @property
    def has_own_key(self) -> bool:
        """Whether rows are known by columns that the sink, or one of its tables, names."""
        return any(one.commit_mode is CommitMode.UPSERT and one.key_fields for one in (self, *self.apart.values()))

    @property
    def counts_rows(self) -> bool:
        """Whether the sink, or one of its tables, counts rows that came and rows that went."""
        return any(one.diff_column is not None for one in (self, *self.apart.values()))

    @property
    def needs_images(self) -> bool:
        """Whether the previous rows of updates may be needed: to find them by the sink's own key, or to count them as gone."""
        return self.has_own_key or self.counts_rows

    @property
    def keeps_versions(self) -> bool:
        """Whether the sink, or one of its tables, keeps every version of a row."""
        return any(one.history is not None for one in (self, *self.apart.values()))

    @property
    def namespace_levels(self) -> tuple[str, ...]:
        """The names of the nested namespaces from the outermost."""
        return tuple((self.namespace or "").split("."))

    @property
    def namespaces(self) -> tuple[tuple[str, ...], ...]:
        """The nested namespaces from the outermost, each with the names of those around it."""
        levels = self.namespace_levels
        return tuple(levels[: depth + 1] for depth in range(len(levels)))

    @property
    def error_handling(self) -> OnError:
        """What becomes of rows that cannot be written."""
        return OnError.COLUMNS if self.error_column is not None else self.on_error

    @property
    def letters_name(self) -> tuple[str, str]:
        """Namespace and table of the dead letters."""
        namespace, _, table = (self.dead_letter_table or f"{self.table or 'frazil'}{SUFFIX}").rpartition(".")
        return namespace or self.namespace or "", table

    @property
    def target_file_bytes(self) -> int:
        """Size at which a file is closed, under the cap."""
        return min(self.target_file_size_mb, MAX_FILE_MB) * 1024 * 1024

    @property
    def rows_per_batch(self) -> int:
        """Most rows of one commit."""
        return max(self.batch_size, self.max_batch_size or 0)

    def rows_wanted(self, row_bytes: float) -> int:
        """With so many rows a commit is due."""
        return self.batch_size if self.batch_bytes is None else max(1, math.ceil(self.batch_bytes / max(row_bytes, 1.0)))

    def rows_planned(self, row_bytes: float) -> int:
        """Most rows of one commit, when a row takes so many bytes."""
        if self.batch_bytes is None:
            return self.rows_per_batch
        return max(self.rows_per_batch, min(self.rows_wanted(row_bytes), self.max_batch_size or MOST_ROWS_BY_SIZE))

    @property
    def partition(self) -> tuple[PartitionField, ...]:
        """The partition fields of a new table, whichever way they were written."""
        if self.partition_by:
            return self.partition_by
        match self.partitioning:
            case PartitionStrategy.IDENTITY:
                return tuple(PartitionField(source=name) for name in self.partition_fields)
            case PartitionStrategy.BUCKET:
                return tuple(
                    PartitionField(source=name, transform=Transform.BUCKET, width=self.num_buckets)
                    for name in self.partition_fields
                )
            case PartitionStrategy.TIME:
                transform = Transform(self.time_granularity.value)
                return tuple(PartitionField(source=name, transform=transform) for name in self.partition_fields)
            case _:
                return ()

    @property
    def declared_schema(self) -> StructType | None:
        """The declared columns as a type, with those that the sink adds; None when the schema is inferred."""
        if not self.columns:
            return None
        declared = [Column(c.name, parse_type(c.type), c.required, c.doc) for c in self.columns]
        names = {column.name for column in declared}
        added = [column for column in (*self._times_of_versions(declared), *self.change_columns) if column.name not in names]
        return with_error_columns(StructType((*declared, *added)), self)

    def _times_of_versions(self, declared: Sequence[Column]) -> tuple[Column, ...]:
        """The columns of a history that have the type of the one that rows are ordered by, if that is declared."""
        if self.history is None:
            return ()
        place, _, within = self.order_by[0].partition(".") if self.order_by else ("", "", "")
        kinds = {column.name: column.type for column in declared}
        by_source = None if self.order_by else Primitive("timestamptz")
        kind = kinds.get(self.history.valid_from) or kinds.get(within or place) or by_source
        return () if kind is None else tuple(Column(name, kind) for name in (self.history.valid_from, self.history.valid_to))

    def replaces_rows_of(self, origin: str) -> bool:
        """Whether rows of one of the source's tables replace those with their keys, so that reading them again doubles none."""
        if self.route is None:
            owners = [self]
        elif self.route.source:
            name = self.route.table_of(origin)
            owners = [] if name is None else [self.routed(name)]
        else:
            names = [self.route.table_of(value) for value in self.route.tables]
            owners = [self, *(self.routed(name) for name in names if name is not None)]
        replacing = [one.commit_mode is CommitMode.UPSERT and one.when_matched_update_all for one in owners]
        return bool(replacing) and all(replacing)


def sink_problems(sink: SinkSpec) -> list[Problem]:
    """What does not fit together in a sink."""
    problems = _partition_problems(sink)
    if sink.compression not in CODECS[sink.file_format]:
        known = ", ".join(codec.value for codec in CODECS[sink.file_format])
        words = f"{sink.file_format} files cannot be compressed with {sink.compression}; known: {known}"
        problems.append(Problem(words, "compression"))
    problems += change_problems(sink) + evolution_problems(sink, _named_columns(sink))
    problems += dead_letter_problems(sink, sink.error_column)
    problems += expectation_problems(sink.expect, sink.on_error, partial_updates=sink.partial_updates)
    columns = sink.declared_schema.fields if sink.declared_schema else ()
    problems += coercion_problems(sink, columns, [n for n in _named_columns(sink) if n[0] != "schema"] + _operation_columns(sink))
    if sink.partial_updates and sink.error_column is not None:
        words = "error_column has no meaning with partial_updates: a wrong value would take the place of the one that is kept"
        problems.append(Problem(words, "error_column"))
    if sink.partial_updates and sink.dropped_columns is DroppedColumns.HARD:
        words = "dropped_columns: hard would drop the columns whose values partial_updates is to keep"
        problems.append(Problem(words, "dropped_columns"))
    problems += _route_problems(sink) + _folder_problems(sink) + shared_problems(sink.catalog.glue, sink.s3)
    problems += publishing_problems(sink.branch, sink.publish, sink.schema_evolution, routed=sink.route is not None)
    if sink.namespace is not None and not all(sink.namespace_levels):
        problems.append(Problem(f"Invalid namespace {sink.namespace!r}: a level is empty", "namespace"))
    if sink.max_batch_size is not None and sink.max_batch_size < sink.batch_size:
        words = "max_batch_size is the cap while catching up and cannot be below batch_size"
        problems.append(Problem(words, "max_batch_size"))
    if sink.batch_bytes is not None and "batch_size" in sink.model_fields_set:
        problems.append(Problem("batch_size and batch_bytes exclude each other", "batch_bytes"))
    return problems + _declared_problems(sink)


def _folder_problems(sink: SinkSpec) -> list[Problem]:
    """Names that would put a table into the folder of another, or out of the warehouse."""
    letters = [] if sink.dead_letter_table is None else sink.dead_letter_table.split(".")
    named = [("namespace", name) for name in sink.namespace_levels] + [("table", sink.table or "")]
    named += [("dead_letter_table", name) for name in letters]
    found = [(option, name, folder_problem(name)) for option, name in named]
    return [Problem(f"{option} cannot be {name!r}: {problem}", option) for option, name, problem in found if problem]


def _route_problems(sink: SinkSpec) -> list[Problem]:
    route = sink.route
    if route is None:
        return []
    problems = []
    if sink.table is not None:
        problems.append(Problem("table has no meaning with route, which decides the table of each row", "table"))
    if sink.error_handling is OnError.COLUMNS:
        words = "on_error: columns has no meaning with route: a row that cannot be read belongs to no table"
        problems.append(Problem(words, "on_error" if "on_error" in sink.model_fields_set else "error_column"))
    if route.unknown is UnknownRoute.DEAD_LETTER and sink.on_error is not OnError.DEAD_LETTER:
        problems.append(Problem("unknown: dead_letter needs on_error: dead_letter", "route", "unknown"))
    if route.atomic and not sink.catalog.may_commit_together:
        words = (
            f"atomic cannot be used with a catalog of type {sink.catalog.type}, which commits one table at a time; a SQL catalog "
            "can commit several, and so can a REST catalog with multi-table transactions"
        )
        problems.append(Problem(words, "route", "atomic"))
    for value, given in route.tables.items():
        if (sink.namespace, route.table_of(value)) == sink.letters_name:
            words = f"the table of {value!r} is that of the dead letters, which takes no rows"
            problems.append(Problem(words, "route", "tables", value))
        if isinstance(given, dict):
            problems += [Problem(problem, "route", "tables", value) for problem in _option_problems(sink, given, value)]
    return problems


def _option_problems(sink: SinkSpec, given: dict[str, Any], value: str) -> list[str]:
    """What is wrong with the options of one table."""
    unknown = [name for name in given if name not in _OWN_OPTIONS]
    if unknown:
        return [f"the table of {value!r} cannot have an option {unknown[0]!r}"]
    try:
        sink.routed(str(given.get("table", value)))
    except ValidationError as error:
        return [f"the table of {value!r}: {found['msg'].removeprefix('Value error, ')}" for found in error.errors()]
    return []


def _named_columns(sink: SinkSpec) -> list[tuple[str, str]]:
    """The table's columns that options name, each with its option."""
    by = "partition_by" if sink.partition_by else "partition_fields"
    named = [("key_fields", key) for key in sink.key_fields]
    return named + [("schema", column.name) for column in sink.columns] + [(by, field.source) for field in sink.partition]


def _operation_columns(sink: SinkSpec) -> list[tuple[str, str]]:
    return [("order_by", name) for name in sink.order_by] + ([("op_field", sink.op_field)] if sink.op_field else [])


def _partition_problems(sink: SinkSpec) -> list[Problem]:
    problems: list[Problem] = []
    by_fields = (PartitionStrategy.IDENTITY, PartitionStrategy.BUCKET, PartitionStrategy.TIME)
    if sink.partitioning in by_fields and not sink.partition_fields:
        words = "Partition fields are required for identity/bucket/time partitioning"
        problems.append(Problem(words, "partitioning"))
    if sink.partition_by and sink.partitioning is not PartitionStrategy.NONE:
        words = "partition_by and partitioning say the same thing twice: keep one of them"
        problems.append(Problem(words, "partition_by"))
    if sink.partition_fields and sink.partitioning not in by_fields:
        words = f"partition_fields has no meaning with partitioning: {sink.partitioning}; write identity, bucket or time"
        problems.append(Problem(words, "partition_fields"))
    for option, strategy in (("num_buckets", PartitionStrategy.BUCKET), ("time_granularity", PartitionStrategy.TIME)):
        if option in sink.model_fields_set and sink.partitioning is not strategy:
            words = f"{option} has no meaning with partitioning: {sink.partitioning}; it belongs to {strategy}"
            problems.append(Problem(words, option))
    by = "partition_by" if sink.partition_by else "partition_fields"
    return problems + [Problem(words, by) for words in name_problems(sink.partition)]


def _declared_problems(sink: SinkSpec) -> list[Problem]:
    schema = sink.declared_schema
    if schema is None:
        return []
    names = [column.name.lower() for column in schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = [Problem(f"column {name!r} is declared twice", "schema") for name in twice]
    problems += [Problem(f"{found.why}. {found.fix}", "schema") for found in unwritable(schema, sink.format_version)]
    columns = {column.name: column for column in schema.fields}
    for key in sink.key_fields:
        name = sink.key_column(key, columns)
        if name is None:
            problems.append(Problem(f"key field {key!r} is not among the declared columns", "key_fields"))
        elif columns[name].type.name in NOT_KEYS:
            words = f"column {name} has type {columns[name].type.name} which cannot be used as an Iceberg equality delete key"
            problems.append(Problem(words, "key_fields"))
    if sink.history is not None and sink.order_by and schema.column(sink.history.valid_from) is None:
        words = f"the type of {sink.history.valid_from!r} is not known: {sink.order_by[0]!r} is not among the declared columns"
        problems.append(Problem(f"{words}; declare {sink.history.valid_from!r} as well", "history"))
    by = "partition_by" if sink.partition_by else "partition_fields"
    problems.extend(
        Problem(f"partition column {field.source!r} is not among the declared columns", by)
        for field in sink.partition
        if schema.column(field.source) is None
    )
    problems.extend(
        Problem(f"sort column {field.of.source!r} is not among the declared columns", "sort_by")
        for field in sink.sort_by
        if schema.column(field.of.source) is None
    )
    problems.extend(
        Problem(f"z-order column {name!r} is not among the declared columns", "maintenance", "z_order")
        for name in sink.maintenance.z_order
        if schema.column(name) is None
    )
    return problems


# What may differ from table to table. The rest belongs to the stream, or to the place where all tables are.
_OWN_OPTIONS = frozenset(
    {"table", "schema", *SinkSpec.model_fields}
    - {"catalog", "namespace", "id", "s3", "gcs", "azure", "route", "columns", "branch", "publish"}
    - {"batch_size", "batch_bytes", "max_batch_size", "flush_interval_secs"}
    - {"error_column", "raw_column", *DeadLetterOptions.model_fields}
)
