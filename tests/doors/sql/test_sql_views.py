"""Views, taken apart: what Spark is given, and what is refused."""

from __future__ import annotations

import pytest

from frazil.doors.sql import parse
from frazil.doors.sql.groups import shape
from frazil.doors.sql.statements import CreateView
from frazil.doors.sql.view import ViewQuery, view_query
from frazil.errors import ConfigError


def view(query: str) -> ViewQuery:
    (statement,) = parse(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(statement, CreateView)
    return view_query(statement)


def steps(query: str) -> list[object]:
    found = view(query).steps
    return [one.where.text if one.where is not None else [column.text for column in one.columns] for one in found]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM s", []),
        ("SELECT s.* FROM s WHERE s.a > 1", ["a > 1", ["*"]]),
        ("SELECT o.id, price * n AS total, 'a, b' c FROM orders AS o", [["id", "price * n AS total", "'a, b' c"]]),
        ("SELECT o.o.x FROM t o", [["o.x"]]),
        ("SELECT `O`.id FROM t o", [["id"]]),
        (
            "SELECT CASE WHEN a THEN extract(year FROM b) END AS y FROM s WHERE x IN ('where', 'group')",
            ["x IN ('where', 'group')", ["CASE WHEN a THEN extract(year FROM b) END AS y"]],
        ),
        ("SELECT a FROM (SELECT b AS a FROM s WHERE b > 0) AS t WHERE t.a < 9", ["b > 0", ["b AS a"], "a < 9", ["a"]]),
        (
            "WITH x AS (SELECT id FROM s WHERE a), y AS (SELECT id + 1 AS id FROM x) SELECT y.id FROM y",
            ["a", ["id"], ["id + 1 AS id"], ["id"]],
        ),
        ("WITH `Recent` AS (SELECT id FROM s WHERE a) SELECT r.id FROM `Recent` r", ["a", ["id"], ["id"]]),
        ("WITH Recent AS (SELECT id FROM s WHERE a) SELECT id FROM `RECENT`", ["a", ["id"], ["id"]]),
        ("SELECT a -- why\n, b FROM s", [["a", "b"]]),
        ("SELECT timestamp, offset, version FROM s", [["timestamp", "offset", "version"]]),
        ("SELECT a AS version, b timestamp, c offset FROM s", [["a AS version", "b timestamp", "c offset"]]),
        ("SELECT left(a, 2) AS l, right(a, 1) r FROM s", [["left(a, 2) AS l", "right(a, 1) r"]]),
        (
            "SELECT order, limit + 1 AS n, timestamp AS of FROM s WHERE left(a, 1) = 'x' AND offset > 3",
            ["left(a, 1) = 'x' AND offset > 3", ["order", "limit + 1 AS n", "timestamp AS of"]],
        ),
        (
            "SELECT TIMESTAMP '2026-01-01' AS t FROM s WHERE timestamp > TIMESTAMP '2026-01-02'",
            ["timestamp > TIMESTAMP '2026-01-02'", ["TIMESTAMP '2026-01-01' AS t"]],
        ),
        ("SELECT * EXCEPT (a) FROM s", [["* EXCEPT (a)"]]),
        ("SELECT s.* EXCEPT (a, b) FROM s", [["* EXCEPT (a, b)"]]),
        ("SELECT a IS NOT DISTINCT FROM b AS same FROM s", [["a IS NOT DISTINCT FROM b AS same"]]),
        ("SELECT version.left FROM s version", [["left"]]),
        ("SELECT a having, t.minus FROM s t WHERE having > 1", ["having > 1", ["a having", "minus"]]),
        ("SELECT json_value(t.a, '$.id' RETURNING INT) AS id FROM s t", [["json_value(a, '$.id' RETURNING INT) AS id"]]),
    ],
)
def test_a_view_is_steps_over_its_source(query: str, expected: list[object]) -> None:
    assert steps(query) == expected
    assert view(query).keys == ()


def test_what_a_view_reads() -> None:
    assert [word.text for word in view("SELECT a FROM (SELECT b AS a FROM Shop.public.items t)").item] == [
        "shop",
        "public",
        "items",
    ]
    assert [word.text for word in view("SELECT a FROM `Orders`").item] == ["Orders"]
    assert [word.text for word in view("WITH c AS (SELECT * FROM pg.Orders) SELECT * FROM c").item] == ["pg", "orders"]


