"""Moments in the life of a batch, and of what is put in order after it, at which a process is ended or frozen."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from frazil.doors.python.sink import Sink
from frazil.iceberg import FilesToDelete, IcebergPort, KeyIndex, Lake, TableCare
from frazil.write.claim import ClaimedSink
from frazil.write.maintenance import Upkeep
from frazil.write.writer import SinkWriter


def kill_all() -> None:
    """Ends this process and its JVM."""
    os.killpg(0, signal.SIGKILL)


def kill_python() -> None:
    """Ends this process alone: what its JVM has begun, it may still finish."""
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    """Stops this process and its JVM until they are told to continue."""
    os.killpg(0, signal.SIGSTOP)


ACTS: dict[str, Callable[[], None]] = {"kill-all": kill_all, "kill-python": kill_python, "freeze": freeze}

Call = Callable[..., Any]


@dataclass(frozen=True)
class Moment:
    """A moment: around which method of which class, for which of its calls."""

    owner: type
    method: str
    around: Callable[[Call, Call], Any]
    counts: Callable[..., bool] = lambda *_: True


def before(call: Call, act: Call) -> Any:
    """Acts, then calls."""
    act()
    return call()


def after(call: Call, act: Call) -> Any:
    """Calls, then acts."""
    result = call()
    act()
    return result


def during(call: Call, act: Call) -> Any:
    """Acts as soon as the call is under way."""
    under_way = threading.Thread(target=call)
    under_way.start()
    under_way.join(0.005)
    act()


def half_way(call: Call, act: Call) -> Any:
    """Deletes half of the files, then acts."""
    if not isinstance(call, partial):
        raise TypeError(call)
    owner, paths = call.args
    call.func(owner, paths[: (len(paths) + 1) // 2])
    act()
    return call()


def _of_a_batch(_port: IcebergPort, _view: Any, _snapshot: Any, intent: Any, _state: Any) -> bool:
    return intent.batch is not None


def _puts_in_order(kind: str, nth: int) -> Callable[..., bool]:
    """Whether the n-th argument is an intent to put deletes, or files, in another form: what is committed after a batch."""
    return lambda *arguments: arguments[nth].change is not None and arguments[nth].change.summary.get("frazil.kind") == kind


MOMENTS = {
    "staged": Moment(ClaimedSink, "commit", before),
    "unsent": Moment(IcebergPort, "swap", before, _of_a_batch),
    "sent": Moment(IcebergPort, "swap", during, _of_a_batch),
    "applied": Moment(IcebergPort, "swap", after, _of_a_batch),
    "together-unsent": Moment(Lake, "swap_together", before),
    "together-sent": Moment(Lake, "swap_together", during),
    "together-applied": Moment(Lake, "swap_together", after),
    "settlement-staged": Moment(ClaimedSink, "run", before, _puts_in_order("settle", 1)),
    "settlement-applied": Moment(IcebergPort, "swap", after, _puts_in_order("settle", 3)),
    "compaction-staged": Moment(ClaimedSink, "run", before, _puts_in_order("compact", 1)),
    "compaction-applied": Moment(IcebergPort, "swap", after, _puts_in_order("compact", 3)),
    "merging": Moment(TableCare, "merge", before),
    "merge-staged": Moment(ClaimedSink, "run", before, _puts_in_order("merge", 1)),
    "merge-applied": Moment(IcebergPort, "swap", after, _puts_in_order("merge", 3)),
    "expired": Moment(Upkeep, "_list_dead", before),
    "listed": Moment(Upkeep, "_list_dead", after),
    "deleting": Moment(FilesToDelete, "delete", half_way),
    "index-begun": Moment(KeyIndex, "_add", before),
    "index-added": Moment(KeyIndex, "_add", after),
    "index-saved": Moment(KeyIndex, "_save", after),
    "looked-up": Moment(KeyIndex, "delete", after),
    "acknowledged": Moment(SinkWriter, "commit_batch", after),
    "ahead-staged": Moment(SinkWriter, "stage_ahead", after),
    "ahead-acknowledged": Moment(SinkWriter, "end_commit", after),
    "before-sparks-own-log": Moment(Sink, "__call__", after),
}


def act_at(name: str, nth: int, act: str | Callable[[], None]) -> Callable[[], None]:
    """Does the act at the n-th moment of that name from now on in this process; what is returned ends the waiting for it."""
    moment, calls, acts = MOMENTS[name], 0, ACTS[act] if isinstance(act, str) else act
    original = getattr(moment.owner, moment.method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        counted = moment.counts(*arguments)
        calls += counted
        call = partial(original, *arguments, **options)
        return moment.around(call, acts) if counted and calls == nth else call()

    setattr(moment.owner, moment.method, wrapped)
    return lambda: setattr(moment.owner, moment.method, original)
