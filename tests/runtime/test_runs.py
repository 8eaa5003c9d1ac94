"""Which pipelines run, what a run that restarts itself reads again, and what a plan refuses as a run would."""

from __future__ import annotations

import pytest

from frazil.commit.protocol import AttemptFailed, FailureKind
from frazil.errors import ConfigError, Halted, Retryable
from frazil.iceberg.port import IcebergPort
from frazil.model.events import Event, Restarting
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.settings import RestartSettings
from frazil.model.sink import SinkSpec
from frazil.runtime import find
from frazil.runtime.plan import plan_pipeline
from frazil.runtime.runner import selected
from frazil.sources.base import Slice
from frazil.sources.query import Query
from helpers.lakes import IMPATIENT, Lake, commits, run

RESTARTING = IMPATIENT.model_copy(update={"restart": RestartSettings(initial_backoff_secs=0.01)})
QUERY = {"connector": "query", "query": "select 7 id"}


def pipeline(name: str, enabled: bool = True) -> PipelineSpec:
    sink = {"catalog": {"type": "memory"}, "namespace": "db", "table": name}
    source = {"connector": "generator"}
    given = {"name": name, "source_name": "s", "source": source, "sink_name": "k", "sink": sink, "enabled": enabled}
    return PipelineSpec.model_validate(given)


def test_a_pipeline_that_is_named_twice_runs_once() -> None:
    project = ProjectSpec(file="p.yaml", pipelines=(pipeline("a"), pipeline("b", enabled=False), pipeline("c")))
    assert [one.name for one in selected(project, ["c", "a", "c"])] == ["c", "a"]
    assert [one.name for one in selected(project)] == ["a", "c"]
    assert [one.name for one in selected(project, ["b"])] == ["b"]
    with pytest.raises(ConfigError, match="no pipeline 'd'"):
        selected(project, ["a", "d"])


def fails_after_its_first_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something does not answer once, when the rows are in the table already."""
    failures = [Retryable("away-for-long", "It does not answer.")]

    def observed(_: Query, __: Slice, ___: int) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(Query, "observed", observed)


def test_a_run_that_restarts_itself_does_not_read_again_what_is_read_once_a_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_run = lake.pipeline({**QUERY, "every_run": True})
    for runs in (1, 2):
        fails_after_its_first_commit(monkeypatch)
        events: list[Event] = run(every_run, settings=RESTARTING)
        (restart,) = [event for event in events if isinstance(event, Restarting)]
        assert restart.attempt == 1
        assert 0.005 <= restart.seconds <= 0.01
        assert len(commits(events)) == 1
        assert lake.count() == runs


def test_a_plan_stops_where_a_run_would_for_another_source(lake: Lake) -> None:
    run(lake.pipeline(QUERY), once=True)
    other = lake.pipeline({**QUERY, "query": "select 8 id"})
    for attempt in (lambda: run(other, once=True), lambda: plan_pipeline(other, IMPATIENT)):
        with pytest.raises(Halted) as caught:
            attempt()
        assert caught.value.code == "source-changed"


def test_a_plan_stops_where_a_run_would_for_a_table_that_was_rolled_back(lake: Lake) -> None:
    events = lake.pipeline({"connector": "generator", "rows": 20}, batch_size=10)
    run(events, once=True)
    first = lake.data_snapshots()[0].snapshot_id
    lake.spark.sql(f"call {lake.name}.system.rollback_to_snapshot('db.t', {first})")
    for attempt in (lambda: run(events, once=True), lambda: plan_pipeline(events, IMPATIENT)):
        with pytest.raises(Halted) as caught:
            attempt()
        assert caught.value.code == "rolled-back"


def test_a_plan_lets_go_of_the_source(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(Query, "close", lambda source: closed.append(source.fingerprint))
    plan_pipeline(lake.pipeline(QUERY), IMPATIENT)
    assert len(closed) == 1
    with pytest.raises(ConfigError, match="no_such_column"):
        plan_pipeline(lake.pipeline({**QUERY, "query": "select no_such_column"}), IMPATIENT)
    assert len(closed) == 2


def test_a_plan_tells_of_a_catalog_that_went_away(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    run(lake.pipeline(QUERY), once=True)

    def refresh(_: IcebergPort) -> None:
        raise AttemptFailed(FailureKind.UNREACHABLE, Retryable("catalog-unreachable", "It is away."))

    def nobody_answers(_: SinkSpec) -> None:
        raise OSError("PyIceberg gets no answer either")

    monkeypatch.setattr(find, "described_table", nobody_answers)
    monkeypatch.setattr(IcebergPort, "refresh", refresh)
    with pytest.raises(Retryable, match="It is away"):
        plan_pipeline(lake.pipeline(QUERY), IMPATIENT)
