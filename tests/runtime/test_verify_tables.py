"""`verify` of tables that were emptied, and of those that follow a routed one."""

from __future__ import annotations

from pathlib import Path

from frazil.model.settings import Settings
from frazil.runtime.rewind import reset
from frazil.runtime.verify import verify
from helpers.lakes import Lake, run


def test_batches_that_a_reset_took_out_are_not_missed(lake: Lake) -> None:
    pipeline = lake.pipeline({"connector": "generator", "rows": 10})
    run(pipeline, once=True)
    reset(pipeline, Settings(), really=True)
    run(pipeline, once=True)
    assert lake.count() == 10
    assert verify(pipeline, Settings()).findings == ()


def test_letters_in_a_namespace_of_their_own_are_found(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "kind": "a"}\n{"id": "x", "kind": "a"}\n')
    source = {"connector": "files", "path": str(tmp_path / "in"), "format": "json"}
    tables = {"a": {"schema": {"id": "int", "kind": "string"}}}
    options = {"on_error": "dead_letter", "dead_letter_table": "apart.letters"}
    pipeline = lake.pipeline(source, route={"field": "kind", "tables": tables}, **options)
    run(pipeline, once=True)
    assert (lake.count("db.a"), lake.count("apart.letters")) == (1, 1)
    assert verify(pipeline, Settings()).findings == ()
    lake.spark.sql(f"drop table {lake.name}.apart.letters")
    assert [found.problem for found in verify(pipeline, Settings()).findings] == ["the table is not there any more"]
