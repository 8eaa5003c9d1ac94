"""Which way an upsert takes, decided for each batch from what is known before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.errors import ConfigError
from frazil.model.changes import WITHOUT_EQUALITY_DELETES, ChangeOptions, Reader, UpsertStrategy
from frazil.model.evolution import Partition
from frazil.model.types import NOT_IN_EQUALITY_DELETES, StructType


@dataclass(frozen=True)
class Facts:
    """What is known of the table and the batch.

    ``disjoint``: no file of the table can hold a key of the batch. ``debt``: how many equality deletes the table holds.
    ``misread``: keys whose equality deletes are not read as they were written. ``unfit``: why a reader of the table's would not
    find its rows by them. ``no_index``: why rows cannot be found by the key index. ``unindexed``: from how many rows of the table
    that would have to be built first. ``vectors``: the table's version of the format has deletion vectors. ``read``: why rows of
    the table were read first, and ``replaces``: whether there are any that the batch replaces, as far as is known.
    """

    empty: bool = False
    disjoint: bool = False
    keys: int = 0
    debt: int = 0
    unchanged: int = 0
    lacks_columns: bool = False
    misread: tuple[str, ...] = ()
    unfit: str | None = None
    no_index: str | None = None
    unindexed: int = 0
    vectors: bool = False
    read: str | None = None
    replaces: bool = True


@dataclass(frozen=True)
class Choice:
    """The way, and why. ``APPEND`` is an upsert that has nothing to replace."""

    way: str
    reason: str

    @property
    def summary(self) -> dict[str, str]:
        """The value as stored in the snapshot's summary."""
        return {"frazil.upsert-strategy": self.way, "frazil.upsert-reason": self.reason}


# To read so many rows for a key index takes seconds. More are read only if that is asked for, or if readers need it.
MOST_INDEXED_AT_ONCE = 10_000_000
APPEND = "append"
EQUALITY_DELETE = UpsertStrategy.EQUALITY_DELETE.value
MERGE = UpsertStrategy.MERGE.value
POSITION = UpsertStrategy.POSITION.value


def choose(options: ChangeOptions, facts: Facts) -> Choice:
    """The way of one batch."""
    choice = _way(options, facts)
    return choice if facts.read is None else Choice(choice.way, f"{choice.reason}; rows of the table were read: {facts.read}")


def uses_index(options: ChangeOptions, facts: Facts) -> bool:
    """Whether the batch finds rows by the key index."""
    return choose(options, facts).way == POSITION


def _way(options: ChangeOptions, facts: Facts) -> Choice:
    if facts.misread and options.upsert_strategy is UpsertStrategy.EQUALITY_DELETE:
        raise ConfigError(
            "key-type",
            f"upsert_strategy: equality_delete cannot be: {why_misread(facts.misread)}.",
            fix="Set upsert_strategy: auto or merge, or declare the column as binary in a new table.",
        )
    if facts.empty:
        return Choice(APPEND, "the table is empty")
    if not facts.replaces:
        return Choice(APPEND, "no row of the table is replaced")
    if options.upsert_strategy is UpsertStrategy.AUTO:
        return _best(options, facts)
    if options.upsert_strategy is UpsertStrategy.POSITION and facts.no_index is not None:
        return Choice(MERGE, facts.no_index)
    return Choice(options.upsert_strategy.value, "asked for")


def _best(options: ChangeOptions, facts: Facts) -> Choice:
    """The way that costs least, where none is asked for."""
    if facts.disjoint:
        return Choice(APPEND, "no file of the table can hold a key of the batch")
    unfit = _spares_deletes(options, facts)
    no_index = facts.no_index or (None if unfit is not None else _spares_index(facts))
    if no_index is None:
        return Choice(POSITION, unfit or "its cost does not grow with the table, and every reader can read it")
    if unfit is not None:
        return Choice(MERGE, f"{unfit}; {no_index}")
    return Choice(EQUALITY_DELETE, f"its cost does not grow with the table; {no_index}")


def _spares_index(facts: Facts) -> str | None:
    """Why equality deletes are to be preferred, where readers can do with them."""
    if not facts.vectors:
        return "version 2 of the table format has no deletion vectors"
    if facts.unindexed > MOST_INDEXED_AT_ONCE:
        return f"a key index would have to be built from {facts.unindexed} rows first"
    return None


def _spares_deletes(options: ChangeOptions, facts: Facts) -> str | None:
    """Why equality deletes would be of no use."""
    unable = [reader.value for reader in options.readers if reader in WITHOUT_EQUALITY_DELETES]
    if unable:
        return f"{', '.join(unable)} cannot read equality deletes"
    if facts.misread:
        return why_misread(facts.misread)
    if facts.unfit is not None:
        return facts.unfit
    limit = options.max_equality_deletes
    if limit is not None and facts.keys > limit and not facts.debt:
        # They would be settled at once, and there is nothing else to settle with them: one commit instead of two.
        return f"its {facts.keys} keys would be more equality deletes than the {limit} that are allowed"
    return None


def unfit_for_duckdb(
    options: ChangeOptions, columns: Sequence[str], schema: StructType, partition: Partition, *, everywhere: bool
) -> str | None:
    """Why DuckDB, if it is among the readers, would read a table wrongly that has equality deletes by such columns.

    Version 1.5 loses rows that have no value in one of the columns, and fails at deletes of one partition by a column of its own.
    """
    if Reader.DUCKDB not in options.readers:
        return None
    optional = [column.name for column in schema.fields if column.name in columns and not column.required]
    if optional:
        return f"duckdb does not find rows without a value in {', '.join(optional)} beside equality deletes by it"
    divided = [source for source, transform in partition if source in columns and transform == "identity"]
    if divided and not everywhere:
        return f"duckdb does not read equality deletes of one partition by its own column ({', '.join(divided)})"
    return None


def misread(columns: Sequence[str], schema: StructType) -> tuple[str, ...]:
    """The key columns whose types equality deletes cannot have."""
    return tuple(c.name for c in schema.fields if c.name in columns and c.type.name in NOT_IN_EQUALITY_DELETES)


def why_misread(columns: Sequence[str]) -> str:
    """The reason against equality deletes by such columns."""
    return f"readers find no rows by equality deletes of {', '.join(columns)}: they misread values of type fixed"


def why_known_rows(options: ChangeOptions, facts: Facts) -> str | None:
    """Why what the table has of the batch's keys decides what becomes of them, if that is so."""
    if not options.when_matched_update_all and not facts.empty:
        return "rows with known keys are left as they are"
    if not options.when_not_matched_insert_all:
        return "rows with new keys are left out"
    if options.combine and not facts.empty and not facts.disjoint:
        return "values are combined with those in the table"
    if options.partial_updates and facts.lacks_columns and not facts.empty:
        return "columns that the batch lacks keep their values"
    if facts.unchanged:
        return f"{facts.unchanged} rows have values that did not change and were not sent"
    return None
