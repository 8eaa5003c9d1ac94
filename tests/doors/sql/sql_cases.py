"""What the tests of the SQL door share: a session without Spark, and statements made by Hypothesis."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import strategies as st

from frazil.doors.sql import Answer, Definitions, Session
from frazil.doors.sql.grammar import (
    ANY_CONNECTION,
    CONNECTIONS,
    FILES_SOURCE,
    GENERATORS,
    KAFKA_SOURCE,
    POSTGRES_SOURCE,
    SINK,
    Envelope,
    Kind,
    Mode,
    Table,
    Takes,
    Target,
)
from frazil.doors.sql.statements import (
    Alter,
    ColumnDef,
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateView,
    Describe,
    Drop,
    ExplainSink,
    Format,
    FromFiles,
    FromGenerator,
    FromKafka,
    FromPostgres,
    Include,
    Option,
    Options,
    PartitionDef,
    PostgresTable,
    Query,
    Reference,
    Show,
    ShowCreate,
    Statement,
    Validate,
    Word,
)
from frazil.errors import ConfigError

ROOT = Path(__file__).parents[3]
BESIDE = sorted((ROOT.parent / "shared" / "seeds").glob("004*.txt"))

LAKE = "CREATE CONNECTION lake TO ICEBERG CATALOG (TYPE = 'sql', URI = 'sqlite:///c.db', WAREHOUSE = 'w');"


def session(folder: Path) -> Session:
    """A session whose definitions are in a folder."""
    return Session(Definitions(folder / "frazil-sql.db"))


def run(session: Session, text: str) -> list[Answer]:
    """All answers to a script."""
    return list(session.run(text, "script.sql"))


def refused(session: Session, text: str) -> ConfigError:
    """The error that a script ends with."""
    with pytest.raises(ConfigError) as raised:
        run(session, text)
    return raised.value


def blocks(document: Path) -> list[str]:
    """The SQL blocks of a document."""
    return re.findall(r"```sql\n(.*?)```", document.read_text(encoding="utf-8", errors="replace"), re.DOTALL | re.IGNORECASE)


# Texts with everything that quoting has to get right.
texts = st.text(st.sampled_from("aB1 '\"`;-/*\\()\n%é_,=$.\u00a0\U0001f9ca"), max_size=12)
names = st.one_of(
    st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), texts.filter(lambda text: text.strip() == text and text)
)
names = names.filter(lambda text: "\n" not in text)
words = names.map(Word)
columns = st.one_of(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), names).map(Word)


def options(table: Table) -> st.SearchStrategy[Options]:
    """Some of the options of a table, each once."""

    def one(number: int) -> st.SearchStrategy[Option]:
        known = table.known[number]
        match known.takes:
            case Takes.NUMBER:
                values: st.SearchStrategy[object] = st.integers(-(10**6), 10**6).map(lambda value: Word(str(value)))
            case Takes.TEXTS:
                values = st.lists(texts.map(Word), min_size=1, max_size=3).map(tuple)
            case Takes.CONNECTION:
                values = words.map(Reference)
            case Takes.SECRET:
                values = st.one_of(texts.map(Word), words.map(lambda word: Reference(word, secret=True)))
            case _:
                values = texts.map(Word)
        return values.map(lambda value: Option(Word(known.name), value))  # type: ignore[arg-type]

    numbers = st.lists(st.integers(0, len(table.known) - 1), unique_by=lambda n: table.known[n].name, max_size=4)
    return numbers.flatmap(lambda chosen: st.tuples(*map(one, chosen)))


types = st.recursive(
    st.sampled_from(
        ["int", "long", "float", "double", "string", "binary", "boolean", "date", "timestamp", "timestamptz", "decimal(38, 2)"]
    ),
    lambda inner: st.one_of(
        inner.map(lambda kind: f"list<{kind}>"),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]}, {pair[1]}>"),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda kinds: f"struct<{', '.join(f'f{n}: {k}' for n, k in enumerate(kinds))}>"
        ),
    ),
    max_leaves=4,
)
column_defs = st.lists(st.builds(ColumnDef, columns, types.map(Word), st.booleans()), min_size=1, max_size=3).map(tuple)
formats = st.one_of(
    st.sampled_from(["JSON", "TEXT", "BYTES", "CSV"]).map(lambda kind: Format(Word(kind))),
    texts.map(lambda text: Format(Word("CSV"), detail=Word(text))),
    words.map(lambda word: Format(Word("AVRO"), Reference(word))),
    texts.map(lambda text: Format(Word("AVRO"), Word(text))),
    st.tuples(texts, texts).map(lambda pair: Format(Word("PROTOBUF"), Word(pair[0]), Word(pair[1]))),
)
includes = st.lists(
    st.builds(
        Include, st.sampled_from(["KEY", "PARTITION", "OFFSET", "TIMESTAMP", "HEADERS", "TOPIC"]).map(Word), st.none() | columns
    ),
    max_size=3,
).map(tuple)
kafka = st.builds(FromKafka, words, options(KAFKA_SOURCE), formats, st.none() | formats, includes, st.sampled_from(Envelope))
tables = st.lists(st.builds(PostgresTable, words, st.none() | words, st.none() | words), min_size=1, max_size=3).map(tuple)
postgres = st.builds(FromPostgres, words, options(POSTGRES_SOURCE), st.none() | tables)
generators = st.sampled_from(sorted(GENERATORS)).flatmap(
    lambda name: st.builds(FromGenerator, st.just(Word(name)), options(GENERATORS[name]))
)
sources = st.one_of(
    st.builds(CreateSource, name=words, reads=kafka, columns=st.just(()) | column_defs, if_not_exists=st.booleans()),
    st.builds(CreateSource, name=words, reads=postgres),
    st.builds(CreateSource, name=words, reads=generators),
    st.builds(CreateSource, name=words, reads=options(FILES_SOURCE).map(FromFiles), columns=st.just(()) | column_defs),
)
queries = st.sampled_from(
    [
        "SELECT * FROM s",
        "SELECT 'it\\'s; not over' AS a, \"b;\" FROM `s` WHERE x > 1 -- why not;\n AND y",
        "WITH a AS (SELECT 1) SELECT /* ; */ 2 FROM a",
    ]
).map(Word)
partition = st.one_of(
    columns.map(PartitionDef),
    st.tuples(columns, st.sampled_from(["year", "month", "day", "hour", "identity", "void"])).map(
        lambda pair: PartitionDef(pair[0], Word(pair[1]))
    ),
    st.tuples(columns, st.sampled_from(["bucket", "truncate"]), st.integers(1, 99)).map(
        lambda three: PartitionDef(three[0], Word(three[1]), three[2])
    ),
)
keys = st.lists(columns, max_size=3, unique_by=lambda word: word.text.lower()).map(tuple)
sinks = st.builds(
    CreateSink,
    name=words,
    if_not_exists=st.booleans(),
    item=st.lists(words, min_size=1, max_size=3).map(tuple),
    connection=words,
    aws=st.none() | words,
    namespace=texts.map(Word),
    table=texts.map(Word),
    key=keys,
    mode=st.none() | st.sampled_from(Mode),
    partition=st.lists(partition, max_size=3).map(tuple),
    options=options(SINK),
).flatmap(lambda sink: st.sampled_from([False, True] if sink.key else [False]).map(lambda flag: _not_enforced(sink, flag)))


def _not_enforced(sink: CreateSink, flag: bool) -> CreateSink:
    from dataclasses import replace

    return replace(sink, not_enforced=flag)


connections = st.sampled_from(Target).flatmap(
    lambda to: st.builds(CreateConnection, name=words, to=st.just(to), options=options(CONNECTIONS[to]))
)
option_words = st.sampled_from([known.name for known in SINK.known]).map(Word)
statements: st.SearchStrategy[Statement] = st.one_of(
    st.builds(CreateSecret, name=words, value=texts, if_not_exists=st.booleans()),
    connections,
    sources,
    st.builds(CreateView, name=words, query=queries, materialized=st.booleans()),
    sinks,
    st.builds(Alter, kind=st.just(Kind.SINK), name=words, given=options(SINK)),
    st.builds(Alter, kind=st.just(Kind.CONNECTION), name=words, given=options(ANY_CONNECTION)),
    st.builds(Alter, kind=st.just(Kind.SINK), name=words, reset=st.lists(option_words, min_size=1, max_size=2).map(tuple)),
    st.builds(Alter, kind=st.just(Kind.SECRET), name=words, value=texts),
    st.builds(Drop, kind=st.sampled_from(Kind), name=words, if_exists=st.booleans(), cascade=st.booleans()),
    st.builds(Show, kind=st.none() | st.sampled_from(Kind), like=st.none() | texts),
    st.builds(ShowCreate, kind=st.sampled_from(Kind), name=words),
    st.builds(Describe, name=words),
    st.builds(ExplainSink, name=words),
    st.builds(Validate, name=words),
    st.builds(Query, query=queries),
)