def test_an_aggregate_is_what_each_row_adds() -> None:
    found = view(
        """SELECT o.country, date(at) AS day, count(*) AS n, count(coupon) AS coupons, sum(price * 2) total, min(price) AS lo,
        max(price) FILTER (WHERE ok) AS hi, count_if(price > 9) AS dear,
        count(o.a, f(b, c)) FILTER (WHERE ok) AS whole, count(*) FILTER (WHERE o.ok) AS fine,
        bool_and(ok) AS all_ok
        FROM orders o WHERE price > 0 GROUP BY country, date(o.at)"""
    )
    assert found.keys == ("country", "day")
    assert found.combine == {
        "n": "sum",
        "coupons": "sum",
        "total": "sum",
        "lo": "min",
        "hi": "max",
        "dear": "sum",
        "whole": "sum",
        "fine": "sum",
        "all_ok": "min",
    }
    where, columns = found.steps
    assert where.where is not None
    assert [one.text for one in columns.columns] == [
        "country AS `country`",
        "date(at) AS `day`",
        "1L AS `n`",
        "CASE WHEN (coupon) IS NOT NULL THEN 1L ELSE 0L END AS `coupons`",
        "(price * 2) AS `total`",
        "(price) AS `lo`",
        "CASE WHEN ok THEN price END AS `hi`",
        "CASE WHEN (price > 9) THEN 1L ELSE 0L END AS `dear`",
        "CASE WHEN (ok) AND (a) IS NOT NULL AND (f(b, c)) IS NOT NULL THEN 1L ELSE 0L END AS `whole`",
        "CASE WHEN (ok) THEN 1L ELSE 0L END AS `fine`",
        "(ok) AS `all_ok`",
    ]


def test_groups_may_have_names_that_are_words_of_clauses() -> None:
    found = view("SELECT timestamp, left(a, 1) AS version, count(*) AS offset FROM s GROUP BY timestamp, left(a, 1)")
    assert (found.keys, found.combine) == (("timestamp", "version"), {"offset": "sum"})


@pytest.mark.parametrize("group", ["1", "country", "COUNTRY", "`country`", "upper(c)", "(country)", "((upper(c)))"])
def test_groups_are_named_by_place_by_name_and_by_expression(group: str) -> None:
    assert view(f"SELECT upper(c) AS country, count(*) AS n FROM s GROUP BY {group}").keys == ("country",)


@pytest.mark.parametrize(
    "query", ["SELECT g, h, count(*) AS n FROM s GROUP BY (g), (h)", "SELECT (g) AS g, h, count(*) AS n FROM s GROUP BY g, h"]
)
def test_columns_in_parentheses_are_columns(query: str) -> None:
    assert view(query).keys == ("g", "h")


def test_parentheses_within_an_expression_stay() -> None:
    assert shape("((a + b))") == shape("a+B") != shape("(a) + (b)")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT cast(at AS date) AS date, count(*) AS n FROM s GROUP BY date",
        "SELECT extract(year FROM at) AS year, count(*) AS n FROM s GROUP BY year",
        "SELECT at + INTERVAL 1 DAY AS day, count(*) AS n FROM s GROUP BY day",
        "SELECT date_trunc('day', at) AS day, count(*) AS n FROM s GROUP BY day",
        "SELECT substr(day, 1, 7) AS day, count(*) AS n FROM s GROUP BY 1",
        "SELECT substr(day, 1, 7) AS day, count(*) AS n FROM s GROUP BY SUBSTR( `day`,1, 7)",
        "SELECT o.day AS day, count(*) AS n FROM s o GROUP BY day",
        "SELECT if(select, 'X  y', (select)) AS day, count(*) AS n FROM s GROUP BY if(SELECT, 'X  y',(select))",
    ],
)
def test_a_group_has_the_name_of_its_column(query: str) -> None:
    (key,) = view(query).keys
    assert f" AS {key}," in query


