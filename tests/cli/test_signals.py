"""Ctrl-C, SIGTERM and SIGKILL, to frazil, to its whole process group and to its Java: how it ends, and that no Java is left."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.commands import FRAZIL
from cli.tables import sqlite_catalog
from frazil.cli import signals
from frazil.cli.signals import Requests
from services.processes import Child, start, wait_until

SECONDS = 300

# One command after the other, in one process: the Java of the first is that of all, unless it dies.
ONE_AFTER_THE_OTHER = """
import sys
from frazil.cli import main

for number, case in enumerate(sys.argv[1:]):
    print(f"case {number} begins: {case}", flush=True)
    print(f"case {number} ended with", main(case.split()), flush=True)
"""

# The door of Python on a Java that dies, and on the next one.
PYTHON = """
import os, signal, sys
import frazil
from frazil.errors import SparkDied

def sink(spark):
    catalog = {"uri": f"sqlite:///{sys.argv[1]}/catalog.db", "warehouse": f"{sys.argv[1]}/warehouse"}
    return frazil.sink(spark.range(3)).catalog(type="sql", sql=catalog).to("lake.shop.python")

spark = frazil.session()
first = sink(spark)
first.write()
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
try:
    first.write()
except SparkDied as died:
    print("refused:", died.code, died.exit_code, died, flush=True)
