"""A slow catalog keeps no page waiting, and no other catalog."""

from __future__ import annotations

import threading
import time

import pytest

from frazil.errors import CatalogAway, FrazilError
from frazil.ui.readings import THREADS, Reading, Readings
from services.processes import wait_until


class Slow:
    """Something to read that answers when it is let go. ``reads`` counts how often it was begun."""

    def __init__(self, value: object = "seen") -> None:
        self.go = threading.Event()
        self.reads = 0
        self.value = value

    def __call__(self) -> object:
        self.reads += 1
        assert self.go.wait(30)
        return self.value


def ask(readings: Readings, key: str, read: object, lane: str = "lane", fresh: float = 1000) -> Reading[object]:
    readings.ask(key, lane, fresh, read)  # type: ignore[arg-type]
    return readings.last(key)


def test_what_is_quick_is_there_at_once_and_is_kept() -> None:
    readings, values = Readings(), iter("ab")
    assert ask(readings, "k", lambda: next(values)).value == "a"
    assert ask(readings, "k", lambda: next(values)).value == "a"


def test_nobody_waits_longer_than_the_patience_and_the_second_time_not_at_all() -> None:
    readings, slow = Readings(patience=0.05), Slow()
    assert not ask(readings, "k", slow).is_done
    began = time.monotonic()
    for _ in range(50):
        assert not ask(readings, "k", slow).is_done
    assert time.monotonic() - began < 1
    slow.go.set()
    wait_until(lambda: ask(readings, "k", slow).is_done, 10, "the slow reading")
    assert (readings.last("k").value, slow.reads) == ("seen", 1)


def test_a_catalog_that_hangs_holds_up_no_other() -> None:
    readings, hanging = Readings(patience=0.01), [Slow() for _ in range(THREADS + 3)]
    for number, slow in enumerate(hanging):
        ask(readings, f"h{number}", slow, lane="hanging")
    wait_until(lambda: sum(slow.reads for slow in hanging) == THREADS, 10, "all threads of the lane")
    readings.ask("k", "another", 1, lambda: "seen")
    wait_until(lambda: readings.last("k").value == "seen", 10, "the other catalog")
    assert sum(slow.reads for slow in hanging) == THREADS
    for slow in hanging:
        slow.go.set()
    wait_until(lambda: all(readings.last(f"h{number}").is_done for number in range(len(hanging))), 10, "those that waited")


def test_an_error_is_shown_and_what_was_read_before_stays() -> None:
    now = [100.0]
    readings = Readings(clock=lambda: now[0])
    error = CatalogAway("catalog-unreachable", "no answer")

    def fail() -> object:
        raise error

    assert ask(readings, "k", lambda: "old", fresh=3).value == "old"
    now[0] += 10
    readings.ask("k", "lane", 3, fail)
    wait_until(lambda: readings.last("k").error, 10, "the error")
    assert readings.last("k") == Reading("old", 100.0, error)
    now[0] += 10
    readings.ask("k", "lane", 3, lambda: "new")
    wait_until(lambda: readings.last("k").error is None, 10, "the recovery")
    assert readings.last("k") == Reading("new", 120.0, None)


@pytest.mark.parametrize(
    ("raised", "text"), [(ValueError("odd\nsecond line"), "ValueError: odd"), (KeyError(), "KeyError: no message")]
)
def test_whatever_goes_wrong_is_an_error_for_people(raised: Exception, text: str) -> None:
    def fail() -> object:
        raise raised

    found = ask(Readings(), "k", fail)
    assert isinstance(found.error, FrazilError)
    assert (found.error.code, found.error.message) == ("internal", text)


def test_what_takes_long_is_read_more_seldom() -> None:
    now, reads = [0.0], []

    def read() -> int:
        reads.append(now[0])
        now[0] += 5  # seconds
        return len(reads)

    readings = Readings(clock=lambda: now[0])
    for _ in range(100):
        ask(readings, "k", read, fresh=3)
        wait_until(lambda: readings._entries["k"].underway is False, 10, "the reading")
        now[0] += 1
    assert len(reads) <= 3, "it is read for five seconds in fifty"
