"""`frazil pause` and `frazil resume`: a pipeline waits, wherever it runs, because its table says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands import Frazil, sql_pipeline
from frazil.model.events import Committed, Event, Paused, Resumed, Stopped
from frazil.model.pausing import Pause, pause_property
from frazil.model.pipeline import ProjectSpec
from frazil.observe.health import Health
from frazil.observe.metrics import Metrics
from frazil.runtime import pump
from frazil.runtime.pausing import set_pause
from frazil.runtime.runner import run_project
from helpers.lakes import IMPATIENT, Lake


class Heard:
    """Listens to a run, and waits for what it says."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def wait(self, what: Callable[[list[Event]], bool]) -> None:
        """Until the events are so."""
        with self._news:
            assert self._news.wait_for(lambda: what(self.events), timeout=120), self.events

    def commits(self) -> int:
        """How many batches were committed."""
        return sum(isinstance(event, Committed) for event in self.events)


@pytest.mark.slow(seconds=40)
def test_a_running_pipeline_waits_and_goes_on_without_a_loss(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(pump, "PAUSED_POLL_SECONDS", 0.05)
    source = {"connector": "generator", "rows_per_second": 200}
    pipeline = lake.pipeline(source, batch_size=10, flush_interval_secs=1)
    heard, health, metrics, stop = Heard(), Health(["p"]), Metrics(), threading.Event()
    project = ProjectSpec(file="f", pipelines=(pipeline,), settings=IMPATIENT)
    thread = threading.Thread(target=lambda: run_project(project, listeners=[heard, health, metrics], stop=stop))
    thread.start()
    try:
        heard.wait(lambda events: any(isinstance(event, Committed) for event in events))
        assert set_pause(pipeline, project.settings, Pause("ada@here", 1_000, "for a look")).before is None
        heard.wait(lambda events: isinstance(events[-1], Paused))
        assert heard.events[-1] == Paused("p", "ada@here", 1_000, "for a look")
        before, rows = heard.commits(), lake.count()
        report = health.report()
        assert (report.healthy, report.ready, report.pipelines["p"].state) == (True, True, "paused")
        assert 'frazil_paused{pipeline="p",table="db.t"} 1.0' in metrics.exposition().decode()
        again = set_pause(pipeline, project.settings, Pause("bob@there", 2_000))
        assert again.now == again.before == Pause("ada@here", 1_000, "for a look")
        assert (heard.commits(), lake.count()) == (before, rows)
        set_pause(pipeline, project.settings, None)
        heard.wait(lambda events: Resumed("p") in events and isinstance(events[-1], Committed))
    finally:
        stop.set()
        thread.join()
    assert [event.error for event in heard.events if isinstance(event, Stopped)] == [None]
    assert 'frazil_paused{pipeline="p",table="db.t"} 0.0' in metrics.exposition().decode()
    numbers = [number for (number,) in lake.rows("event_number")]
    assert sorted(numbers) == list(range(len(numbers)))
    assert pause_property(pipeline.sink_id) not in lake.properties()


@pytest.mark.slow(seconds=40)
def test_from_the_command_line(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=100)
    result = frazil("pause", "load")
    assert (result.code, "has not written anything yet" in result.err) == (78, True)
    assert frazil("run", "--once").code == 0
    result = frazil("pause", "load", "--reason", "the source is repaired", "--json")
    (done,) = result.json["pipelines"]
    assert (result.code, done["before"], done["now"]["reason"]) == (0, None, "the source is repaired")
    assert "was paused already: since" in frazil("pause").out
    status = frazil("status")
    assert "the source is repaired; it goes on after: frazil resume load" in status.out
    assert frazil("status", "--json").json["pipelines"][0]["paused"]["reason"] == "the source is repaired"
    result = frazil("run", "--once")
    assert (result.code, "is paused by" in result.err, "frazil resume load" in result.err) == (75, True, True)
    assert "Traceback" not in result.text
    assert "goes on" in frazil("resume", "load").out
    assert "not paused" in frazil("resume", "load").out
    assert frazil("run", "--once").code == 0
    result = frazil("pause", "laod")
    assert (result.code, "Did you mean load?" in result.err) == (2, True)
