"""How rows say what they do to a table, and how a table takes changes: the options of overwrites and upserts."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, field_validator

from frazil.model.base import Model, Problem
from frazil.model.history import WITHOUT_TIME_OF_DELETES, History
from frazil.model.late import MOST_HOURS, OWN_COLUMNS, SUFFIX, Late
from frazil.model.types import Column, Primitive


class CommitMode(StrEnum):
    """How a batch changes the table."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"
    DELETE_INSERT = "delete_insert"


class UpsertStrategy(StrEnum):
    """How an upsert finds the rows that it replaces."""

    AUTO = "auto"
    EQUALITY_DELETE = "equality_delete"
    MERGE = "merge"
    POSITION = "position"


class Combine(StrEnum):
    """How two values of a column become one."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


class MergeMode(StrEnum):
    """What a merge does with the files of rows that it changes."""

    MERGE_ON_READ = "merge-on-read"
    COPY_ON_WRITE = "copy-on-write"


class ChangeFormat(StrEnum):
    """What a row of the source is."""

    ROWS = "rows"
    DEBEZIUM = "debezium"
    TOMBSTONES = "tombstones"


class Reader(StrEnum):
    """An engine that reads the table."""

    SPARK = "spark"
    TRINO = "trino"
    FLINK = "flink"
    DUCKDB = "duckdb"
    DATAFUSION = "datafusion"
    PYICEBERG = "pyiceberg"
    POLARS = "polars"
    DAFT = "daft"


# Readers that refuse a table with equality deletes.
WITHOUT_EQUALITY_DELETES = (Reader.PYICEBERG, Reader.POLARS, Reader.DAFT)


_OPERATIONS = ("insert", "update", "delete", "ignore")
# Flink's word for the row as it was before an update.
_FROM_BEFORE = ("-u",)


class OpValues(Model):
    """Which values of the operation column mean what. Compared as text, upper and lower case alike."""

    insert: tuple[str, ...] = Field(("i", "c", "r", "insert", "create", "read", "+i"), description="A row that is new.")
    update: tuple[str, ...] = Field(("u", "update", "upsert", "+u"), description="A row that replaces one with its key.")
    delete: tuple[str, ...] = Field(("d", "delete", "-d"), description="The row with this key is gone.")
    ignore: tuple[str, ...] = Field(("-u", "m"), description="Nothing to do: an image from before, a message.")

    @field_validator("insert", "update", "delete", "ignore", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def by_value(self) -> dict[str, str]:
        """The meaning of each value, in lower case. What the user says counts before what others mean when nothing is said."""
        said_last = sorted(_OPERATIONS, key=lambda name: name in self.model_fields_set)
        return {value.lower(): name for name in said_last for value in getattr(self, name)}

    @property
    def problems(self) -> list[Problem]:
        """Values that the user gives two meanings."""
        meant: dict[str, str] = {}
        problems = []
        for name in _OPERATIONS:
            for value in getattr(self, name) if name in self.model_fields_set else ():
                if (other := meant.setdefault(value.lower(), name)) != name:
                    words = f"op_values: {value!r} cannot mean both {other} and {name}; upper and lower case are alike"
                    problems.append(Problem(words, "op_values", name))
        return problems


class ChangeOptions(Model):
    """The part of a sink that says how batches change its table."""

    commit_mode: CommitMode = Field(CommitMode.APPEND, description="How a batch changes the table.")
    overwrite_where: str | None = Field(
        None, description="With overwrite: a condition (Spark SQL) on the rows to replace, instead of the batch's own partitions."
    )
    key_fields: tuple[str, ...] = Field((), description="Columns that identify a row; they become identifier fields.")
    replace_by: tuple[tuple[str, ...], ...] = Field(
        (),
        description="With delete_insert: columns by which the batch replaces rows: those go that have the same values in all of "
        "them as a row of the batch. Several lists of columns: those that do in one of the lists.",
    )
    case_sensitive: bool = Field(True, description="Whether key_fields are matched to columns by upper and lower case, too.")
    order_by: tuple[str, ...] = Field(
        (), description="Columns that tell which of several rows with one key in a batch is the last: an offset, an LSN, a time."
    )
    late: Late = Field(
        Late.APPLY,
        description="Upsert: a row whose order_by is below that of the table's row with its key, or of the delete of its key, "
        "is written all the same (`apply`), or left out (`ignore`).",
    )
    tombstone_retention_hours: int = Field(
        168,
        ge=1,
        le=MOST_HOURS,
        description=f"With late: ignore, how long deleted keys are remembered at least, in the table `<table>{SUFFIX}`.",
    )
    change_format: ChangeFormat = Field(
        ChangeFormat.ROWS,
        description="What a source row is: a row; an envelope of Debezium (`before`, `after`, `op`); "
        "or a `key` with a `value` that is null when the row is gone.",
    )
    op_field: str | None = Field(None, description="Column that says insert, update or delete; it is not kept in the table.")
    op_values: OpValues = Field(default_factory=OpValues.model_construct, description="What the values of op_field mean.")

    op_column: str | None = Field(
        None, description="Append: column that is added and says what the row did; deletes are kept as rows, too."
    )
    diff_column: str | None = Field(
        None,
        description="Append: column that is added, 1 for a row that came and -1 for one that went; deletes are kept, too.",
    )
    time_column: str | None = Field(None, description="Append: column that is added, the time at which the batch was read.")

    upsert_strategy: UpsertStrategy = Field(
        UpsertStrategy.AUTO, description="How an upsert finds the rows that it replaces; auto decides for each batch."
    )
    when_matched_update_all: bool = Field(True, description="Upsert: whether a row with a known key replaces the old one.")
    when_not_matched_insert_all: bool = Field(True, description="Upsert: whether a row with a new key is added.")
    partial_updates: bool = Field(False, description="Upsert: columns that a batch does not have keep the table's values.")
    combine: dict[str, Combine] = Field(
        default_factory=dict,
        description="Upsert: columns whose values are combined with those of the table instead of replacing them: "
        "`{amount: sum, latest: max}`. All columns but the keys stand here.",
    )
    unchanged_value: str | None = Field(
        None,
        description="Upsert: a text that stands for a value which did not change and was not sent, "
        "as `__debezium_unavailable_value`; the table's value is kept.",
    )
    unchanged_missing: Literal["stop", "write_null"] = Field(
        "stop",
        description="Upsert: a row lacks a value because that did not change, and the table has no row with its key: "
        "the pipeline stops, or null is written.",
    )
    history: History | None = Field(
        None,
        description="Upsert: the table keeps every version of a row, with the time from which and to which it was valid: `scd2`, "
        "or a mapping that names the columns.",
    )
    merge_mode: MergeMode = Field(
        MergeMode.MERGE_ON_READ, description="Merge: deletes beside the old files, or the old files written anew."
    )
    readers: tuple[Reader, ...] = Field((), description="Who reads the table; decides which kinds of deletes it may hold.")
    max_equality_deletes: int | None = Field(
        1_000_000, ge=0, description="Most equality deletes that a commit may leave; more are turned into positions first."
    )
    max_delete_files: int | None = Field(
        500,
        ge=0,
        description="Most delete files that a commit may leave; more are merged or compacted away. One for each data file may "
        "always be left; with 0, none.",
    )
    max_indexed_rows: int | None = Field(
        500_000_000,
        ge=0,
        description="Upsert: tables with more rows get no key index, which takes up to 48 bytes a row on the driver's disk.",
    )

    @property
    def ignores_late(self) -> bool:
        """Whether a row that is lower in the order than what the table has of its key is left out."""
        return self.late is Late.IGNORE

    @property
    def compares_rows(self) -> bool:
        """Whether it depends on the rows of the table what a batch changes."""
        return self.ignores_late or self.history is not None

    @property
    def has_operations(self) -> bool:
        """Whether rows say what they do."""
        return self.op_field is not None or self.change_format is not ChangeFormat.ROWS

    def key_column(self, key: str, names: Collection[str]) -> str | None:
        """Which of the columns a key field means."""
        if key in names or self.case_sensitive:
            return key if key in names else None
        return next((name for name in names if name.lower() == key.lower()), None)

    @property
    def operations(self) -> dict[str, str]:
        """What the values of op_field mean. The row before an update does nothing, but counts as -1 where rows are counted."""
        meant = self.op_values.by_value
        if self.diff_column is None or "ignore" in self.op_values.model_fields_set:
            return meant
        return meant | {value: "delete" for value in _FROM_BEFORE if meant.get(value) == "ignore"}

    def way_of(self, name: str) -> Combine | None:
        """How a column is combined; columns are not distinguished by case."""
        return next((way for column, way in self.combine.items() if column.lower() == name.lower()), None)

    @property
    def keeps_deletes(self) -> bool:
        """Whether an append keeps deletes as rows."""
        return self.op_column is not None or self.diff_column is not None

    @property
    def change_columns(self) -> tuple[Column, ...]:
        """The columns of the table that the options add."""
        types = {self.op_column: "string", self.diff_column: "int", self.time_column: "timestamptz"}
        if self.history is not None:
            types |= {self.history.current: "boolean", self.history.operation: "string"}
        return tuple(Column(name, Primitive(kind)) for name, kind in types.items() if name is not None)

    @field_validator("history", mode="before")
    @classmethod
    def _kind_alone(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @field_validator("replace_by", mode="before")
    @classmethod
    def _one_list_or_several(cls, value: Any) -> Any:
        if isinstance(value, str):
            return ((value,),)
        return (value,) if isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value) else value

    @field_validator("key_fields", "order_by", "readers", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


# What has a meaning in one mode only: given in another it would be ignored.
_ONLY_UPSERT = (
    "upsert_strategy",
    "max_indexed_rows",
    "when_matched_update_all",
    "when_not_matched_insert_all",
    "partial_updates",
    "combine",
    "unchanged_value",
    "unchanged_missing",
    "history",
    "late",
    "tombstone_retention_hours",
)
# What belongs to both modes that take rows away by the values of their columns.
_ONLY_BY_VALUE = ("merge_mode", "max_equality_deletes", "max_delete_files")


def change_problems(options: ChangeOptions) -> list[Problem]:
    """What does not fit together in the options."""
    upsert = options.commit_mode is CommitMode.UPSERT
    problems = []
    names = [key if options.case_sensitive else key.lower() for key in options.key_fields]
    problems += [
        Problem(f"duplicate column referenced in KEY: {name}", "key_fields")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if not upsert:
        problems += [
            Problem(f"{name} has no meaning with commit_mode: {options.commit_mode}; it belongs to upsert", name)
            for name in _ONLY_UPSERT
            if name in options.model_fields_set
        ]
    by_value = upsert or options.commit_mode is CommitMode.DELETE_INSERT
    if not by_value:
        problems += [
            Problem(
                f"{name} has no meaning with commit_mode: {options.commit_mode}; it belongs to upsert and delete_insert", name
            )
            for name in _ONLY_BY_VALUE
            if name in options.model_fields_set
        ]
    problems += _replacement_problems(options)
    if options.overwrite_where is not None and options.commit_mode is not CommitMode.OVERWRITE:
        words = f"overwrite_where has no meaning with commit_mode: {options.commit_mode}; it belongs to overwrite"
        problems.append(Problem(words, "overwrite_where"))
    problems += _strategy_problems(options) + _operation_problems(options) + _combine_problems(options)
    problems += _order_problems(options) if upsert else []
    return problems + _late_problems(options) + _history_problems(options)


def _history_problems(options: ChangeOptions) -> list[Problem]:
    history = options.history
    if history is None:
        return []
    problems = _times_of_row(options)
    names = [name if options.case_sensitive else name.lower() for name in (*options.key_fields, *history.columns)]
    if len(set(names)) < len(names):
        words = f"history needs four columns of its own, which are no keys: {', '.join(history.columns)}"
        problems.append(Problem(words, "history"))
    excluded = {
        "combine": bool(options.combine),
        "late": options.ignores_late,
        "partial_updates": options.partial_updates,
        "when_matched_update_all": not options.when_matched_update_all,
        "when_not_matched_insert_all": not options.when_not_matched_insert_all,
    }
    return problems + [
        Problem(f"{name} has no meaning with history, which keeps every version as it came", name)
        for name, given in excluded.items()
        if given
    ]


# Where the rows of a change are, in sources whose rows are messages about them.
_ROWS_WITHIN = {ChangeFormat.DEBEZIUM: ("before", "after"), ChangeFormat.TOMBSTONES: ("value",)}


def _times_of_row(options: ChangeOptions) -> list[Problem]:
    """Since when versions are valid must be known of deletes as well, which have no row."""
    within = _ROWS_WITHIN.get(options.change_format, ())
    first = options.order_by[0] if options.order_by else ""
    if first.partition(".")[0] not in within:
        return []
    instead = {
        ChangeFormat.DEBEZIUM: "leave order_by out: versions then begin at `source.ts_ms`",
        ChangeFormat.TOMBSTONES: "name the time of the message, as kafka_timestamp with metadata: [timestamp] in the source",
    }[options.change_format]
    return [Problem(f"history: {WITHOUT_TIME_OF_DELETES.format(first)}; {instead}", "order_by")]


# The row of a change, which a delete does not have.
_ROW_AFTER = {ChangeFormat.DEBEZIUM: "after", ChangeFormat.TOMBSTONES: "value"}
WITHOUT_ORDER = (
    "{!r} is a column of the rows, which a delete does not have: it would count as the first change of its row, not as the last"
)
ORDER_OF_MESSAGES = (
    "name what each message has, as `[kafka_timestamp, kafka_offset]` with `metadata: [timestamp, offset]` in the source"
)


def _order_problems(options: ChangeOptions) -> list[Problem]:
    """Which change of a row is the last must be known of deletes as well, which have no row."""
    first = options.order_by[0] if options.order_by else ""
    if options.history is not None or first.partition(".")[0] != _ROW_AFTER.get(options.change_format):
        return []
    of_debezium = "name what each change has, as `source.lsn` or `source.ts_ms`"
    instead = of_debezium if options.change_format is ChangeFormat.DEBEZIUM else ORDER_OF_MESSAGES
    return [Problem(f"order_by: {WITHOUT_ORDER.format(first)}; {instead}", "order_by")]


_UNCOMBINED = "combine adds rows up that only come: it cannot follow rows that are updated or deleted"


def _combine_problems(options: ChangeOptions) -> list[Problem]:
    if not options.combine:
        return []
    keys = [key.lower() for key in options.key_fields]
    problems = [Problem(f"the key {name!r} cannot be combined", "combine") for name in options.combine if name.lower() in keys]
    if options.has_operations:
        problems.append(Problem(_UNCOMBINED, "combine"))
    excluded = {
        "order_by": bool(options.order_by),
        "partial_updates": options.partial_updates,
        "unchanged_value": options.unchanged_value is not None,
        "when_matched_update_all": not options.when_matched_update_all,
    }
    return problems + [Problem(f"{name} has no meaning with combine", name) for name, given in excluded.items() if given]


def _late_problems(options: ChangeOptions) -> list[Problem]:
    """What does not fit together with late rows that are left out, or would make the table depend on when rows come."""
    if not options.ignores_late:
        words = "tombstone_retention_hours has no meaning without late: ignore"
        given = options.commit_mode is CommitMode.UPSERT and "tombstone_retention_hours" in options.model_fields_set
        return [Problem(words, "tombstone_retention_hours")] if given else []
    problems = []
    if not options.order_by:
        problems.append(Problem("late: ignore needs order_by: the columns that tell which rows are late", "late"))
    if options.change_format is not ChangeFormat.ROWS:
        words = (
            f"late: ignore cannot be used with change_format: {options.change_format}: the table would not have the order of a "
            "delete; unwrap the messages with a transform that adds the order as a column"
        )
        problems.append(Problem(words, "late"))
    if not options.when_matched_update_all:
        words = "late has no meaning with when_matched_update_all: false: rows with known keys are left as they are in any case"
        problems.append(Problem(words, "late"))
    keeps = {"partial_updates": options.partial_updates, "unchanged_value": options.unchanged_value is not None}
    problems += [
        Problem(f"late: ignore cannot be used with {name}: a late row may have values that later rows did not send", "late")
        for name, given in keeps.items()
        if given
    ]
    return problems + [
        Problem(f"{option} cannot have {name!r} with late: ignore: the table of tombstones has a column of this name", option)
        for option, names in (("key_fields", options.key_fields), ("order_by", options.order_by))
        for name in names
        if name in OWN_COLUMNS
    ]


def _replacement_problems(options: ChangeOptions) -> list[Problem]:
    if options.commit_mode is not CommitMode.DELETE_INSERT:
        words = f"replace_by has no meaning with commit_mode: {options.commit_mode}; it belongs to delete_insert"
        return [Problem(words, "replace_by")] if options.replace_by else []
    problems = []
    if not options.replace_by or not all(options.replace_by):
        problems.append(
            Problem("commit_mode: delete_insert needs replace_by: the columns by which rows are replaced", "commit_mode")
        )
    return problems + [
        Problem(f"{name} has no meaning with commit_mode: delete_insert, which adds all rows of a batch", name)
        for name in ("order_by", "change_format")
        if name in options.model_fields_set
    ]


def unmet_by(options: ChangeOptions, *, keys: bool, operations: bool, images: bool, times: bool) -> list[Problem]:
    """What the options need and do not have, given whether the source provides the key columns, the operations, the previous
    rows, and the times of changes.
    """
    problems = []
    if options.commit_mode is CommitMode.DELETE_INSERT and operations:
        words = "commit_mode: delete_insert adds all rows of a batch, and those of this source change: it belongs to upsert"
        problems.append(Problem(words, "commit_mode"))
    images = images or options.change_format is ChangeFormat.DEBEZIUM
    if options.diff_column is not None and not images and (operations or options.change_format is ChangeFormat.TOMBSTONES):
        words = "diff_column would not add up: the source does not tell what a row was before an update; use op_column"
        problems.append(Problem(words, "diff_column"))
    if options.commit_mode is CommitMode.UPSERT and not options.key_fields and not keys:
        problems.append(Problem("upsert sinks must specify a key: add key_fields", "commit_mode"))
    if options.combine and operations:
        problems.append(Problem(_UNCOMBINED, "combine"))
    if options.history is not None and not options.order_by and not times and options.change_format is not ChangeFormat.DEBEZIUM:
        words = "history needs order_by: its first column says since when a version of a row is valid"
        problems.append(Problem(words, "history"))
    if options.commit_mode is CommitMode.APPEND and not options.has_operations and not operations:
        problems += [
            Problem(f"{name} has no meaning without op_field or change_format: rows that say nothing are all inserts", name)
            for name in ("op_column", "diff_column")
            if getattr(options, name) is not None
        ]
    return problems


def _strategy_problems(options: ChangeOptions) -> list[Problem]:
    problems = []
    if not (options.when_matched_update_all or options.when_not_matched_insert_all):
        words = "when_matched_update_all and when_not_matched_insert_all are both false: a batch would change nothing"
        problems.append(Problem(words, "when_matched_update_all"))
    if options.upsert_strategy is UpsertStrategy.EQUALITY_DELETE:
        unable = [reader.value for reader in options.readers if reader in WITHOUT_EQUALITY_DELETES]
        if unable:
            words = f"{', '.join(unable)} cannot read a table with equality deletes: use upsert_strategy: position or auto"
            problems.append(Problem(words, "readers"))
    return problems


def _operation_problems(options: ChangeOptions) -> list[Problem]:
    problems = []
    if options.op_field is not None and options.change_format is not ChangeFormat.ROWS:
        words = f"op_field has no meaning with change_format: {options.change_format}, which has operations of its own"
        problems.append(Problem(words, "op_field"))
    if (
        "op_values" in options.model_fields_set
        and options.op_field is None
        and options.change_format is not ChangeFormat.DEBEZIUM
    ):
        problems.append(Problem("op_values has no meaning without op_field", "op_values"))
    problems += options.op_values.problems
    if options.op_field is not None and options.op_field in options.key_fields:
        problems.append(Problem(f"op_field {options.op_field!r} is not kept in the table and cannot be a key", "op_field"))
    if options.commit_mode is not CommitMode.APPEND:
        problems += [
            Problem(f"{name} has no meaning with commit_mode: {options.commit_mode}; it belongs to append", name)
            for name in ("op_column", "diff_column", "time_column")
            if getattr(options, name) is not None
        ]
    if options.commit_mode is CommitMode.OVERWRITE:
        problems += [
            Problem(f"{name} has no meaning with commit_mode: overwrite", name)
            for name in ("op_field", "order_by", "change_format")
            if name in options.model_fields_set
        ]
    return problems
