"""Trying again: one loop and one way to wait, for everything that may succeed later.

Whoever has a loop of its own, because more than a call lies between two tries, waits as this one does: the commit protocol and
the fast-forward of a branch look at the table again (`pause_seconds`), a pipeline is opened anew (`growing_wait`).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from frazil.errors import FrazilError, Retryable, SparkDied
from frazil.model.settings import RetrySettings

T = TypeVar("T")

# An error that is known to last longer is not waited for.
LONGEST_WAIT = 60.0


def retried(
    call: Callable[[], T],
    retry: RetrySettings,
    on_failure: Callable[[Retryable, int, bool], None],
    sleep: Callable[[float], object] = time.sleep,
    *,
    but: Callable[[Retryable], bool] = lambda _: False,
) -> T:
    """The result of a call that may be made again. It is retried after each Retryable error, as often as the settings say.

    ``on_failure`` gets each error, how many there were, and whether it was the last. ``but``: errors that are raised at once.
    """
    failures = 0
    while True:
        try:
            return call()
        except SparkDied:
            raise
        except Retryable as error:
            if but(error):
                raise
            failures += 1
            final = failures > retry.max_retries or takes_too_long(error)
            on_failure(error, failures, final)
            if final:
                raise
            sleep(pause_seconds(error, retry, failures))


def contended(
    attempt: Callable[[], T], retry: RetrySettings, moved: type[FrazilError], prepare: Callable[[], object] = lambda: None
) -> T:
    """The result of work that is repeated when somebody else changed the table meanwhile, which raises the error ``moved``.

    ``prepare`` looks at the table again before the next attempt.
    """
    for tries in range(1, retry.max_retries + 2):
        try:
            return attempt()
        except moved as error:
            if tries > retry.max_retries:
                raise Retryable("contention", f"{error.message} This happened {tries} times in a row.") from error
            prepare()
    raise AssertionError("the last try returns or raises")


def takes_too_long(error: Retryable) -> bool:
    """Whether it is known when a call will succeed, and that is too far away to wait for it."""
    return error.after is not None and error.after > LONGEST_WAIT


def pause_seconds(error: FrazilError, retry: RetrySettings, failures: int) -> float:
    """How long to wait after an error: as long as it lasts, where that is known."""
    known = error.after if isinstance(error, Retryable) else None
    return backoff_seconds(retry, failures) if known is None else known


def backoff_seconds(retry: RetrySettings, failures: int) -> float:
    """How long to wait after so many failures."""
    return growing_wait(retry.initial_backoff_ms, retry.max_backoff_ms, retry.backoff_multiplier, failures) / 1000


def growing_wait(first: float, longest: float, factor: float, number: int) -> float:
    """The n-th of waits that grow by a factor up to a bound, half of it random so that writers do not march in step."""
    growth = (number - 1) * math.log(factor)
    most = longest if growth >= math.log(longest / first) else first * math.exp(growth)
    return random.uniform(most / 2, most)
