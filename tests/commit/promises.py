"""What the commit loop promises, asked of tables, of verdicts and of the end of all work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from commit.instances import SINK, Ended, Outcome, Program, Running, Start, index_of, rows_of
from commit.memory_table import Metadata, Request, Row
from frazil.errors import Fenced, Retryable


@dataclass(frozen=True)
class Table:
    """The metadata, and what has to be remembered of its history to judge it."""

    metadata: Metadata
    foreign: frozenset[Row]
    """The rows of the foreign writer's commits, all of which were acknowledged."""
    rolled_back: frozenset[Row] = frozenset()
    was_rolled_back: bool = False
    was_recreated: bool = False


def wrong_with(table: Table) -> str | None:
    """Losses, duplicates, holes, and what came back after a rollback, whoever did what."""
    rows, ledger = table.metadata.rows, table.metadata.ledger(SINK)
    held = set(rows)
    own = {row for row in rows if row[0] == SINK}
    counted = {(SINK, at) for at in range(index_of(ledger.end if ledger else None))}
    if len(held) != len(rows):
        return f"rows are there twice: {_shown(row for row in held if rows.count(row) > 1)}"
    if back := table.rolled_back & held:
        return f"rows came back that had been rolled back: {_shown(back)}"
    if lost := table.foreign - table.rolled_back - held:
        return f"rows of the foreign writer are lost: {_shown(lost)}"
    if missing := counted - table.rolled_back - held:
        return f"the ledger counts rows that are not in the table: {_shown(missing)}"
    if extra := own - counted:
        return f"the table holds rows that the ledger does not count: {_shown(extra)}"
    if own != {(SINK, at) for at in range(len(own))}:
        return f"rows were written past a hole: {_shown(own)}"
    return None


def wrong_with_request(before: Metadata, request: Request) -> str | None:
    """Whether a request that the catalog applies comes from an instance that had already been replaced."""
    old, new = before.ledger(SINK), request.state
    owner, epoch = (old.instance, old.epoch) if old else ("", 0)
    if new.epoch == epoch + 1 or (new.instance, new.epoch) == (owner, epoch):
        return None
    return f"{new.instance} wrote after {owner} had claimed"


def wrong_verdict(program: Program, table: Table, instance: Running, outcome: Outcome) -> str | None:
    """A success that is none, or a stop without need."""
    if outcome.result is not None:
        missing = set(rows_of(instance.intent.batch)) - set(table.metadata.rows) - table.rolled_back
        return f"{instance.name} got the answer that its rows are in the table: {_shown(missing)} are not" if missing else None
    error = outcome.error
    if error is None or isinstance(error, Retryable):
        return None
    ledger, epoch = table.metadata.ledger(SINK), instance.intent.epoch
    excused = (
        (isinstance(error, Fenced) and ledger is not None and epoch is not None and ledger.epoch > epoch)
        or (error.code == "rolled-back" and table.was_rolled_back)
        or (error.code in ("table-replaced", "ledger-lost", "fenced") and table.was_recreated)
        or (error.code == "gap-or-overlap" and program.start is not Start.CLAIM)
    )
    return None if excused else f"{instance.name} was stopped without need ({error.code})"


def wrong_after_the_end(writer: str, instances: Iterable[object]) -> str | None:
    """Whether a delayed request that is applied comes from an instance that an error has stopped."""
    stopped = [each for each in instances if isinstance(each, Ended) and each.name == writer and each.code]
    return f"{writer} wrote although it had stopped ({stopped[0].code})" if stopped else None


def wrong_at_the_end(program: Program, table: Table, instances: Iterable[Ended]) -> str | None:
    """What is missing when nobody has anything to do any more."""
    stopped_for_good = {"rolled-back", "table-replaced", "ledger-lost"}
    misled = program.start is Start.CHECKPOINT  # a checkpoint may say that all is done
    if misled or table.was_recreated or any(instance.code in stopped_for_good for instance in instances):
        return None
    held = {row for row in table.metadata.rows if row[0] == SINK} | table.rolled_back
    missing = {(SINK, at) for at in range(program.batches)} - held
    return f"everybody has ended, and rows are missing: {_shown(missing)}" if missing else None


def _shown(rows: Iterable[Row]) -> str:
    return ", ".join(f"{writer} {at}" for writer, at in sorted(rows))
