"""The query of a view, taken apart: what it reads, which rows it keeps, what it makes of them, and by what it groups.

A view is computed batch by batch as rows come, so that it can be what each row by itself says (SELECT, WHERE), and sums over
groups of rows that can be kept up from the sums before (GROUP BY with count, sum, min, max). What would need to look at other
rows is refused at its token. Expressions stay the text that they are, for Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from frazil.doors.sql.groups import grouped, refuse_aggregates
from frazil.doors.sql.query import Expression, QueryReader, Select
from frazil.doors.sql.statements import CreateView, Word

_READ_ON = "Make a sink of the grouped view, and compute with its table when you read it."


@dataclass(frozen=True)
class ViewStep:
    """One thing that is done to rows: some are kept (``where``), or columns are made (``columns``)."""

    where: Expression | None = None
    columns: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class ViewQuery:
    """A view as steps over what it reads. ``keys`` and ``combine`` are those of a grouped one: how columns are kept up."""

    item: tuple[Word, ...]
    steps: tuple[ViewStep, ...] = ()
    keys: tuple[str, ...] = ()
    combine: Mapping[str, str] = field(default_factory=dict)
    group_at: int = 0

    def then(self, step: ViewStep) -> ViewQuery:
        """With one more step."""
        return replace(self, steps=(*self.steps, step))


def view_query(statement: CreateView) -> ViewQuery:
    """The query of a view."""
    reader = QueryReader(statement)
    select = reader.read()
    innermost, *_ = _from_within(select)
    made = ViewQuery(innermost.item)
    for one in _from_within(select):
        if made.keys:
            reader.refuse(made.group_at, "what was grouped cannot be read on: groups change as rows come", _READ_ON)
        if one.where is not None:
            made = made.then(ViewStep(where=reader.expression(one.where, one.names)))
        if one.group is not None:
            columns, keys, combine = grouped(reader, one)
            made = replace(made.then(ViewStep(columns=columns)), keys=keys, combine=combine, group_at=one.group_at)
            continue
        refuse_aggregates(reader, one)
        if [token.text for piece in one.items for token in piece.tokens] != ["*"]:
            made = made.then(ViewStep(columns=tuple(reader.expression(piece, one.names) for piece in one.items)))
    return made


def _from_within(select: Select) -> Iterator[Select]:
    """The innermost query first."""
    if select.inner is not None:
        yield from _from_within(select.inner)
    yield select
