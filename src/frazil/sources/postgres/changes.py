"""Reads the stream of changes into slices of whole transactions."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from frazil.errors import FrazilError, Halted
from frazil.sources.base import Notice
from frazil.sources.postgres import protocol
from frazil.sources.postgres.numbering import Shape, united
from frazil.sources.postgres.position import PostgresPlace
from frazil.sources.postgres.protocol import Begin, Relation
from frazil.sources.postgres.spool import Columns, Spool, SpoolFile
from frazil.sources.postgres.stream import ChangeStream

_WAIT_SECONDS = 0.05
# The end of the log may lie within a page's header, behind which nothing stands yet. When the server has said so long and so
# often that it is where it was, and waits for log itself, nothing will come. One that is busy with a large transaction may
# answer, too, but does not wait.
_STILL_SECONDS = 1.0
_STILL_ANSWERS = 5


@dataclass(frozen=True)
class Described:
    """A table in the log: its columns, its key columns, and its shape, if all columns are identified.

    ``missing_key`` are columns of the primary key that its updates and deletes do not contain, ``unlogged`` those in which rows
    have got values that are not in the log, since the table was last looked up.
    """

    columns: Columns
    keys: tuple[str, ...]
    shape: Shape | None
    missing_key: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()


Describe = Callable[[Relation, Shape | None], Described]
"""Looks up a table that is in the log, with what was known of it before."""


@dataclass(frozen=True)
class Filled:
    """What was read so far after a place: whole transactions up to ``end``. ``blocked``: nothing more will come.

    ``shapes`` are the columns that tables have there, ``unlogged`` those in which rows have got values that are not in the log.
    ``times`` are those of the tables' last changes.
    """

    end: int
    rows: Counter[str]
    oldest_us: int | None
    blocked: bool
    shapes: Mapping[str, str]
    unlogged: Mapping[str, tuple[str, ...]]
    times: Mapping[str, int]


class _Stillness:
    """How long and how often the server said that it is where it was."""

    def __init__(self) -> None:
        self._reached = -1
        self._since = 0.0
        self._answers = 0

    def lasts(self, stream: ChangeStream) -> bool:
        """Whether nothing seems to come, by what the server answered up to now."""
        if stream.reached != self._reached:
            self._reached, self._since, self._answers = stream.reached, time.monotonic(), 0
        elif not stream.asked:
            self._answers += 1
        return self._answers >= _STILL_ANSWERS and time.monotonic() - self._since > _STILL_SECONDS


class ChangeReader:
    """The changes after a place, slice by slice. One slice is kept until ``forget`` says that it is committed."""

    def __init__(
        self,
        stream: ChangeStream,
        start: PostgresPlace,
        followed: Collection[str],
        describe: Describe,
        spool_path: str | None,
        *,
        server_waits: Callable[[], bool],
        stop_at_truncate: bool,
        images: bool = False,
    ) -> None:
        self.stream = stream
        self.start = start
        self._followed = frozenset(followed)
        self._describe = describe
        self._server_waits = server_waits
        self._stop_at_truncate = stop_at_truncate
        self._folder = tempfile.TemporaryDirectory(prefix="frazil-postgres-", dir=spool_path, ignore_cleanup_errors=True)
        self._spool = Spool(Path(self._folder.name), images=images)
        self._names: dict[int, str] = {}
        self._missing_key: dict[int, tuple[str, ...]] = {}
        self._shapes = {name: Shape.from_text(text) for name, text in start.shapes.items()}
        self._unlogged: dict[str, tuple[str, ...]] = {}
        self._unseen: list[bytes] = []
        self._transaction: Begin | None = None
        self._skipped: frozenset[str] = frozenset()
        self._seq = 0
        self._blocked: FrazilError | None = None
        self._end = start.lsn or 0
        self._rows: Counter[str] = Counter()
        self._oldest_us: int | None = None
        self._open_rows: Counter[str] = Counter()
        self._times = dict(start.times)
        self._open_times: dict[str, int] = {}
        self._interrupted = False

    @property
    def usable(self) -> bool:
        """Whether it can read on. One that failed cannot: of what the server sent, a part may not have been taken in."""
        return not (self._interrupted or self.stream.broken)

    def fill(self, limit: int, target: int, *, exactly: int | None = None) -> Filled:
        """Reads on until there are ``limit`` rows in whole transactions, or all that the log holds up to ``target``.

        With ``exactly`` the slice ends with the transaction that ends there.
        """
        self._interrupted = True
        self._read(limit, target, exactly)
        self._interrupted = False
        if self._blocked is not None and not self._rows.total():
            raise self._blocked
        shapes = {name: shape.to_text() for name, shape in self._shapes.items()}
        unlogged, times = dict(self._unlogged), dict(self._times)
        return Filled(self._end, Counter(self._rows), self._oldest_us, self.blocked, shapes, unlogged, times)

    def _read(self, limit: int, target: int, exactly: int | None) -> None:
        still = _Stillness()
        while not self._enough(limit, exactly):
            messages = self._unseen or self.stream.read(_WAIT_SECONDS)
            self._unseen = []
            if messages:
                still = _Stillness()
                self._take(list(messages), limit, exactly)
                continue
            if self._transaction is not None:
                continue
            if max(self._end, self.stream.reached) >= target:
                break
            if still.lasts(self.stream):
                if self._server_waits():
                    break
                still = _Stillness()
            if not self.stream.asked:
                self.stream.ask()

    @property
    def blocked(self) -> bool:
        """Whether it cannot read on before what it has is committed, if at all."""
        return self._blocked is not None

    def _enough(self, limit: int, exactly: int | None) -> bool:
        if self._blocked is not None:
            return True
        if self._transaction is not None:
            return False
        return self._end >= exactly if exactly is not None else self._rows.total() >= limit

    def _take(self, messages: list[bytes], limit: int, exactly: int | None) -> None:
        for number, message in enumerate(messages):
            kind = message[0]
            if kind in protocol.CHANGES:
                self._change(message)
            elif kind == protocol.BEGIN:
                self._begin(protocol.begin(message))
            elif kind == protocol.COMMIT:
                self._commit(protocol.commit_end(message))
            elif kind == protocol.RELATION:
                self._relation(protocol.relation(message))
            elif kind == protocol.TRUNCATE:
                self._truncate(protocol.truncated(message))
            if self._blocked is not None or (kind == protocol.COMMIT and self._enough(limit, exactly)):
                self._unseen = messages[number + 1 :]
                return

    def _begin(self, transaction: Begin) -> None:
        self._transaction, self._seq = transaction, 0
        self._open_rows, self._open_times = Counter(), {}
        self._skipped = frozenset(name for name, seen in self.start.seen.items() if seen.saw(transaction.xid))

    def _change(self, message: bytes) -> None:
        oid = int.from_bytes(message[1:5])
        name = self._names.get(oid)
        if name is None or self._transaction is None:
            return  # of a table that is not followed
        self._seq += 1
        if name not in self._skipped:
            if self._missing_key.get(oid) and message[0] != protocol.INSERT:
                self._blocked = _unfollowable(name, self._missing_key[oid], self._transaction)
                return
            self._spool.add(oid, message, self._transaction, self._seq, self._time_of(name, self._transaction))
            self._open_rows[name] += 1

    def _time_of(self, name: str, transaction: Begin) -> int:
        """The time of a transaction, later than any that a table was given before.

        Clocks are set back, and a transaction that a snapshot did not see may have taken its time before that.
        """
        if name not in self._open_times:
            self._open_times[name] = max(transaction.at_us, self._times.get(name, 0) + 1)
        return self._open_times[name]

    def _commit(self, end: int) -> None:
        if self._transaction is not None and self._open_rows and self._oldest_us is None:
            self._oldest_us = self._transaction.at_us
        self._rows += self._open_rows
        self._times |= self._open_times
        self._open_rows, self._open_times = Counter(), {}
        self._transaction = None
        self._end = end

    def _relation(self, relation: Relation) -> None:
        before = self._names.get(relation.oid)
        if relation.full_name not in self._followed:
            if before is not None:
                raise Halted(
                    "table-renamed",
                    f"The table {before} is now {relation.full_name}; its changes cannot be followed under the old name.",
                    fix="Rename the stream, with a new sink id to read the table anew, or give the table its name back.",
                )
            return
        found = self._describe(relation, self._shapes.get(relation.full_name))
        if united([found.columns, *self._spool.shapes(relation.oid)]) is None:
            # Changes from before and after cannot be in one frame: the earlier ones are a separate slice.
            self._blocked = Halted(
                "column-replaced",
                f"A transaction gave the name of a column of {relation.full_name} to another one, and changed rows before and "
                "after that. Their values would be mixed.",
                fix="Read the table anew, with a new sink id.",
            )
            return
        if found.shape is not None:
            self._shapes[relation.full_name] = found.shape
        if found.unlogged:
            known = self._unlogged.get(relation.full_name, ())
            self._unlogged[relation.full_name] = tuple(dict.fromkeys([*known, *found.unlogged]))
        self._names[relation.oid] = relation.full_name
        self._missing_key[relation.oid] = found.missing_key
        self._spool.describe(relation, found.columns, found.keys)

    def _truncate(self, oids: tuple[int, ...]) -> None:
        emptied = [self._names[oid] for oid in oids if oid in self._names and self._names[oid] not in self._skipped]
        if not emptied or not self._stop_at_truncate or self._transaction is None:
            return
        error = Halted(
            "source-truncated",
            f"The table {emptied[0]} was truncated at {protocol.lsn_text(self._transaction.lsn)}. All before that is committed.",
            fix="Empty the target yourself, or leave its rows, then set on_truncate: ignore to go on.",
        )
        self._blocked = error

    def files(self) -> tuple[SpoolFile, ...]:
        """Everything that was read for the slice, in files."""
        self._spool.flush()
        return tuple(self._spool.files)

    def forget(self, place: PostgresPlace) -> None:
        """The slice up to this place is committed."""
        self._spool.clear()
        self._rows = Counter()
        self._unlogged = {}
        self._oldest_us = None
        self.start = place

    def close(self) -> None:
        """Ends the stream and removes the files."""
        self.stream.close()
        self._folder.cleanup()


def unlogged_values(table: str, columns: Sequence[str], *, read_again: bool) -> Notice:
    """The notice about values that the log does not carry."""
    names = ", ".join(columns)
    what = (
        f"Rows of {table} have values in {names} that are not in the log: a column was added with a default, or changed its type."
    )
    if read_again:
        return Notice("table-read-again", f"{what} The table is read whole once more.")
    return Notice(
        "values-not-in-log",
        f"{what} Rows that are in the target already lack them, and only an upsert of a source with snapshot: initial reads the "
        "table again. Update these rows in the target, or read the table anew with a new sink id and an empty target.",
        gap=True,
    )


def _unfollowable(table: str, missing_key: tuple[str, ...], transaction: Begin) -> Halted:
    return Halted(
        "replica-identity",
        f"Changes of {table} at {protocol.lsn_text(transaction.lsn)} name rows by an index that does not have the primary key's "
        f"{', '.join(missing_key)}: which rows they mean is not known. All before that is committed.",
        fix=f"Run: ALTER TABLE {table} REPLICA IDENTITY DEFAULT. Then read the table anew: with a new sink id, or, beside other "
        "tables, by leaving it out of streams until the pipeline has moved on.",
    )
