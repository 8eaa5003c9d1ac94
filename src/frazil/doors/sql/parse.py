"""From a script to statements: recursive descent over its tokens. Nothing is looked up here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from frazil.doors.sql.cursor import Cursor
from frazil.doors.sql.grammar import ANY_CONNECTION, CONNECTIONS, SINK, Kind, Mode, Target
from frazil.doors.sql.options import name_list, option_list
from frazil.doors.sql.parse_source import create_source
from frazil.doors.sql.statements import (
    Alter,
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateView,
    Describe,
    Drop,
    ExplainSink,
    Origin,
    PartitionDef,
    Query,
    Show,
    ShowCreate,
    Statement,
    Validate,
    Word,
)
from frazil.doors.sql.tokens import Mark, Script
from frazil.model.secrets import remember

KINDS = {kind.value: kind for kind in Kind}
_BEGINNINGS = ("CREATE", "ALTER", "DROP", "SHOW", "DESCRIBE", "EXPLAIN", "VALIDATE", "SELECT", "WITH")


def parse(text: str, name: str = "<sql>") -> tuple[Statement, ...]:
    """All statements of a script. What is wrong is raised as a ConfigError at its token."""
    script = Script(text.removeprefix("\ufeff"), name)
    cursor = Cursor(script)
    statements = []
    while cursor.token.mark is not Mark.END:
        if cursor.take(";"):
            continue
        start = cursor.at
        cursor.statement = ""
        made = _statement(cursor)
        cursor.end()
        statements.append(replace(made, origin=Origin(script, start, cursor.behind or cursor.at)))
    return tuple(statements)


def _statement(cursor: Cursor) -> Statement:
    readers: dict[str, Callable[[Cursor], Statement]] = {
        "CREATE": _create,
        "ALTER": _alter,
        "DROP": _drop,
        "SHOW": _show,
        "DESCRIBE": _describe,
        "DESC": _describe,
        "EXPLAIN": _explain,
        "VALIDATE": _validate,
        "SELECT": _query,
        "WITH": _query,
    }
    for word, read in readers.items():
        if cursor.sees(word):
            cursor.statement = word
            return read(cursor)
    raise cursor.refusal(f"a statement is expected here: {', '.join(_BEGINNINGS)}", near=_BEGINNINGS)


def _query(cursor: Cursor) -> Query:
    return Query(query=cursor.query())


def _create(cursor: Cursor) -> Statement:
    cursor.expect("CREATE")
    if cursor.sees("OR", "REPLACE"):
        cursor.fail("objects are not replaced", fix="ALTER or DROP the object first.")
    if cursor.sees("TABLE"):
        cursor.fail("sinks make their tables", fix="Write CREATE SINK; a source is read with CREATE SOURCE.")
    makers: dict[str, Callable[..., Statement]] = {
        "SECRET": _create_secret,
        "CONNECTION": _create_connection,
        "SOURCE": create_source,
        "VIEW": _create_view,
        "MATERIALIZED VIEW": lambda cursor, **common: _create_view(cursor, materialized=True, **common),
        "SINK": _create_sink,
    }
    what, _ = cursor.one_of(*makers, what="what to create")
    cursor.statement = f"CREATE {what}"
    if_not_exists = cursor.take("IF")
    if if_not_exists:
        cursor.expect("NOT", "EXISTS")
    name = cursor.name(f"the {what.lower()}")
    cursor.statement = f"CREATE {what} {name.text}"
    return makers[what](cursor, name=name, if_not_exists=if_not_exists)


def _create_secret(cursor: Cursor, **common: Any) -> CreateSecret:
    return CreateSecret(value=_secret_value(cursor), **common)


def _secret_value(cursor: Cursor) -> str:
    cursor.expect("AS")
    value = cursor.literal("the value of the secret")
    remember([value])
    return value


def _create_connection(cursor: Cursor, **common: Any) -> CreateConnection:
    cursor.expect("TO")
    what, _ = cursor.one_of(*Target, what="what the connection leads to")
    to = Target(what)
    return CreateConnection(to=to, options=option_list(cursor, CONNECTIONS[to]), **common)


def _create_view(cursor: Cursor, *, materialized: bool = False, **common: Any) -> CreateView:
    if cursor.sees("("):
        cursor.fail("columns of a view get their names in the query", fix="Write SELECT price AS amount.")
    _refuse_cluster(cursor)
    cursor.expect("AS")
    if not (cursor.sees("SELECT") or cursor.sees("WITH")):
        cursor.fail("a query is expected here: SELECT ...")
    return CreateView(query=cursor.query(), materialized=materialized, **common)


def _refuse_cluster(cursor: Cursor) -> None:
    if cursor.sees("IN", "CLUSTER"):
        cursor.fail("there are no clusters here: Spark's settings say where work is done", fix="Leave out IN CLUSTER.")


def _create_sink(cursor: Cursor, **common: Any) -> CreateSink:
    _refuse_cluster(cursor)
    cursor.expect("FROM")
    item = _item(cursor)
    if not (cursor.take("TO") or cursor.take("INTO")):
        cursor.fail("TO or INTO is expected here")
    cursor.expect("ICEBERG", "CATALOG")
    cursor.take("CONNECTION")
    given: dict[str, Any] = {"item": item, "connection": cursor.name("a connection")}
    clauses = {
        "USING": _using_aws,
        "NAMESPACE": _namespace,
        "TABLE": _table,
        "(": _destination,
        "KEY": _key,
        "MODE": _mode,
        "PARTITION": _partition,
        "WITH": _options,
    }
    while not cursor.is_done:
        word = next((word for word in clauses if cursor.sees(word)), None)
        if word is None:
            known = [word for word in clauses if word != "("]
            raise cursor.refusal(f"a clause of a sink is expected here: {', '.join(known)}", near=known)
        at = cursor.at
        for key, value in clauses[word](cursor).items():
            if key in given:
                raise cursor.wrong("sql-twice", at, f"{key.upper()} is given twice")
            given[key] = value
    for needed in ("namespace", "table"):
        if needed not in given:
            cursor.fail(f"Iceberg sink must specify {needed.upper()}", code="sql-sink")
    return CreateSink(**given, **common)


def _item(cursor: Cursor) -> tuple[Word, ...]:
    """A source or view; of a source with several tables with the table's name after it."""
    parts = [cursor.name_part("a source or view")]
    while cursor.take("."):
        parts.append(cursor.name_part("a source or view"))
    return tuple(parts)


