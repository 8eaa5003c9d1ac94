"""`frazil publish`, and what `status`, `inspect` and `maintain` say of a branch."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.commands import FRAZIL, Frazil, sql_pipeline
from cli.tables import sqlite_catalog

CHECKED = (
    "branch: audit",
    "batch_size: 10",
    "max_batch_size: 10",
    "publish: {checks: [{name: few, sql: 'select event_number from {table} where event_number >= LIMIT order by 1'}]}",
)


def options(limit: int) -> list[str]:
    """A sink on a branch, with a check that lets no id pass that is so large."""
    return [line.replace("LIMIT", str(limit)) for line in CHECKED]


def main_rows(folder: Path) -> int:
    """How many rows main has, by PyIceberg."""
    catalog = sqlite_catalog(folder)
    try:
        return int(catalog.load_table("shop.events").scan().to_arrow().num_rows)
    finally:
        catalog.engine.dispose()


def the_only(document: Any, key: str = "pipelines") -> dict[str, Any]:
    (found,) = document[key]
    return dict(found)


def test_a_branch_is_checked_and_published(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, *options(25), rows=30)
    missing = frazil("publish")
    assert (missing.code, "There is no table shop.events" in missing.err) == (1, True)
    assert frazil("run", "--once").code == 0
    status = the_only(frazil("status", "--json").json)
    assert (status["branch"], status["rows"], status["batch"], status["hints"]) == ("audit", 30, 3, [])
    assert "branch audit: 4 snapshots not published" in frazil("status").out
    assert "branch" in frazil("inspect", "load").out
    looked = the_only(frazil("inspect", "load", "--json").json, "tables")
    assert (looked["rows"], looked["branch"], looked["unpublished"]) == (30, "audit", 4)
    assert main_rows(tmp_path) == 0

    failed = frazil("publish", "load")
    assert failed.code == 1
    for words in ("'few' failed", "5 rows", "29", "not published", "1 of 2 passed"):
        assert words in failed.out, failed.out
    document = the_only(frazil("publish", "--json").json)
    assert (document["published"], [one["passed"] for one in document["checks"]]) == (False, [True, False])
    assert document["checks"][1]["sample"][0] == {"event_number": 25}
    assert main_rows(tmp_path) == 0

    sql_pipeline(tmp_path, *options(99), rows=30)
    planned = frazil("publish", "load", "--dry-run")
    assert (planned.code, "would be published" in planned.out, main_rows(tmp_path)) == (0, True, 0)
    done = frazil("publish", "load")
    assert (done.code, "30 rows in 4 snapshots" in done.out, "published: main is at" in done.out) == (0, True, True)
    assert main_rows(tmp_path) == 30
    again = frazil("publish")
    assert (again.code, "nothing to publish" in again.out) == (0, True)
    assert "branch audit: all of it published" in frazil("status").out
    assert frazil("verify").code == 0

    sql_pipeline(tmp_path, *options(99), rows=50)
    assert the_only(frazil("run", "--once", "--json").json)["rows"] == 20, "it goes on where the branch ends"
    assert frazil("maintain", "load").code == 0
    assert (main_rows(tmp_path), frazil("publish").code, main_rows(tmp_path)) == (30, 0, 50)


@pytest.mark.slow(seconds=30)
def test_a_branch_is_published_while_the_pipeline_runs(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "branch: audit", "flush_interval_secs: 1", "batch_size: 100", rows=10_000_000)
    running = subprocess.Popen([FRAZIL, "run"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        published: list[int] = []
        while len(published) < 2:
            assert running.poll() is None
            tried = frazil("publish", "--json")
            found = tried.json.get("pipelines") if tried.code == 0 else None
            if found and found[0]["published"] and found[0]["rows"]:
                published.append(found[0]["rows"])
                assert main_rows(tmp_path) == sum(published)
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)
    assert frazil("publish").code == 0
    status = the_only(frazil("status", "--json").json)
    assert (status["unpublished_snapshots"], status["rows"]) == (0, main_rows(tmp_path))


def test_what_is_refused(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=10)
    nobody = frazil("publish")
    assert (nobody.code, "writes to a branch" in nobody.err) == (2, True)
    named = frazil("publish", "load")
    assert (named.code, "writes to main" in named.err) == (78, True)
    sql_pipeline(tmp_path, "publish: {checks: []}", rows=10)
    useless = frazil("validate")
    assert (useless.code, "publish has no meaning without branch" in useless.err + useless.out) == (78, True)
