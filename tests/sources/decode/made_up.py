"""Made-up JSON messages: plain ones, odd ones and damaged ones, all from one seed."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StructType,
    VariantType,
)

CHARACTERS = [
    "a",
    "Z",
    "9",
    " ",
    "/",
    "'",
    "\x7f",
    "é",
    "ß",
    "\u0800",
    "€",
    "\ud7ff",
    "\ue000",
    "\ufeff",
    "\uffff",
    "😀",
    "\U0010ffff",
]
ESCAPED = [
    '\\"',
    "\\\\",
    "\\/",
    "\\b",
    "\\f",
    "\\n",
    "\\r",
    "\\t",
    "\\u0000",
    "\\u00e9",
    "\\u20AC",
    "\\uD83D\\uDE00",
    "\\ud83d\\ude00",
]
ODD_ESCAPES = [
    "\\ud83d",
    "\\ude00",
    "\\ud83dx",
    "\\ude00\\ud83d",
    "\\\\ud83d",
    "\\x",
    "\\u12",
    "\\u00g0",
    "\\'",
    "\\",
    "\n",
    "\x00",
]
ODD_NUMBERS = [
    "-0", "0.0", "-0.0", "0e0", "1e3", "1E-3", "1.50", "100.00", "-0.0000001", "1e400", "-1e400", "1e-400", "5e-324",
    "1.7976931348623157e308", "2.2250738585072012e-308", "3.4028235e38", "3.4028236e38", "0.3333333333333333",
    "9007199254740991", "9007199254740992", "9007199254740993", "9007199254740992.0", "-9007199254740993",
    "16777216", "16777217", "16777217.0", "16777217.0000000000000000001",
    "2147483647", "2147483648", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "123456789012345678", "1234567890123456789", "12345678901234567890123456789.5", "0.1234567890123456789",
    "1234567890123456789012345678901234567", "123456789012345678901234567890123456789", "0." + "0" * 30 + "1", "1" * 250,
    "00", "01", "-01", "1.", ".5", "-", "+1", "1e", "1e+", "0x1", "NaN", "-Infinity", "1_000", "1f",
]  # fmt: skip
ODD_VALUES = [
    '"',
    '""',
    '"NaN"',
    '"12"',
    "tru",
    "nul",
    "True",
    "null",
    "true",
    "[]",
    "{}",
    "[1,]",
    "[null]",
    "{,}",
    '{"a"}',
    "'a'",
    "",
    "// x\n1",
]
ODD_BASE64 = ["AA", "AAA", "AAA=", "AB==", "A===", "A B=", "AA-_", "AA==AA==", "====", "AAAA\\n"]


class Author:
    """Writes messages. Nothing that it calls plain leaves a question."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def plain(self, kind: StructType) -> bytes:
        """A message that the quick reader must take."""
        return (self.space() + self.value(kind, odd=0.0) + self.space()).encode()

    def odd(self, kind: StructType) -> bytes:
        """A message with something unusual, perhaps."""
        message = (self.space() + self.value(kind, odd=self.dice.choice([0.02, 0.1])) + self.space()).encode(
            "utf-8", "surrogatepass"
        )
        return self.damaged(message) if self.dice.random() < 0.4 else message

    def damaged(self, message: bytes) -> bytes:
        """With a byte changed, lost or added, cut off, or with something behind it."""
        place = self.dice.randrange(len(message) + 1)
        some = self.dice.choice(
            [b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b'"', b"\\", b",", b"}", b"1", b" "]
        )
        return self.dice.choice(
            [
                message[:place] + some + message[place + 1 :],
                message[:place] + some + message[place:],
                message[:place] + message[place + self.dice.randrange(1, 4) :],
                message[:place],
                message + some,
                b"\xef\xbb\xbf" + message,
                b"[" + message + b"]",
                message + message,
            ]
        )

    def space(self) -> str:
        return self.dice.choice(["", "", "", " ", "\n\t", "\r\n  "])

    def value(self, kind: DataType, odd: float) -> str:
        """A value as JSON: with some chance null, or something odd."""
        if self.dice.random() < odd:
            return self.dice.choice([self.anything(3, odd=odd), self.dice.choice(ODD_NUMBERS), self.dice.choice(ODD_VALUES)])
        return self.fitting(kind, odd)

    def inner(self, kind: DataType, odd: float) -> str:
        return "null" if self.dice.random() < 0.1 else self.value(kind, odd)

    def fitting(self, kind: DataType, odd: float) -> str:
        match kind:
            case StructType():
                return self.object(
                    [(one.name, self.inner(one.dataType, odd)) for one in kind.fields if self.dice.random() < 0.8], odd
                )
            case ArrayType():
                return "[" + ",".join(self.spaced(self.inner(kind.elementType, odd)) for _ in range(self.dice.randrange(4))) + "]"
            case MapType():
                names = self.dice.sample(["a", "b", "é", "€uro", "x y"], self.dice.randrange(4))
                return self.entries([(name, self.inner(kind.valueType, odd)) for name in names], odd)
            case LongType():
                return str(self.dice.randrange(-(2 ** self.dice.randrange(1, 64)), 2 ** self.dice.randrange(1, 64)))
            case IntegerType():
                return str(self.dice.randrange(-(2**31), 2**31) >> self.dice.randrange(32))
            case DoubleType() | FloatType():
                digits = str(self.dice.randrange(10 ** self.dice.randrange(1, 15)))
                exponent = self.dice.choice(["", "", "e-3", "E-12", "e-30"])
                return (
                    self.dice.choice(["", "-"])
                    + self.dice.choice(["0", str(self.dice.randrange(1, 10**7))])
                    + "."
                    + digits
                    + exponent
                )
            case BooleanType():
                return self.dice.choice(["true", "false"])
            case BinaryType():
                letters = self.dice.choice(ODD_BASE64) if self.dice.random() < odd else self.base64()
                return f'"{letters}"'
            case VariantType():
                fraction = "." + str(self.dice.randrange(10**9)) + "00"[: self.dice.randrange(3)]
                number = (
                    self.dice.choice(["", "-"])
                    + str(self.dice.randrange(10 ** self.dice.randrange(1, 12)))
                    + self.dice.choice(["", fraction])
                )
                return self.dice.choice([number, number, self.text(odd), "true"])
            case _:
                return self.text(odd)

    def base64(self) -> str:
        return base64.b64encode(self.dice.randbytes(self.dice.randrange(8))).decode()

    def object(self, known: list[tuple[str, str]], odd: float) -> str:
        """An object with some keys that nobody knows; out of order sometimes; with a key twice where that is odd."""
        entries = list(known)
        if self.dice.random() < 0.3:
            self.dice.shuffle(entries)
        if self.dice.random() < 0.3:
            entries.insert(
                self.dice.randrange(len(entries) + 1), (self.dice.choice(["more", "ID", ""]), self.anything(3, odd=odd))
            )
        if entries and self.dice.random() < odd:
            entries.append(self.dice.choice(entries))
        return self.entries(entries, odd)

    def entries(self, entries: list[tuple[str, str]], odd: float) -> str:
        parts = [self.spaced(self.key(name, odd)) + ":" + self.spaced(value) for name, value in entries]
        return "{" + (",".join(parts) or self.space()) + "}"

    def key(self, name: str, odd: float) -> str:
        if self.dice.random() < odd:
            return self.text(odd)
        return json.dumps(name, ensure_ascii=self.dice.random() < 0.1)

    def spaced(self, text: str) -> str:
        return self.space() + text + self.space()

    def text(self, odd: float) -> str:
        known = CHARACTERS + (ESCAPED if self.dice.random() < 0.3 else [])
        strange = [*ODD_ESCAPES, "\ud83d"] if self.dice.random() < odd else []
        return '"' + "".join(self.dice.choices(known + strange, k=self.dice.randrange(12))) + '"'

    def anything(self, depth: int, odd: float) -> str:
        """A value of any kind; now and then a very deep one."""
        if self.dice.random() < odd / 5:
            levels = self.dice.choice([60, 70, 998, 1100])
            return "[" * levels + "]" * levels
        if depth == 0 or self.dice.random() < 0.6:
            return self.dice.choice([self.text(odd), str(self.dice.randrange(1000)), "1.5e3", "-0.25", "true", "null"])
        inner = [self.anything(depth - 1, odd) for _ in range(self.dice.randrange(4))]
        if self.dice.random() < 0.5:
            return "[" + ",".join(map(self.spaced, inner)) + "]"
        return self.entries([(self.dice.choice(["a", "b", "id"]), value) for value in inner], odd)

    def messages(self, kind: StructType, number: int) -> Iterator[bytes]:
        """Odd ones."""
        return (self.odd(kind) for _ in range(number))
