"""Which files of a folder are new: pure logic over listings, and the bookmark of it that stands in the ledger.

Files are read in the order of their modification time. The bookmark remembers the newest time read, and each file read whose
time is not further back than the *late window*. So a file is new when it is not remembered and not older than the window:

1. older than ``mark - window``, or not after the *floor*: taken as read;
2. remembered with the same time and size: read;
3. remembered with another time or size: changed, which is an error;
4. otherwise new.

The number of files remembered is capped. When it is reached the oldest are forgotten and the floor says up to where: within
the process nothing changes, but after a restart a file that arrives behind the floor is taken as read.

Within one process more is known: every file that was seen and taken as read. So a file that comes into the folder later is
new however old its modification time is.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from frazil.errors import DataError
from frazil.model.commit import Position, position
from frazil.sources.listing import FileEntry
from frazil.sources.positions import fields_of, unknown_position

REMEMBERED_FILES = 1000

# The clock of a file server may differ from this machine's by so much.
CLOCK_SKEW_MS = 60_000

MAX_MS = 2**47 - 1

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
class Bookmark:
    """How far a folder was read."""

    mark_ms: int
    seen: frozenset[Remembered] = frozenset()
    floor: Order | None = None

    def to_position(self) -> Position:
        """As it stands in the ledger."""
        files = [file.to_token() for file in sorted(self.seen, key=lambda file: file.order)]
        value = {"mark_ms": self.mark_ms, "seen": files}
        return position(value if self.floor is None else value | {"floor": list(self.floor)})

    @classmethod
    def from_position(cls, text: Position) -> Bookmark:
        """Reads the ledger."""
        raw = fields_of(text, "a folder")
        try:
            floor = raw.get("floor")
            seen = frozenset(Remembered.from_token(token) for token in raw["seen"])
            return cls(int(raw["mark_ms"]), seen, None if floor is None else (int(floor[0]), str(floor[1])))
        except (ValueError, KeyError, TypeError) as error:
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
        floors = [order for order in (self.floor, forgotten[-1].order if forgotten else None) if order is not None]
        return Bookmark(mark_ms, frozenset(kept), max(floors, default=None))


BEGINNING = Bookmark(mark_ms=-MAX_MS)


@dataclass
class Watch:
    """What one process knows of a folder: which files it need not read. ``since_ms`` is when it first looked."""

    bookmark: Bookmark
    window_ms: int
    since_ms: int
    _read: dict[str, Remembered] = field(default_factory=dict)
    _listed: bool = False

    def pending(self, listing: Iterable[FileEntry]) -> list[FileEntry]:
        """The files to read, oldest first. A DataError when one that was read is not the same any more."""
        remembered = {file.digest: file for file in self.bookmark.seen}
        new: list[tuple[Order, FileEntry]] = []
        for entry in listing:
            file = Remembered.of(entry)
            known = self._read.get(file.digest) or remembered.get(file.digest)
            if known is not None and known != file:
                raise _changed(entry)
            if known is not None or (self.bookmark.takes_as_read(file, self.window_ms) and not self._came_since(entry)):
                self._read[file.digest] = file
            else:
                new.append((file.order, entry))
        self._listed = True
        return [entry for _, entry in sorted(new, key=lambda pair: pair[0])]

    def _came_since(self, entry: FileEntry) -> bool:
        """Whether a file with an old time came while this process was looking.

        Where the store tells when it came, that decides: a folder that was not mounted for a while is full of unknown names.
        """
        if entry.arrived_ms is None:
            return self._listed
        return self._listed and entry.arrived_ms >= self.since_ms - CLOCK_SKEW_MS

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
