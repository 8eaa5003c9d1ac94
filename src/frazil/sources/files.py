"""A folder of files, read as they arrive."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame

from frazil.errors import ConfigError, DataError, FrazilError
from frazil.model.commit import Position
from frazil.model.source import FilesSource, SourceFormat
from frazil.sources.arrivals import BEGINNING, Bookmark, Watch
from frazil.sources.base import Lag, Session, Slice
from frazil.sources.failures import asking_spark, one_line, whole_text
from frazil.sources.formats import check_options, read_files
from frazil.sources.listing import FileEntry, SourceFolder, file_key, list_folder
from frazil.sources.merge import conflicting_files
from frazil.sources.unreadable import CODE as UNREADABLE
from frazil.sources.unreadable import is_about_content, reason, unreadable_among, with_unreadable

# Until rows were seen: lines of JSON and CSV are about so long, and a row of Parquet or Avro takes about as much.
BYTES_PER_ROW = 200.0
# Spark looks at each file of a slice before it reads; more of them would make that longer than the reading.
FILES_IN_A_SLICE = 1000

_NO_PARQUET = "it has no footer of Parquet: it is another format, or not whole"

_log = logging.getLogger("frazil")

_GONE = ("PATH_NOT_FOUND", "FILE_NOT_EXIST", "FileNotFoundException")
_UNREADABLE = ("FAILED_READ_FILE", "Could not read file", "Could not read footer")


@dataclass
class _Sizes:
    """How long a row is, learned from what was read."""

    bytes: int = 0
    rows: int = 0

    @property
    def per_row(self) -> float:
        return self.bytes / self.rows if self.rows else BYTES_PER_ROW


class Files:
    """Files of a folder, each read once, in the order of their modification times, and of names where these are the same.

    Delivery: a slice is a list of whole files, and files do not change; one that does stops the pipeline. The files that were
    read are recorded in the ledger. Parallelism: Spark's, by files and blocks of files.
    """

    reads_ahead: Literal[True] = True

    def __init__(self, spec: FilesSource, session: Session, clock: Callable[[], float] = time.time) -> None:
        check_options(spec)
        if "late_window_secs" in spec.model_fields_set:
            _log.warning("late_window_secs has no effect any more: late files are found however old they are. Leave it out.")
        self._spec = spec
        self._session = session
        self._clock = clock
        self._folder = SourceFolder(spec.path, spec.pattern, spec.recursive)
        self._start: Position | None = None
        self._watch: Watch | None = None
        self._planned: Slice | None = None
        self._sizes = _Sizes()
        self._footers: dict[FileEntry, int | str] = {}
        self._explained: FrazilError | None = None
        self._aside: dict[FileEntry, str] = {}

    @property
    def fingerprint(self) -> str:
        """Which files are looked for. How they are read may change."""
        text = json.dumps([self._folder.name, self._spec.pattern, self._spec.recursive])
        return f"files:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def poll_seconds(self) -> float:
        """As the user says."""
        return self._spec.poll_interval_secs

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The oldest new files, up to about ``limit`` rows, and at least one."""
        watch = self._follow(start)
        listing = list_folder(self._folder, self._session)
        pending = watch.pending(listing)
        if not pending:
            return None
        taken, rows = self._take(pending, limit)
        end = watch.after(taken, listing).to_position()
        self._planned = Slice(start, end, rows, full=len(taken) < len(pending), detail=tuple(taken))
        return self._planned

    def between(self, start: Position | None, end: Position) -> Slice:
        """The files that are new after one bookmark and not after the other."""
        listing = list_folder(self._folder, self._session)
        later = set(Watch(Bookmark.from_position(end), self._now_ms()).pending(listing))
        taken = [entry for entry in self._follow(start).pending(listing) if entry not in later]
        self._planned = Slice(start, end, sum(map(self._rows_of, taken)), detail=tuple(taken))
        return self._planned

    def _follow(self, start: Position | None) -> Watch:
        """What is known after ``start``: the same start asks again, the end of the last slice means that it was committed."""
        planned, watch = self._planned, self._watch
        if watch is not None and planned is not None and start == planned.end:
            watch.advance(planned.detail, Bookmark.from_position(planned.end))
            self._planned = None
        elif watch is None or start != self._start:
            bookmark = BEGINNING if start is None else Bookmark.from_position(start)
            watch = Watch(bookmark, self._now_ms())
        self._start, self._watch = start, watch
        return watch

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _take(self, pending: Sequence[FileEntry], limit: int) -> tuple[list[FileEntry], int]:
        taken: list[FileEntry] = []
        total = 0
        for entry in pending[:FILES_IN_A_SLICE]:
            rows = self._rows_of(entry)
            if taken and total + rows > limit:
                break
            taken.append(entry)
            total += rows
        return taken, total

    def _rows_of(self, entry: FileEntry) -> int:
        exact = self._footer_rows(entry)
        return exact if exact is not None else max(1, round(entry.size / self._sizes.per_row))

    def _footer_rows(self, entry: FileEntry) -> int | None:
        """The count in the footer of a local Parquet file."""
        footer = self._footer(entry)
        return footer if isinstance(footer, int) else None

    def _is_no_parquet(self, entry: FileEntry) -> bool:
        """Whether a local file is certainly none of Parquet."""
        return self._footer(entry) is _NO_PARQUET

    def _footer(self, entry: FileEntry) -> int | str | None:
        """The count in the footer of a local Parquet file, what is wrong with that, or None when it is not known here."""
        if self._spec.format is not SourceFormat.PARQUET or self._folder.local is None:
            return None
        if entry not in self._footers:
            import pyarrow as arrow
            from pyarrow import parquet

            try:
                self._footers[entry] = parquet.read_metadata(self._folder.local / entry.path).num_rows
            except arrow.ArrowInvalid:
                self._footers[entry] = _NO_PARQUET
            except OSError:
                # Gone, or something that Spark may be able to read: reading it says so, with the name.
                return None
        return self._footers[entry]

    def finished(self, position: Position | None) -> bool:  # noqa: ARG002 - the protocol's signature
        """Never: a file may always come."""
        return False

    def total_rows(self, start: Position | None) -> int | None:
        """Known for local Parquet files, from their footers."""
        pending = self._follow(start).pending(list_folder(self._folder, self._session))
        counts = [self._footer_rows(entry) for entry in pending]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def lag(self, position: Position | None) -> Lag:
        """The bytes of files that are not read, and how long the oldest of them is there."""
        pending = self._follow(position).pending(list_folder(self._folder, self._session))
        oldest = min((entry.mtime_ms for entry in pending), default=None)
        seconds = 0.0 if oldest is None else max(0.0, (self._now_ms() - oldest) / 1000)
        return Lag(bytes=sum(entry.size for entry in pending), seconds=seconds)

    def read(self, part: Slice) -> DataFrame:
        """The rows of the files."""
        self._planned = part
        self._require_unchanged(part.detail)
        with asking_spark(f"The folder {self._folder.name}", self._explain_reading):
            bad = {entry: _NO_PARQUET for entry in part.detail if self._is_no_parquet(entry)}
            bad |= {entry: self._aside[entry] for entry in part.detail if entry in self._aside}
            try:
                return self._all_but(bad, part.detail)
            except Exception as error:
                if not is_about_content(error):
                    raise
                found = self._unreadable([entry for entry in part.detail if entry not in bad], self._rows)
                if not found:
                    raise
            return self._all_but(bad | found, part.detail)

    def set_aside(self, error: FrazilError) -> bool:
        """Files that do not have the declared columns: only reading them shows that. All files of the slice are tried."""
        if self._planned is None or error is not self._explained:
            return False
        rest = [entry for entry in self._planned.detail if entry not in self._aside and not self._is_no_parquet(entry)]
        with asking_spark(f"The folder {self._folder.name}", self._explain_reading):
            found = self._unreadable(rest, lambda files: self._rows(files).write.format("noop").mode("append").save())
        self._aside |= found
        return bool(found)

    def _unreadable(self, files: Sequence[FileEntry], read: Callable[[Sequence[FileEntry]], object]) -> dict[FileEntry, str]:
        return {entry: self._reason(entry, why) for entry, why in unreadable_among(files, read).items()}

    def _all_but(self, bad: Mapping[FileEntry, str], files: Sequence[FileEntry]) -> DataFrame:
        """The rows of files, and one for each file that cannot be read, which says why."""
        if not bad:
            return self._rows(files)
        good = [entry for entry in files if entry not in bad]
        texts = {entry: self._message_of(entry, why) for entry, why in bad.items()}
        return with_unreadable(self._session(), self._rows(good) if good else None, texts)

    def _rows(self, files: Sequence[FileEntry]) -> DataFrame:
        return read_files(self._session(), self._spec, [entry.uri for entry in files])

    def _reason(self, entry: FileEntry, error: Exception) -> str:
        """Why a file cannot be read."""
        local = self._folder.local if self._spec.format is SourceFormat.PARQUET else None
        return reason(error, None if local is None else local / entry.path)

    def _message_of(self, entry: FileEntry, why: str) -> str:
        return f"The file {entry.uri} cannot be read as {self._spec.format.value}: {why}"

    def _require_unchanged(self, files: Sequence[FileEntry]) -> None:
        """Local files are checked again, so that exactly the planned files are read."""
        if self._folder.local is None:
            return
        for entry in files:
            try:
                stat = (self._folder.local / entry.path).stat()
            except FileNotFoundError as error:
                raise _gone(entry.uri) from error
            if (stat.st_mtime_ns // 1_000_000, stat.st_size) != (entry.mtime_ms, entry.size):
                raise DataError(
                    "file-changed",
                    f"The file {entry.uri} changed while it was about to be read.",
                    fix="Write files under a name that begins with _ or ends with .tmp, and rename them when they are whole.",
                )

    def observed(self, part: Slice, rows: int) -> None:
        """Learns how long rows are; an old measure counts for less and less."""
        self._sizes.bytes = self._sizes.bytes // 2 + sum(entry.size for entry in part.detail)
        self._sizes.rows = self._sizes.rows // 2 + rows
        self._aside = {}
        for entry in part.detail:
            self._footers.pop(entry, None)

    def committed(self, position: Position) -> None:
        """Nothing is kept for this reader alone."""

    def explain(self, error: Exception) -> FrazilError | None:
        """Names the file that could not be read."""
        text = whole_text(error)
        if "CANNOT_MERGE_SCHEMAS" in text:
            return conflicting_files(f"their columns differ in type ({one_line(error)})")
        if "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE" in text:
            return ConfigError("source-schema", one_line(error), fix="Declare types that files of this format can have.")
        entry = self._named_in(text)
        return None if entry is None else self._file_error(entry, text, error)

    def _explain_reading(self, error: Exception) -> FrazilError | None:
        """What an error means that came before there were rows. Spark's own judgement is no sign of a store that is away."""
        known = self.explain(error)
        if known is not None or not isinstance(error, AnalysisException | IllegalArgumentException):
            return known
        if any(sign in whole_text(error) for sign in (*_GONE, "Failed to find data source")):
            return None
        return ConfigError(
            "source-not-readable",
            f"The files of {self._folder.name} could not be read as {self._spec.format.value}: {one_line(error)}",
            fix="Correct the source's format, schema and options.",
        )

    def _file_error(self, entry: FileEntry, text: str, error: Exception) -> FrazilError | None:
        if any(sign in text for sign in _GONE):
            return _gone(entry.uri)
        if any(sign in text for sign in _UNREADABLE):
            self._explained = DataError(
                UNREADABLE,
                self._message_of(entry, self._reason(entry, error)),
                fix="Move it out of the folder, or correct the source's format, schema and options.",
            )
            return self._explained
        return None

    def _named_in(self, text: str) -> FileEntry | None:
        """The file of the last slice that a message names. Spark writes some names with percent signs."""
        files: Sequence[FileEntry] = self._planned.detail if self._planned is not None else ()
        for entry in files:
            path = file_key(entry.uri)
            if path in text or quote(path) in text:
                return entry
        return None

    def close(self) -> None:
        """Nothing is held open."""

    def check(self) -> None:
        """The folder must be there and readable."""
        list_folder(self._folder, self._session)


def _gone(uri: str) -> DataError:
    return DataError(
        "file-missing",
        f"The file {uri} was there when the batch was planned, and cannot be found now.",
        fix="Put it back, or start again without it. Remove files only after they are committed; "
        "on a cluster every worker must see the folder.",
    )
