"""`frazil.Pipeline(...)`: all that a pipeline file can say, without a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

import frazil
from frazil.doors.python.pipeline import KINDS, SOURCES
from frazil.doors.yaml import load_text
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.model.source import GeneratorSource
from helpers.lakes import Lake
from services.processes import wait_until

ROOT = Path(__file__).parents[3]
GENERATOR = {"connector": "generator", "rows": 30}
MEMORY = {"catalog": {"type": "memory"}, "namespace": "db", "table": "t"}
KAFKA = {"connector": "kafka", "bootstrap_servers": "k:9092", "topics": ["t"]}
DATABASE = {"connector": "postgres-cdc", "host": "h", "database": "shop", "user": "u"}


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Every argument that takes options, with the model of them."""
    yield "sink", SinkSpec
    yield "settings", Settings
    yield from ((f"source {name}", model) for name, model in SOURCES.items())
    yield from ((f"transforms {name}", model) for name, model in KINDS.items())


def keys(model: type[BaseModel]) -> Iterator[str]:
    return (field.alias or name for name, field in model.model_fields.items() if name not in ("connector", "type"))


def made(section: str, options: dict[str, Any]) -> frazil.Pipeline:
    """A pipeline with these options in one of its arguments."""
    argument, _, kind = section.partition(" ")
    given: dict[str, Any] = {"source": GENERATOR, "sink": MEMORY}
    match argument:
        case "source":
            given["source"] = {"connector": kind, **options}
        case "sink":
            given["sink"] = MEMORY | options
        case "transforms":
            given["transforms"] = [{"type": kind, **options}]
        case _:
            given[argument] = options
    return frazil.Pipeline(**given)


@pytest.mark.parametrize(("section", "model"), list(sections()), ids=[name for name, _ in sections()])
def test_every_option_of_the_file_is_known_and_a_misspelled_one_is_reported_with_its_place(
    section: str, model: type[BaseModel]
) -> None:
    place = section.partition(" ")[0] + ("[0]" if section.startswith("transforms") else "")
    for key in keys(model):
        with pytest.raises(frazil.ConfigError) as caught:
            made(section, {f"{key}x": 1})
        assert f"{place}.{key}x: there is no option of this name.\nDid you mean '{key}'?" in str(caught.value)
        try:
            made(section, {key: object()})
        except frazil.ConfigError as error:
            assert f"{place}.{key}: there is no option" not in str(error)  # noqa: PT017 - the error may be about the value


def test_the_same_options_mean_the_same_as_in_a_file() -> None:
    sink = MEMORY | {
        "partition_by": ["day(event_time)", "bucket(4, user_id)"], "commit_mode": "upsert", "key_fields": ["user_id"],
        "order_by": ["event_time"], "schema": {"user_id": "long", "event_time": "timestamptz"}, "write_properties": {"a": 1},
    }  # fmt: skip
    transforms = [{"type": "rename_field", "from": "a", "to": "b"}, {"type": "filter", "config": {"field": "b", "equals": 1}}]
    settings = {"retry": {"max_retries": 2}, "spark": {"master": "local[1]"}}
    project = load_text(
        to_text(
            {
                "sources": {"s": {"connector": "generator", "config": {"rows": 30}}},
                "sinks": {"python": {"connector": "iceberg", "config": sink}},
                "pipelines": {"p": {"source": "s", "sink": "python", "transforms": transforms, "rate_limit": 7}},
                "settings": settings,
            }
        )
    )
    own = frazil.Pipeline(GENERATOR, sink, transforms=transforms, name="p", rate_limit=7, settings=settings)
    (written,) = project.pipelines
    assert own.spec == written.model_copy(update={"source_name": "source"})
    assert own.settings == project.settings


def to_text(value: Any) -> str:
    import json

    return json.dumps(to_jsonable_python(value))


