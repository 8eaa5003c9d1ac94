"""Values that were not sent, since they did not change, on their way through transforms.

A column that is made from such values alone has not changed either, under whatever name. One that is made from such a value and
others cannot be computed, and neither can a condition on it: the row goes where bad records go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce, singledispatch

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions

from frazil.columns.schema import data_columns, error_of, unchanged
from frazil.model.hidden import ERROR, ERROR_TYPE, HIDDEN, KEYS_MARK, OP, UNCHANGED
from frazil.model.transform import (
    AddField,
    FilterRows,
    Flatten,
    MapFields,
    RenameField,
    SelectColumns,
    TransformSpec,
    Unnest,
    WhereRows,
)
from frazil.spark.lineage import origins
from frazil.write.shape.paths import known_spot

_ENVELOPE = "after"
_NAMES = "array<string>"


@dataclass(frozen=True)
class Made:
    """What a transform makes from which columns: ``columns`` that are new or other than before, and the choice of ``rows``.

    ``only``: there are no columns after it but these.
    """

    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rows: frozenset[str] = frozenset()
    only: bool = False


# What was found for columns of these types: the same transforms meet the same columns batch after batch.
_found: dict[tuple[str, str], Made] = {}


def made_by(transform: TransformSpec, frame: DataFrame) -> Made:
    """What a transform makes from which columns of a frame."""
    key = (transform.model_dump_json(), frame.schema.simpleString())
    if key not in _found:
        _found[key] = _made(transform, frame)
    return _found[key]


def following(frame: DataFrame, transform: TransformSpec) -> DataFrame:
    """The frame before a transform, with the names of unsent values as they are after it, and an error in rows it fails for."""
    if UNCHANGED not in frame.columns:
        return frame
    try:
        made = made_by(transform, frame)
    except PySparkException:
        return frame  # errors of an expression are reported when the transform is applied
    if KEYS_MARK in (frame.schema[OP].metadata if OP in frame.columns else {}):
        return _enveloped(frame, made, transform)
    partly = [_partly(names) for names in made.columns.values() if len(names) > 1]
    hidden = {UNCHANGED: _names_after(frame, made)}
    if partly or made.rows:
        lost = reduce(Column.__or__, [*partly, *map(unchanged, sorted(made.rows))])
        hidden[ERROR] = _error(frame, lost, transform)
    return frame.withColumns(hidden)


def _enveloped(frame: DataFrame, made: Made, transform: TransformSpec) -> DataFrame:
    """The names are those of fields in `after`, and what is made from that is not looked into."""
    if _ENVELOPE not in made.rows.union(*made.columns.values()):
        return frame
    return frame.withColumn(ERROR, _error(frame, functions.col(UNCHANGED).isNotNull(), transform))


def _names_after(frame: DataFrame, made: Made) -> Column:
    kept = [] if made.only else [name for name in data_columns(frame) if name not in made.columns]
    sources = {name: frozenset([name]) for name in kept} | {name: names for name, names in made.columns.items() if names}
    whole = {name: reduce(Column.__and__, map(unchanged, sorted(names))) for name, names in sources.items()}
    lacking = [functions.when(lost, functions.lit(name)) for name, lost in whole.items()]
    found = functions.array_compact(functions.array(*lacking).cast(_NAMES))
    return functions.when(functions.size(found) > 0, found)


def _partly(names: frozenset[str]) -> Column:
    each = [unchanged(name) for name in sorted(names)]
    return reduce(Column.__or__, each) & ~reduce(Column.__and__, each)


def _error(frame: DataFrame, lost: Column, transform: TransformSpec) -> Column:
    words = f"{transform.type} needs a value that the source did not send, since it did not change: "
    text = functions.concat(functions.lit(words), functions.concat_ws(", ", functions.col(UNCHANGED)))
    wrong = functions.when(lost, error_of("transform", "unchanged-needed", text)).cast(ERROR_TYPE)
    return functions.coalesce(functions.col(ERROR), wrong) if ERROR in frame.columns else wrong


@singledispatch
def _made(_transform: object, _frame: DataFrame) -> Made:
    """Other transforms, such as dropping and hashing: they derive no new column from values that may not have been sent."""
    return Made()


@_made.register
def _rename(transform: RenameField, frame: DataFrame) -> Made:
    origin, (top, _, inner) = _top(transform.from_, frame), transform.to.partition(".")
    if top == origin:
        return Made()  # within one struct
    return Made({top: frozenset([origin, top] if inner else [origin])})


@_made.register
def _map(transform: MapFields, frame: DataFrame) -> Made:
    found = {name: known_spot(frame, path) for name, path in transform.columns.items()}
    return Made({name: frozenset(there.names[:1] if there is not None else ()) for name, there in found.items()}, only=True)


@_made.register
def _add(transform: AddField, frame: DataFrame) -> Made:
    names = frozenset(_of(frame, [transform.expression])[0][1]) if transform.expression is not None else frozenset()
    top = transform.field.partition(".")[0]
    inner = frozenset([top]) if top in frame.columns and "." in transform.field else frozenset()
    return Made({top: names | inner})


@_made.register
def _select(transform: SelectColumns, frame: DataFrame) -> Made:
    return Made(dict(_of(frame, transform.expressions)), only=True)


@_made.register
def _where(transform: WhereRows, frame: DataFrame) -> Made:
    return Made(rows=_of(frame, [transform.condition])[0][1])


@_made.register
def _filter(transform: FilterRows, frame: DataFrame) -> Made:
    return Made(rows=frozenset([_top(transform.field, frame)]))


@_made.register
def _unnest(transform: Unnest, frame: DataFrame) -> Made:
    return Made(rows=frozenset([_top(transform.field, frame)]))


@_made.register
def _flatten(transform: Flatten, frame: DataFrame) -> Made:
    separator = transform.separator
    columns: dict[str, frozenset[str]] = {}
    for name in data_columns(frame):
        kind = frame.schema[name].dataType
        if kind.typeName() == "struct" and (not transform.fields or name in transform.fields):
            columns |= {path: frozenset([name]) for path in _paths(name, kind, separator, transform.depth)}
    return Made(columns)


def _paths(name: str, kind: object, separator: str, depth: int | None) -> Sequence[str]:
    fields = getattr(kind, "fields", None)
    if fields is None or depth == 0:
        return [name]
    below = None if depth is None else depth - 1
    return [path for one in fields for path in _paths(f"{name}{separator}{one.name}", one.dataType, separator, below)]


def _of(frame: DataFrame, expressions: Sequence[str]) -> list[tuple[str, frozenset[str]]]:
    data = set(data_columns(frame))
    found = origins(frame, [functions.expr(text) for text in expressions])
    return [(name, names & data) for name, names in found if not name.startswith(HIDDEN)]


def _top(path: str, frame: DataFrame) -> str:
    return path if path in frame.columns else path.partition(".")[0]
