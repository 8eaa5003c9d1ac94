"""Ctrl-C and SIGTERM: a run stops between batches, other commands stop where they are, and all end at once when asked twice.

However frazil ends by a signal, it leaves no Java behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from frazil.spark.java_process import end_java_now

SIGNALS = (signal.SIGINT, signal.SIGTERM)

# `timeout`, shells and wrappers send a signal to the process and to its group: within this time the second is the same request.
_SAME_REQUEST_SECONDS = 0.5


class Interrupted(BaseException):
    """A signal asked a command to stop. Not an error: only what must be done in any case is done on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


class Requests:
    """Handles signals: the first asks, by ``ask``; another one, which is not the same request, ends the process at once."""

    def __init__(self, ask: Callable[[int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._asked_at: float | None = None

    def __call__(self, number: int, _frame: FrameType | None = None) -> None:
        """What Python calls, on the main thread."""
        now = self._clock()
        if self._asked_at is None:
            self._asked_at = now
            self._ask(number)
        elif now - self._asked_at > _SAME_REQUEST_SECONDS:
            end_at_once(number)


def end_at_once(number: int) -> NoReturn:
    """Ends Java and this process, whatever its threads do. It takes a few seconds at most, in which signals change nothing."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h")  # a live display hides the cursor
    # What threads say of a Java that ends under their hands is of no use.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    end_java_now()
    os._exit(128 + number)


@contextmanager
def stopping(say: Callable[[str], None], event: threading.Event | None = None) -> Iterator[threading.Event]:
    """As long as the block, a first signal sets the event, and a second one ends the process."""
    event = event or threading.Event()

    def ask(_: int) -> None:
        event.set()
        say("stopping after the batch that is being written; Ctrl-C again to end at once")

    with _handled(Requests(ask)):
        yield event


@contextmanager
def interruptible() -> Iterator[None]:
    """As long as the block, a first signal raises :class:`Interrupted`, and a second one ends the process.

    When the block was interrupted, Java has ended, too: what it was doing is of no use any more.
    """

    def ask(number: int) -> NoReturn:
        raise Interrupted(number)

    with _handled(Requests(ask)):
        try:
            yield
        except Interrupted:
            end_java_now()
            raise


@contextmanager
def interruptible_wait() -> Iterator[Callable[[float], bool]]:
    """As long as the block, a signal ends a wait of so many seconds, which is then true; a second one ends the process."""
    asked = threading.Event()
    with _handled(Requests(lambda _: asked.set())):
        yield asked.wait


@contextmanager
def cancelling() -> Iterator[None]:
    """As long as the block, Ctrl-C is Spark's: it cancels what Spark is doing, and the program goes on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _handled(handler: Requests) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # a program that calls the command line elsewhere handles its signals itself
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


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
