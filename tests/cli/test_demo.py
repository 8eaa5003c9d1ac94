"""`frazil demo`: a table in seconds, a second time too, and every command that it prints works as printed."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from cli.commands import Frazil
from cli.tables import add_rows, make_table, sqlite_catalog
from frazil.cli.demo import reader, write_file
from frazil.doors.yaml import load
from frazil.observe.catalogs import sqlite_path
from services.processes import start

START_SECONDS = 180


def event_numbers(folder: Path) -> list[int]:
    """What another reader finds in the table."""
    scan = sqlite_catalog(folder / "lake").load_table("demo.events").scan(selected_fields=("event_number",))
    return sorted(scan.to_arrow()["event_number"].to_pylist())


@pytest.mark.usefixtures("spark")
def test_a_demo_shows_rows_snapshots_and_commands_that_work(frazil: Frazil, tmp_path: Path) -> None:
    result = frazil("demo", "--seconds", "3")
    assert result.code == 0, result.err
    assert all(word in result.out for word in ("event_number", "rows added", "page_view", "Next:"))
    assert "batch 1 committed" in result.err
    first = event_numbers(tmp_path)
    assert first == list(range(len(first)))
    assert first
    printed = [line.strip() for line in result.out[result.out.index("Next:") :].splitlines()[1:]]
    status, inspect, reader, run = [line for line in printed if not line.startswith("#")]
    assert "demo.events" in shell(status, tmp_path)
    assert "the newest" in shell(inspect, tmp_path)
    assert "page_view" in shell(reader, tmp_path)

    again = frazil("demo", "--seconds", "1", "--json")
    assert again.code == 0, again.err
    second = event_numbers(tmp_path)
    assert second == list(range(len(second)))
    assert len(second) == len(first) + again.json["pipelines"][0]["rows"] > len(first)
    assert again.json["next"]["go on writing; Ctrl-C stops it"] == run


@pytest.mark.slow(seconds=40)
@pytest.mark.usefixtures("spark")
def test_the_command_that_goes_on_writing_does_until_it_is_stopped(frazil: Frazil, tmp_path: Path) -> None:
    demo = frazil("demo", "--seconds", "1", "--json")
    assert demo.code == 0, demo.err
    first = event_numbers(tmp_path)
    run = demo.json["next"]["go on writing; Ctrl-C stops it"]
    process = start("run", shlex.split(run), tmp_path / "run.log")
    try:
        process.await_line("batch_committed", START_SECONDS)
    finally:
        code = process.stop(signal.SIGTERM, timeout=60)
    assert code == 0
    assert "stopping after the batch" in process.log_text()
    # An installed Java warns of the module that Spark's launcher asks for.
    assert "incubator" not in process.log_text()
    second = event_numbers(tmp_path)
    assert second == list(range(len(second)))
    assert len(second) > len(first)


def shell(command: str, cwd: Path) -> str:
    """What a user sees who types it."""
    done = subprocess.run(command, shell=True, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("spark")
def test_a_changed_demo_file_is_kept(frazil: Frazil, tmp_path: Path) -> None:
    lake = tmp_path / "elsewhere" / "lake"
    file = write_file(lake)
    file.write_text(file.read_text().replace("rows_per_second: 2000", "rows_per_second: 500"))
    assert frazil("validate", file).code == 0
    assert frazil("demo", "--seconds", "1", "--dir", lake).code == 0
    assert "rows_per_second: 500" in file.read_text()


def test_a_folder_of_any_name_will_do(frazil: Frazil, tmp_path: Path) -> None:
    folder = tmp_path / "100%25 $HOME: 'lake'"
    file = write_file(folder)
    [pipeline] = load(file).pipelines
    assert pipeline.sink.catalog.location == str(folder / "warehouse")
    assert sqlite_path(pipeline.sink.catalog) == folder / "catalog.db"
    result = frazil("check", "-c", file)
    assert result.code == 0, result.text
    add_rows(make_table(sqlite_catalog(folder), ("demo", "events")), 3)
    assert frazil("status", "-c", file, "--json").json["pipelines"][0]["rows"] == 3
    assert frazil("check", "-c", file).code == 0
    assert shell(reader(pipeline).replace("event_type", "name"), tmp_path).count("n1") == 1


def test_a_demo_that_cannot_write_says_so(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    result = frazil("demo")
    assert (result.code, "cannot-write" in result.err) == (1, True)
