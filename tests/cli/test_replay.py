"""`frazil replay`, as it is typed."""

from __future__ import annotations

from pathlib import Path

from cli.commands import Frazil

FILE = """\
version: "1.0"
sources:
  files:
    connector: files
    config: {{path: "{folder}/in", format: json, schema: {{id: long, n: string}}}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog:
        type: sql
        sql: {{uri: "sqlite:///{folder}/catalog.db", warehouse: "{folder}/warehouse"}}
      namespace: shop
      table: events
      schema: {{id: long, n: {type}}}
      on_error: dead_letter
pipelines:
  load: {{source: files, sink: lake}}
"""


def test_letters_are_counted_first_and_replayed_when_asked_for(frazil: Frazil, tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(FILE.format(folder=tmp_path, type="int"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "n": "1"}\n{"id": 2, "n": "5000000000"}\n{"id": 3, "n": "x"}\n')
    assert frazil("replay", "load").code == 0
    assert frazil("run", "--once").code == 0
    shown = frazil("replay", "load")
    assert shown.code == 0
    assert "value-not-convertible" in shown.out
    assert "Nothing was changed" in shown.err
    file.write_text(FILE.format(folder=tmp_path, type="long"))
    file.write_text(file.read_text().replace("on_error: dead_letter", "on_error: dead_letter\n      schema_evolution: full"))
    done = frazil("replay", "load", "--yes", "--json").json
    assert done["done"]
    assert (done["letters"], done["counts"]["written"], done["counts"]["dead_lettered"]) == (2, 1, 1)
    assert frazil("replay", "nobody").code == 2
    result = frazil("replay", "load", "--where", "nothing = 1", "--yes")
    assert (result.code, "--where is not a condition" in result.err) == (78, True)
