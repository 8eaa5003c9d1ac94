"""Progress for people, on stderr: live lines on a terminal, one plain line a commit elsewhere, nothing when quiet.

Batch work whose size is known has a bar with an ETA; a stream has a spinner with its rate and the age of its last commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from frazil.model.events import (
    CommitFailed,
    Committed,
    Event,
    FencedOut,
    Maintained,
    Paused,
    PublishFailed,
    Restarting,
    Resumed,
    Settled,
    SourceFailed,
    SourceNoticed,
    Staged,
    Started,
    Stopped,
    Waiting,
)
from frazil.model.secrets import scrub

# The rate is that of the last half minute: long enough to smooth batches, short enough to show a change.
RATE_SECONDS = 30.0
_MAINTAINED = {
    "merge_files": "{:,} small files were merged",
    "rewrite_manifests": "{:,} manifests were rewritten by partition",
    "write_statistics": "the values of {:,} columns were counted",
    "expire_snapshots": "{:,} old snapshots expired",
    "delete_files": "{:,} files were deleted that nobody needs any longer",
}


@dataclass
class Line:
    """What is shown of one pipeline. Times are of the given clock."""

    pipeline: str
    started: float
    table: str = ""
    total: int | None = None
    read: int = 0
    written: int = 0
    batches: int = 0
    pending: int | None = None
    last_commit: float | None = None
    trouble: str = ""
    ended: str = ""
    ended_at: float | None = None
    recent: deque[tuple[float, int]] = field(default_factory=deque)

    def rate(self, now: float) -> float:
        """Rows read and committed a second, lately."""
        since = max(self.started, now - RATE_SECONDS)
        while self.recent and self.recent[0][0] < since:
            self.recent.popleft()
        return sum(rows for _, rows in self.recent) / max(now - since, 0.001) if self.recent else 0.0

    def note(self, event: Event, now: float) -> None:  # noqa: PLR0912 - one for each event
        """Takes over what an event says."""
        match event:
            case Started():
                self.table, self.started = event.table, now
                self.total = None if event.continuous else event.total_rows
                self.trouble = self.ended = ""
                self.read, self.ended_at = 0, None
                self.recent.clear()
            case Waiting():
                self.pending = event.pending_rows
            case Staged():
                self.pending = event.rows
            case Committed():
                self._note_commit(event, now)
            case CommitFailed():
                then = "trying again" if event.will_retry else "given up"
                self.trouble = f"commit failed ({event.kind}, attempt {event.attempt}), {then}: {_one_line(event.message)}"
            case SourceFailed():
                then = "trying again" if event.will_retry else "given up"
                self.trouble = f"the source did not answer (attempt {event.attempt}), {then}: {_one_line(event.message)}"
            case Paused():
                self.trouble = _pause_text(event)
            case Resumed():
                self.trouble = ""
            case SourceNoticed():
                self.trouble = _one_line(event.message) if event.gap else self.trouble
            case Restarting():
                again = f"restart {event.attempt} in {event.seconds:.0f} s"
                self.trouble = f"{again}: {_one_line(event.error)}"
            case PublishFailed():
                then = "trying again" if event.will_retry else "left for the next commit"
                self.trouble = f"{event.target} is not up to date (attempt {event.attempt}), {then}: {_one_line(event.message)}"
            case FencedOut():
                self.trouble = f"fenced: {_one_line(event.message)}"
            case Stopped():
                self.ended, self.ended_at = ("done" if event.error is None else "failed"), now
                self.trouble = self.trouble if event.error is None else _one_line(event.error)

    def _note_commit(self, event: Committed, now: float) -> None:
        self.read += event.counts.read
        self.recent.append((now, event.counts.read))
        self.pending, self.last_commit, self.trouble = 0, now, ""
        if not event.skipped:
            self.written += event.counts.written
            self.batches += 1

    def figures(self, now: float) -> str:
        """The numbers, most telling first, so that a narrow terminal loses the least."""
        speed = self.rate(now) if self.ended_at is None else self.read / max(self.ended_at - self.started, 0.001)
        parts = [f"{self.written:,} rows"]
        if self.total is not None:
            parts = [f"{self.read:,}/{self.total:,} rows"]
        parts.append(f"{speed:,.0f} rows/s")
        if self.ended:
            return ", ".join([*parts, _count(self.batches, "batch"), self.ended])
        if self.total is not None:
            parts.append(f"ETA {_eta(self.total - self.read, speed)}")
        parts.append(_count(self.batches, "batch"))
        if self.total is None and self.last_commit is not None and now - self.last_commit >= 1:
            parts.append(f"last commit {now - self.last_commit:.0f} s ago")
        if self.pending:
            parts.append(f"{self.pending:,} pending")
        return ", ".join(parts)


class Progress:
    """Listens to events, from any thread, and shows them while the context is open."""

    def __init__(
        self, *, quiet: bool = False, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quiet = quiet
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._spinner = Spinner("dots")
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if not self._quiet and self._console.is_interactive:
            # What is written to stdout is data, and never goes through a display on stderr.
            self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=8, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        if self._quiet:
            return
        now = self._clock()
        with self._lock:
            line = self._lines.setdefault(event.pipeline, Line(event.pipeline, started=now))
            line.note(event, now)
            text = "" if self._live else plain(event, line, now)
        # Outside the lock: the display's own thread holds the console's lock while it asks for the view.
        if text:
            self._console.print(Text(text), soft_wrap=True)

    def _view(self) -> RenderableType:
        now = self._clock()
        table = Table.grid(padding=(0, 1), expand=True)
        for _ in range(2):
            table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        with self._lock:
            for line in self._lines.values():
                table.add_row(Text(line.pipeline, style="bold"), self._mark(line), Text(line.figures(now)))
                if line.trouble:
                    table.add_row("", "", Text(line.trouble, style="red" if line.ended else "yellow"))
        return table

    def _mark(self, line: Line) -> RenderableType:
        if line.total is not None:
            return ProgressBar(total=max(line.total, 1), completed=_completed(line), width=20)
        if line.ended:
            return Text("ok", style="green") if line.ended == "done" else Text("!!", style="red")
        return self._spinner


def plain(event: Event, line: Line, now: float) -> str:  # noqa: PLR0911 - one for each event
    """The line for a log or a pipe; empty when the event is not worth one."""
    match event:
        case Started():
            size = "" if line.total is None else f", {line.total:,} rows to read"
            return f"{event.pipeline}: writing to {event.table}{size}"
        case Committed() if event.skipped:
            return f"{event.pipeline}: batch {event.batch} was in the table already, nothing written"
        case Committed():
            lost = [f"{rows:,} {what}" for rows, what in
                    ((event.counts.filtered, "filtered"), (event.counts.dead_lettered, "dead-lettered")) if rows]  # fmt: skip
            lost += [f"{rows:,} do not meet {name}" for name, rows in event.counts.unmet]
            done = ", ".join([f"{event.counts.written:,} rows", *lost, _count(event.files, "file"), f"{event.seconds:.1f} s"])
            return f"{event.pipeline}: batch {event.batch} committed ({done}); {line.figures(now)}"
        case Settled() | Maintained():
            return f"{event.pipeline}: {upkeep_text(event)}"
        case SourceNoticed():
            return f"{event.pipeline}: {event.message}"
        case Paused():
            return f"{event.pipeline}: {_pause_text(event)}"
        case Resumed():
            return f"{event.pipeline}: goes on"
        case CommitFailed() | SourceFailed() | Restarting() | PublishFailed() | FencedOut():
            return f"{event.pipeline}: {line.trouble}"
        case Stopped():
            why = f": {line.trouble}" if event.error is not None else ""
            return f"{event.pipeline}: {line.figures(now)}{why}"
        case _:
            return ""


def _pause_text(event: Paused) -> str:
    why = f": {event.reason}" if event.reason else ""
    return f"paused by {event.by}{why}"


def upkeep_text(event: Settled | Maintained) -> str:
    """What was done for the health of a table."""
    if isinstance(event, Maintained):
        done = _MAINTAINED[event.kind].format(event.count)
    elif event.kind == "settle":
        done = f"{event.deletes:,} deletes by key became the positions of {event.rows:,} rows"
    else:
        done = f"files were written anew, without {event.deletes:,} files of deletes"
    return f"{done} ({event.seconds:.1f} s)"


def _completed(line: Line) -> int:
    total = max(line.total or 0, 1)
    return total if line.ended == "done" else min(line.read, total)


def _one_line(message: str) -> str:
    return " ".join(scrub(message).split())


def _eta(rows: int, speed: float) -> str:
    return str(timedelta(seconds=round(max(rows, 0) / speed))) if speed else "unknown"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}{'es' if what.endswith('ch') else 's'}"
