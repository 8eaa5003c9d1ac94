"""Ctrl-C and SIGTERM: stop between batches, and at once when asked twice."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """While it is open, a first signal sets ``event``, and a second Ctrl-C ends the process at once."""

    def __init__(self, say: Callable[[str], None], event: threading.Event | None = None) -> None:
        self.event = event or threading.Event()
        self._say = say
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.event.is_set() and number == signal.SIGINT:
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), b"\x1b[?25h")  # a live display hides the cursor
            os._exit(128 + number)
        self.event.set()
        self._say("stopping after the batch that is being written; Ctrl-C again to end at once")


def run_beside(work: Callable[[], None]) -> None:
    """Does the work in a thread of its own, so that this one stays free for signals, and raises what it raises.

    Spark takes Ctrl-C for itself when it is started on the main thread, and then cancels the batch that is being written.
    """
    failed: list[BaseException] = []

    def target() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            failed.append(error)

    thread = threading.Thread(target=target, name="frazil-run")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
