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
