"""Statements: what is written back means the same, in both grammars, and nothing makes the parser stumble."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_cases import statements, texts

from frazil.doors.sql import parse, render
from frazil.doors.sql.statements import CreateSecret, CreateSink, CreateSource, CreateView, Query, Statement
from frazil.errors import ConfigError, SourceLocation
from tiers import examples


@given(statements)
@settings(max_examples=examples(200))
def test_what_is_written_back_parses_to_the_same(statement: Statement) -> None:
    text = render(statement)
    assert parse(text) == (statement,)
    assert render(parse(text)[0]) == text


@given(st.lists(statements, max_size=4))
@settings(max_examples=30)
def test_a_script_is_its_statements(several: list[Statement]) -> None:
    text = "-- a script; with a comment\n" + ";\n/* ; */\n".join(map(render, several))
    assert parse(text) == tuple(several)
    assert parse(f"{text};;") == tuple(several)


@given(
    st.lists(
        st.one_of(
            texts,
            st.sampled_from(
                [
                    "CREATE",
                    "SINK",
                    "SOURCE",
                    "(",
                    ")",
                    "=",
                    "'x'",
                    "FROM",
                    "AS",
                    "SELECT",
                    "WITH",
                    "KEY",
                    ";",
                    "1",
                    "ALTER",
                    "SET",
                    "SECRET",
                ]
            ),
        ),
        max_size=12,
    )
)
@settings(max_examples=examples(150))
def test_anything_is_read_or_refused_at_a_place_in_it(pieces: list[str]) -> None:
    text = " ".join(pieces)
    place = place_of_mistake(text)
    if place is not None:
        lines = text.split("\n")
        assert 1 <= place.line <= len(lines)
        assert 1 <= place.column <= len(lines[place.line - 1]) + 1


def place_of_mistake(text: str) -> SourceLocation | None:
    try:
        parse(text, "x.sql")
    except ConfigError as error:
        return error.location
    return None


def test_both_grammars_of_a_sink_say_the_same() -> None:
    written = """CREATE SINK s FROM v TO ICEBERG CATALOG c USING AWS CONNECTION a NAMESPACE "n" TABLE "t"
                 KEY (id) MODE UPSERT WITH (COMMIT INTERVAL '5s',)"""
    shipped = """create sink s from v into iceberg catalog connection c (namespace = 'n', table 't') using aws connection a
                 key (id) mode upsert with (commit interval = '5s')"""
    assert parse(written) == parse(shipped)


@pytest.mark.parametrize("how", ["PASSWORD SECRET = p", "PASSWORD = SECRET p", "PASSWORD SECRET p", "password secret P"])
def test_a_secret_is_referred_to_in_any_of_its_forms(how: str) -> None:
    plain = "CREATE CONNECTION c TO ICEBERG CATALOG (TYPE = 'rest', {})"
    assert parse(plain.format(how)) == parse(plain.format("PASSWORD = SECRET p"))


def test_names_without_quotes_are_in_small_letters_and_texts_are_as_written() -> None:
    (sink,) = parse("""CREATE SINK "My Sink" FROM Orders TO ICEBERG CATALOG Lake NAMESPACE Sales TABLE "Orders" KEY (orderId)""")
    assert isinstance(sink, CreateSink)
    assert (sink.name.text, sink.item[0].text, sink.connection.text) == ("My Sink", "orders", "lake")
    assert (sink.namespace.text, sink.table.text, sink.key[0].text) == ("Sales", "Orders", "orderId")


def test_queries_are_cut_by_the_rules_of_spark_and_the_rest_by_those_of_sql() -> None:
    script = r"""CREATE VIEW v AS SELECT 'it\'s; here', "a;b" FROM s; CREATE SECRET p AS 'C:\'; SELECT 1"""
    view, secret, query = parse(script)
    assert isinstance(view, CreateView)
    assert view.query.text == r"""SELECT 'it\'s; here', "a;b" FROM s"""
    assert isinstance(secret, CreateSecret)
    assert secret.value == "C:\\"
    assert isinstance(query, Query)
    assert query.query.text == "SELECT 1"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("smallint", "int"),
        ("INT8", "long"),
        ("double precision", "double"),
        ("real", "float"),
        ("float", "double"),
        ("numeric", "decimal(38, 10)"),
        ("numeric(10, 2)", "decimal(38, 2)"),
        ("decimal(39)", "decimal(38, 0)"),
        ("varchar(20)", "string"),
        ("uuid", "string"),
        ("jsonb", "string"),
        ("interval", "string"),
        ("bytea", "binary"),
        ("timestamp with time zone", "timestamptz"),
        ("timestamp", "timestamp"),
        ("timestamp(3)", "timestamp"),
        ("timestamp(0) without time zone", "timestamp"),
        ("timestamp(6) with time zone", "timestamptz"),
        ("timestamptz(3)", "timestamptz"),
        ("time(3) with time zone", "string"),
        ("time with time zone", "string"),
        ("timetz", "string"),
        ("text[]", "list<string>"),
        ("int list", "list<int>"),
        ("map[text => bigint]", "map<string, long>"),
        ("struct<a: int, b: text[]>", "struct<a: int, b: list<string>>"),
        ("record(a int)", "struct<a: int>"),
    ],
)
def test_types_of_columns(written: str, kept: str) -> None:
    (source,) = parse(f"CREATE SOURCE s (c {written}) FROM FILES (PATH = 'x', FORMAT = 'json')")
    assert isinstance(source, CreateSource)
    assert source.columns[0].type.text == kept
    assert parse(render(source)) == (source,)
