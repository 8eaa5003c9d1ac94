"""`frazil maintain`, and the health of a table that `frazil inspect` shows."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.commands import Frazil, sql_pipeline
from cli.tables import add_rows, make_table, sqlite_catalog
from frazil.cli import maintain
from frazil.cli.call import Call
from frazil.cli.output import Output
from helpers.lakes import Lake
from services.processes import wait_until

UNTENDED = "maintenance: {enabled: false, max_snapshots: 4, reader_grace_minutes: 0}"


def looked_at(frazil: Frazil) -> dict[str, Any]:
    (found,) = frazil("inspect", "load", "--json").json["tables"]
    return dict(found)


def test_a_table_is_maintained_beside_its_pipeline(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "batch_size: 10", "max_batch_size: 10", UNTENDED, rows=120)
    assert frazil("run", "--once").code == 0
    before = looked_at(frazil)
    health = before["health"]
    assert (health["data_files"], health["small_files"], health["would_merge_files"]) == (12, 12, 12)
    assert health["would_expire_snapshots"] >= 8
    assert health["read_amplification"] == 12
    assert (health["would_merge_into"], health["read_amplification_after"]) == (1, 1)
    known = {path.name: path.stat().st_size for path in (tmp_path / "warehouse/shop/events/metadata").glob("[!.]*")}
    assert len(known) - 3 <= health["metadata_files"] <= len(known), "nobody deletes what merges of manifests leave"
    assert sum(known.values()) * 0.8 <= health["metadata_bytes"] <= sum(known.values())
    assert not health["metadata_bytes_are_least"]

    (planned,) = frazil("maintain", "load", "--dry-run", "--json").json["tables"]
    assert (planned["merge_files"], planned["expire_snapshots"]) == (12, health["would_expire_snapshots"])
    assert (planned["merge_files_after"], planned["read_amplification"], planned["read_amplification_after"]) == (1, 12, 1)
    assert planned["merge_bytes"] == health["would_rewrite_bytes"] == health["data_bytes"]
    assert "12 files into 1" in frazil("maintain", "load", "--dry-run").out
    assert looked_at(frazil)["metadata_location"] == before["metadata_location"], "a dry run changes nothing"

    done = frazil("maintain", "load")
    assert (done.code, "12 files" in done.out, "small files were merged" in done.err) == (0, True, True)
    assert all(words in done.err for words in ("shop.events: plan took", "shop.events: compact ...", "shop.events: compact took"))
    after = looked_at(frazil)
    assert after["rows"] == 120
    assert (after["health"]["data_files"], after["health"]["would_merge_files"]) == (1, 0)
    assert after["snapshot_count"] <= 6
    lists = list((tmp_path / "warehouse/shop/events/metadata").glob("snap-*.avro"))
    assert len(lists) == after["snapshot_count"], "files of expired snapshots are deleted"
    assert "do nothing" in frazil("inspect", "load").out

    sql_pipeline(tmp_path, "batch_size: 10", "max_batch_size: 10", UNTENDED, rows=150)
    again = frazil("run", "--once", "--json").json["pipelines"][0]
    assert (again["rows"], looked_at(frazil)["rows"]) == (30, 150), "the pipeline was not fenced, and goes on where it was"


def test_old_files_that_nobody_knows_are_deleted_and_no_others(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, UNTENDED, rows=10)
    assert frazil("run", "--once").code == 0
    data = tmp_path / "warehouse/shop/events/data"
    old, young = data / "old.parquet", data / "young.parquet"
    for path in (old, young):
        path.write_bytes(b"left behind")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    (shown,) = frazil("maintain", "shop.events", "--only", "orphans", "--dry-run", "--json").json["tables"]
    assert [Path(path).name for path in shown["orphans"]] == ["old.parquet"]
    assert old.exists()
    done = frazil("maintain", "shop.events", "--only", "orphans")
    assert (done.code, "1 files were deleted" in done.err, "orphans took" in done.err) == (0, True, True)
    assert (old.exists(), young.exists(), looked_at(frazil)["rows"]) == (False, True, 10)


def test_what_is_refused(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=10)
    wrong = frazil("maintain", "load", "--only", "compct")
    assert (wrong.code, "compact" in wrong.err) == (2, True)
    missing = frazil("maintain", "load")
    assert (missing.code, "There is no table shop.events" in missing.err) == (1, True)
    assert frazil("maintain", "lod").code == 2


def test_files_that_may_belong_to_other_tables_stay(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "write_properties: {gc.enabled: 'false'}", rows=10)
    assert frazil("run", "--once").code == 0
    refused = frazil("maintain", "load")
    assert (refused.code, "gc.enabled=false" in refused.err) == (78, True)


def written(folder: Path, name: tuple[str, str], files: int) -> None:
    """A table of so many files, each with ten rows."""
    table = make_table(sqlite_catalog(folder), name)
    for number in range(files):
        add_rows(table, 10, number * 10)


def sinks_file(folder: Path, **sinks: dict[str, Any]) -> None:
    """A pipeline file with these sinks alone, each of which is given a catalog or a folder with one."""

    def of_folder(place: Path) -> dict[str, Any]:
        return {"type": "sql", "sql": {"uri": f"sqlite:///{place}/catalog.db", "warehouse": str(place / "warehouse")}}

    def config(given: dict[str, Any]) -> dict[str, Any]:
        catalog = given["catalog"]
        return given | {"catalog": of_folder(catalog) if isinstance(catalog, Path) else catalog}

    made = {name: {"connector": "iceberg", "config": config(given)} for name, given in sinks.items()}
    (folder / "frazil.yaml").write_text(json.dumps({"version": "1.0", "sinks": made}))


def test_a_table_is_found_in_whatever_catalog_it_is(frazil: Frazil, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    sinks = {name: {"catalog": tmp_path / name, "namespace": "shop", "table": f"t{name}"} for name in ("one", "two")}
    sinks_file(tmp_path, **sinks)
    written(two, ("shop", "others"), 3)
    (planned,) = frazil("maintain", "shop.others", "--dry-run", "--json").json["tables"]
    assert (planned["table"], planned["merge_files"]) == ("shop.others", 3)
    assert not (one / "catalog.db").exists(), "a catalog that is not there is not made"
    assert frazil("maintain", "shop.others", "--only", "compact").code == 0
    assert frazil("inspect", "shop.others", "--json").json["tables"][0]["health"]["data_files"] == 1
    written(one, ("shop", "others"), 1)
    for command in (("maintain",), ("inspect",), ("forget", "--where", "id = 1", "--dry-run")):
        refused = frazil(command[0], "shop.others", *command[1:])
        assert (refused.code, "table-ambiguous" in refused.err) == (78, True), refused.text


def test_a_table_that_fails_does_not_keep_the_others_from_being_maintained(frazil: Frazil, tmp_path: Path) -> None:
    away = {"type": "rest", "rest": {"uri": "http://127.0.0.1:9"}}
    sinks = {
        "away": {"catalog": away, "namespace": "far", "table": "t"},
        "gone": {"catalog": tmp_path, "namespace": "shop", "table": "gone"},
        "here": {"catalog": tmp_path, "namespace": "shop", "table": "events"},
    }
    sinks_file(tmp_path, **sinks)
    written(tmp_path, ("shop", "events"), 3)
    alone = frazil("maintain", "far.t", "--json")
    assert (alone.code, alone.json["error"]["code"]) == (75, "connection-refused"), alone.text
    done = frazil("maintain", "--json")
    assert done.code == 1, "one of them is not a matter of waiting"
    codes = {one["table"]: one["error"] and one["error"]["code"] for one in done.json["tables"]}
    assert codes == {"far.t": "connection-refused", "shop.gone": "table-missing", "shop.events": None}
    assert [one["code"] for one in done.json["errors"]] == ["connection-refused", "table-missing"]
    (maintained,) = (one for one in done.json["tables"] if one["error"] is None)
    assert maintained["merge_files"] == 3
    again = frazil("maintain")
    assert (again.code, "shop.events: nothing to do" in again.out) == (1, True)
    assert all(words in again.err for words in ("far.t: failed", "connection-refused", "shop.gone: failed", "table-missing"))


def test_all_tables_of_a_route_and_their_dead_letters_are_maintained(frazil: Frazil, tmp_path: Path) -> None:
    route = "route: {field: country, tables: {US: us, DE: {table: germany}}, unknown: dead_letter}"
    file = sql_pipeline(tmp_path, "batch_size: 20", "max_batch_size: 20", UNTENDED, route, "on_error: dead_letter", rows=60)
    file.write_text(file.read_text().replace("      table: events\n", ""))
    missing = frazil("maintain", "load")
    assert (missing.code, "There is no table shop.frazil__ledger" in missing.err) == (1, True)
    assert frazil("run", "--once").code == 0
    done = frazil("maintain", "load", "--json")
    assert done.code == 0, done.text
    names = ["frazil__ledger", "us", "germany", "frazil__dead_letters"]
    assert sorted(one["table"] for one in done.json["tables"]) == sorted(f"shop.{name}" for name in names)
    for name in names[1:]:
        (one,) = frazil("inspect", f"shop.{name}", "--json").json["tables"]
        assert (one["name"], one["health"]["data_files"], one["files"]) == (f"shop.{name}", 1, 1)
    refused = frazil("forget", "load", "--where", "true", "--dry-run")
    assert (refused.code, "several-tables" in refused.err) == (2, True)


def test_the_table_of_deleted_keys_is_maintained_with_its_own(lake: Lake, frazil: Frazil) -> None:
    given = {"id": "me", "commit_mode": "upsert", "key_fields": ["k"], "order_by": ["at"], "late": "ignore", "op_field": "op"}
    for at in range(3):
        lake.sink(f"select * from values ('a', {at}, 'u'), ('b{at}', {at}, 'd') t(k, at, op)", **given).write()
    sinks_file(lake.folder, lake={"catalog": lake.catalog, "namespace": "db", "table": "t", **given})
    done = frazil("maintain", "-c", lake.folder / "frazil.yaml", "--json")
    assert done.code == 0, done.text
    assert [one["table"] for one in done.json["tables"]] == ["db.t", "db.t__tombstones"]
    assert len(lake.files("db.t__tombstones")) == 1


def test_a_step_is_a_line_that_moves_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(maintain, "console_for_messages", lambda: Console(file=screen, force_terminal=True))
    with maintain.shown(Call(None, Output(json=True)), "shop.events", "compact"):
        wait_until(lambda: screen.getvalue().count("shop.events: compact, 0 s") > 1, 10, "a line that is drawn again")
        assert "took" not in capfd.readouterr().err
    printed = capfd.readouterr()
    assert (printed.out, "shop.events: compact took" in printed.err) == ("", True)
