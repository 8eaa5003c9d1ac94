"""Whether a condition in SQL depends on a row alone."""

from __future__ import annotations

from pyspark.sql import DataFrame


def impurity(filtered: DataFrame) -> str | None:
    """Why a filter, the last step of a frame, is no pure predicate of a row; None when it is one."""
    plan = filtered._jdf.queryExecution().analyzed()
    condition = plan.condition()
    jvm = filtered.sparkSession._jvm
    assert jvm is not None, "Spark runs"
    if jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression.hasSubquery(condition):
        return "it has a subquery"
    return None if condition.deterministic() else "it gives another value each time that it is asked for"


def columns_used(filtered: DataFrame) -> tuple[str, ...]:
    """The columns that the filter looks at, in alphabetical order."""
    attributes = filtered._jdf.queryExecution().analyzed().condition().references().iterator()
    found = set()
    while attributes.hasNext():
        found.add(str(attributes.next().name()))
    return tuple(sorted(found))
