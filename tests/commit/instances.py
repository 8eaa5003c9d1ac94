"""An instance of a sink as a value: what it will do next is a function of it, so that a search can go back to any moment.

The commit loop is a generator, and a generator cannot be copied. But it is a deterministic function of what it was told, so
that telling a new one the same brings it to the same place. Two instances are in the same state when their generators are:
when they wait for the same effect with the same values in their local variables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from inspect import getgeneratorlocals
from typing import Any

from commit.memory_table import Row
from frazil.commit.protocol import (
    Apply,
    Effect,
    Failed,
    Guards,
    Intent,
    NewSnapshot,
    Pause,
    Refresh,
    Swap,
    TableView,
    commit_protocol,
)
from frazil.errors import FrazilError, Retryable
from frazil.model.commit import Batch, CommitResult, SinkState, position

SINK = "sink"
SOURCE = "source"
NEWCOMER = "newcomer"
"""The name of an instance that has just started; nobody else has it."""

PATIENT = 1_000_000
"""So many retries that no loop of a search ever gives up."""

# Local variables of the loop that are set anew before they are read again, by the effect that it waits for. Any other
# variable, also one that the loop may get some day, tells two states apart.
FORGOTTEN: dict[type, frozenset[str]] = {
    Refresh: frozenset({"guard", "view", "state", "snapshot"}),
    Apply: frozenset({"guard", "last", "snapshot"}),
    Swap: frozenset({"guard", "last"}),
}
# What only shapes the words for the user, and what only decides when to give up.
ONLY_TOLD = frozenset({"attempts", "swap_sent"})
ONLY_FOR_GIVING_UP = frozenset({"failures", "seen", "last"})
PARAMETERS = frozenset({"intent", "max_retries", "guards"})


Frame = tuple[type, tuple[tuple[str, Any], ...]]
"""The effect that a loop waits for, and its local variables that matter."""


class Start(StrEnum):
    """How an instance finds its place."""

    CLAIM = "claims, and goes on from the ledger's end"
    ONE_SHOT = "reads the ledger, and claims with its first batch"
    CHECKPOINT = "claims, and goes on from wherever its checkpoint says"


@dataclass(frozen=True)
class Program:
    """What is the same for all instances of a search."""

    batches: int = 3
    sizes: tuple[int, ...] = (1,)
    start: Start = Start.CLAIM
    opens_first: bool = False
    max_retries: int = PATIENT
    guards: Guards = field(default_factory=Guards)


@dataclass(frozen=True)
class Down:
    """Not running: not yet started, or crashed."""

    begun: bool = False


@dataclass(frozen=True)
class Ended:
    """Will never act again. ``code`` is that of the error that stopped it, or empty when its work was done."""

    name: str
    code: str = ""


@dataclass(frozen=True)
class Opening:
    """Loads the table: learns its UUID, and where a run without a claim begins."""

    name: str


@dataclass(frozen=True)
class Glance:
    """What is still read of a view once the guards have let it pass: the ledger's next entry has been made from the rest.

    The head's sequence number is not here because the head says it.
    """

    table_uuid: str
    head: int | None
    next_sequence: int
    base: Any


@dataclass(frozen=True)
class Running:
    """In the middle of the commit loop. ``replies`` lead there; the intent and the frame are what makes two of them equal."""

    intent: Intent
    replies: tuple[Any, ...]
    effect: Effect
    frame: Frame

    @property
    def name(self) -> str:
        """The instance's id."""
        return self.intent.instance

    @property
    def key(self) -> Any:
        """Equal keys behave equally."""
        return self.intent, self.frame


Instance = Down | Ended | Opening | Running


@dataclass(frozen=True)
class Outcome:
    """What follows when an instance is told something: who it is then, and how its intent ended, if it did."""

    instance: Instance
    result: CommitResult | None = None
    error: FrazilError | None = None


