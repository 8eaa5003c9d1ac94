"""Which files of a folder are new: pure logic over listings, and the bookmark of it that stands in the ledger.

A file is new when it was never read, whatever its modification time and the clocks say. Files are read in the order of their
modification times, those of the same millisecond in the order of their names. The bookmark remembers the files that were read:

1. The last of them in this order, up to a number, are remembered one by one.
2. All that are *behind* these and still in the folder are remembered by a sketch of fixed size, from which the difference to the
   files that are there now can be read while it is small.

A process knows every file that it has listed. After a restart a file is judged by the bookmark:

1. remembered with the same time and size: read; with another one: changed, which is an error;
2. not remembered, and after all that are behind: new;
3. otherwise the sketch tells. It can when not more than :data:`~frazil.sources.sketch.CAPACITY` files were removed, or came with
   an old time, since the bookmark was made; those do not count of which the store tells when they came.

When the sketch cannot tell, such files are taken as read, with a warning; but when there are more of them than were ever read,
some must be new, and that is an error.
"""

from __future__ import annotations

import hashlib
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from frazil.errors import DataError
from frazil.model.commit import Position, position
from frazil.sources.listing import FileEntry
from frazil.sources.positions import fields_of, unknown_position
from frazil.sources.sketch import CAPACITY, Sketch

REMEMBERED_FILES = 1000

# The clock of a file server may differ from this machine's by so much.
CLOCK_SKEW_MS = 60_000

MAX_MS = 2**47 - 1

# So many files are named in a warning.
NAMED_FILES = 5

# Positions of the first versions were made with this window, and do not contain their floor.
_FIRST_WINDOW_MS = 3_600_000

_STATE_BITS = 24

_log = logging.getLogger("frazil")

Order = tuple[int, str]
"""Modification time, then the name."""


def order_of(entry: FileEntry) -> Order:
    """The position of a file in the order of reading."""
    return (_clamped(entry.mtime_ms), entry.path)


def _clamped(mtime_ms: int) -> int:
    """Six bytes hold the times of some thousands of years; a file system may claim more."""
    return min(max(mtime_ms, -MAX_MS), MAX_MS)


def name_digest(path: str) -> str:
    """64 bits of a file's name."""
    return hashlib.blake2b(_bytes_of(path), digest_size=8).hexdigest()


def _bytes_of(path: str) -> bytes:
    """A file's name may be any bytes."""
    return path.encode(errors="surrogateescape")


@dataclass(frozen=True)
class Remembered:
    """A file that was read: enough to know it again, and to see that it changed."""

    digest: str
    mtime_ms: int
    size: int

    @classmethod
    def of(cls, entry: FileEntry) -> Remembered:
        """What is remembered of a file."""
        return cls(name_digest(entry.path), _clamped(entry.mtime_ms), entry.size & 0xFFFFFFFF)

    @property
    def key(self) -> int:
        """80 bits for a sketch: 56 of the name, then 24 of time and size."""
        state = (self.mtime_ms << 32 | self.size) * 0x9E3779B97F4A7C15
        return int(self.digest[:14], 16) << _STATE_BITS | state >> 64 - _STATE_BITS & (1 << _STATE_BITS) - 1

    def to_token(self) -> str:
        """24 characters: the name's digest, the time, the size's lowest 32 bits."""
        raw = bytes.fromhex(self.digest) + self.mtime_ms.to_bytes(6, signed=True) + self.size.to_bytes(4)
        return urlsafe_b64encode(raw).decode()

    @classmethod
    def from_token(cls, token: str) -> Remembered:
        """Reads a token of the ledger."""
        raw = urlsafe_b64decode(token)
        if len(raw) != 18:
            raise ValueError(f"a remembered file has 18 bytes, not {len(raw)}")
        return cls(raw[:8].hex(), int.from_bytes(raw[8:14], signed=True), int.from_bytes(raw[14:18]))


@dataclass(frozen=True)
class Listed:
    """By the store's clock, when the last file came that was listed, and the first of those that were not read yet.

    ``last`` is where reading stopped.
    """

    until_ms: int
    unread_ms: int
    last: Order

    @classmethod
    def of(cls, listing: Sequence[FileEntry], taken: Sequence[FileEntry], unread: Sequence[FileEntry]) -> Listed:
        """Made from a listing of which some files were read and others were not yet."""
        until_ms = max([-MAX_MS, *_arrivals(listing)])
        return cls(until_ms, min([until_ms, *_arrivals(unread)]), max(map(order_of, taken)))

    def lacks(self, entry: FileEntry) -> bool:
        """Whether a file was not there or not read then, by the store's clock."""
        came_ms = -MAX_MS if entry.arrived_ms is None else entry.arrived_ms
        return came_ms > self.until_ms or (came_ms >= self.unread_ms and order_of(entry) > self.last)


def _arrivals(files: Sequence[FileEntry]) -> list[int]:
    return [entry.arrived_ms for entry in files if entry.arrived_ms is not None]


