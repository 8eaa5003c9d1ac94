"""Expressions that fail for the value of one row, such as a division by zero, which would stop the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from frazil.spark.running_java import java_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# fmt: off
_SAFE = frozenset({
    "Alias", "And", "AttributeReference", "CaseWhen", "Coalesce", "Concat", "Contains", "EndsWith", "EqualNullSafe", "EqualTo",
    "GetStructField", "GreaterThan", "GreaterThanOrEqual", "If", "In", "IsNotNull", "IsNull", "LessThan", "LessThanOrEqual",
    "Literal", "Lower", "Not", "Or", "StartsWith", "Upper",
})
# fmt: on
"""What has a value for all values of its parts, by the names of Spark's classes."""
_CAST = "Cast"

# What was found for columns of these types: the same expressions meet the same columns batch after batch.
_found: dict[tuple[str, str], bool] = {}


def cannot_fail(frame: DataFrame, value: Column) -> bool:
    """Whether an expression has a value whatever is in the columns. False where that is not certain."""
    key = (str(value), frame.schema.simpleString())
    if key not in _found:
        made = frame.select(value)._jdf.queryExecution().analyzed().projectList()
        cast = java_names(frame.sparkSession._jvm).org.apache.spark.sql.catalyst.expressions.Cast
        nodes = [node for number in range(made.size()) for node in _nodes(made.apply(number))]
        _found[key] = all(
            node.nodeName() in _SAFE or (node.nodeName() == _CAST and cast.canUpCast(node.child().dataType(), node.dataType()))
            for node in nodes
        )
    return _found[key]


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    below = expression.children()
    for number in range(below.size()):
        yield from _nodes(below.apply(number))


def attempted(spark: SparkSession, value: Column) -> Column:
    """A struct with the value in its field ``value``; null where computing it fails."""
    from pyspark.sql import functions
    from pyspark.sql.classic.column import Column as ClassicColumn

    # In a lambda function: Spark computes parts that several expressions share beforehand, where nothing catches the error.
    one = functions.array(functions.lit(0))
    whole = functions.transform(one, lambda _: functions.struct(value.alias("value")))
    names = java_names(spark._jvm).org.apache.spark.sql
    bridge = names.classic.ExpressionUtils
    caught = names.catalyst.expressions.TryEval(bridge.expression(whole._jc))
    return ClassicColumn(bridge.column(caught))[0]
