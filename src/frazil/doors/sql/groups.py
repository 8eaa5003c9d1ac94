"""GROUP BY as columns that are kept up: each aggregate is what a row adds to it, and how that is combined with what is there."""

from __future__ import annotations

from itertools import pairwise

from sqlglot import exp

from frazil.doors.sql.expressions import parsed
from frazil.doors.sql.query import Expression, QueryReader, Select, SelectPiece
from frazil.doors.sql.tokens import Mark, Script, Token, between_commas, closing

_COUNTS = ("COUNT", "COUNT_IF")
_KEPT_UP = {"SUM": "sum", "MIN": "min", "MAX": "max", "BOOL_OR": "max", "ANY": "max", "SOME": "max", "BOOL_AND": "min",
            "EVERY": "min"}  # fmt: skip
_OTHERS = ("AVG", "MEAN", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE", "VAR_POP", "VAR_SAMP", "COLLECT_LIST", "COLLECT_SET",
           "ARRAY_AGG", "FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE", "MAX_BY", "MIN_BY", "PERCENTILE", "MEDIAN", "MODE",
           "APPROX_COUNT_DISTINCT", "LISTAGG", "STRING_AGG", "CORR", "SKEWNESS", "KURTOSIS")  # fmt: skip
AGGREGATES = (*_COUNTS, *_KEPT_UP, *_OTHERS)

_LATER = "Keep the rows in a table, and compute it when you read that."
_DISTINCT = "Group by the value, too, and count the groups when you read the table."

_Shape = tuple[str, ...]


def grouped(reader: QueryReader, select: Select) -> tuple[tuple[Expression, ...], tuple[str, ...], dict[str, str]]:
    """The columns of each row, the names of those that are the key, and how the others are combined."""
    wanted = _group_expressions(reader, select)
    columns: list[Expression] = []
    keys: dict[str, str] = {}
    combine: dict[str, str] = {}
    for piece in select.items:
        body, name = _named(reader, piece)
        if name.lower() in {each.lower() for each in (*keys, *combine)}:
            reader.refuse(piece.at, f"two columns are named {name}", fix="Name one of them: ... AS other.")
        if body.tokens[0].says(*AGGREGATES) and len(body.tokens) > 1 and body.tokens[1].says("("):
            text, how = _aggregate(reader, body, select.names)
            combine[name] = how
        else:
            text = reader.expression(body, select.names).text
            by_name = (name.lower(),)
            if shape(text) not in wanted and by_name in wanted:
                _require_no_column(reader, select, name, wanted[by_name])
            elif shape(text) not in wanted:
                fix = "Add it to GROUP BY. What is made of several aggregates is computed when the table is read."
                reader.refuse(piece.at, f"{name} is neither in GROUP BY nor one of count, sum, min and max", fix)
            keys[name] = text
        columns.append(Expression(f"{text} AS `{name.replace('`', '``')}`", piece.at))
    found = {shape(text) for text in keys.values()} | {(name.lower(),) for name in keys}
    for each, at in wanted.items():
        if each not in found:
            reader.refuse(at, "the columns of GROUP BY are the key of the table, and must be selected", "Add it to SELECT.")
    if not combine:
        reader.refuse(select.group_at, "GROUP BY without an aggregate", fix="Add count(*) AS n, or use MODE UPSERT with a KEY.")
    return tuple(columns), tuple(keys), combine


def refuse_aggregates(reader: QueryReader, select: Select) -> None:
    """Without GROUP BY each row is by itself."""
    for piece in select.items:
        for token, after in pairwise(piece.tokens):
            if after.says("(") and token.says("OVER"):
                reader.refuse(
                    token.start,
                    "a view is computed for each row by itself, or by GROUP BY: it has no windows",
                    "Compare rows with one another when you read the table.",
                )
            if after.says("(") and token.says(*AGGREGATES) and not token.says("ANY", "SOME"):
                fix = "Group by something; the columns of GROUP BY are the key of the table."
                reader.refuse(token.start, f"{token.text.lower()} without GROUP BY has no key", fix)


def _group_expressions(reader: QueryReader, select: Select) -> dict[_Shape, int]:
    """What is grouped by; a number stands for the column at that place."""
    wanted: dict[_Shape, int] = {}
    for piece in select.group or ():
        token = piece.tokens[0]
        if len(piece.tokens) == 1 and token.mark is Mark.NUMBER:
            number = int(token.text) if token.text.isdigit() else 0
            if not 1 <= number <= len(select.items):
                reader.refuse(token.start, f"there is no column {token.text}", f"Places go from 1 to {len(select.items)}.")
            body, _ = _named(reader, select.items[number - 1])
            wanted[shape(reader.expression(body, select.names).text)] = piece.at
        elif token.says("ROLLUP", "CUBE", "GROUPING", "ALL"):
            reader.refuse(token.start, f"GROUP BY {token.text.upper()} is not known here", fix="Name the columns.")
        else:
            wanted[shape(reader.expression(piece, select.names).text)] = piece.at
    return wanted


