"""Branches of a table, and what is checked before main gets what was written to one: write, audit, publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from frazil.model.base import Model, Problem
from frazil.model.evolving import SchemaEvolution

MAIN = "main"
"""The branch that readers see who name none."""
TABLE = "{table}"
"""What stands in a check for the branch as it is to be published."""

BranchName = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class CheckSpec(Model):
    """One thing that must be so before a branch is published."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] = Field(
        description="What the check is called where it fails."
    )
    sql: str = Field(
        description=f"Query in Spark SQL for rows that must not be there: `select * from {TABLE} where amount < 0`; "
        f"`{TABLE}` is the branch, and other tables of the catalog have their full names."
    )


class PublishSpec(Model):
    """What is checked by `frazil publish`."""

    checks: tuple[CheckSpec, ...] = Field((), description="Queries that must return no rows; the rows are counted in any case.")


def publishing_problems(
    branch: str | None, publish: PublishSpec | None, evolution: SchemaEvolution, *, routed: bool
) -> list[Problem]:
    """What does not fit together in a sink that writes to a branch, or that is to be published."""
    problems = []
    if branch is None:
        if publish is not None:
            problems.append(Problem("publish has no meaning without branch: rows in main are published already", "publish"))
    elif branch == MAIN:
        problems.append(Problem("branch cannot be main, which is where a sink writes without it", "branch"))
    else:
        if routed:
            words = "branch cannot be used with route: several tables cannot be published in one step"
            problems.append(Problem(words, "branch"))
        if evolution is SchemaEvolution.FULL:
            words = (
                "schema_evolution: full cannot be used with branch: all branches of a table have the same columns, so that "
                "readers of main would lose a column, or find it renamed, before anything is published"
            )
            problems.append(Problem(words, "schema_evolution"))
    checks = publish.checks if publish is not None else ()
    names = [one.name for one in checks]
    problems += [
        Problem(f"several checks are called {name!r}", "publish", "checks")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    return problems + [
        Problem(f"the check {one.name!r} does not look at the branch: {TABLE} is not in its sql", "publish", "checks")
        for one in checks
        if TABLE not in one.sql
    ]


@dataclass(frozen=True)
class CheckResult:
    """How a check ended: how many rows it found that must not be there, and the first of them. ``problem``: in words."""

    name: str
    rows: int = 0
    columns: tuple[str, ...] = ()
    sample: tuple[tuple[Any, ...], ...] = ()
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.rows and not self.problem


@dataclass(frozen=True)
class Publication:
    """What became of a branch. ``snapshot`` is its head that was checked, and ``before`` the head that main had.

    ``snapshots`` and ``rows``: what main did not have yet, as the summaries of the snapshots say. ``done``: main has it now.
    """

    pipeline: str
    table: str
    branch: str
    snapshot: int
    before: int | None
    snapshots: int = 0
    rows: int = 0
    checks: tuple[CheckResult, ...] = ()
    done: bool = False

    @property
    def nothing(self) -> bool:
        """Whether main already had everything."""
        return not self.snapshots

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that did not pass."""
        return tuple(one for one in self.checks if not one.passed)


@dataclass(frozen=True)
class Step:
    """One snapshot of a branch: what its summary says."""

    snapshot: int
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """A count of the summary, 0 if it is not there."""
        return int(self.summary.get(name, 0))

    @property
    def is_batch(self) -> bool:
        """Whether a sink committed a batch with it."""
        return self.summary.get("frazil.kind") == "data"

    @property
    def changes_rows(self) -> bool:
        """Whether a sink changed rows with it: a claim adds none, and a rewrite of files keeps all."""
        if self.operation == "replace" or "frazil.sink" not in self.summary:
            return False
        counts = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
        return any(self.number(name) for name in counts)


@dataclass(frozen=True)
class Expected:
    """How many rows a table may hold: at least, and at most where that is known."""

    least: int
    most: int

    def __contains__(self, rows: int) -> bool:
        return self.least <= rows <= self.most

    def __str__(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"


def rows_written(steps: Sequence[Step]) -> int:
    """How many rows the batches have written, as the ledger's entries in the summaries say."""
    return sum(step.number("frazil.rows-out") for step in steps if step.is_batch)


def rows_expected(before: int, steps: Sequence[Step]) -> Expected:
    """How many rows a branch must hold after some snapshots, by what sinks say that they have written.

    An append adds its rows. An upsert, or an overwrite, leaves at least those that it has written, and adds at most as many.
    Whatever somebody else has added or removed is not expected.
    """
    least = most = before
    for step in steps:
        if not step.changes_rows:
            continue
        written = step.number("frazil.rows-out") if step.is_batch else 0
        most += written
        adds_only = not any(step.number(name) for name in ("deleted-data-files", "added-delete-files"))
        least = least + written if adds_only else written
    return Expected(least, most)


def rows_finding(rows: int, before: int, steps: Sequence[Step]) -> str:
    """What is wrong with the number of rows of a branch; empty if nothing is."""
    expected = rows_expected(before, steps)
    if rows in expected:
        return ""
    return f"the branch holds {rows:,} rows; by the {before:,} rows of main and what was written since, it should hold {expected}"
