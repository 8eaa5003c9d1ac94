"""Which columns of a frame an expression is made from."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame


def origins(frame: DataFrame, columns: Sequence[Column]) -> list[tuple[str, frozenset[str]]]:
    """The columns that a selection makes, a star resolved, each with those of the frame that it looks at."""
    analyzed = frame.select(*columns)._jdf.queryExecution().analyzed()
    made = analyzed.projectList()
    found = []
    for number in range(made.size()):
        one = made.apply(number)
        looked_at = one.references().toSeq()
        names = frozenset(str(looked_at.apply(place).name()) for place in range(looked_at.size()))
        found.append((str(one.name()), names))
    return found


def changes_rows(frame: DataFrame, columns: Sequence[Column]) -> bool:
    """Whether a selection would leave rows out, or make several of one, as Spark's `window` does: it passes over null."""
    below = frame.select(*columns)._jdf.queryExecution().analyzed()
    known = frame._jdf.queryExecution().analyzed()
    while not below.equals(known) and below.children().size() == 1:
        if below.nodeName() in ("Filter", "Expand", "Generate", "Aggregate"):
            return True
        below = below.children().head()
    return False