def started(program: Program, uuid: str) -> Opening | Running:
    """A new life, under a name that was never used."""
    if program.opens_first or program.start is Start.ONE_SHOT:
        return Opening(NEWCOMER)
    return running(program, Intent(SINK, NEWCOMER, 0, table_uuid=uuid))


def opened(program: Program, opening: Opening, view: TableView) -> list[Instance]:
    """After the table was loaded."""
    if program.start is not Start.ONE_SHOT:
        return [running(program, Intent(SINK, opening.name, 0, table_uuid=view.table_uuid))]
    at = index_of(view.state.end if view.state else None)
    return _next_batches(program, opening.name, view.table_uuid, None, at)


def told(program: Program, instance: Running, reply: TableView | NewSnapshot | Failed | None) -> list[Outcome]:
    """Every way to go on after the reply; more than one only where the next batch can be cut in several ways."""
    try:
        return [Outcome(running(program, instance.intent, (*instance.replies, reply)))]
    except StopIteration as stop:
        return [Outcome(after, stop.value) for after in _after(program, instance.intent, stop.value)]
    except Retryable as error:
        return [Outcome(Down(begun=True), error=error)]  # gave up; whoever watches over it starts it again
    except FrazilError as error:
        return [Outcome(Ended(instance.name, error.code), error=error)]


def running(program: Program, intent: Intent, replies: tuple[Any, ...] = ()) -> Running:
    """A loop that was told these replies. Pauses are passed over: they touch nothing."""
    loop = commit_protocol(intent, program.max_retries, program.guards)
    effect = next(loop)
    for reply in replies:
        effect = loop.send(reply)
        while isinstance(effect, Pause):
            effect = loop.send(None)
    forgotten = PARAMETERS | ONLY_TOLD | FORGOTTEN[type(effect)]
    if program.max_retries == PATIENT:
        forgotten |= ONLY_FOR_GIVING_UP
    values = sorted((name, value) for name, value in getgeneratorlocals(loop).items() if name not in forgotten)
    return Running(intent, replies, effect, (type(effect), tuple((name, _relevant(value, effect)) for name, value in values)))


def index_of(end: str | None) -> int:
    """How many rows of the source lie before a position."""
    return 0 if end is None else int(end)


def rows_of(batch: Batch | None) -> tuple[Row, ...]:
    """The rows that a batch brings, by their place in the source."""
    return () if batch is None else tuple((SINK, at) for at in range(index_of(batch.start), index_of(batch.end)))


def _after(program: Program, intent: Intent, result: CommitResult) -> list[Instance]:
    name, uuid = intent.instance, intent.table_uuid or ""
    if result.state.instance != name:
        return [Opening(name)]  # a run without a claim found its batch written by another: it has to look again
    places = [index_of(result.state.end)]
    if program.start is Start.CHECKPOINT and intent.batch is None:
        places = list(range(program.batches + 1))
    return [after for at in places for after in _next_batches(program, name, uuid, result.state.epoch, at)]


def _next_batches(program: Program, name: str, uuid: str, epoch: int | None, at: int) -> list[Instance]:
    ends = sorted({min(at + size, program.batches) for size in program.sizes} - {at})
    batches = [Batch(SOURCE, None if at == 0 else position(at), position(end)) for end in ends]
    return [running(program, Intent(SINK, name, 0, epoch, batch, uuid)) for batch in batches] or [Ended(name)]


def _relevant(value: Any, effect: Effect) -> Any:
    """What matters of a variable: of an error what it says, of a view what is read after the guards.

    The ledger's next entry is put into its snapshot when that is known; until then it still names the last one.
    """
    match value:
        case Failed():
            return value.kind, value.final, value.error.code, value.error.message
        case TableView():
            return Glance(value.table_uuid, value.head, value.next_sequence, value.base)
        case SinkState() if isinstance(effect, Apply):
            return value.in_snapshot(0, 0)
        case _:
            return value
