"""The interface of a source.

A source hands out *slices*: a slice lies between two positions, and returns the same rows whenever it is read. The position
after the last committed slice is in the table's ledger, so that a source keeps no state of its own that could be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from frazil.errors import FrazilError
from frazil.model.commit import Position
from frazil.model.discovery import OfferedTopic
from frazil.model.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Session = Callable[[], "SparkSession"]
"""Returns the Spark session, and starts Spark if it does not run yet. A source that can plan without Spark asks when it reads."""


@dataclass(frozen=True)
class Slice:
    """A part of a source. ``rows`` is exact, an estimate, or None if it is only known after reading.

    ``full`` says that more was there than the limit allowed, so that a batch is due now whatever its estimate says.
    ``detail`` is the source's own: what to read. ``notices`` are for the operator, once the slice is committed.
    """

    start: Position | None
    end: Position
    rows: int | None
    full: bool = False
    detail: Any = None
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True)
class Notice:
    """What an operator should know of the source. ``gap``: the table lacks values that only a person can repair."""

    code: str
    message: str
    gap: bool = False


@dataclass(frozen=True)
class Lag:
    """How far a position is behind: rows, bytes, and seconds since the oldest change after it; None where that is not known."""

    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class Source(Protocol):
    """A replayable source.

    Delivery: a slice between two positions reads the same rows every time, so that a batch that was staged but not
    committed can be read again. Parallelism: whatever the data frame has.

    How it is asked: ``plan`` with the position of the ledger, as often as wanted, until a batch is due; ``read`` for the
    last slice planned; and, when that is committed, ``plan`` with its end. One source object serves one pipeline in one
    process.
    """

    @property
    def fingerprint(self) -> str:
        """What makes this source this source: a change means that positions of the ledger no longer apply."""

    @property
    def poll_seconds(self) -> float:
        """How long to wait before asking again when there was nothing."""

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The next slice after ``start`` (None: the beginning) of about ``limit`` rows, or None when nothing is there."""

    def between(self, start: Position | None, end: Position) -> Slice | None:
        """The slice between two positions of the ledger, for a batch that was interrupted after some of its tables had it.

        None if its data no longer exists. Such a slice has rows for one table only.
        """

    def finished(self, position: Position | None) -> bool:
        """Whether nothing can ever come after this position."""

    def total_rows(self, start: Position | None) -> int | None:
        """How many rows a batch run from here will read, where that is known without reading them."""

    def read(self, part: Slice) -> DataFrame:
        """The rows of a slice. A slice without rows may have no columns either."""

    def observed(self, part: Slice, rows: int) -> None:
        """Tells how many rows a slice really had, so that a source that estimates does it better next time."""

    def committed(self, position: Position) -> None:
        """Everything up to a position is in the table for good: the source need not keep it any longer."""

    def explain(self, error: Exception) -> FrazilError | None:
        """What an error means that came while the last slice was read, or None when it is not the source's.

        Spark is lazy: what is wrong with a file or a query shows when the rows are written, not when they are asked for.
        """

    def check(self) -> None:
        """Raises a FrazilError when the source is not there; a SourceAway when it may be back."""

    def close(self) -> None:
        """Lets go of whatever the source holds open."""


@runtime_checkable
class Behind(Protocol):
    """A source that can say how much there is after a position."""

    def lag(self, position: Position | None) -> Lag:
        """What is there after the position, or what is kept for the lack of one."""


@runtime_checkable
class KnownColumns(Protocol):
    """A source whose rows always have the same columns, and nothing beside them: neither keys nor operations."""

    @property
    def columns(self) -> StructType:
        """The columns of all rows, known without Spark."""


@runtime_checkable
class Inferring(Protocol):
    """A source that finds columns in its records."""

    def expect(self, columns: StructType, *, exactly: bool) -> None:
        """Tells which columns the table has, under the names that they have here: they come before anything that is found.

        ``exactly``: values are to be of their types, and are not converted.
        """


@runtime_checkable
class OnceARun(Protocol):
    """A source that reads some things once a run."""

    def run_began(self, position: Position | None) -> None:
        """Sets where the run began that has reopened this source after a failure: everything after that is its own work."""


@runtime_checkable
class ReadsAgain(Protocol):
    """A source that reads a table whole once more when the log of its changes lacks some."""

    def read_again_where(self, replaces: Callable[[str], bool]) -> None:
        """Tells for which of its tables rows that are read again replace those that are there, instead of doubling them."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A source whose slices stand for themselves: one can be planned and read while the one before it is committed.

    The one before it may have to be read again after that.
    """

    reads_ahead: Literal[True]


@runtime_checkable
class SetsAside(Protocol):
    """A source that can go on without a part of a slice that cannot be read."""

    def set_aside(self, error: FrazilError) -> bool:
        """Whether the slice, when it is read again, has a bad record in place of what an error of ``explain`` is about."""


@runtime_checkable
class MultiTableSource(Protocol):
    """A source whose rows are of several tables with columns of their own."""

    def read_each(self, part: Slice) -> Sequence[DataFrame]:
        """The rows of a slice, those of each table by themselves."""


@runtime_checkable
class Offering(Protocol):
    """A source that can say what there is where it reads, whether it reads it or not."""

    def offers(self) -> Sequence[OfferedTopic]:
        """What there is, by name. Nothing is changed by asking."""