@dataclass(frozen=True)
class BehindBookmark:
    """Files that were read, were in the folder when the bookmark was made, and are not remembered one by one.

    ``floor`` is the position of the last of them in the order of reading.
    """

    floor: Order
    count: int
    sketch: Sketch
    listed: Listed

    def may_hold(self, entry: FileEntry) -> bool:
        """Whether a file can be one of them."""
        return order_of(entry) <= self.floor

    def without(self, files: Sequence[FileEntry]) -> BehindBookmark:
        """The others of them."""
        sketch = self.sketch.combined(Sketch.of(Remembered.of(entry).key for entry in files))
        return replace(self, count=self.count - len(files), sketch=sketch)

    def keys(self, present: Sequence[FileEntry]) -> frozenset[int] | None:
        """The keys of all of them, found with the help of files that are there now. None when these are too different."""
        # The sketch corrects what is guessed wrongly, so that a clock that is wrong does no harm.
        for guessed in (present, [entry for entry in present if not self.listed.lacks(entry)]):
            keys = frozenset(Remembered.of(entry).key for entry in guessed)
            difference = self.sketch.combined(Sketch.of(keys)).numbers()
            if difference is not None:
                return keys ^ difference
        return None

    def to_json(self) -> list[Any]:
        """The value as stored in a position."""
        listed = [self.listed.until_ms, self.listed.unread_ms, *_quoted(self.listed.last)]
        return [*_quoted(self.floor), self.count, self.sketch.to_text(), *listed]

    @classmethod
    def from_json(cls, raw: Sequence[Any]) -> BehindBookmark:
        """Reads a position."""
        floor_ms, floor, count, sketch, until_ms, unread_ms, last_ms, last = raw
        listed = Listed(int(until_ms), int(unread_ms), _unquoted(last_ms, last))
        return cls(_unquoted(floor_ms, floor), int(count), Sketch.from_text(sketch), listed)


def _quoted(order: Order) -> tuple[int, str]:
    """With a name that is a text in every encoding."""
    return (order[0], quote_from_bytes(_bytes_of(order[1])))


def _unquoted(mtime_ms: int, name: str) -> Order:
    return (int(mtime_ms), unquote_to_bytes(name).decode(errors="surrogateescape"))


@dataclass(frozen=True)
class BehindByTime:
    """What positions of earlier versions contain: all files up to a floor, in the order of time and digest."""

    floor: tuple[int, str]

    def may_hold(self, entry: FileEntry) -> bool:
        """Whether a file can be one of them."""
        file = Remembered.of(entry)
        return (file.mtime_ms, file.digest) <= self.floor


@dataclass(frozen=True)
class Bookmark:
    """How far a folder was read: files remembered one by one, and those behind them."""

    seen: frozenset[Remembered] = frozenset()
    behind: BehindBookmark | BehindByTime | None = None

    def to_position(self) -> Position:
        """The value as stored in the ledger."""
        files = sorted(self.seen, key=lambda file: (file.mtime_ms, file.digest))
        value: dict[str, Any] = {"seen": [file.to_token() for file in files]}
        match self.behind:
            case BehindBookmark():
                value["older"] = self.behind.to_json()
            case BehindByTime():
                value["floor"] = list(self.behind.floor)
        return position(value)

    @classmethod
    def from_position(cls, text: Position) -> Bookmark:
        """Reads the ledger, also what earlier versions wrote there."""
        raw = fields_of(text, "a folder")
        try:
            seen = frozenset(Remembered.from_token(token) for token in raw["seen"])
            if "older" in raw:
                return cls(seen, BehindBookmark.from_json(raw["older"]))
            if "floor" in raw or "mark_ms" in raw:
                mtime_ms, digest = raw.get("floor") or (int(raw["mark_ms"]) - _FIRST_WINDOW_MS, "")
                return cls(seen, BehindByTime((int(mtime_ms), str(digest))))
            return cls(seen)
        except (ValueError, LookupError, TypeError) as error:
            raise unknown_position(text, "a folder") from error


BEGINNING = Bookmark()