@pytest.mark.parametrize(
    ("query", "said", "token"),
    [
        ("SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t)", "a subquery looks at other rows", "SELECT 1"),
        ("SELECT a, (SELECT max(b) FROM t) AS m FROM s", "a subquery looks at other rows", "SELECT max"),
        ("SELECT a FROM s WHERE b = (WITH t AS (SELECT 1) SELECT * FROM t)", "a subquery looks at other rows", "WITH"),
        ("SELECT upper(a) AS a, count(*) AS n FROM s GROUP BY A", "a is a column of what is read", "A"),
        ("SELECT upper(c) AS d, count(*) AS n FROM s WHERE d > 1 GROUP BY d", "d is a column of what is read", "d"),
        ("SELECT upper(c) AS d, max(s.d) AS n FROM s GROUP BY d", "d is a column of what is read", "d"),
        ("SELECT if(a = 'X  y', 1, 2) AS g, count(*) AS n FROM s GROUP BY if(a = 'x y', 1, 2)", "g is neither in GROUP BY", "if"),
        ("SELECT DISTINCT a FROM s", "DISTINCT compares rows", "DISTINCT"),
        ("SELECT a FROM s, t", "streams are not joined", ","),
        ("SELECT a FROM s LEFT JOIN t ON x", "streams are not joined", "LEFT"),
        ("SELECT a FROM s NATURAL LEFT JOIN t", "streams are not joined", "NATURAL"),
        ("SELECT a FROM s x CROSS JOIN t", "streams are not joined", "CROSS"),
        ("SELECT a FROM s WHERE b EXCEPT (SELECT a FROM t)", "a view reads one source", "EXCEPT"),
        ("SELECT a FROM s WHERE timestamp > 1 OFFSET 3", "a stream has no first rows", "OFFSET"),
        ("SELECT a FROM s TIMESTAMP AS OF '2026-01-01'", "which has no versions", "TIMESTAMP"),
        ("SELECT a FROM s WINDOW w AS (PARTITION BY a)", "WINDOW", "WINDOW"),
        ("SELECT a FROM s ORDER BY a", "rows of a table have no order", "ORDER"),
        ("SELECT a FROM s LIMIT 3", "a stream has no first rows", "LIMIT"),
        ("SELECT a FROM s UNION SELECT a FROM t", "a view reads one source", "UNION"),
        ("SELECT a, row_number() OVER (PARTITION BY b) AS r FROM s", "it has no windows", "OVER"),
        ("SELECT count(*) AS n FROM s", "count without GROUP BY has no key", "count"),
        ("SELECT a, count(*) AS n FROM s GROUP BY a HAVING count(*) > 1", "HAVING: a group that does not pass now", "HAVING"),
        ("SELECT count(*) AS n FROM s GROUP BY a", "must be selected", "a"),
        ("SELECT a, b, count(*) AS n FROM s GROUP BY a", "b is neither in GROUP BY", "b"),
        ("SELECT a, count(DISTINCT b) AS n FROM s GROUP BY a", "DISTINCT values cannot be counted", "DISTINCT"),
        ("SELECT a, sum(b) / count(*) AS m FROM s GROUP BY a", "an aggregate stands by itself", "/"),
        ("SELECT a, 1 + sum(b) AS m FROM s GROUP BY a", "m is neither in GROUP BY", "1"),
        ("SELECT a, count(*) FROM s GROUP BY a", "this column needs a name", "count"),
        ("SELECT a, count(*) AS a FROM s GROUP BY a", "two columns are named a", "count"),
        ("SELECT a FROM s GROUP BY a", "GROUP BY without an aggregate", "GROUP"),
        ("SELECT a, sum(*) AS n FROM s GROUP BY a", "sum(*) has no meaning", "*"),
        ("SELECT a, count(s.*) AS n FROM s GROUP BY a", "count(*) has no meaning here", "s.*"),
        ("SELECT a, count() AS n FROM s GROUP BY a", "count of what?", ")"),
        ("SELECT a, min(b, c) AS n FROM s GROUP BY a", "min takes one value, and there are 2", "min"),
        ("SELECT n FROM (SELECT a, count(*) AS n FROM s GROUP BY a)", "what was grouped cannot be read on", "GROUP"),
        ("SELECT 1", "FROM is missing", ""),
        ("SELECT a, FROM s", "an expression is expected here", "FROM"),
        ("SELECT a FROM s VERSION AS OF 3", "which has no versions", "VERSION"),
        ("SELECT a FROM s AS", "a name is expected here", ""),
    ],
)
def test_what_would_need_other_rows_is_refused_at_its_token(query: str, said: str, token: str) -> None:
    with pytest.raises(ConfigError) as raised:
        view(query)
    assert said in raised.value.message
    assert raised.value.location is not None
    assert raised.value.location.text[raised.value.location.column - 1 :].startswith(token)
    assert raised.value.fix


def test_what_is_advised_instead_of_distinct_is_accepted() -> None:
    with pytest.raises(ConfigError) as raised:
        view("SELECT DISTINCT a, b FROM s")
    assert raised.value.fix == "Group by the columns, with count(*) AS n beside them."
    assert view("SELECT a, b, count(*) AS n FROM s GROUP BY a, b").keys == ("a", "b")
