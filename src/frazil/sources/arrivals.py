"""Which files of a folder are new: pure logic over listings, and the bookmark of it that stands in the ledger.

Files are read in the order of their modification time. The bookmark remembers the newest time read, and each file read whose
time is not further back than the *late window*. So a file is new when it is not remembered and not older than the window:

1. older than ``mark - window``, or not after the *floor*: taken as read;
2. remembered with the same time and size: read;
3. remembered with another time or size: changed, which is an error;
4. otherwise new.

The floor says up to where files are forgotten: those before the window, whatever window is asked for later, and the oldest of
it when there are too many. The number of files remembered is capped.

A file that comes into the folder later is new however old its modification time is. Within one process that is plain: every
file that was seen and taken as read is known. After a restart the bookmark tells how many files stood *behind* it, and their
sum. Where the store tells when files came, as many of those that came first are counted off: if they have this sum, they are
the ones that stood there, and the rest came since. That is why such files are read in the order in which they came. If they
do not have it, because a file was removed or touched meanwhile, nothing can be told: then what may have come is taken as read,
with a warning. No file is read twice.
"""

from __future__ import annotations

import hashlib
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.errors import DataError
from frazil.model.commit import Position, position
from frazil.sources.listing import FileEntry
from frazil.sources.positions import fields_of, unknown_position

REMEMBERED_FILES = 1000

# The clock of a file server may differ from this machine's by so much.
CLOCK_SKEW_MS = 60_000

# The clocks of file systems go in steps: of files that come together some may be listed, and others not, that have the same time.
SETTLING_MS = 1000

MAX_MS = 2**47 - 1

# So many files are named in a warning.
NAMED_FILES = 5

_log = logging.getLogger("frazil")

Order = tuple[int, str]
"""Modification time, then the digest of the name: any fixed order among files of one time does."""