def test_entries_of_a_file_and_values_of_the_model_are_taken_too() -> None:
    plain = frazil.Pipeline(GENERATOR, MEMORY)
    entries = frazil.Pipeline(
        {"connector": "generator", "config": {"rows": 30}}, {"connector": "iceberg", "config": MEMORY}, name="db.t"
    )
    values = frazil.Pipeline(GeneratorSource(rows=30), SinkSpec.model_validate(MEMORY))
    described = frazil.Pipeline(GENERATOR, frazil.sink().catalog(type="memory").to("lake.db.t"))
    assert plain.spec == entries.spec == values.spec == described.spec
    assert plain.spec.sink_id == "db.t/python"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": {"connector": "kafak"}}, "source.connector: there is no connector 'kafak'.\nDid you mean 'kafka'?"),
        ({"source": {"rows": 5}}, "source.connector: it is required"),
        ({"source": "events.json"}, "source: it must be a dictionary, not str"),
        ({"source": {"connector": "generator", "rows": -1}}, "source.rows: input should be greater"),
        ({"sink": {"catalog": {"type": "memory"}, "table": "t"}}, "sink.namespace: Namespace is required"),
        ({"sink": MEMORY | {"catalog": {"type": "rest"}}}, "sink.catalog.rest: REST catalog URI is required"),
        ({"sink": MEMORY | {"commit_mode": "upsert"}}, "sink.commit_mode: upsert sinks must specify a key"),
        (
            {"source": DATABASE, "sink": MEMORY | {"commit_mode": "delete_insert", "replace_by": "id"}},
            "sink.commit_mode: commit_mode: delete_insert adds all rows of a batch, and those of this source change",
        ),
        ({"source": DATABASE, "sink": MEMORY | {"diff_column": "d"}}, "sink.diff_column: diff_column would not add up"),
        ({"sink": MEMORY | {"catalog": {"type": "rest", "rest": {"urii": "x"}}}}, "sink.catalog.rest.urii: there is no option"),
        (
            {"transforms": [{"type": "renam_field"}]},
            "transforms[0].type: there is no transform 'renam_field'.\nDid you mean 'rename",
        ),
        ({"transforms": [{"type": "rename_field", "from": "a"}]}, "transforms[0].to: it is required"),
        ({"rate_limit": -1}, "rate_limit: input should be greater than or equal to 1"),
        ({"dead_letter_topic": "bad"}, "dead_letter_topic: it needs a Kafka cluster, and the source has none"),
        (
            {"settings": {"spark": {"maste": "x"}}},
            "settings.spark.maste: there is no option of this name.\nDid you mean 'master'?",
        ),
    ],
)
def test_a_mistake_is_reported_with_the_path_of_its_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(frazil.ConfigError) as caught:
        frazil.Pipeline(**({"source": GENERATOR, "sink": MEMORY} | given))
    assert message in str(caught.value)


def test_a_topic_for_dead_letters_asks_for_them() -> None:
    one = frazil.Pipeline(KAFKA, MEMORY, dead_letter_topic="bad").spec
    assert one.dead_letter_topic is not None
    assert (one.sink.on_error, one.dead_letter_topic.cluster.bootstrap_servers) == ("dead_letter", "k:9092")
    other = {"topic": "bad", "cluster": {"bootstrap_servers": "other:9092"}}
    two = frazil.Pipeline(GENERATOR, MEMORY, dead_letter_topic=other).spec
    assert two.dead_letter_topic is not None
    assert two.dead_letter_topic.cluster.bootstrap_servers == "other:9092"
    with pytest.raises(frazil.ConfigError, match="dead_letter_topic: it has no meaning with on_error: stop"):
        frazil.Pipeline(KAFKA, MEMORY | {"on_error": "stop"}, dead_letter_topic="bad")


