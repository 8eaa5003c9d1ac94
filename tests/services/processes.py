"""Child processes: each has a log, is waited for by a condition, is stopped by its id, and ends when the test run ends."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

LOCALHOST = "127.0.0.1"
POLL_SECONDS = 0.05
LOG_TAIL_LINES = 30

T = TypeVar("T")


class ServiceFailed(Exception):
    """A service did not start, did not become ready in time, or ended by itself."""


@dataclass(frozen=True)
class Child:
    """A running command and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The id of the process. It stays the same when the command replaces itself by another."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def log_text(self) -> str:
        """What the process has printed so far."""
        return self.log.read_text(errors="replace")

    def await_line(self, pattern: str, timeout: float) -> re.Match[str]:
        """Waits until the log has something that matches, and returns it."""
        return wait_until(lambda: re.search(pattern, self.log_text()), timeout, f"a line like {pattern!r}", self)

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout: float = 15) -> int:
        """Asks the process to end, kills it when it does not, and returns its exit code."""
        if self.running:
            self.process.send_signal(how)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def start(
    name: str,
    command: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    user: str = "",
    on_parent_death: signal.Signals = signal.SIGKILL,
) -> Child:
    """Starts a command that ends at the latest when the calling thread ends (on Linux), even by SIGKILL.

    Its own children are not tied: a command that does not end them itself, as ``spark-submit`` of a Python file, is better
    not started here. ``env`` is added to the environment. ``user`` is another user to run as, for the superuser only.
    The command has a session of its own, so that Ctrl-C reaches the test run alone, which then stops its children in order.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            tied(command, user, on_parent_death),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    return Child(name, process, log)


def tied(command: Sequence[str], user: str = "", on_parent_death: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command in a wrapper that ties it to this process, and that replaces itself by the command."""
    wrapper = str(Path(__file__).with_name("tied.py"))
    return [sys.executable, "-I", "-S", wrapper, str(os.getpid()), str(int(on_parent_death)), user, *command]


@contextmanager
def started(
    name: str,
    command: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
) -> Iterator[Child]:
    """A command that runs as long as the block."""
    child = start(name, command, log, env=env)
    try:
        yield child
    finally:
        child.stop()


def wait_until(condition: Callable[[], T | None], timeout: float, what: str, child: Child | None = None) -> T:
    """Waits until the condition returns something true, and returns that. Gives up when the time or the child has ended."""
    deadline = time.monotonic() + timeout
    while True:
        # Asked before the condition: what the child printed last is then seen by the condition.
        ended = child is not None and not child.running
        if found := condition():
            return found
        if ended or time.monotonic() > deadline:
            raise ServiceFailed(_failure(timeout, what, child))
        time.sleep(POLL_SECONDS)


def _failure(timeout: float, what: str, child: Child | None) -> str:
    if child is None:
        return f"waited {timeout:g} s for {what}"
    tail = "\n".join(child.log_text().splitlines()[-LOG_TAIL_LINES:])
    ending = f"waited {timeout:g} s" if child.running else f"ended with code {child.process.returncode} while waited"
    return f"{child.name}: {ending} for {what}; {child.log} ends with:\n{tail}"


def answers(port: int, host: str = LOCALHOST) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port that nothing uses, for services that cannot take one themselves.

    It lies below the range from which Linux hands out ports, so that no outgoing connection takes it before the service does.
    """
    for _ in range(1000):
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind((LOCALHOST, port))
            except OSError:
                continue
            return port
    raise ServiceFailed("no free port between 20000 and 32000")
