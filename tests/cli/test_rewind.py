"""`frazil rewind`: another place of the source, written into the ledger and nowhere else."""

from __future__ import annotations

from pathlib import Path

from cli.commands import Frazil, sql_pipeline


def test_a_pipeline_goes_back_to_a_snapshot(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "batch_size: 500", "max_batch_size: 500")
    assert frazil("run", "--once").code == 0
    (table,) = frazil("inspect", "shop.events", "--json").json["tables"]
    first = next(s for s in table["snapshots"] if s["frazil"].get("frazil.batch") == "1")
    shown = frazil("rewind", "load", "--to-snapshot", str(first["id"]))
    assert (shown.code, "would read on from" in shown.out, "--yes" in shown.err) == (0, True, True)
    moved = frazil("rewind", "load", "--to-snapshot", str(first["id"]), "--yes", "--json").json
    assert '"row":1000' in moved["before"]
    assert '"row":500' in moved["after"]
    again = frazil("run", "--once", "--json").json
    assert again["pipelines"][0]["rows"] == 500


def test_the_beginning_is_a_place_too(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=100)
    assert frazil("run", "--once").code == 0
    assert frazil("rewind", "load", "--to-snapshot", "0", "--yes").code == 0
    assert frazil("run", "--once", "--json").json["pipelines"][0]["rows"] == 100


def test_what_is_refused(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=10)
    result = frazil("rewind", "load")
    assert (result.code, "none is given" in result.err) == (2, True)
    result = frazil("rewind", "load", "--to-latest", "--to-time", "2026-01-01")
    assert (result.code, "--to-time and --to-latest are given" in result.err) == (2, True)
    result = frazil("rewind", "load", "--to-time", "soon")
    assert (result.code, "Cannot read the time 'soon'" in result.err) == (2, True)
    result = frazil("rewind", "load", "--to-latest")
    assert (result.code, "has not written anything yet" in result.err) == (78, True)
    assert frazil("run", "--once").code == 0
    result = frazil("rewind", "load", "--to-latest")
    assert (result.code, "only Kafka has" in result.err) == (78, True)
    result = frazil("rewind", "load", "--to-snapshot", "17")
    assert (result.code, "does not say where the sink" in result.err) == (78, True)
    result = frazil("rewind", "load", "--to-offset", "{")
    assert (result.code, "Offsets cannot be read" in result.err) == (78, True)