sink(frazil.session()).write()
print("rows:", frazil.session().table("lake.shop.python").count(), flush=True)
"""

SIGNALS = [(signal.SIGINT, "process"), (signal.SIGTERM, "process"), (signal.SIGINT, "group"), (signal.SIGTERM, "group")]


def test_a_signal_to_process_and_group_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked, ended = [100.0], list[int](), list[int]()
    monkeypatch.setattr(signals, "end_at_once", ended.append)
    requests = Requests(asked.append, lambda: now[0])
    requests(signal.SIGTERM)
    now[0] += 0.2
    requests(signal.SIGTERM)
    assert (asked, ended) == ([signal.SIGTERM], [])
    now[0] += 2
    requests(signal.SIGTERM)
    assert (asked, ended) == ([signal.SIGTERM], [signal.SIGTERM])


def javas(parent: int) -> list[int]:
    """The processes of Java that a process has started."""
    return [pid for pid in _pids() if _parent(pid) == parent and "org.apache.spark.deploy.SparkSubmit" in command_line(pid)]


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").glob("[0-9]*"))


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it has ended


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def java_of(child: Child) -> int:
    [pid] = wait_until(lambda: javas(child.pid), SECONDS, "Java to start", child)
    return pid


def is_gone(pid: int) -> bool:
    return "java" not in command_line(pid)  # a process that nobody waits for has no command line any more


def send(child: Child, number: signal.Signals, to: str) -> None:
    """As a user or a supervisor does; and to the group as `timeout` does, which sends to the process as well."""
    os.kill(child.pid, number)
    if to == "group":
        os.killpg(child.pid, number)


def project(folder: Path, name: str, sources: dict[str, Any], **settings: Any) -> Path:
    """A file with a pipeline for each source, into a table of its name."""
    catalog = {"type": "sql", "sql": {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/warehouse"}}
    config = {"catalog": catalog, "namespace": "shop", "flush_interval_secs": 1}
    off = {"enabled": False}
    document = {
        "version": "1.0",
        "sources": sources,
        "sinks": {each: {"connector": "iceberg", "config": {**config, "table": each}} for each in sources},
        "pipelines": {each: {"source": each, "sink": each} for each in sources},
        "settings": {"health": off, "metrics": off, "log_level": "debug", "spark": {"master": "local[2]"}, **settings},
    }
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(document))
    return file


def rows(folder: Path, table: str) -> int:
    return len(sqlite_catalog(folder).load_table(f"shop.{table}").scan().to_arrow())


def files_source(folder: Path) -> dict[str, Any]:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "one.json").write_text('{"id": 1}')
    return {"connector": "files", "config": {"path": str(folder / "in"), "format": "json"}}


def slow_source(number: int) -> dict[str, Any]:
    """A batch that takes seconds: time enough for a signal."""
    text = f"select {number} as id, java_method('java.lang.Thread', 'sleep', cast(4000 as bigint)) as slept from range(1)"
    return {"connector": "query", "config": {"query": text}}


@pytest.mark.slow(seconds=35)
def test_a_run_ends_well_when_it_is_stopped_and_leaves_no_java(tmp_path: Path) -> None:
    idle = project(tmp_path, "idle", {"idle": files_source(tmp_path)})
    busy = [project(tmp_path, f"busy{n}", {f"busy{n}": slow_source(n)}) for n in range(len(SIGNALS) + 1)]
    restart = {"initial_backoff_secs": 0.1}
    sources = {"numbers": {"connector": "generator", "config": {"rows_per_second": 100}}, "idle": files_source(tmp_path)}
    both = project(tmp_path, "both", sources, restart=restart)
    cases = [f"run -c {idle}" for _ in SIGNALS] + [f"run -c {file}" for file in busy[:-1]]
    cases += [f"run --once -c {busy[-1]}", f"run -c {both}"]
    child = start("frazil", [sys.executable, "-c", ONE_AFTER_THE_OTHER, *cases], tmp_path / "log")
    try:
        follow(child, tmp_path)
    finally:
        child.stop(signal.SIGKILL)


def follow(child: Child, folder: Path) -> None:
    def since(number: int) -> str:
        return child.log_text().partition(f"case {number} begins")[2]

    def until(number: int, words: str, count: int = 1) -> None:
        wait_until(lambda: since(number).count(words) >= count, SECONDS, f"{words!r} in case {number}", child)

    def ended(number: int, code: int) -> None:
        until(number, f"case {number} ended with {code}")
        assert "Traceback" not in child.log_text()

    # Stopped while it waits for rows, and while it writes.
    for number, (which, to) in enumerate(SIGNALS * 2):
        is_idle = number < len(SIGNALS)
        until(number, "pipeline_started" if is_idle else "pipeline_waiting")
        send(child, which, to)
        until(number, "stopping after the batch")
        ended(number, 0)
        if not is_idle:
            assert rows(folder, f"busy{number - len(SIGNALS)}") == 1, "what was being written is committed"
    java = java_of(child)

    # Java dies: a run that ends by itself says so, and one that goes on goes on, with its idle pipelines.
    number = len(SIGNALS) * 2
    until(number, "pipeline_waiting")
    os.kill(java, signal.SIGKILL)
    ended(number, 75)
    log = since(number)
    assert all(words in log for words in ("spark-died", "Java was ended by SIGKILL", "memory", "spark.driver.memory"))
    assert "catalog" not in log.partition("error [spark-died]")[2].partition("case ")[0].lower()
    number += 1
    until(number, "batch_committed", 2)
    os.kill(java_of(child), signal.SIGKILL)
    until(number, "pipeline_restarting", 2)
    until(number, "pipeline_started", 4)
    before = since(number).count("batch_committed")
    until(number, "batch_committed", before + 1)

    # Nothing that ends frazil leaves Java.
    java = java_of(child)
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(java), SECONDS, "Java to end")


@pytest.mark.slow(seconds=30)
def test_a_java_that_died_is_replaced_in_the_same_program(tmp_path: Path) -> None:
    child = start("program", [sys.executable, "-c", PYTHON, str(tmp_path)], tmp_path / "log")
    assert child.process.wait(SECONDS) == 0, child.log_text()
    assert "refused: spark-died 75 Spark's Java was ended by SIGKILL" in child.log_text()
    assert "rows: 6" in child.log_text()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_a_run_at_once_and_leaves_no_java(tmp_path: Path, number: signal.Signals, code: int) -> None:
    text = "select java_method('java.lang.Thread', 'sleep', cast(600000 as bigint)) as slept from range(1)"
    file = project(tmp_path, "slow", {"slow": {"connector": "query", "config": {"query": text}}})
    child = start("run", [str(FRAZIL), "run", "-c", str(file)], tmp_path / "log")
    child.await_line("pipeline_waiting", SECONDS)
    java = java_of(child)
    send(child, number, "group")
    child.await_line("Ctrl-C again to end at once", SECONDS)
    wait_until(lambda: _again(child, number), SECONDS, "frazil to end")
    assert child.process.returncode == code
    assert is_gone(java)


def _again(child: Child, number: signal.Signals) -> bool:
    """Asks once more, until it is not taken for the first request, and frazil has ended."""
    if child.running:
        os.kill(child.pid, number)
    return not child.running


@pytest.mark.slow
def test_other_commands_end_at_the_first_signal_and_leave_no_java(tmp_path: Path) -> None:
    statement = "SELECT java_method('java.lang.Thread', 'sleep', cast(600000 as bigint))"
    command = [str(FRAZIL), "sql", "--definitions", str(tmp_path / "d.db"), "-c", statement]
    child = start("sql", command, tmp_path / "log")
    java = java_of(child)
    send(child, signal.SIGINT, "group")
    assert child.process.wait(SECONDS) == 130, child.log_text()
    assert is_gone(java)
    assert child.log_text().splitlines()[-1] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "to"), SIGNALS)
def test_a_run_that_is_stopped_while_spark_starts_ends_well(tmp_path: Path, number: signal.Signals, to: str) -> None:
    file = project(tmp_path, "idle", {"idle": files_source(tmp_path)})
    child = start("run", [str(FRAZIL), "run", "-c", str(file)], tmp_path / "log")
    child.await_line("starting Spark", SECONDS)
    java = wait_until(lambda: next(iter(javas(child.pid)), None), SECONDS, "Java to start", child)
    send(child, number, to)
    assert child.process.wait(SECONDS) == 0, child.log_text()
    wait_until(lambda: is_gone(java), SECONDS, "Java to end")
    assert not (tmp_path / "warehouse").exists(), "no pipeline was begun"