class Watch:
    """What one process knows of a folder: which files were read. ``since_ms`` is when it first looked."""

    def __init__(self, bookmark: Bookmark, since_ms: int, cap: int = REMEMBERED_FILES) -> None:
        self._since_ms = since_ms
        self._cap = cap
        self._remembered = bookmark.seen
        self._read = {file.digest: file for file in bookmark.seen}
        self._new: set[str] = set()
        self._behind = bookmark.behind
        self._behind_keys: frozenset[int] | None = None
        self._behind_names: frozenset[int] = frozenset()
        self._listed = False
        self._sketched: tuple[frozenset[int], Sketch] = (frozenset(), Sketch())

    def pending(self, listing: Sequence[FileEntry]) -> list[FileEntry]:
        """The files to read, in the order of reading. Raises a DataError if a file that was read has changed."""
        unknown = list[FileEntry]()
        for entry in listing:
            file = Remembered.of(entry)
            known = self._read.get(file.digest)
            if known is None and file.digest not in self._new:
                unknown.append(entry)
            elif known is not None and known != file:
                raise _changed(entry)
        self._judge(unknown)
        self._listed = True
        return sorted((entry for entry in listing if name_digest(entry.path) not in self._read), key=order_of)

    def _judge(self, unknown: Sequence[FileEntry]) -> None:
        """Finds out which of the files that this process has not seen yet were read before it."""
        older = [entry for entry in unknown if self._behind is not None and self._behind.may_hold(entry)]
        if isinstance(self._behind, BehindBookmark) and self._behind_keys is None and (older or not self._listed):
            self._behind_keys = self._behind.keys(older)
            self._behind_names = frozenset(key >> _STATE_BITS for key in self._behind_keys or ())
        read = self._read_before(older) if self._behind_keys is None else self._by_key(unknown, self._behind_keys)
        self._read.update((file.digest, file) for file in map(Remembered.of, read))
        self._new.update(name_digest(entry.path) for entry in unknown if name_digest(entry.path) not in self._read)

    def _by_key(self, unknown: Sequence[FileEntry], keys: frozenset[int]) -> list[FileEntry]:
        """The files that the bookmark says were read."""
        read = list[FileEntry]()
        for entry in unknown:
            key = Remembered.of(entry).key
            if key in keys:
                read.append(entry)
            elif key >> _STATE_BITS in self._behind_names:
                raise _changed(entry)
        return read

    def _read_before(self, older: Sequence[FileEntry]) -> list[FileEntry]:
        """The files that are taken as read if it is not certain: all but those that this process saw arriving."""
        rest = [entry for entry in older if not self._saw_coming(entry)]
        if not rest:
            return []
        if isinstance(self._behind, BehindBookmark):
            if len(rest) > self._behind.count:
                raise _undecided(rest, self._behind.count)
            self._behind = self._behind.without(rest)
            _log.warning(
                "More than %d files were removed from the folder, or came with an old modification time, since the last commit: "
                "which of %d files with old times are new is not known. They are taken as read. Touch one that was not. %s",
                CAPACITY,
                len(rest),
                _named(rest),
            )
        elif not self._listed:
            _log.info("Files with old modification times are taken as read, since an earlier version read last: %d.", len(rest))
        return rest

    def _saw_coming(self, entry: FileEntry) -> bool:
        """Whether a file came after this process had first listed the folder.

        If the store records when the file came, that decides: a folder that was not mounted for a while is full of unknown names.
        """
        return self._listed and (entry.arrived_ms is None or entry.arrived_ms >= self._since_ms - CLOCK_SKEW_MS)

    def after(self, taken: Sequence[FileEntry], listing: Sequence[FileEntry]) -> Bookmark:
        """The bookmark when these files of a listing are read, too."""
        read = self._read.keys() | {name_digest(entry.path) for entry in taken}
        digests = {entry: name_digest(entry.path) for entry in listing}
        present = sorted((entry for entry in listing if digests[entry] in read), key=order_of)
        cut = max(0, len(present) - self._cap)
        older, last = present[:cut], frozenset(map(Remembered.of, present[cut:]))
        # Files that were removed are remembered while there is room, in case that they come back.
        here = set(digests.values())
        gone = sorted((file for file in self._remembered if file.digest not in here), key=lambda file: -file.mtime_ms)
        seen = last.union(gone[: self._cap - len(last)])
        if not older:
            return Bookmark(seen)
        floor = order_of(older[-1])
        unread = [entry for entry in listing if digests[entry] not in read and order_of(entry) <= floor]
        return Bookmark(seen, BehindBookmark(floor, cut, self._sketch(older), Listed.of(listing, taken, unread)))

    def _sketch(self, older: Sequence[FileEntry]) -> Sketch:
        """The sketch of files, made from that of the last ones: most are the same."""
        keys = frozenset(Remembered.of(entry).key for entry in older)
        before, sketch = self._sketched
        self._sketched = (keys, sketch.combined(Sketch.of(keys ^ before)))
        return self._sketched[1]

    def advance(self, files: Sequence[FileEntry], bookmark: Bookmark) -> None:
        """These files are read and committed."""
        self._read.update((file.digest, file) for file in map(Remembered.of, files))
        self._new.difference_update(name_digest(entry.path) for entry in files)
        self._remembered = bookmark.seen


def _named(files: Sequence[FileEntry]) -> str:
    uris = sorted(entry.uri for entry in files)
    return " ".join(uris[:NAMED_FILES]) + (" ..." if len(uris) > NAMED_FILES else "")


def _changed(entry: FileEntry) -> DataError:
    return DataError(
        "file-changed",
        f"The file {entry.uri} was read before and has changed since.",
        fix="Files must not change once they are in the folder. Move this one out, and give new content a new name.",
    )


def _undecided(files: Sequence[FileEntry], read: int) -> DataError:
    return DataError(
        "files-undecided",
        f"The folder has {len(files)} files with old modification times, of which at most {read} were read. Which of them are "
        f"new is not known, since so many came while the pipeline stood still: {_named(files)}",
        fix="Give the files that were not read a new modification time (touch), or move the others out of the folder.",
    )
