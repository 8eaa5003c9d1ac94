"""Whatever stands in a file, the loader loads it or says what is wrong, where, in plain words."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from yaml_cases import DATA

from frazil.doors.yaml import ConfigErrors, load_text
from frazil.doors.yaml.file import SOURCES, BrokerEntry, PipelineEntry, PipelineFile, SinkEntry, SourceEntry
from frazil.model.catalog import CatalogSpec, GlueCatalog, HiveCatalog, RestCatalog, SqlCatalog
from frazil.model.settings import HealthSettings, RetrySettings, Settings, SparkSettings
from frazil.model.sink import ColumnSpec, SinkSpec
from frazil.model.storage import AzureStorage, GcsStorage, S3Storage
from frazil.reading.anatomy import keys_of
from tiers import examples

FRAGMENTS = (DATA / "fragments.md").read_text()
MACHINERY = (
    "Input should", "pydantic", "string_type", "int_type", "bool_type", "dict_type", "list_type", "model_type", "<class",
    "NoneType", "validation error", "Literal[", "has a value that is not",
)  # fmt: skip


def assert_loads_or_explains(text: str, env: dict[str, str] | None = None) -> None:
    try:
        load_text(text, "p.yaml", env or {})
    except ConfigErrors as error:
        problems = error.errors
    else:
        return
    assert problems
    for each in problems:
        assert each.code
        assert each.message
        assert each.location is not None
        assert not any(word in f"{each.message} {each.fix}" for word in MACHINERY), str(each)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    assert_loads_or_explains(text)


YAML_PARTS = st.sampled_from([
    "a", "b:", "- ", ": ", "\n", "  ", "[", "]", "{", "}", ",", "&a ", "*a", "<<: ", "|", ">-", "'", '"', "#", "!!str ",
    "!x ", "---\n", "...\n", "? ", "%YAML 1.1\n", "sinks:", "sources:\n", "pipelines:\n", "${A}", "$$", "~", "1",
    "\t", "é", "\\", "@", "`",
])  # fmt: skip


@settings(deadline=None)
@given(st.lists(YAML_PARTS, max_size=25).map("".join))
def test_any_text_of_the_marks_of_yaml(text: str) -> None:
    assert_loads_or_explains(text, {"A": "x"})


@settings(deadline=None)
@given(st.data())
def test_a_file_with_any_part_torn_out_or_doubled(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(FRAGMENTS)))
    text = FRAGMENTS[start : start + 600]
    at = data.draw(st.integers(0, len(text)))
    assert_loads_or_explains(text[:at] + data.draw(YAML_PARTS) + text[at:])


# The keys that the door and the models know; structures of these reach deep.
KEYS = sorted({
    key
    for model in (
        PipelineFile, SourceEntry, SinkEntry, PipelineEntry, BrokerEntry, SinkSpec, CatalogSpec, RestCatalog, SqlCatalog,
        S3Storage, ColumnSpec, Settings, RetrySettings, HealthSettings, SparkSettings, *SOURCES.values(),
    )
    for key in keys_of(model)
} | {"jdbc", "from", "to", "field", "value", "equals", "timestamp", "events_per_second", "other"})  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2_000_000), st.floats(), st.sampled_from([
        "", "x", "rest", "sql", "iceberg", "generator", "files", "filter", "rename_field", "bucket(0, a)", "day(a)", "${A}",
        "${NO}", "int", "list<int", "time", "append", "-1", "1e400", ".nan", "9" * 400,
    ]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


def mapping(model_keys: list[str], **fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    some = st.dictionaries(st.sampled_from(model_keys), VALUES, max_size=3)
    return some.map(lambda drawn: fixed | drawn)


CATALOG = {"type": "memory"}
FILES = st.fixed_dictionaries(
    {},
    optional={
        "sources": st.dictionaries(
            st.sampled_from(["a", "b", ""]),
            st.sampled_from(sorted(SOURCES)).flatmap(
                lambda name: st.builds(
                    lambda entry, config: {"connector": name, "config": config} | entry,
                    mapping(keys_of(SourceEntry)),
                    mapping(keys_of(SOURCES[name])),
                )
            ),
            max_size=2,
        ),
        "sinks": st.dictionaries(
            st.sampled_from(["s", "t"]),
            st.builds(
                lambda entry, config, catalog: {"connector": "iceberg", "config": {"catalog": catalog} | config} | entry,
                mapping(keys_of(SinkEntry)),
                mapping(keys_of(SinkSpec), namespace="n", table="t"),
                mapping([*keys_of(CatalogSpec), "jdbc"], **CATALOG),
            ),
            max_size=2,
        ),
        "pipelines": st.dictionaries(
            st.sampled_from(["p", "q"]), mapping(keys_of(PipelineEntry), source="a", sink="s"), max_size=2
        ),
        "settings": mapping(keys_of(Settings)),
        "broker": mapping(keys_of(BrokerEntry), bootstrap_servers=["b:1"]),
        "version": SCALARS,
    },
)


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(FILES)
def test_any_structure_of_known_keys(file: dict[str, Any]) -> None:
    assert_loads_or_explains(json.dumps(file), {"A": "17"})


SECTIONS: list[tuple[type[Any], tuple[str, ...]]] = [
    (PipelineFile, ()),
    (SourceEntry, ("sources", "src")),
    (SOURCES["generator"], ("sources", "src", "config")),
    (SinkEntry, ("sinks", "snk")),
    (SinkSpec, ("sinks", "snk", "config")),
    (CatalogSpec, ("sinks", "snk", "config", "catalog")),
    (RestCatalog, ("sinks", "snk", "config", "catalog", "rest")),
    (GlueCatalog, ("sinks", "snk", "config", "catalog", "glue")),
    (HiveCatalog, ("sinks", "snk", "config", "catalog", "hive")),
    (S3Storage, ("sinks", "snk", "config", "s3")),
    (GcsStorage, ("sinks", "snk", "config", "gcs")),
    (AzureStorage, ("sinks", "snk", "config", "azure")),
    (PipelineEntry, ("pipelines", "pip")),
    (Settings, ("settings",)),
    (RetrySettings, ("settings", "retry")),
]


def block(value: dict[str, Any], indent: int = 0) -> str:
    """A mapping in block style, one key a line."""
    lines = []
    for key, item in value.items():
        inner = "\n" + block(item, indent + 2) if isinstance(item, dict) else f" {json.dumps(item)}\n"
        lines.append(f"{' ' * indent}{key}:{inner}")
    return "".join(lines)


@settings(deadline=None)
@given(st.data())
def test_a_misspelt_key_is_found_with_its_place_and_the_nearest(data: st.DataObject) -> None:
    model, path = data.draw(st.sampled_from(SECTIONS))
    known = keys_of(model)
    key = data.draw(st.sampled_from([key for key in known if len(key) >= 4]))
    at = data.draw(st.integers(1, len(key) - 1))
    misspelt = data.draw(
        st.sampled_from([key[:at] + key[at + 1 :], key[:at] + key[at] + key[at:], key[:at] + "q" + key[at + 1 :]])
    )
    assume(misspelt not in known and misspelt != "jdbc")
    file: dict[str, Any] = {
        "sources": {"src": {"connector": "generator", "config": {}}},
        "sinks": {"snk": {"connector": "iceberg", "config": {"catalog": {"type": "memory"}, "namespace": "n", "table": "t"}}},
        "pipelines": {"pip": {"source": "src", "sink": "snk"}},
        "settings": {},
    }
    section = file
    for step in path:
        section = section.setdefault(step, {})
    section[misspelt] = "some value"
    text = block(file)
    (line,) = [n for n, each in enumerate(text.splitlines(), 1) if each.endswith('"some value"')]
    try:
        load_text(text, "p.yaml", {})
    except ConfigErrors as error:
        (found,) = [each for each in error.errors if each.code == "unknown-key"]
        assert found.location is not None
        assert (found.location.line, found.location.column) == (line, 2 * len(path) + 1)
        assert f"`{misspelt}`" in found.message
        suggested = found.fix.removeprefix("Did you mean `").removesuffix("`?")
        assert suggested in known or found.fix == "Put it under `config`."
    else:
        raise AssertionError(f"{misspelt} was taken")
