"""What the sinks of a process, and the parts of a sink, know of each other during one execution of a flow."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from frazil.doors.bytewax.progress import Family


class Execution:
    """One execution of a flow in this process. ``broken``: something failed, so that no part may say that the flow has ended."""

    def __init__(self) -> None:
        self.broken = threading.Event()
        self.is_building = False


_joining = threading.Lock()
_current = Execution()


def joined() -> Execution:
    """The execution that is being prepared in this process.

    Bytewax asks every sink in every worker for its parts before it builds the first of them: whoever is asked after that belongs
    to the next execution.
    """
    global _current  # noqa: PLW0603 - there is one at a time, for sinks that know nothing of each other
    with _joining:
        if _current.is_building:
            _current = Execution()
        return _current


class Runs:
    """The run of a sink's parts in one execution, which is the same for all of them.

    It is the one that the first part with a state goes on with, and a new one where there is none. Parts with a state are built
    first in each worker, but one worker may be ahead of another.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.began_ms = time.time_ns() // 1_000_000
        self.deciding = threading.Lock()
        self.decided: set[tuple[str, str | None]] = set()
        self._changing = threading.Lock()
        self._clock = clock
        self._began = clock()
        self.family = Family(uuid.uuid4().hex[:12])

    def resume(self, run: str) -> None:
        """A part goes on with this run."""
        with self._changing:
            self.family = self.family.with_resumed(run)

    def seconds(self) -> int:
        """How long the execution goes on already."""
        return int(self._clock() - self._began)
