"""A source that is written down in a test: rows, and what happens between them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

from frazil.errors import ConfigError, FrazilError
from frazil.model.arguments import located_at_caller
from frazil.model.commit import Position, position
from frazil.model.events import Committed, Event, Staged
from frazil.model.hidden import CHANGES_MARK, KEY_COUNT_MARK, KEY_MARK, OP, ORDER
from frazil.sources.base import Slice
from frazil.sources.positions import fields_of, unknown_position

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

Moment = Literal["between", "staged", "committed"]

_EVENTS = {"staged": Staged, "committed": Committed}


class Aborted(Exception):
    """The crash that an :class:`ABORT` of a script asked for. It ends the run."""


@dataclass(frozen=True)
class ABORT:
    """The run crashes here, the first time that it comes here. The rows before it are a batch. When it crashes:

    - ``between`` (by default): the batch is committed, and the next one has not begun;
    - ``staged``: the batch's files are written, and it is not committed: the next run reads its rows again;
    - ``committed``: the batch is committed, and the run ends before it knows of that.

    It simulates a crash by an exception, :class:`Aborted`, which ends the run within the process: what the run has in memory is
    lost, and files that it has written stay behind. It does not kill the process, so that Spark lives on.
    """

    moment: Moment = "between"

    def __post_init__(self) -> None:
        if self.moment not in get_args(Moment):
            known = ", ".join(get_args(Moment))
            raise ConfigError("script-item", f"ABORT: there is no moment {self.moment!r}.", fix=f"One of: {known}.")


@dataclass(frozen=True)
class EOF:
    """The source has no more rows for now: the run ends well, and the next one continues after it."""


@dataclass(frozen=True)
class BATCH:
    """The rows before it and those after it are in different batches."""


@dataclass(frozen=True)
class DELETE:
    """A row that deletes the one with the same key."""

    row: Mapping[str, Any]


Mark = ABORT | EOF | BATCH
Item = Mapping[str, Any] | DELETE | Mark


class ScriptedSource:
    """The rows of a list, in its order, with marks between them: :class:`ABORT`, :class:`EOF`, :class:`BATCH`.

    It is a source like the others: the table's ledger says how far it was read, and the next run of the same object continues
    there. Another object is another source, even with the same rows. Each mark ends a batch, and ABORT and EOF work once. The end
    of the list ends a run like an EOF.

    With ``key``, rows are changes of rows that these columns identify, as PostgreSQL and Kafka's keyed messages tell them: a row
    replaces an earlier one with its key, and :class:`DELETE` deletes it. Without, they are rows and nothing more, as in files.

    ``schema`` gives the types of the columns. Otherwise a column has the type that Arrow finds for all of its values in the
    script, and a batch has the columns that its rows name.

    Delivery: a slice is the part of the list between two positions. Parallelism: one task.
    """

    poll_seconds = 0.01

    @located_at_caller
    def __init__(self, script: Iterable[Item], *, key: Sequence[str] = (), schema: pyarrow.Schema | None = None) -> None:
        self._items = _checked(tuple(script), key)
        self._key = tuple(key)
        self._declared = schema is not None
        self._types = _types([row for row in map(_row, self._items) if row is not None], schema)
        self._id = uuid.uuid4().hex[:12]
        self._spark: SparkSession | None = None
        self._worked: set[int] = set()
        self._ended = False
        self._ahead: int | None = None

    def on(self, spark: SparkSession) -> ScriptedSource:
        """The source at the beginning of a run."""
        self._spark, self._ended, self._ahead = spark, False, None
        return self

    def listen(self, event: Event) -> None:
        """Crashes when what happens is the moment of the ABORT behind the batch."""
        if self._ahead is None:
            return
        mark = self._items[self._ahead]
        if isinstance(mark, ABORT) and isinstance(event, _EVENTS[mark.moment]):
            self._abort(self._ahead)

    @property
    def fingerprint(self) -> str:
        """The object, and not its rows: positions count these."""
        return f"script:{self._id}"

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The rows up to the next mark, or up to the limit. A mark without rows before it works at once."""
        at = self._next(_index(start))
        if at == len(self._items):
            return None
        match self._items[at]:
            case ABORT():
                self._abort(at)
            case EOF():
                self._worked.add(at)
                self._ended = True
                return None
        count = sum(1 for _ in takewhile(lambda item: not isinstance(item, Mark), self._items[at : at + limit]))
        return self._slice(start, at + count)

    def between(self, start: Position | None, end: Position) -> Slice:
        """The rows between two places of the list."""
        return self._slice(start, _index(end))

    def finished(self, position: Position | None) -> bool:
        """At an EOF, and at the end of the list."""
        return self._ended or self._next(_index(position)) == len(self._items)

    def total_rows(self, start: Position | None) -> int | None:
        """What is left up to the next EOF."""
        left = range(self._next(_index(start)), len(self._items))
        until = takewhile(lambda at: not isinstance(self._items[at], EOF) or at in self._worked, left)
        return sum(not isinstance(self._items[at], Mark) for at in until)

    def read(self, part: Slice) -> DataFrame:
        """The rows of a slice."""
        import pyarrow as pa

        if self._spark is None:
            raise RuntimeError("the source is read by a run, e.g. TemporaryLake.run(pipeline, source)")
        span = range(_index(part.start), _index(part.end))
        given = [(at, item, row) for at in span if (row := _row(item := self._items[at])) is not None]
        rows = [row for _, _, row in given]
        names = [name for name in self._types if self._declared or any(name in row for row in rows)]
        columns = {name: pa.array([row.get(name) for row in rows], self._types[name]) for name in names}
        if not self._key:
            return self._spark.createDataFrame(pa.table(columns)).coalesce(1)
        columns[OP] = pa.array(["delete" if isinstance(item, DELETE) else "update" for _, item, _ in given])
        columns[ORDER] = pa.array([at for at, _, _ in given])
        frame = self._spark.createDataFrame(pa.table(columns)).coalesce(1)
        for name in self._key:
            frame = frame.withMetadata(name, {KEY_MARK: True})
        return frame.withMetadata(OP, {CHANGES_MARK: True, KEY_COUNT_MARK: len(self._key)})

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: the counts are exact."""

    def committed(self, position: Position) -> None:
        """The list stays as it is."""

    def explain(self, error: Exception) -> FrazilError | None:  # noqa: ARG002 - the protocol's signature
        """Rows of a list can always be read."""
        return None

    def check(self) -> None:
        """Nothing outside is needed."""

    def close(self) -> None:
        """Nothing is held open."""

    def _next(self, at: int) -> int:
        """The next row, or the next mark that has not worked yet."""
        while at < len(self._items) and (at in self._worked or isinstance(self._items[at], BATCH)):
            at += 1
        return at

    def _slice(self, start: Position | None, end: int) -> Slice:
        follows = self._items[end] if end < len(self._items) else None
        crashes = isinstance(follows, ABORT) and follows.moment in _EVENTS and end not in self._worked
        self._ahead = end if crashes else None
        rows = sum(not isinstance(item, Mark) for item in self._items[_index(start) : end])
        # What follows may be a mark, which works only if the run comes to it.
        return Slice(start, position({"item": end}), rows, full=self._next(end) < len(self._items))

    def _abort(self, at: int) -> NoReturn:
        self._worked.add(at)
        raise Aborted(f"The script asks for this crash: its item {at} is {self._items[at]}.")


def _index(place: Position | None) -> int:
    if place is None:
        return 0
    item = fields_of(place, "a script").get("item")
    if not isinstance(item, int):
        raise unknown_position(place, "a script")
    return item


def _row(item: Item) -> Mapping[str, Any] | None:
    if isinstance(item, DELETE):
        return item.row
    return None if isinstance(item, Mark) else item


def _checked(items: tuple[Item, ...], key: Sequence[str]) -> tuple[Item, ...]:
    """The items of a script. What is wrong with one is an error that names it."""
    before: Item | None = None
    for at, item in enumerate(items):
        row = item.row if isinstance(item, DELETE) else item
        if not isinstance(row, Mapping) and not isinstance(item, Mark):
            words = f"script[{at}]: {item!r} is neither a row nor a mark."
            raise ConfigError("script-item", words, fix="Write rows as dictionaries, and ABORT(), EOF(), BATCH() or DELETE(row).")
        if isinstance(item, DELETE) and not key:
            raise ConfigError("script-item", f"script[{at}]: a DELETE needs a key.", fix='Write for example key=["id"].')
        if isinstance(item, ABORT) and item.moment in _EVENTS and (before is None or isinstance(before, Mark)):
            words = f"script[{at}]: {item} is about the rows before it, and there are none."
            raise ConfigError("script-item", words, fix="Put it behind the last row of a batch.")
        lacking = [name for name in key if isinstance(row, Mapping) and row.get(name) is None]
        if lacking:
            raise ConfigError("script-item", f"script[{at}]: the row has no value in the key column {lacking[0]!r}.")
        before = item
    return items


def _types(rows: Sequence[Mapping[str, Any]], schema: pyarrow.Schema | None) -> dict[str, pyarrow.DataType]:
    """The type of each column, in the order in which the rows name them."""
    import pyarrow as pa

    found: dict[str, pa.DataType] = {} if schema is None else dict(zip(schema.names, schema.types, strict=True))
    for name in dict.fromkeys(name for row in rows for name in row):
        if schema is not None and name not in found:
            raise ConfigError("script-column", f"A row has the column {name!r}, which the schema lacks.")
        try:
            found[name] = pa.array([row.get(name) for row in rows], found.get(name)).type
        except (pa.ArrowException, OverflowError) as error:
            words = f"The values of the column {name!r} have no common type: {error}"
            fix = f'Write values of one type, or give it: schema=pyarrow.schema({{"{name}": ..., ...}}).'
            raise ConfigError("script-column", words, fix=fix) from None
    return found
