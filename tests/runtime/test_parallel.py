"""How many pipelines of a project write at the same time, how often their calls are tried again, and which of them end."""

from __future__ import annotations

import threading

import pytest

from frazil.model.events import Event, Staged, Stopped
from frazil.model.pipeline import ProjectSpec
from frazil.model.settings import Settings
from frazil.runtime.runner import run_project
from helpers.lakes import Lake

pytestmark = pytest.mark.slow


def both_meet(lake: Lake, parallel: int, seconds: float) -> bool:
    """Whether one pipeline has files staged while another is between its files and its commit."""
    source = {"connector": "generator", "rows": 10, "rows_per_second": 1_000_000}
    pipelines = [lake.pipeline(source, f"db.t{number}", name=f"p{number}") for number in range(2)]
    project = ProjectSpec(file="f", pipelines=tuple(pipelines), settings=Settings(parallel=parallel))
    staged: set[str] = set()
    met: list[bool] = []
    another, lock = threading.Event(), threading.Lock()

    def listen(event: Event) -> None:
        if not isinstance(event, Staged):
            return
        with lock:
            staged.add(event.pipeline)
            first = len(staged) == 1
        if first:
            met.append(another.wait(seconds))
        else:
            another.set()

    run_project(project, once=True, listeners=[listen])
    assert [lake.count(f"db.t{number}") for number in range(2)] == [10, 10]
    return met == [True]


@pytest.mark.parametrize(("parallel", "seconds", "meet"), [(1, 1.0, False), (2, 60.0, True)])
def test_as_many_write_at_once_as_the_settings_say(lake: Lake, parallel: int, seconds: float, meet: bool) -> None:
    assert both_meet(lake, parallel, seconds) is meet


def test_a_pipeline_may_end_where_others_would_go_on(lake: Lake) -> None:
    endless = {"connector": "generator", "rows_per_second": 50}
    pipeline = lake.pipeline(endless, flush_interval_secs=1).model_copy(update={"once": True})
    events: list[Event] = []
    given_up = threading.Timer(60, (stop := threading.Event()).set)  # without its end the run would have none
    given_up.start()
    run_project(ProjectSpec(file="f", pipelines=(pipeline,)), listeners=[events.append], stop=stop)
    given_up.cancel()
    assert not stop.is_set()
    assert [event.error for event in events if isinstance(event, Stopped)] == [None]