def name_digest(path: str) -> str:
    """64 bits of a file's name."""
    return hashlib.blake2b(path.encode(errors="surrogateescape"), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Remembered:
    """A file that was read: enough to know it again, and to see that it changed."""

    digest: str
    mtime_ms: int
    size: int

    @classmethod
    def of(cls, entry: FileEntry) -> Remembered:
        """What is remembered of a file."""
        # Six bytes hold the times of some thousands of years; a file system may claim more.
        return cls(name_digest(entry.path), min(max(entry.mtime_ms, -MAX_MS), MAX_MS), entry.size & 0xFFFFFFFF)

    @property
    def order(self) -> Order:
        """Where it stands among the files."""
        return (self.mtime_ms, self.digest)

    def to_bytes(self) -> bytes:
        """18 bytes: the name's digest, the time, the size's lowest 32 bits."""
        return bytes.fromhex(self.digest) + self.mtime_ms.to_bytes(6, signed=True) + self.size.to_bytes(4)

    def to_token(self) -> str:
        """The same as 24 characters."""
        return urlsafe_b64encode(self.to_bytes()).decode()

    @classmethod
    def from_token(cls, token: str) -> Remembered:
        """Reads a token of the ledger."""
        raw = urlsafe_b64decode(token)
        if len(raw) != 18:
            raise ValueError(f"a remembered file has 18 bytes, not {len(raw)}")
        return cls(raw[:8].hex(), int.from_bytes(raw[8:14], signed=True), int.from_bytes(raw[14:18]))


@dataclass(frozen=True)
class Behind:
    """The files that stood behind a bookmark and are not remembered one by one: how many, and their sum, as hexadecimal digits.

    ``until_ms``: what came later than that was not read. It is when the folder was listed, or when the first of the files came
    that were still to be read.
    """

    count: int
    sum: str
    until_ms: int

    @classmethod
    def of(cls, entries: Sequence[FileEntry], until_ms: int) -> Behind:
        """What is kept of these files, in whatever order they are."""
        total = sum(int.from_bytes(Remembered.of(entry).to_bytes()) for entry in entries) % 2**144
        return cls(len(entries), f"{total:x}", until_ms)

    def is_of(self, entries: Sequence[FileEntry]) -> bool:
        """Whether it was these files."""
        return self == Behind.of(entries, self.until_ms)

    def may_have_come(self, entry: FileEntry) -> bool:
        """Whether a file may have come later."""
        return entry.arrived_ms is not None and entry.arrived_ms >= self.until_ms - CLOCK_SKEW_MS


@dataclass(frozen=True)
class Bookmark:
    """How far a folder was read. Bookmarks of earlier versions do not tell what is behind them."""

    mark_ms: int
    seen: frozenset[Remembered] = frozenset()
    floor: Order | None = None
    behind: Behind | None = None

    def to_position(self) -> Position:
        """As it stands in the ledger."""
        files = [file.to_token() for file in sorted(self.seen, key=lambda file: file.order)]
        value: dict[str, Any] = {"mark_ms": self.mark_ms, "seen": files}
        if self.floor is not None:
            value["floor"] = list(self.floor)
        if self.behind is not None:
            value["behind"] = [self.behind.count, self.behind.sum, self.behind.until_ms]
        return position(value)

    @classmethod
    def from_position(cls, text: Position) -> Bookmark:
        """Reads the ledger."""
        raw = fields_of(text, "a folder")
        try:
            floor, behind = raw.get("floor"), raw.get("behind")
            seen = frozenset(Remembered.from_token(token) for token in raw["seen"])
            return cls(
                int(raw["mark_ms"]),
                seen,
                None if floor is None else (int(floor[0]), str(floor[1])),
                None if behind is None else Behind(int(behind[0]), str(behind[1]), int(behind[2])),
            )
        except (ValueError, LookupError, TypeError) as error:
            raise unknown_position(text, "a folder") from error

    def takes_as_read(self, file: Remembered, window_ms: int) -> bool:
        """Whether the file is so far back that it is not remembered any more."""
        return file.mtime_ms < self.mark_ms - window_ms or (self.floor is not None and file.order <= self.floor)

    def holds(self, file: Remembered, window_ms: int) -> bool:
        """Whether the file is behind the bookmark."""
        return file in self.seen or self.takes_as_read(file, window_ms)

    def after(self, files: Iterable[FileEntry], window_ms: int, now_ms: int, cap: int = REMEMBERED_FILES) -> Bookmark:
        """The bookmark when these files are read too.

        A file from the future does not move the mark: what comes after it would be taken as late.
        """
        read = [Remembered.of(file) for file in files]
        mark_ms = max([self.mark_ms, *(min(file.mtime_ms, now_ms) for file in read)])
        within = sorted(
            (file for file in self.seen.union(read) if file.mtime_ms >= mark_ms - window_ms), key=lambda file: file.order
        )
        forgotten, kept = within[: max(0, len(within) - cap)], within[max(0, len(within) - cap) :]
        floors = [(mark_ms - window_ms, ""), *(file.order for file in forgotten[-1:])]
        return Bookmark(mark_ms, frozenset(kept), max(floors if self.floor is None else [*floors, self.floor]))

    def above(self, listing: Iterable[FileEntry], waiting: Iterable[FileEntry], window_ms: int, listed_ms: int) -> Bookmark:
        """The same bookmark, knowing what is behind it in a listing: all that it takes as read, but for the files that wait."""
        unread = {entry.path for entry in waiting}
        files = self.unremembered(listing, window_ms)
        came = [one.arrived_ms for one in files if one.path in unread and one.arrived_ms is not None]
        behind = Behind.of([one for one in files if one.path not in unread], min([listed_ms, *came]))
        return replace(self, behind=behind)

    def came_since(self, listing: Iterable[FileEntry], window_ms: int) -> list[FileEntry] | None:
        """The files that came after the bookmark, though by their time it takes them as read; None when that cannot be told."""
        if self.behind is None:
            return None
        files = sorted(self.unremembered(listing, window_ms), key=_arrival)
        known, rest = files[: self.behind.count], files[self.behind.count :]
        return rest if self.behind.is_of(known) and all(map(self.behind.may_have_come, rest)) else None

    def unremembered(self, listing: Iterable[FileEntry], window_ms: int) -> list[FileEntry]:
        """The files that are taken as read and not remembered one by one."""
        digests = {file.digest for file in self.seen}
        files = ((entry, Remembered.of(entry)) for entry in listing)
        return [entry for entry, file in files if file.digest not in digests and self.takes_as_read(file, window_ms)]


def _arrival(entry: FileEntry) -> tuple[int, Order]:
    """The order in which files came, as far as the store knows."""
    return (entry.arrived_ms or 0, Remembered.of(entry).order)


BEGINNING = Bookmark(mark_ms=-MAX_MS)


@dataclass
class Watch:
    """What one process knows of a folder: which files it need not read. ``since_ms`` is when it first looked."""

    bookmark: Bookmark
    window_ms: int
    since_ms: int
    _read: dict[str, Remembered] = field(default_factory=dict)
    _late: frozenset[str] = frozenset()
    _listed: bool = False

    def pending(self, listing: Sequence[FileEntry]) -> list[FileEntry]:
        """The files to read: first those that came late, in the order in which they came, then the others, oldest first.

        A DataError when one that was read is not the same any more.
        """
        if not self._listed:
            self._late = frozenset(entry.path for entry in self._late_at_first(listing))
        remembered = {file.digest: file for file in self.bookmark.seen}
        late, new = list[FileEntry](), list[FileEntry]()
        for entry in listing:
            file = Remembered.of(entry)
            known = self._read.get(file.digest) or remembered.get(file.digest)
            if known is not None and known != file:
                raise _changed(entry)
            old = self.bookmark.takes_as_read(file, self.window_ms)
            if known is not None or (old and not self._came_since(entry)):
                self._read[file.digest] = file
            else:
                (late if old else new).append(entry)
        self._listed = True
        return sorted(late, key=_arrival) + sorted(new, key=lambda entry: Remembered.of(entry).order)

    def _late_at_first(self, listing: Sequence[FileEntry]) -> list[FileEntry]:
        """The files with an old time that came before this process and are to be read; what is not read instead is told."""
        late = self.bookmark.came_since(listing, self.window_ms)
        if late is not None:
            return late
        files, behind = self.bookmark.unremembered(listing, self.window_ms), self.bookmark.behind
        if behind is None:
            if files:
                _log.info("Files older than late_window_secs are taken as read: %d.", len(files))
            return []
        doubtful = sorted(entry.uri for entry in files if behind.may_have_come(entry))
        if more := len(doubtful) or max(0, len(files) - behind.count):
            _log.warning(
                "Files older than late_window_secs may have come since the last batch: %d. They are taken as read, since others "
                "were removed or touched meanwhile, or the store does not tell when files came. Copy one that was not read under "
                "another name. %s",
                more,
                " ".join(doubtful[:NAMED_FILES]) + (" ..." if len(doubtful) > NAMED_FILES else ""),
            )
        return []

    def _came_since(self, entry: FileEntry) -> bool:
        """Whether a file with an old time came after the bookmark, or while this process was looking.

        Where the store tells when it came, that decides: a folder that was not mounted for a while is full of unknown names.
        """
        if entry.path in self._late:
            return True
        if entry.arrived_ms is None:
            return self._listed
        return self._listed and entry.arrived_ms >= self.since_ms - CLOCK_SKEW_MS

    def just_came(self, entry: FileEntry, now_ms: int) -> bool:
        """Whether a file with an old time came a moment ago. It can wait until all that came with it are there, so that what
        came before the next bookmark can be told from what came after.
        """
        moment = entry.arrived_ms is not None and abs(now_ms - entry.arrived_ms) < SETTLING_MS
        return moment and self.bookmark.takes_as_read(Remembered.of(entry), self.window_ms)

    def advance(self, files: Sequence[FileEntry], bookmark: Bookmark) -> None:
        """These files are read and committed."""
        self._read.update((file.digest, file) for file in map(Remembered.of, files))
        self.bookmark = bookmark


def _changed(entry: FileEntry) -> DataError:
    return DataError(
        "file-changed",
        f"The file {entry.uri} was read before and has changed since.",
        fix="Files must not change once they are in the folder. Move this one out, and give new content a new name.",
    )
