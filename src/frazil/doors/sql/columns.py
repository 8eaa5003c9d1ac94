"""What a view's columns are, as far as that is known before rows come, and what is refused in its expressions.

Columns are known where they are declared. Their types are followed through columns that are taken as they are, through casts, and
through what makes structs, lists and maps: what cannot be a key is found when the view or the sink is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from sqlglot import exp

from frazil.doors.sql.cursor import did_you_mean
from frazil.doors.sql.expressions import calls, parsed, window_problem
from frazil.doors.sql.functions import FUNCTIONS
from frazil.doors.sql.query import UNSUPPORTED, Expression
from frazil.doors.sql.statements import CreateView
from frazil.doors.sql.view import ViewStep
from frazil.model.transform import RenameField, RowTransform, SelectColumns
from frazil.model.types import NOT_KEYS, ListType, MapType, Primitive, StructType, Type

Columns = Mapping[str, Type | None]
"""Columns by name; the type of one is None where it is not known."""

_GENERATORS = ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
               "variant_explode", "variant_explode_outer")  # fmt: skip
_REFUSED = {
    **dict.fromkeys(
        _GENERATORS,
        ("a view makes one row of each row, or groups them", "Keep the list in the table, and make rows of it when you read."),
    ),
    "session_window": (
        "a session grows, and two become one, as rows come: what is in the table cannot be kept up",
        "Group by window(at, '15 minutes').start, or find the sessions when you read the table.",
    ),
    "mz_now": (
        "a view is computed once for each row, when it comes: it does not change as time goes on",
        "Use current_timestamp() for the time of the batch, or filter by time when you read the table.",
    ),
}  # fmt: skip
# Names without parentheses that are no columns, and words that some functions take.
_WORDS = """
current_user user session_user localtimestamp current_time current_catalog current_database current_schema current_timezone
current_date current_timestamp _metadata year quarter month week day dayofyear hour minute second millisecond microsecond both
leading trailing
"""
_NO_COLUMNS = frozenset(_WORDS.split())
_CASTS: dict[object, Type] = {
    exp.DType.DOUBLE: Primitive("double"),
    exp.DType.FLOAT: Primitive("float"),
    exp.DType.STRUCT: StructType(()),
    exp.DType.ARRAY: ListType(Primitive("string")),
    exp.DType.MAP: MapType(Primitive("string"), Primitive("string")),
}


def columns_after(view: CreateView, steps: tuple[ViewStep, ...], below: Columns | None, keys: tuple[str, ...]) -> Columns | None:
    """The columns that a view has over others; None where those are not known. Refuses what cannot be computed, or be a key."""
    known = below
    for step in steps:
        if step.where is not None:
            _checked(view, step.where, known, ())
        if step.columns:
            known = _selected(view, step, known)
    for key in keys:
        kind = (known or {}).get(key)
        if kind is not None and kind.name in NOT_KEYS:
            at = next(one for one in steps[-1].columns if _name(parsed(one.text)) == key)
            words = f"column {key} has type {kind.name} which cannot be used as an Iceberg equality delete key"
            fix = (
                "Group by one field of it, such as window(at, '1 hour').start."
                if kind.name == "struct"
                else "Group by a cast of it."
            )
            _refuse(view, at, 0, words, fix, code="sql-key")
    return known


def read_from(transforms: Sequence[RowTransform], column: str) -> frozenset[str] | None:
    """The columns of the source that a column is made from, in small letters, by these transforms; None where it is not known."""
    names = frozenset([column.lower()])
    for transform in reversed(transforms):
        if isinstance(transform, RenameField):
            names = frozenset(transform.from_.lower() if name == transform.to.lower() else name for name in names)
        elif isinstance(transform, SelectColumns):
            made = [parsed(text) for text in transform.expressions]
            by_name = {_name(tree).lower(): tree for tree in made if tree is not None}
            has_star = any(isinstance(tree, exp.Star) for tree in made)
            found: set[str] = set()
            for name in names:
                tree = by_name.get(name)
                if tree is None and not has_star:
                    return None
                found |= {name} if tree is None else {one.parts[0].name.lower() for one in tree.find_all(exp.Column)}
            names = frozenset(found)
    return names


def _selected(view: CreateView, step: ViewStep, known: Columns | None) -> Columns | None:
    made: dict[str, Type | None] | None = {}
    for one in step.columns:
        tree = _checked(view, one, known, tuple(made or ()))
        if made is None:
            continue
        if tree is None or (known is None and isinstance(tree, exp.Star)):
            made = None
        elif isinstance(tree, exp.Star):
            left_out = {name.name.lower() for name in tree.args.get("except_") or ()}
            made |= {name: kind for name, kind in (known or {}).items() if name.lower() not in left_out}
        elif name := _name(tree):
            made[name] = _type(tree, known)
        else:
            made = None
    # Without declared columns the names alone are known.
    return made


def _checked(view: CreateView, one: Expression, known: Columns | None, beside: tuple[str, ...]) -> exp.Expr | None:
    tree = parsed(one.text)
    if tree is None:
        return None
    for name, at in calls(tree, one.text):
        if name in _REFUSED:
            words, fix = _REFUSED[name]
            _refuse(view, one, at, f"{name}: {words}", fix)
        if name == "window" and (problem := window_problem(one.text[at:])):
            fix = "Group by windows that do not overlap, and add those up when you read the table."
            _refuse(view, one, at, f"window: {problem}", fix if "overlap" in problem else "Write window(at, '15 minutes').start.")
        if name not in FUNCTIONS and "." not in one.text[at + len(name) :].partition("(")[0]:
            fix = did_you_mean(name, sorted(FUNCTIONS)) or "Queries are Spark SQL: use one of its built-in functions."
            _refuse(view, one, at, f"there is no function {name}", fix, code="sql-unknown-function")
    if known is None:
        return tree
    names = {name.lower() for name in (*known, *beside)} | _NO_COLUMNS
    for column in tree.find_all(exp.Column):
        first = column.parts[0]
        if isinstance(first, exp.Identifier) and first.name.lower() not in names:
            fix = did_you_mean(first.name, list(known)) or f"There are: {', '.join(known)}."
            at = first.meta.get("start", 0)
            _refuse(view, one, at, f"there is no column {first.name!r}", fix, code="sql-unknown-column")
    return tree


def _name(tree: exp.Expr | None) -> str:
    """The name of the column that an expression makes; empty where Spark chooses one."""
    if isinstance(tree, exp.Alias | exp.Column | exp.Dot):
        return str(tree.alias_or_name)
    return ""


def _type(tree: exp.Expr, known: Columns | None) -> Type | None:  # noqa: PLR0911 - one for each case
    """The type of an expression, as far as it is known."""
    match tree:
        case exp.Alias() | exp.Paren():
            return _type(tree.this, known)
        case exp.Column() if len(tree.parts) == 1:
            return next((kind for name, kind in (known or {}).items() if name.lower() == tree.name.lower()), None)
        case exp.Cast():
            return _CASTS.get(tree.to.this)
        case exp.Struct():
            return StructType(())
        case exp.Array():
            return ListType(Primitive("string"))
        case exp.Map() | exp.VarMap():
            return MapType(Primitive("string"), Primitive("string"))
        case exp.Anonymous() if tree.name.lower() == "window":
            return StructType(())
        case _:
            return None


def _refuse(view: CreateView, one: Expression, at: int, words: str, fix: str, *, code: str = UNSUPPORTED) -> NoReturn:
    """Refuses a part of an expression at its place; where a qualifier before it was taken out, at the expression's beginning."""
    query = view.query.text
    exact = query[one.at : one.at + at + 1] == one.text[: at + 1]
    raise view.wrong(code, view.query.at + one.at + (at if exact else 0), words, fix=fix)