def shape(text: str) -> _Shape:
    """Two expressions are the same when they differ in spaces, quotes of names, case, and parentheses around the whole only.

    Texts in them are as they are.
    """
    tokens = _bare(tuple(token for token in Script(text).tokens(spark=True) if token.mark is not Mark.END))
    return tuple(token.text if token.mark is Mark.TEXT else token.text.lower() for token in tokens)


def _bare(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """An expression without the parentheses around the whole of it."""
    while len(tokens) > 2 and tokens[0].says("(") and tokens[-1].says(")") and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _require_no_column(reader: QueryReader, select: Select, name: str, at: int) -> None:
    """Refuses to group by the name of an expression that is also a column's: by SQL's rules that would be the column."""
    pieces = [*(_named(reader, piece)[0] for piece in select.items), *([select.where] if select.where is not None else [])]
    if name.lower() in {column for piece in pieces for column in _columns_in(reader.expression(piece, select.names).text)}:
        words = f"{name} is a column of what is read, too, and GROUP BY means that one"
        reader.refuse(at, words, fix="Give the expression another name, or group by the expression itself, or by its place: 1.")


def _columns_in(text: str) -> set[str]:
    """The columns that an expression names. What sqlglot cannot read is left to Spark."""
    tree = parsed(text)
    return set() if tree is None else {column.parts[0].name.lower() for column in tree.find_all(exp.Column)}


def _named(reader: QueryReader, piece: SelectPiece) -> tuple[SelectPiece, str]:
    """An expression and the name of its column."""
    tokens = piece.tokens
    if len(tokens) > 2 and tokens[-2].says("AS"):
        return SelectPiece(tokens[:-2]), tokens[-1].text
    last = tokens[-1]
    if last.mark in (Mark.WORD, Mark.NAME) and (len(tokens) == 1 or tokens[-2].says(".")):
        return piece, last.text
    if last.mark in (Mark.WORD, Mark.NAME) and len(tokens) > 1 and not last.says("END"):
        return SelectPiece(tokens[:-1]), last.text
    return reader.refuse(piece.at, "this column needs a name", fix="Add AS and a name.")


def _aggregate(reader: QueryReader, body: SelectPiece, names: tuple[str, ...]) -> tuple[str, str]:
    """What one row adds, and how it is combined."""
    tokens = body.tokens
    function = tokens[0].text.upper()
    end = closing(tokens, 1)
    inner, rest = tokens[2:end], tokens[end + 1 :]
    if function in _OTHERS:
        fix = "Keep sum(x) and count(x), and divide when you read the table." if function in ("AVG", "MEAN") else _LATER
        known = "count, count_if, sum, min, max, bool_and and bool_or"
        reader.refuse(tokens[0].start, f"{function.lower()} cannot be kept up from what is in the table; there are {known}", fix)
    if inner and inner[0].says("DISTINCT"):
        reader.refuse(inner[0].start, "DISTINCT values cannot be counted from what is in the table", _DISTINCT)
    condition = None
    if rest:
        filtered = len(rest) > 4 and rest[0].says("FILTER") and rest[1].says("(") and rest[2].says("WHERE")
        if not filtered or closing(rest, 1) != len(rest) - 1:
            reader.refuse(rest[0].start, "an aggregate stands by itself in its column",
                          fix="Keep each aggregate in a column, and compute with them when you read the table.")  # fmt: skip
        condition = reader.expression(SelectPiece(rest[3:-1]), names).text
    arguments = list(between_commas(inner))
    if not all(arguments):
        reader.refuse(tokens[end].start, f"{function.lower()} of what?", "Name a column, or write count(*).")
    stars = [one for one in arguments if one[-1].says("*")]
    if function == "COUNT" and len(inner) == 1 and stars:
        values = []
    elif stars:
        reader.refuse(stars[0][0].start, f"{function.lower()}(*) has no meaning here", fix="Name the column.")
    else:
        values = [reader.expression(SelectPiece(one), names).text for one in arguments]
    if len(values) > 1 and function != "COUNT":
        reader.refuse(
            tokens[0].start, f"{function.lower()} takes one value, and there are {len(values)}", "Write one aggregate for each."
        )
    if function == "COUNT":
        # A row counts when none of the values is null.
        counted = [f"({one}) IS NOT NULL" for one in values]
    elif function == "COUNT_IF":
        counted = [f"({values[0]})"]
    else:
        (value,) = values
        return (f"CASE WHEN {condition} THEN {value} END" if condition else f"({value})"), _KEPT_UP[function]
    met = " AND ".join([f"({condition})", *counted] if condition else counted)
    return (f"CASE WHEN {met} THEN 1L ELSE 0L END" if met else "1L"), "sum"
