"""What one form of file has of its own, as far as reading and explaining it is concerned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.reading.expand import Expansion, in_braces

if TYPE_CHECKING:
    from frazil.reading.document import Document, Path


def _nowhere(_document: Document, _path: Path) -> str | None:
    return None


def _usual(_base: Path, _inner: Path) -> str | None:
    return None


@dataclass(frozen=True)
class Dialect:
    """The differences between forms of files.

    ``any_type`` are options that take a value of any type: there a plain scalar is typed as YAML types it. ``is_data`` tells of
    a value whether it is one of a row, not of an option. ``variables`` replaces those of a value, None when it has none.
    ``repeated_keys``: of a key that is written twice the last one counts; otherwise it is an error. ``forms`` are patterns of
    models in words, ``home_of`` the section that a misplaced key belongs to, and ``empty`` the words for a value that is empty.
    """

    file: str
    any_type: tuple[str, ...] = ()
    is_data: Callable[[Path], bool] = lambda _: False
    variables: Callable[[str, Mapping[str, str]], Expansion | None] = in_braces
    repeated_keys: bool = False
    forms: Mapping[str, str] = field(default_factory=dict)
    home_of: Callable[[Document, Path], str | None] = _nowhere
    empty: Callable[[Path, Path], str | None] = _usual
