"""What stands around pipelines that a Python program runs: what their settings name themselves, and nothing else."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import structlog
from pyspark.sql import SparkSession

import frazil
from cli.commands import sql_pipeline
from frazil.model.settings import Settings
from frazil.observe.logs import LogEvents
from frazil.observe.surroundings import only_asked, surroundings
from frazil.observe.web import addresses_of

from .samples import committed, failed

GENERATOR = {"connector": "generator", "rows": 30}
MEMORY = {"catalog": {"type": "memory"}, "namespace": "db", "table": "t"}


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("frazil")
    handlers, level, own_level = root.handlers[:], root.level, own.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    own.setLevel(own_level)
    structlog.reset_defaults()


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]


@pytest.mark.parametrize(
    ("given", "listening"),
    [
        ({}, []),
        ({"log_level": "info"}, []),
        ({"metrics": {}}, ["metrics"]),
        ({"health": {"enabled": False}, "metrics": {"port": 0}}, ["metrics"]),
        ({"health": {"path": "/healthz"}, "metrics": {}}, ["health", "metrics"]),
    ],
)
def test_only_endpoints_that_are_named_are_asked_for(given: dict[str, Any], listening: list[str]) -> None:
    assert [one.setting for one in addresses_of(only_asked(Settings.model_validate(given)))] == listening


def test_a_program_that_names_nothing_keeps_its_logs() -> None:
    root, own = logging.getLogger(), logging.getLogger("frazil")
    before = (root.handlers[:], root.level, own.level)
    with surroundings(Settings(), []) as around:
        assert not any(isinstance(one, LogEvents) for one in around)
    assert (root.handlers[:], root.level, own.level) == before


def test_a_level_is_set_for_the_programs_own_handlers(caplog: pytest.LogCaptureFixture) -> None:
    handlers = logging.getLogger().handlers[:]
    with surroundings(Settings(log_level="warning"), []) as around:
        for tell in around:
            tell(committed())
            tell(failed("conflict"))
    assert logging.getLogger().handlers == handlers
    assert [record.getMessage().split()[0] for record in caplog.records] == ["commit_failed"]


def test_without_handlers_of_its_own_a_program_gets_frazils(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers.clear()
    with surroundings(Settings(log_level="info"), []) as around:
        for tell in around:
            tell(committed())
    assert "batch_committed" in capsys.readouterr().err


def test_a_form_that_is_named_is_written_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with surroundings(Settings(log_format="json"), []) as around:
        for tell in around:
            tell(committed())
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "batch_committed"


def test_where_free_ports_are_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings.model_validate({"log_level": "info", "metrics": {"port": 0}})
    with surroundings(settings, []):
        (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("serving")]
        address = line.rpartition(" ")[2].strip("'")
        with urlopen(address, timeout=20) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("setting", ["health", "metrics"])
def test_a_port_that_is_taken_stops_a_program_before_spark_starts(tmp_path: Path, setting: str) -> None:
    file = sql_pipeline(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"{file.read_text()}settings: {{{setting}: {{port: {port}}}}}\n")
        with pytest.raises(frazil.ConfigError, match=f"port of settings.{setting} is in use"):
            frazil.run(file, once=True)
        with pytest.raises(frazil.ConfigError, match=f"port of settings.{setting} is in use"):
            frazil.Pipeline(GENERATOR, MEMORY, settings={setting: {"port": port}}).run(once=True)


@pytest.mark.parametrize(("name", "value"), [("parallel", 2), ("on_failure", "stop"), ("on_failure", "continue")])
def test_what_says_how_several_run_is_refused_for_one(name: str, value: Any) -> None:
    with pytest.raises(frazil.ConfigError, match=f"settings.{name}: it has no meaning for one pipeline"):
        frazil.Pipeline(GENERATOR, MEMORY, settings={name: value})


class Asking:
    """Asks the endpoints when a batch is committed."""

    def __init__(self, *urls: str) -> None:
        self.urls = urls
        self.answers: list[str] = []

    def __call__(self, event: frazil.Event) -> None:
        if isinstance(event, frazil.Committed) and not self.answers:
            for url in self.urls:
                with urlopen(url, timeout=20) as answer:
                    self.answers.append(answer.read().decode())


@pytest.mark.parametrize("door", ["file", "pipeline"])
def test_endpoints_answer_while_a_program_runs_a_pipeline(
    spark: SparkSession, tmp_path: Path, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    health, metrics = free_ports()
    settings = {"health": {"port": health, "path": "/healthz"}, "metrics": {"port": metrics}, "log_format": "json"}
    asking = Asking(f"http://127.0.0.1:{health}/healthz", f"http://127.0.0.1:{metrics}/metrics")
    if door == "file":
        file = sql_pipeline(tmp_path, rows=30)
        file.write_text(f"{file.read_text()}settings: {json.dumps(settings)}\n")
        frazil.run(file, once=True, listeners=[asking])
    else:
        frazil.Pipeline(GENERATOR, MEMORY, name="load", settings=settings, listeners=[asking]).run(once=True)
    ready, counted = asking.answers
    assert json.loads(ready)["pipelines"]["load"]["state"] == "running"
    assert 'pipeline="load"' in counted
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert {"serving", "pipeline_started", "batch_committed", "pipeline_stopped"} <= set(events)
    for url in asking.urls:
        with pytest.raises(URLError):
            urlopen(url, timeout=20)
