"""What each transform does to a frame."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, StructType

from frazil.columns.schema import data_columns, hidden_columns, or_unread, quoted, tells_changes
from frazil.model.hidden import DELETE, ERROR, HIDDEN, IMAGES_MARK, LEFT, OP, ORDER, UNCHANGED, UPDATE
from frazil.model.transform import (
    AddField,
    FilterRows,
    Flatten,
    HashFields,
    MapFields,
    RedactFields,
    RemoveField,
    RenameField,
    RowTransform,
    SelectColumns,
    TokenizeFields,
    TruncateFields,
    Unnest,
    Way,
    WhereRows,
)
from frazil.spark.failing import cannot_fail
from frazil.write.shape.expressions import require_sound, understood
from frazil.write.shape.failing import done, tried
from frazil.write.shape.masks import PARTS, masked
from frazil.write.shape.odd import leaves
from frazil.write.shape.paths import Spot, known_spot, new_spot, placed, refusal, renamed, spot, without
from frazil.write.shape.tally import Watch

_TURN, _HOLDS = f"{HIDDEN}turn", f"{HIDDEN}holds"


@dataclass(frozen=True)
class How:
    """How a transform is applied: ``apart``: a row for which an expression fails is a bad row, and does not stop the batch."""

    watch: Watch
    apart: bool


@singledispatch
def apply_transform(transform: object, _frame: DataFrame, _how: How) -> DataFrame:
    """The frame after a transform."""
    raise TypeError(type(transform))


@apply_transform.register
def _rename(transform: RenameField, frame: DataFrame, _how: How) -> DataFrame:
    old = spot(frame, transform.from_, transform, ("from",))
    new = new_spot(frame, transform.to, transform, ("to",), besides=old)
    if new.names[:-1] == old.names[:-1]:
        return renamed(frame, old, new.names[-1])
    if new.names[: len(old.names)] == old.names:
        raise refusal(transform, ("to",), f"{old.path!r} cannot be moved into itself")
    return without(placed(frame, new, old.value), old)


@apply_transform.register
def _map(transform: MapFields, frame: DataFrame, _how: How) -> DataFrame:
    # A column that is null in all rows is a text to those that read it, and fits every type.
    nothing = functions.lit(None).cast("string")
    found = {name: known_spot(frame, path) for name, path in transform.columns.items()}
    made = [(nothing if there is None else there.value).alias(name) for name, there in found.items()]
    return frame.select(*made, *[functions.col(name) for name in hidden_columns(frame)])


@apply_transform.register
def _remove(transform: RemoveField, frame: DataFrame, _how: How) -> DataFrame:
    for path, way in transform.named:
        frame = without(frame, spot(frame, path, transform, way))
    if not data_columns(frame):
        raise refusal(transform, (), "no column would be left")
    return frame


@apply_transform.register
def _add(transform: AddField, frame: DataFrame, how: How) -> DataFrame:
    new = new_spot(frame, transform.field, transform, ("field",))
    if transform.expression is not None:
        text, way = transform.expression, ("expression",)
        require_sound(frame, transform, [(text, way)])
        if not how.apart or cannot_fail(frame, functions.expr(text)):
            return placed(frame, new, functions.expr(text))
        made, (value,) = tried(frame, [(_shown(transform, text), functions.expr(text))])
        return done(placed(made, new, value))
    value = functions.lit(transform.value)
    return placed(frame, new, value.cast("string") if transform.value is None else value)


@apply_transform.register
def _filter(transform: FilterRows, frame: DataFrame, how: How) -> DataFrame:
    found = spot(frame, transform.field, transform, ("field",))
    if isinstance(found.kind, PARTS):
        words = f"{found.path!r} is {found.kind.simpleString()}, which is equal to no single value"
        raise refusal(transform, ("field",), words, fix="Use where with a condition.")
    condition = found.value.eqNullSafe(functions.lit(transform.equals))
    if not how.apart or cannot_fail(frame, condition):
        return _where(how.watch(frame, None), condition)
    made, (holds,) = tried(frame, [(f"filter: {found.path!r} equals {transform.equals!r}", condition)])
    return done(_where(how.watch(made, None), holds))


@apply_transform.register
def _where_rows(transform: WhereRows, frame: DataFrame, how: How) -> DataFrame:
    text, way = transform.condition, ("condition",)
    understood(lambda: frame.where(functions.expr(text)), frame, transform, way, text)
    if not how.apart or cannot_fail(frame, functions.expr(text)):
        return _where(how.watch(frame, None), functions.expr(text))
    made, (holds,) = tried(frame, [(_shown(transform, text), functions.expr(text))])
    return done(_where(how.watch(made, None), holds))


def _shown(transform: RowTransform, text: str) -> str:
    return f"{transform.type}: the expression {text!r}"


def _where(frame: DataFrame, condition: Column) -> DataFrame:
    wanted = or_unread(frame, condition)
    # If each change comes with its previous row, and deletes with the whole row, each row is filtered separately.
    by_key = tells_changes(frame) and not frame.schema[OP].metadata.get(IMAGES_MARK)
    return _changes_within(frame, wanted) if by_key else frame.where(wanted)


def _changes_within(frame: DataFrame, condition: Column) -> DataFrame:
    """The changes of rows that match a condition: an update after which a row does not match deletes it.

    A delete always passes, since it may contain only the key. A new row that does not match was never in the table.
    """
    op = functions.col(OP)
    judged = frame.withColumn(_HOLDS, functions.coalesce(condition, functions.lit(False)))
    kept = judged.where(functions.col(_HOLDS) | op.isin(UPDATE, DELETE))
    holds = functions.col(_HOLDS)
    after = {OP: functions.when(holds, op).otherwise(DELETE)}
    if UNCHANGED in frame.columns:
        left = ~holds & (op != DELETE)
        after[LEFT] = left | functions.col(LEFT) if LEFT in frame.columns else left
    return kept.withColumns(after).withMetadata(OP, frame.schema[OP].metadata).drop(_HOLDS)


@apply_transform.register
def _select(transform: SelectColumns, frame: DataFrame, how: How) -> DataFrame:
    expressions = [(text, ("expressions", number)) for number, text in enumerate(transform.expressions)]
    require_sound(frame, transform, expressions)
    columns = [functions.expr(text) for text in transform.expressions]
    names = [name.lower() for name in frame.select(*columns).columns]
    if len(set(names)) < len(names):
        _refuse_clash(transform, frame)
    if how.apart:
        frame, columns = _tried_columns(transform, frame, columns)
    made = frame.select(*columns)
    # A star has brought them already.
    lacking = [functions.col(name) for name in hidden_columns(frame) if name not in made.columns]
    return done(frame.select(*columns, *lacking) if lacking else made)


def _tried_columns(transform: SelectColumns, frame: DataFrame, columns: Sequence[Column]) -> tuple[DataFrame, list[Column]]:
    """The columns of a selection, of which those that compute something are null where that fails."""
    made = {n: frame.select(column).columns for n, column in enumerate(columns) if not cannot_fail(frame, column)}
    single = {number: names[0] for number, names in made.items() if len(names) == 1}
    frame, values = tried(frame, [(_shown(transform, transform.expressions[number]), columns[number]) for number in single])
    found = {number: value.alias(name) for (number, name), value in zip(single.items(), values, strict=True)}
    return frame, [found.get(number, column) for number, column in enumerate(columns)]


def _refuse_clash(transform: SelectColumns, frame: DataFrame) -> None:
    by_name: dict[str, list[tuple[str, str, Way]]] = defaultdict(list)
    for number, text in enumerate(transform.expressions):
        for name in frame.select(functions.expr(text)).columns:
            by_name[name.lower()].append((name, text, ("expressions", number)))
    for found in by_name.values():
        if len(found) > 1 and not found[0][0].startswith(HIDDEN):
            (name, first, _), (_, second, way) = found[:2]
            words = f"the expressions {first!r} and {second!r} both make a column {name!r}"
            raise refusal(transform, way, words, code="transform-clash", fix="Name one of them: `... as other_name`.")
    raise refusal(transform, ("expressions",), "`*` stands there twice", code="transform-clash", fix="Keep one.")


@apply_transform.register
def _flatten(transform: Flatten, frame: DataFrame, _how: How) -> DataFrame:
    chosen = _structs(transform, frame)
    taken: dict[str, Spot] = {}
    columns: list[Column] = []
    for field in frame.schema.fields:
        if field.name.startswith(HIDDEN):
            columns.append(functions.col(field.name))
            continue
        for part in leaves((field.name,), field.dataType, transform.depth if field.name in chosen else 0):
            name = transform.separator.join(part.names)
            if (other := taken.setdefault(name.lower(), part)) is not part:
                words = f"{other.path!r} and {part.path!r} would both become the column {name!r}"
                fix = "Choose another separator, or rename one of them before."
                raise refusal(transform, (), words, code="transform-clash", fix=fix)
            columns.append(part.value.alias(name))
    return frame.select(*columns)


def _structs(transform: Flatten, frame: DataFrame) -> set[str]:
    if not transform.fields:
        return {name for name in data_columns(frame) if isinstance(frame.schema[name].dataType, StructType)}
    for number, name in enumerate(transform.fields):
        found = spot(frame, name, transform, ("fields", number))
        if len(found.names) > 1:
            words = f"{name!r} is within another struct"
            raise refusal(
                transform, ("fields", number), words, fix=f"Flatten {found.names[0]!r}, with depth if that is too much."
            )
        if not isinstance(found.kind, StructType):
            raise refusal(transform, ("fields", number), f"{name!r} is no struct: it is {found.kind.simpleString()}")
    return set(transform.fields)


@apply_transform.register
def _unnest(transform: Unnest, frame: DataFrame, how: How) -> DataFrame:
    found = spot(frame, transform.field, transform, ("field",))
    if not isinstance(found.kind, ArrayType):
        raise refusal(transform, ("field",), f"{found.path!r} is no list: it is {found.kind.simpleString()}")
    name = transform.as_ or found.names[-1]
    way = ("as",) if transform.as_ else ("field",)
    if "." in name and transform.as_:
        raise refusal(transform, way, f"{name!r} is a path, and the element becomes a column")
    if found.names != (name,):
        new_spot(frame, name, transform, way, besides=found)
    items = found.value
    if ERROR in frame.columns:
        nothing = functions.array(functions.lit(None).cast(found.kind.elementType))
        items = functions.when(functions.col(ERROR).isNotNull(), nothing).otherwise(items)
    empty = items.isNull() | (functions.size(items) == 0)
    frame = how.watch(frame, functions.lit(False) if transform.keep_empty else empty)
    spread = functions.posexplode_outer if transform.keep_empty else functions.posexplode
    each = spread(items).alias(_TURN, name)
    if len(found.names) == 1:
        made = frame.select(*[each if c == found.names[0] else functions.col(quoted(c)) for c in frame.columns])
    else:
        made = without(frame.select("*", each), found)
    if ORDER in made.columns:
        # Of elements that share a key the last one counts.
        made = made.withColumn(ORDER, functions.struct(functions.col(ORDER).alias("place"), functions.col(_TURN).alias("turn")))
    return made.drop(_TURN)


@apply_transform.register
def _masked(transform: HashFields | TokenizeFields | RedactFields | TruncateFields, frame: DataFrame, _how: How) -> DataFrame:
    return masked(transform, frame)
