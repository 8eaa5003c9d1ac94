"""What was read of tables lately. Reading is done in threads beside the pages, so that no page waits for a slow catalog."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from frazil.errors import FrazilError

T = TypeVar("T")

# Threads for one catalog: one that does not answer keeps its own busy, and no others.
THREADS = 4
# What takes long to read is read more seldom: of the time, at most one part in so many is spent on it.
SHARE = 10
PATIENCE_SECONDS = 0.8


@dataclass(frozen=True)
class Reading(Generic[T]):
    """What was read last, and when; None before the first time. ``error``: why it could not be read the last time.

    ``value`` stays what was read before that, if anything was.
    """

    value: T | None = None
    at: float | None = None
    error: FrazilError | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was read, or has failed."""
        return self.at is not None or self.error is not None


class Lane:
    """Does work in the order in which it comes, in a few daemon threads that live as long as there is some."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._running = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    def do(self, work: Callable[[], None]) -> None:
        """Hands over work that raises nothing."""
        with self._lock:
            self._waiting.append(work)
            if self._running == self._threads:
                return
            self._running += 1
        threading.Thread(target=self._run, name="frazil-ui-reader", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                work = self._waiting.popleft()
            work()


@dataclass
class _Entry:
    asked: float
    reading: Reading[Any] = field(default_factory=Reading)
    due: float = 0.0
    underway: bool = False


class Readings:
    """The last reading of each thing, by its key.

    Nobody waits for one but for the very first, and for that only as long as ``patience`` after it was asked for.
    """

    def __init__(self, clock: Callable[[], float] = time.time, patience: float = PATIENCE_SECONDS) -> None:
        self._clock = clock
        self._patience = patience
        self._entries: dict[Hashable, _Entry] = {}
        self._lanes: dict[Hashable, Lane] = {}
        self._changed = threading.Condition()

    def ask(self, key: Hashable, lane: Hashable, fresh_secs: float, read: Callable[[], Any]) -> None:
        """Reads it again, after others of its lane, if that is longer ago than so many seconds."""
        now = self._clock()
        with self._changed:
            entry = self._entries.setdefault(key, _Entry(now))
            if entry.underway or now < entry.due:
                return
            entry.underway = True
            busy = self._lanes.setdefault(lane, Lane())
        busy.do(lambda: self._read(entry, fresh_secs, read))

    def last(self, key: Hashable) -> Reading[Any]:
        """What was read last of something that was asked for."""
        with self._changed:
            entry = self._entries[key]
            self._changed.wait_for(lambda: entry.reading.is_done, entry.asked + self._patience - self._clock())
            return entry.reading

    def _read(self, entry: _Entry, fresh_secs: float, read: Callable[[], Any]) -> None:
        began = self._clock()
        try:
            found = Reading(read(), began)
        except FrazilError as error:
            found = replace(entry.reading, error=error)
        except Exception as error:  # noqa: BLE001 - a page shows what went wrong, whatever it is
            what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            found = replace(entry.reading, error=FrazilError("internal", what, fix="Run frazil inspect --debug on this table."))
        ended = self._clock()
        with self._changed:
            entry.reading, entry.underway = found, False
            entry.due = ended + max(fresh_secs, SHARE * (ended - began))
            self._changed.notify_all()
