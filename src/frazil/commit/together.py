"""One batch of several tables in one step: all of them get it, or none.

The intent of the sink's home goes through the commit loop, and one port stands for all tables. In each attempt:

- *refresh* looks at all tables, at the home first: when that has the batch, the others had it before they were looked at.
  Steps 1 to 5 of the loop are checked for each, in this order. A table that has the batch already needs nothing.
- *apply* builds a snapshot for each table, on the metadata of its own refresh.
- *swap* changes all of them in one step of the catalog, which compares each. Then it looks whether they have the batch.

Any failure leaves the outcome unknown for all tables alike: all are refreshed, and their ledgers tell.

Assumption: the catalog changes all tables or none. A home that has the batch, beside a table that lacks it, stops the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from frazil.commit.protocol import (
    CONFLICT_MESSAGE,
    AttemptFailed,
    Done,
    FailureKind,
    Guards,
    Intent,
    NewSnapshot,
    Swap,
    TablePort,
    TableView,
    ledger_holds,
    next_state,
)
from frazil.errors import ConfigError, FrazilError, Halted, Retryable, SparkDied
from frazil.model.commit import CommitResult, SinkState

T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """One of the tables, by its name, and what is to be committed to it."""

    table: str
    port: TablePort
    intent: Intent


class Each(Protocol):
    """Does the work for several tables, in their order or at the same time."""

    def __call__(self, work: Callable[[Member], T], members: Sequence[Member], /) -> list[T]:
        """What the work returns for each; raises what the first one raised."""


def in_turn(work: Callable[[Member], T], members: Sequence[Member]) -> list[T]:
    """One after the other."""
    return [work(member) for member in members]


class TablesPort:
    """The home and the other tables as one: see :class:`frazil.commit.protocol.TablePort`.

    ``swap_all`` changes tables, by their names, in one step of the catalog: all that it is given, or none.
    """

    def __init__(
        self, home: Member, others: Sequence[Member], swap_all: Callable[[Mapping[str, Swap]], None], each: Each = in_turn
    ) -> None:
        self._home, self._others = home, others
        self._swap_all, self._each = swap_all, each
        self._guards = Guards()
        self._views: dict[str, TableView] = {}
        self._lacking: list[Member] = []
        self._sent: set[str] = set()
        self._swapped: dict[str, SinkState] = {}

    def refresh(self) -> TableView:
        """Looks at all tables, and finds those that lack the batch."""
        home = self._look()
        done = not self._lacks(self._home.intent, home)
        self._lacking = [member for member in self._others if self._member_lacks(member)]
        if self._lacking and done:
            raise _torn(self._home.intent.sink_id, self._lacking)
        return replace(home, base=home, beside=tuple(view.place for view in self._views.values()))

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        """Builds a snapshot for each table that lacks the batch, and for the home."""
        swaps = self._each(self._applied, self._lacking)
        own = self._home.port.apply(view.base, intent, state)
        return replace(own, handle=(own, dict(zip((member.table for member in self._lacking), swaps, strict=True))))

    def swap(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> None:
        """Changes them all, and looks whether they were changed."""
        own, swaps = snapshot.handle
        self._sent |= set(swaps)
        self._swap_all(swaps | {self._home.table: Swap(view.base, own, intent, state)})
        home = self._look()
        torn = [member for member in self._lacking if self._was_left_out(member)]
        if torn and len(torn) == len(self._lacking) and home.head == view.head:
            raise _ignored(intent.sink_id)
        if torn:
            raise _torn(intent.sink_id, torn)
        self._swapped = {table: swap.state for table, swap in swaps.items()}

    def result_of(self, member: Member, home: CommitResult) -> CommitResult:
        """What became of one of the other tables, when the home has the batch."""
        state = self._swapped.get(member.table) or self._views[member.table].state
        assert state is not None, "it has the batch"
        return replace(home, state=state, skipped=home.skipped or member.table not in self._sent)

    def _look(self) -> TableView:
        """The home's view; those of the others are kept."""
        home = self._home.port.refresh()
        views = self._each(_view, self._others)
        self._views = {member.table: view for member, view in zip(self._others, views, strict=True)}
        return home

    def _lacks(self, intent: Intent, view: TableView) -> bool:
        """Whether a table is to get the batch. Stops when it must not."""
        try:
            for guard in self._guards.before:
                guard(view, intent)
        except Done:
            return False
        return True

    def _member_lacks(self, member: Member) -> bool:
        with _named(member.table):
            return self._lacks(member.intent, self._views[member.table])

    def _was_left_out(self, member: Member) -> bool:
        """Whether a table lacks the batch, which nobody else has written to meanwhile."""
        state = self._views[member.table].state
        mine = state is None or state.instance == member.intent.instance
        return mine and not _has_batch(state, member.intent)

    def _applied(self, member: Member) -> Swap:
        view = self._views[member.table]
        state = next_state(view, member.intent)
        with _named(member.table):
            snapshot = member.port.apply(view, member.intent, state)
            if not self._guards.fits(view, snapshot):
                raise AttemptFailed(FailureKind.CONFLICT, Retryable("moved", CONFLICT_MESSAGE))
        return Swap(view, snapshot, member.intent, state.in_snapshot(snapshot.snapshot, snapshot.sequence))


def _view(member: Member) -> TableView:
    with _named(member.table):
        return member.port.refresh()


def _has_batch(state: SinkState | None, intent: Intent) -> bool:
    return state is not None and intent.batch is not None and ledger_holds(state, intent.batch)


def _ignored(sink_id: str) -> ConfigError:
    return ConfigError(
        "atomic-unsupported",
        f"A batch of {sink_id!r} was to be committed to several tables at once. The catalog answered that it was done, and did "
        "nothing: it cannot commit several tables at once.",
        fix="Leave out route.atomic, or use a SQL catalog, or a REST catalog with multi-table transactions.",
    )


def _torn(sink_id: str, lacking: Sequence[Member]) -> Halted:
    names = ", ".join(member.table for member in lacking)
    return Halted(
        "commit-torn",
        f"A batch of {sink_id!r} was committed to several tables at once, and the catalog left out {names}: its commits of "
        "several tables are not atomic.",
        fix="Leave out route.atomic for this catalog. After a `frazil rewind` to the batch before it, all tables get the batch "
        "again: upserts can take that, and from tables that are appended to its rows must be deleted first.",
    )


@contextmanager
def _named(table: str) -> Iterator[None]:
    """Puts the table's name into what is said of a failure."""
    try:
        yield
    except SparkDied:
        raise
    except AttemptFailed as failed:
        known = failed.outcome
        raise AttemptFailed(known.kind, known.error.of_table(table), final=known.final) from failed
    except FrazilError as error:
        raise error.of_table(table) from error
