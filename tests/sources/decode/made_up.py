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
ODD_CHARACTERS = [
    "\\ud83d", "\\ude00", "\\ud83dx", "\\ude00\\ud83d", "\\ud83d\\u0041", "\\ud83d\\ud83d", "\\\\ud83d", "\\\\\\ud83d\\ude00",
    "\\x", "\\u12", "\\u00g0", "\\'", "\\", "\n", "\x00", "\ud83d", '"',
]  # fmt: skip
DAMAGES = [b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b'"', b"\\", b",", b"}", b"1", b" "]
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
_HERE = "@"
ODD_BASE64 = ["AA", "AAA", "AAA=", "AB==", "A===", "A B=", "AA-_", "AA==AA==", "====", "AAAA\\n"]


def one_by_one(kind: StructType) -> Iterator[bytes]:
    """Each odd thing in the place of each value, with nothing else in the message."""
    for place in _places(kind):
        for odd in (*ODD_NUMBERS, *ODD_VALUES, *(f'"{text}"' for text in (*ODD_CHARACTERS, *ODD_BASE64))):
            yield place.replace(_HERE, odd).encode("utf-8", "surrogatepass")


def _places(kind: DataType) -> Iterator[str]:
    """Messages with a mark where a value stands."""
    match kind:
        case StructType():
            yield from (f"{{{json.dumps(one.name)}: {inner}}}" for one in kind.fields for inner in _places(one.dataType))
        case ArrayType():
            yield from (f"[{inner}]" for inner in _places(kind.elementType))
        case MapType():
            yield from (f'{{"a": {inner}}}' for inner in _places(kind.valueType))
        case _:
            yield _HERE


class Author:
    """Writes messages. Nothing that it calls plain leaves a question."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._chance, self._left = 0.0, 0

    def plain(self, kind: StructType) -> bytes:
        """A message that the quick reader must take."""
        return self._message(kind, chance=0.0, most=0)

    def odd(self, kind: StructType) -> bytes:
        """A message in which one thing is odd, or several are; perhaps damaged afterwards."""
        message = self._message(kind, self.dice.choice([0.05, 0.1, 0.3]), self.dice.choice([1, 1, 1, 100]))
        return self.damaged(message) if self.dice.random() < 0.2 else message

    def messages(self, kind: StructType, number: int) -> Iterator[bytes]:
        """Odd ones."""
        return (self.odd(kind) for _ in range(number))

    def damaged(self, message: bytes) -> bytes:
        """With a byte changed, lost or added, cut off, or with something around it."""
        place = self.dice.randrange(len(message) + 1)
        some = self.dice.choice(DAMAGES)
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

    def _message(self, kind: StructType, chance: float, most: int) -> bytes:
        self._chance, self._left = chance, most
        return self._spaced(self._fitting(kind)).encode("utf-8", "surrogatepass")

    def _is_odd(self) -> bool:
        """Whether something odd is due."""
        due = self._left > 0 and self.dice.random() < self._chance
        self._left -= due
        return due

    def _spaced(self, text: str) -> str:
        before, behind = self.dice.choices(["", "", "", " ", "\n\t", "\r\n  "], k=2)
        return before + text + behind

    def _value(self, kind: DataType) -> str:
        if self._is_odd():
            return self.dice.choice([self._anything(3), self.dice.choice(ODD_NUMBERS), self.dice.choice(ODD_VALUES)])
        return "null" if self.dice.random() < 0.1 else self._fitting(kind)

    def _fitting(self, kind: DataType) -> str:
        match kind:
            case StructType():
                return self._object([(one.name, one.dataType) for one in kind.fields if self.dice.random() < 0.8])
            case ArrayType():
                return "[" + ",".join(self._spaced(self._value(kind.elementType)) for _ in range(self.dice.randrange(4))) + "]"
            case MapType():
                names = self.dice.sample(["a", "b", "é", "€uro", "x y"], self.dice.randrange(4))
                return self._entries([(name, self._value(kind.valueType)) for name in names])
            case LongType():
                return str(self.dice.randrange(-(2 ** self.dice.randrange(1, 64)), 2 ** self.dice.randrange(1, 64)))
            case IntegerType():
                return str(self.dice.randrange(-(2**31), 2**31) >> self.dice.randrange(32))
            case DoubleType() | FloatType():
                whole = self.dice.choice(["0", str(self.dice.randrange(1, 10**7))])
                exponent = self.dice.choice(["", "", "e-3", "E-12", "e-30"])
                return f"{self._sign()}{whole}.{self._digits(15)}{exponent}"
            case BooleanType():
                return self.dice.choice(["true", "false"])
            case BinaryType():
                letters = base64.b64encode(self.dice.randbytes(self.dice.randrange(8))).decode()
                return f'"{self.dice.choice(ODD_BASE64) if self._is_odd() else letters}"'
            case VariantType():
                fraction = self.dice.choice(["", f".{self._digits(9)}", f".{self._digits(6)}00"])
                number = f"{self._sign()}{self._digits(12)}{fraction}"
                return self.dice.choice([number, number, self._text(), "true"])
            case _:
                return self._text()

    def _sign(self) -> str:
        return self.dice.choice(["", "-"])

    def _digits(self, most: int) -> str:
        return str(self.dice.randrange(10 ** self.dice.randrange(1, most)))

    def _object(self, fields: list[tuple[str, DataType]]) -> str:
        """An object with some keys that nobody knows, out of order sometimes; with a key twice where that is odd."""
        if fields and self._is_odd():
            fields = [*fields, self.dice.choice(fields)]
        entries = [(name, self._value(kind)) for name, kind in fields]
        if self.dice.random() < 0.3:
            self.dice.shuffle(entries)
        if self.dice.random() < 0.3:
            entries.insert(self.dice.randrange(len(entries) + 1), (self.dice.choice(["unknown", "ID", ""]), self._anything(3)))
        return self._entries(entries)

    def _entries(self, entries: list[tuple[str, str]]) -> str:
        if entries and self._is_odd():
            entries = [*entries, (entries[0][0], entries[-1][1])]
        return "{" + ",".join(f"{self._spaced(self._key(name))}:{self._spaced(value)}" for name, value in entries) + "}"

    def _key(self, name: str) -> str:
        return self._text() if self._is_odd() else json.dumps(name, ensure_ascii=self.dice.random() < 0.1)

    def _text(self) -> str:
        parts = self.dice.choices(CHARACTERS + (ESCAPED if self.dice.random() < 0.3 else []), k=self.dice.randrange(12))
        if self._is_odd():
            parts.insert(self.dice.randrange(len(parts) + 1), self.dice.choice(ODD_CHARACTERS))
        return f'"{"".join(parts)}"'

    def _anything(self, depth: int) -> str:
        """A value of any kind; a very deep one where that is odd."""
        if self._is_odd():
            levels = self.dice.choice([60, 70, 998, 1100])
            return "[" * levels + "]" * levels
        if depth == 0 or self.dice.random() < 0.6:
            return self.dice.choice([self._text(), self._digits(9), "1.5e3", "-0.25", "true", "null"])
        inner = [self._anything(depth - 1) for _ in range(self.dice.randrange(4))]
        if self.dice.random() < 0.5:
            return "[" + ",".join(map(self._spaced, inner)) + "]"
        return self._entries([(self.dice.choice(["a", "b", "id"]), value) for value in inner])
