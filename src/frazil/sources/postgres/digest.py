"""All rows of a table in two numbers, to compare them with another table's."""

from __future__ import annotations

from psycopg import sql

from frazil.sources.postgres.catalog import Connection, DatabaseTable, PublishedTable

# Types whose texts Spark writes alike: smallint, integer, bigint, text, varchar, uuid, boolean, date.
_ALIKE = frozenset({21, 23, 20, 25, 1043, 2950, 16, 1082})


def digest(connection: Connection, table: DatabaseTable, published: PublishedTable | None) -> tuple[int, int | None]:
    """How many rows there are that the publication lets through, and the sum of the hashes of their keys.

    The sum is None where the texts of the keys depend on who writes them.
    """
    types = {column.name: column.type_oid for column in table.columns if not column.generated}
    alike = bool(table.primary_key) and all(types.get(key) in _ALIKE for key in table.primary_key)
    hashed: sql.Composable = sql.SQL("null")
    if alike:
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(key)) for key in table.primary_key)
        hashed = sql.SQL("sum(('x' || substr(md5(concat_ws('|', {})), 1, 15))::bit(60)::bigint)").format(texts)
    query = sql.SQL("select count(*), {} from {}").format(hashed, sql.Identifier(table.namespace, table.name))
    if published is not None and published.row_filter is not None:
        query = sql.SQL("{} where {}").format(query, sql.SQL(published.row_filter))
    row = connection.execute(query).fetchone()
    assert row is not None, "an aggregate has one row"
    return int(row[0]), int(row[1] or 0) if alike else None