def test_in_a_notebook_things_show_themselves_without_secrets() -> None:
    catalog = {"type": "rest", "rest": {"uri": "http://u:hush-hush@c:1", "token": "hush-hush"}}
    pipeline = frazil.Pipeline(
        GENERATOR, MEMORY | {"catalog": catalog, "table": "<b>"}, transforms=[{"type": "where", "condition": "1"}]
    )
    assert "hush-hush" not in repr(pipeline) + pipeline._repr_html_()
    assert "db.&lt;b&gt;" in pipeline._repr_html_()
    assert "where" in repr(pipeline)
    sink = frazil.sink().to("lake.db.t").keys("id")
    assert "Sink lake.db.t" in sink._repr_html_()
    assert repr(sink) == "Sink(lake.db.t, catalog='spark', key_fields=('id',))"


def secret_places(model: type[BaseModel], *way: str) -> Iterator[tuple[str, ...]]:
    """The way to every field that is secret, and to free-form properties and addresses, which may hold secrets."""
    for name, field in model.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from secret_places(kind, *way, name)
        if SecretStr in kinds:
            yield (*way, name)
        elif name in ("properties", "write_properties"):
            yield (*way, name, "header.X-Api-Key")
        elif name in ("uri", "endpoint"):
            yield (*way, name)


@pytest.mark.parametrize("place", list(secret_places(SinkSpec)), ids=".".join)
def test_a_sink_shows_no_secret(place: tuple[str, ...]) -> None:
    value: Any = "http://user:hush-hush@host" if place[-1] in ("uri", "endpoint") else "hush-hush"
    for step in reversed(place[1:]):
        value = {step: value}
    described = frazil.sink().to("lake.db.t")
    try:
        described.options(**{place[0]: value})
    except frazil.ConfigError as error:  # sections that are not whole are refused
        assert "hush-hush" not in str(error)  # noqa: PT017
    # As in the first cell of a notebook: nobody has remembered what is secret.
    sink = replace(described, options_given=(*described.options_given, (place[0], value)))
    assert "hush-hush" not in repr(sink) + str(sink) + sink._repr_html_()


def test_the_block_of_the_guide_plans_runs_and_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake.folder)
    block = next(
        one for one in re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL) if "Pipeline(" in one
    )
    names: dict[str, Any] = {"frazil": frazil}
    exec(block.replace("pipeline.plan()", "plan = pipeline.plan()").replace("pipeline.run(", "totals = pipeline.run("), names)
    assert (names["plan"].create_table, names["plan"].rows) == (True, 1000)
    assert "create shop.events" in names["plan"]._repr_html_()
    assert 0 < names["totals"].rows < 1000
    again = names["pipeline"].run(once=True, progress=True)
    assert again.rows == 0, "the table knows what was read"


def test_in_the_background_until_it_is_stopped(lake: Lake) -> None:
    sink = {"catalog": lake.catalog, "namespace": "db", "table": "t", "batch_size": 10, "flush_interval_secs": 1}
    events: list[Any] = []
    endless = {"connector": "generator", "rows_per_second": 100}
    running = frazil.Pipeline(endless, sink, listeners=[events.append]).start()
    wait_until(lambda: running.committed >= 1, 60, "a commit")
    assert "running" in running._repr_html_()
    running.stop()
    assert not running.running
    assert running.rows == lake.introduced().count() > 0
    assert any(isinstance(event, frazil.Committed) and "Committed to db.t" in event._repr_html_() for event in events)
    failing = frazil.Pipeline({"connector": "table", "table": "nowhere.no.such"}, sink, name="other").start()
    with pytest.raises(frazil.FrazilError):
        failing.wait(60)


def test_settings_of_spark_that_come_too_late_are_reported(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"spark": {"conf": {"spark.driver.memory": "77m"}}}
    pipeline = frazil.Pipeline(GENERATOR, {"catalog": lake.catalog, "namespace": "db", "table": "t"}, settings=settings)
    pipeline.run(once=True)
    (message,) = [record.getMessage() for record in caplog.records if "Spark runs in this process already" in record.getMessage()]
    assert "77m is asked for. It stays as it is." in message
