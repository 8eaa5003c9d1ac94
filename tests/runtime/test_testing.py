"""`frazil.testing` as users have it: pipelines run into a temporary lake, from a script; and the guide to it, block by block."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.doors.sql import Definitions, Session
from frazil.errors import ConfigError, DataError, Halted
from frazil.model.events import Event, Stopped
from frazil.testing import ABORT, BATCH, EOF, Aborted, ScriptedSource, TemporaryLake

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
(PIPELINE,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def lake() -> Any:
    """As the guide has it."""
    with TemporaryLake() as lake:
        yield lake


def sink(**options: Any) -> dict[str, Any]:
    return {"catalog": {"type": "memory"}, "namespace": "db", "table": "t", **options}


def pipeline(**options: Any) -> frazil.Pipeline:
    return frazil.Pipeline(source={"connector": "generator", "rows": 5}, sink=sink(**options))


def ids(lake: TemporaryLake, table: str = "db.t") -> list[int]:
    return [row["id"] for row in lake.rows(table)]


def batches(lake: TemporaryLake) -> list[str]:
    """How many rows each batch brought."""
    return [one["frazil.rows-out"] for one in lake.snapshots("db.t") if one["frazil.kind"] == "data"]


# The guide


def cases_of(block: str) -> list[tuple[Any, Any]]:
    """The tests of a block, each with its cases."""
    names: dict[str, Any] = {}
    exec(block, names)
    found = [value for name, value in names.items() if name.startswith("test_")]
    cases = [[mark.args for mark in getattr(one, "pytestmark", ())] for one in found]
    return [(one, case) for one, marks in zip(found, cases, strict=True) for case in (marks[0][1] if marks else [None])]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_guide(lake: TemporaryLake, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    found = cases_of(BLOCKS[number])
    assert found or "assert" in BLOCKS[number] or "@pytest.fixture" in BLOCKS[number]
    for test, case in found:
        if case is None:
            test(lake)
        else:
            with TemporaryLake() as another:
                test(another, case)


# Crashes


@pytest.mark.every_case
@pytest.mark.parametrize(("moment", "there"), [("between", [1, 2]), ("staged", []), ("committed", [1, 2])])
def test_what_a_crash_leaves_behind_and_what_the_next_run_makes_of_it(lake: TemporaryLake, moment: Any, there: list[int]) -> None:
    source = ScriptedSource([{"id": 1}, {"id": 2}, ABORT(moment), {"id": 3}])
    events: list[Event] = []
    with pytest.raises(Aborted):
        lake.run(pipeline(), source, listeners=[events.append])
    assert ids(lake) == there
    assert isinstance(events[-1], Stopped)
    assert "ABORT" in str(events[-1].error)
    files = len(list(lake.folder.rglob("*.parquet")))
    assert files == 1, "also those of a batch that was not committed"
    done = lake.run(pipeline(), source)
    assert ids(lake) == [1, 2, 3]
    assert [one.counts.written for one in done] == ([2, 1] if moment == "staged" else [1])
    assert batches(lake) == ["2", "1"]


def test_a_crash_between_the_tables_of_a_route(lake: TemporaryLake) -> None:
    routed = frazil.Pipeline(
        source={"connector": "generator"},
        sink={"catalog": {"type": "memory"}, "namespace": "db", "route": {"field": "kind"}},
        name="routed",
    )
    both = [{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}]
    source = ScriptedSource([*both, ABORT("staged"), BATCH(), {"id": 3, "kind": "a"}, ABORT("committed"), {"id": 4, "kind": "b"}])
    for _ in range(2):
        with pytest.raises(Aborted):
            lake.run(routed, source)
    lake.run(routed, source)
    assert (ids(lake, "db.a"), ids(lake, "db.b")) == ([1, 3], [2, 4])


def test_each_run_reads_up_to_an_eof(lake: TemporaryLake) -> None:
    source = ScriptedSource([{"id": 1}, EOF(), {"id": 2}, BATCH(), {"id": 3}, EOF(), {"id": 4, "new": "x"}])
    for expected in ([1], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]):
        lake.run(pipeline(schema_evolution="add_columns"), source, once=False)
        assert ids(lake) == expected
    assert batches(lake) == ["1", "1", "1", "1"]
    assert lake.arrow("db.t").column_names == ["id", "new"]


def test_another_source_for_the_same_sink_is_refused(lake: TemporaryLake) -> None:
    lake.run(pipeline(), ScriptedSource([{"id": 1}]))
    with pytest.raises(Halted, match="another source"):
        lake.run(pipeline(), ScriptedSource([{"id": 1}, {"id": 2}]))
    assert ids(lake) == [1]


# The lake


def test_nothing_is_written_elsewhere(lake: TemporaryLake, tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    text = f"""
sources: {{s: {{connector: kafka, config: {{bootstrap_servers: "nobody:9092", topics: [t]}}}}}}
sinks:
  k:
    connector: iceberg
    dead_letter_topic: letters
    config:
      catalog: {{type: glue, glue: {{region: eu-west-1}}}}
      namespace: db
      location: {elsewhere}
      s3: {{endpoint: "http://nobody:9000"}}
      write_properties: {{write.data.path: "{elsewhere}/data", write.metadata.path: "{elsewhere}/metadata"}}
      route: {{field: kind, tables: {{a: {{table: a, location: "{elsewhere}/a"}}, b: b}}}}