def _using_aws(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("USING", "AWS", "CONNECTION")
    return {"aws": cursor.name("a connection")}


def _namespace(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("NAMESPACE")
    cursor.take("=")
    return {"namespace": cursor.text("the namespace")}


def _table(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("TABLE")
    cursor.take("=")
    return {"table": cursor.text("the table's name")}


def _destination(cursor: Cursor) -> dict[str, Any]:
    """`(NAMESPACE 'n', TABLE 't')`."""
    given: dict[str, Any] = {}

    def one() -> None:
        at = cursor.at
        if not (cursor.sees("NAMESPACE") or cursor.sees("TABLE")):
            raise cursor.refusal("NAMESPACE or TABLE is expected here", near=("NAMESPACE", "TABLE"))
        for key, value in (_namespace if cursor.sees("NAMESPACE") else _table)(cursor).items():
            if key in given:
                raise cursor.wrong("sql-twice", at, f"{key.upper()} is given twice")
            given[key] = value

    cursor.listed(one, last_comma=True)
    return given


def _key(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("KEY")
    columns = cursor.listed(cursor.column)
    seen: set[str] = set()
    for column in columns:
        if column.text.lower() in seen:
            raise cursor.wrong("sql-key", column.at, f"duplicate column referenced in KEY: {column.text}")
        seen.add(column.text.lower())
    if not columns:
        cursor.fail("KEY names at least one column", code="sql-key")
    not_enforced = cursor.take("NOT")
    if not_enforced:
        cursor.expect("ENFORCED")
    return {"key": columns, "not_enforced": not_enforced}


def _mode(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("MODE")
    mode, at = cursor.one_of(*Mode, what="a mode")
    return {"mode": Mode(mode), "mode_at": at}


def _partition(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("PARTITION", "BY")
    fields = cursor.listed(lambda: _partition_field(cursor))
    if not fields:
        cursor.fail("PARTITION BY names at least one column")
    return {"partition": fields}


def _partition_field(cursor: Cursor) -> PartitionDef:
    """`region`, `day(ts)`, `bucket(16, id)`; the width may also come second."""
    from frazil.model.partition import Transform

    name = cursor.column()
    if not cursor.sees("("):
        return PartitionDef(name)
    transform = {"years": "year", "months": "month", "days": "day", "hours": "hour"}.get(name.text.lower(), name.text.lower())
    known = [one.value for one in Transform]
    if transform not in known:
        cursor.fail(f"there is no transform {name.text}; there are: {', '.join(known)}", at=name.at, code="sql-partition")
    arguments = cursor.listed(lambda: cursor.number("a width") if cursor.token.mark is Mark.NUMBER else cursor.column())
    columns = [one for one in arguments if isinstance(one, Word)]
    widths = [one for one in arguments if isinstance(one, int)]
    sized = transform in ("bucket", "truncate")
    if len(columns) != 1 or len(widths) != int(sized):
        form = f"{transform}(16, column)" if sized else f"{transform}(column)"
        cursor.fail(f"{transform} is written as {form}", at=name.at, code="sql-partition")
    return PartitionDef(columns[0], Word(transform, name.at), widths[0] if widths else None)


def _options(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("WITH")
    return {"options": option_list(cursor, SINK)}


def _alter(cursor: Cursor) -> Alter:
    cursor.expect("ALTER")
    what, at = cursor.one_of(*KINDS, what="what to alter")
    kind = KINDS[what]
    if kind not in (Kind.SINK, Kind.CONNECTION, Kind.SECRET):
        cursor.fail(f"a {what.lower()} cannot be altered", at=at, fix=f"DROP {what} and CREATE it anew.")
    name = cursor.name(f"the {what.lower()}")
    cursor.statement = f"ALTER {what} {name.text}"
    if kind is Kind.SECRET:
        return Alter(kind=kind, name=name, value=_secret_value(cursor))
    # Which options a connection has depends on where it leads: those of all are read, and checked when that is known.
    table = SINK if kind is Kind.SINK else ANY_CONNECTION
    if cursor.take("SET"):
        return Alter(kind=kind, name=name, given=option_list(cursor, table))
    if cursor.take("RESET"):
        return Alter(kind=kind, name=name, reset=name_list(cursor, table))
    raise cursor.refusal("SET (...) or RESET (...) is expected here", near=("SET", "RESET"))


def _drop(cursor: Cursor) -> Drop:
    cursor.expect("DROP")
    what, _ = cursor.one_of(*KINDS, what="what to drop")
    if_exists = cursor.take("IF")
    if if_exists:
        cursor.expect("EXISTS")
    name = cursor.name(f"the {what.lower()}")
    cursor.statement = f"DROP {what} {name.text}"
    cascade = cursor.take("CASCADE")
    if not cascade:
        cursor.take("RESTRICT")
    return Drop(kind=KINDS[what], name=name, if_exists=if_exists, cascade=cascade)


def _show(cursor: Cursor) -> Statement:
    cursor.expect("SHOW")
    if cursor.take("CREATE"):
        what, _ = cursor.one_of(*KINDS, what="what to show")
        return ShowCreate(kind=KINDS[what], name=cursor.name(f"the {what.lower()}"))
    plurals: dict[str, Kind | None] = {kind.plural: kind for kind in Kind} | {"OBJECTS": None}
    what, _ = cursor.one_of(*plurals, "CREATE", what="what to show")
    cursor.statement = f"SHOW {what}"
    like = cursor.literal("a pattern") if cursor.take("LIKE") else None
    return Show(kind=plurals[what], like=like)


def _describe(cursor: Cursor) -> Describe:
    cursor.next()
    return Describe(name=cursor.name("an object"))


def _explain(cursor: Cursor) -> ExplainSink:
    cursor.expect("EXPLAIN")
    cursor.expect("SINK")
    return ExplainSink(name=cursor.name("the sink"))


def _validate(cursor: Cursor) -> Validate:
    cursor.expect("VALIDATE", "CONNECTION")
    return Validate(name=cursor.name("the connection"))
