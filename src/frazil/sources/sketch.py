"""A sketch of a set of numbers: it has a fixed size, and its difference to another set can be read from it while that is small.

This is an invertible Bloom lookup table (Goodrich and Mitzenmacher, 2011). Each number is put into one cell of every row. A cell
is the exclusive or of what was put into it, so that two sketches can be combined: what is in both sets vanishes. A cell with one
number left shows it, by a check sum. Taking that number out of its other cells leaves others alone in theirs, and so on.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass

ROWS, WIDTH = 5, 256
CAPACITY = 700
"""Differences of up to so many numbers can be read but for a chance of about one in a million."""

NUMBER_BYTES = 10
_CHECK_BITS = 32
_CELL_BYTES = NUMBER_BYTES + _CHECK_BITS // 8


@dataclass(frozen=True)
class Sketch:
    """The cells of all rows, one row after the other."""

    cells: tuple[int, ...] = (0,) * (ROWS * WIDTH)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Sketch:
        """The sketch of a set of numbers of 80 bits."""
        cells = [0] * (ROWS * WIDTH)
        for number in numbers:
            _put(number, cells)
        return cls(tuple(cells))

    def combined(self, other: Sketch) -> Sketch:
        """The sketch of the numbers that are in one of the two sets, and not in both."""
        return Sketch(tuple(mine ^ theirs for mine, theirs in zip(self.cells, other.cells, strict=True)))

    def numbers(self) -> frozenset[int] | None:
        """The numbers of the set, or None if there are too many to recover."""
        cells = list(self.cells)
        found: set[int] = set()
        waiting = list(range(len(cells)))
        while waiting:
            number = _alone(cells[waiting.pop()])
            # A number that shows twice was none: a check sum that fits by chance would lead in circles.
            if number is not None and number not in found:
                found.add(number)
                waiting += _put(number, cells)
        return None if any(cells) else frozenset(found)

    def to_text(self) -> str:
        """The text in a position: at most about 24 kB, and less for a set of few numbers."""
        return urlsafe_b64encode(zlib.compress(b"".join(cell.to_bytes(_CELL_BYTES) for cell in self.cells))).decode()

    @classmethod
    def from_text(cls, text: str) -> Sketch:
        """Reads a position. A ValueError when it holds something else."""
        try:
            raw = zlib.decompress(urlsafe_b64decode(text))
        except zlib.error as error:
            raise ValueError("not a sketch") from error
        if len(raw) != ROWS * WIDTH * _CELL_BYTES:
            raise ValueError(f"a sketch has {ROWS * WIDTH * _CELL_BYTES} bytes, not {len(raw)}")
        return cls(tuple(int.from_bytes(raw[start : start + _CELL_BYTES]) for start in range(0, len(raw), _CELL_BYTES)))


def _put(number: int, cells: list[int]) -> list[int]:
    """Puts a number into its cells, or takes it out of them. Which cells these are."""
    check, rows = _hashed(number)
    places = [row * WIDTH + column for row, column in enumerate(rows)]
    for place in places:
        cells[place] ^= number << _CHECK_BITS | check
    return places


def _hashed(number: int) -> tuple[int, bytes]:
    """The check sum of a number, and its column in each row."""
    digest = hashlib.blake2b(number.to_bytes(NUMBER_BYTES), digest_size=_CHECK_BITS // 8 + ROWS).digest()
    return int.from_bytes(digest[: _CHECK_BITS // 8]), digest[_CHECK_BITS // 8 :]


def _alone(cell: int) -> int | None:
    """The number in a cell with only one."""
    number, check = cell >> _CHECK_BITS, cell & (1 << _CHECK_BITS) - 1
    return number if cell and _hashed(number)[0] == check else None