pipelines: {{p: {{source: s, sink: k}}}}
settings: {{state_dir: "{tmp_path}/state", metrics: {{port: 1}}, spark: {{master: "spark://nobody:7077"}}}}
"""
    lake.run(text, ScriptedSource([{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}]))
    assert (ids(lake, "db.a"), ids(lake, "db.b")) == ([1], [2])
    assert list(tmp_path.iterdir()) == []


def test_lakes_of_one_name_are_apart_and_so_are_their_options() -> None:
    before = frazil.session()
    text = PIPELINE + 'settings: {spark: {conf: {spark.sql.session.timeZone: "Asia/Tokyo"}}}\n'
    with TemporaryLake() as one, TemporaryLake() as other:
        one.run(text, ScriptedSource([{"id": 1, "state": "new"}]))
        other.run(pipeline(), ScriptedSource([{"id": 2}]))
        assert ids(one, "sales.orders") == [1]
        assert ids(other) == [2]
        zones = [lake.spark.conf.get("spark.sql.session.timeZone") for lake in (one, other)]
        assert zones == ["Asia/Tokyo", "UTC"]
        folder = one.folder
    assert not folder.exists()
    assert frazil.session() is before
    assert before.conf.get("spark.sql.session.timeZone") == "UTC"


def test_several_pipelines_have_a_source_each(lake: TemporaryLake) -> None:
    text = """
sources: {s: {connector: generator}}
sinks:
  a: {connector: iceberg, config: {catalog: {type: memory}, namespace: db, table: a}}
  b: {connector: iceberg, config: {catalog: {type: memory}, namespace: db, table: b}}
pipelines: {one: {source: s, sink: a}, two: {source: s, sink: b}}
"""
    two = ScriptedSource([{"id": 2}, ABORT("committed"), {"id": 3}])
    with pytest.raises(Aborted):
        lake.run(text, {"one": ScriptedSource([{"id": 1}]), "two": two})
    lake.run(text, two, only=["two"])
    assert (ids(lake, "db.a"), ids(lake, "db.b")) == ([1], [2, 3])
    with pytest.raises(ConfigError, match="one source for 2 pipelines"):
        lake.run(text, two)
    with pytest.raises(ConfigError, match="no pipeline 'three' is run"):
        lake.run(text, {"three": two})
    with pytest.raises(ConfigError, match="two pipelines have the same source"):
        lake.run(text, {"one": two, "two": two})


def test_a_pipeline_reads_its_own_source_and_tells_its_own_listeners() -> None:
    heard: list[Event] = []
    own = frazil.Pipeline(source={"connector": "generator", "rows": 5}, sink=sink(batch_size=2), listeners=[heard.append])
    with TemporaryLake("my-lake") as lake:
        assert [one.counts.written for one in lake.run(own)] == [2, 2, 1]
        assert isinstance(heard[-1], Stopped)
        assert (lake.arrow("db.t").num_rows, lake.dead_letters("db.t")) == (5, [])
        with pytest.raises(ConfigError, match=r"no table db\.other"):
            lake.rows("db.other")


def test_the_catalog_in_a_file_and_in_sql(lake: TemporaryLake, tmp_path: Path) -> None:
    lake.run(pipeline(), ScriptedSource([{"id": 1}]))
    catalog = json.dumps(lake.catalog)
    text = f"{{catalog: {catalog}, namespace: db, table: t}}"
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"sources: {{s: {{connector: query, config: {{query: select 2L id}}}}}}\n"
        f"sinks: {{k: {{connector: iceberg, config: {text}}}}}\npipelines: {{p: {{source: s, sink: k}}}}\n"
    )
    frazil.run(file, once=True)
    assert ids(lake) == [1, 2]
    session = Session(Definitions(tmp_path / "frazil-sql.db"))
    *_, answer = session.run(f"{lake.connection} SELECT id FROM lake.db.t ORDER BY id;", "test.sql")
    assert answer.rows == ((1,), (2,))


def test_a_lake_has_a_name_that_spark_takes() -> None:
    with pytest.raises(ConfigError, match="name: ") as caught:
        TemporaryLake("a lake")
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_values_without_a_type_are_refused_as_those_of_any_source(lake: TemporaryLake) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        lake.run(pipeline(), ScriptedSource([{"id": 1, "nothing": None}]))
    assert "nothing" in str(caught.value)
