"""Messages of pgoutput, made by hand: what cannot be seen of a server at will."""

from __future__ import annotations

import struct

import pytest

from frazil.errors import DataError
from frazil.sources.postgres.protocol import (
    Buffer,
    Relation,
    RelationColumn,
    begin,
    changes,
    commit_end,
    lsn_number,
    lsn_text,
    relation,
    truncated,
)

UNCHANGED = object()
TABLE = Relation(7, "public", "t", "d", (RelationColumn("id", 23, -1, True), RelationColumn("v", 25, -1, False)))


def tuple_of(*values: object) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if isinstance(value, str):
            parts.append(b"t" + struct.pack(">I", len(value.encode())) + value.encode())
        else:
            parts.append(b"n" if value is None else b"u")
    return b"".join(parts)


def insert(*values: object) -> bytes:
    return b"I" + struct.pack(">I", 7) + b"N" + tuple_of(*values)


def update(new: tuple[object, ...], key: tuple[object, ...] = (), old: tuple[object, ...] = ()) -> bytes:
    before = b"K" + tuple_of(*key) if key else b"O" + tuple_of(*old) if old else b""
    return b"U" + struct.pack(">I", 7) + before + b"N" + tuple_of(*new)


def delete(*key: object) -> bytes:
    return b"D" + struct.pack(">I", 7) + b"K" + tuple_of(*key)


def decoded(*messages: bytes, keys: tuple[str, ...] = ("id",)) -> list[tuple[object, ...]]:
    found = changes(messages, TABLE, keys)
    columns = [found.buffer.texts(found.fields, number).to_pylist() for number in range(2)]
    operations = [chr(operation) for operation in found.operations]
    return list(zip(operations, found.messages.tolist(), found.extra.tolist(), *columns, strict=True))


def test_rows_of_many_messages_are_read_at_once() -> None:
    assert decoded(
        insert("1", "a"),
        update(("1", "ä" * 100)),
        delete("1", None),
        update(("3", None), key=("2", None)),
        insert("", None),
    ) == [
        ("I", 0, False, "1", "a"),
        ("U", 1, False, "1", "ä" * 100),
        ("D", 2, False, "1", None),
        ("U", 3, False, "3", None),
        ("I", 4, False, "", None),
        ("D", 3, True, "2", None),
    ]


def test_an_old_row_that_comes_whole_is_compared_by_its_key() -> None:
    assert decoded(
        update(("1", "b"), old=("1", "a")),
        update(("2", "b"), old=("1", "a")),
        update((None, "b"), old=("1", "a")),
        update((None, "b"), old=(None, "a")),
        update(("1", UNCHANGED), old=("1", "long")),
    ) == [
        ("U", 0, False, "1", "b"),
        ("U", 1, False, "2", "b"),
        ("U", 2, False, None, "b"),
        ("U", 3, False, None, "b"),
        ("U", 4, False, "1", "long"),
        ("D", 1, True, "1", "a"),
        ("D", 2, True, "1", "a"),
    ]


def test_wide_values_take_another_way_to_the_same_end() -> None:
    wide = [f"{number}-" + "x" * 1000 for number in range(50)]
    assert [row[4] for row in decoded(*[insert(str(number), text) for number, text in enumerate(wide)])] == wide


def test_a_row_of_other_columns_than_its_table_is_refused() -> None:
    with pytest.raises(DataError, match="3 columns, its table 2") as caught:
        decoded(insert("1", "a"), insert("1", "a", "b"))
    assert caught.value.code == "replication-protocol"


def test_copied_rows() -> None:
    rows = [b"\x00\x02" + b"\x00\x00\x00\x02ab" + b"\xff\xff\xff\xff", b"\x00\x02" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x01c"]
    buffer = Buffer.of(rows)
    fields = buffer.copied_rows(2)
    assert [buffer.texts(fields, number).to_pylist() for number in range(2)] == [["ab", ""], [None, "c"]]


def test_messages_about_transactions_and_tables() -> None:
    begun = begin(b"B" + struct.pack(">QqI", 0x1_0000_0010, 86_400_000_000, 42))
    assert (lsn_text(begun.lsn), begun.at_us, begun.xid) == ("1/10", (946_684_800 + 86_400) * 1_000_000, 42)
    assert commit_end(b"C" + struct.pack(">BQQq", 0, 1, 99, 5)) == 99
    columns = b"\x01id\x00" + struct.pack(">Ii", 23, -1) + b"\x00v\x00" + struct.pack(">Ii", 25, -1)
    assert relation(b"R" + struct.pack(">I", 7) + b"public\x00t\x00d" + struct.pack(">H", 2) + columns) == TABLE
    assert truncated(b"T" + struct.pack(">IB", 2, 0) + struct.pack(">II", 7, 8)) == (7, 8)
    assert lsn_number("1/10") == 0x1_0000_0010
