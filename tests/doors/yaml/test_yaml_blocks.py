"""Every block of the documents loads as it stands: our own, and the one beside the project where it is present."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from ruamel.yaml import YAML
from yaml_cases import DATA, ROOT

from frazil.doors.yaml import load_text
from frazil.model.changes import CommitMode
from frazil.model.evolving import SchemaEvolution
from frazil.model.sink import PartitionStrategy, SinkSpec, TimeGranularity

OURS = DATA / "fragments.md"
BESIDE = sorted((ROOT.parent / "shared" / "seeds").glob("001*.txt"))

BASE_CATALOG = "catalog:\n  type: memory\n  warehouse: /tmp/w\n"


def blocks(document: Path) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", document.read_text(encoding="utf-8", errors="replace"), re.DOTALL)


def whole(block: str) -> str:
    """The block as a file; a part is put into the settings of a sink."""
    if re.search(r"^sinks:", block, re.MULTILINE):
        return block
    catalog = "" if block.startswith("catalog:") else BASE_CATALOG
    config = indent(catalog + "namespace: ns\ntable: tab\n" + block, "      ")
    return f"sources:\n  s: {{connector: generator}}\nsinks:\n  sink:\n    connector: iceberg\n    config:\n{config}"


def cases() -> Iterator[Any]:
    for document in (OURS, *BESIDE):
        for number, block in enumerate(blocks(document)):
            yield pytest.param(block, id=f"{document.stem[:10]}-{number}")


def variables(text: str) -> dict[str, str]:
    return dict.fromkeys(re.findall(r"\$\{(\w+)", text), "value-of-variable")


@pytest.mark.parametrize("block", list(cases()))
def test_the_block_loads_and_nothing_of_it_is_lost(block: str) -> None:
    project = load_text(whole(block), "block.yaml", variables(block))
    assert project.sinks
    written = YAML(typ="safe", pure=True).load(re.sub(r"\$\{\w+\}", "value-of-variable", block))
    sections = [entry["config"] for entry in written["sinks"].values()] if "sinks" in written else [written]
    for section, sink in zip(sections, project.sinks.values(), strict=True):
        assert_has(sink.model_dump(mode="json", by_alias=True), section)


def assert_has(value: Any, written: Any) -> None:
    if isinstance(written, dict):
        for key, item in written.items():
            assert key in value
            assert_has(value[key], item)
    elif isinstance(written, list):
        assert list(value) == written
    elif value != "**********":
        assert value == written


def sink_of(part: str) -> SinkSpec:
    return load_text(whole(part), "block.yaml", {}).sinks["sink"]


def test_the_parts_mean_what_they_say() -> None:
    parts = [block for block in blocks(OURS) if "sinks:" not in block and "catalog:" not in block]
    sinks = [sink_of(part) for part in parts]
    assert {sink.partitioning for sink in sinks} == set(PartitionStrategy)
    assert {sink.commit_mode for sink in sinks} == set(CommitMode)
    assert SchemaEvolution.STRICT in {sink.schema_evolution for sink in sinks}
    assert TimeGranularity.MONTH in {sink.time_granularity for sink in sinks}
    assert [str(field) for sink in sinks for field in sink.partition] == [
        "sea", "thickness", "bucket(12, floe_id)", "month(measured_at)",
    ]  # fmt: skip


def test_our_blocks_have_every_key_of_the_documents_beside() -> None:
    ours = {key for block in blocks(OURS) for key in keys(block)}
    for document in BESIDE:
        assert {key for block in blocks(document) for key in keys(block)} - ours == set()
    assert {"s3.session_token", "catalog.glue.profile", "partition_fields", "streams.sync_mode"} <= ours


def keys(block: str) -> Iterator[str]:
    """The keys of a block, without the names that users give."""
    value = YAML(typ="safe", pure=True).load(block)
    for section in ("sources", "sinks", "pipelines"):
        for entry in value.pop(section, {}).values():
            config = entry.pop("config", {})
            yield from below(config, "")
            yield from below(entry, "")
    yield from below(value, "")


def below(value: Any, prefix: str) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            for key, inner in item.items():
                yield f"{prefix}{key}"
                yield from below(inner, f"{prefix}{key}.")


def test_the_blocks_of_the_guide_load() -> None:
    guide = blocks(ROOT / "docs" / "pipelines.md")
    assert len(guide) >= 4
    env = {"CATALOG_URI": "http://catalog:8181", "CATALOG_CREDENTIAL": "id:secret"}
    for block in guide:
        if block.startswith("#"):
            continue
        text = block.replace("config: ...", "config: {catalog: {type: memory}, namespace: n, table: t}")
        if block.startswith("pipelines:"):
            text += "sources: {orders: {connector: generator}}\n"
            text += "sinks: {lake: {connector: iceberg, config: {catalog: {type: memory}, namespace: n, table: t}}}\n"
        project = load_text(text, "guide.yaml", env)
        assert project.sinks
        named = {pipeline.name for pipeline in project.pipelines}
        assert named in ({"lake"}, {"orders_to_lake"}, {"clicks-to-lake", "lake"}, set()), block


def test_the_blocks_about_transforms_load() -> None:
    rest = "sources: {shop: {connector: generator}}\n"
    rest += "sinks: {lake: {connector: iceberg, config: {catalog: {type: memory}, namespace: n, table: t}}}\n"
    found = blocks(ROOT / "docs" / "transforms.md")
    assert len(found) >= 3
    head = "pipelines:\n  orders:\n    source: shop\n    sink: lake\n"
    for block in found:
        named = block if block.startswith("pipelines:") else head + indent(block, "    ")
        (pipeline,) = load_text(named + rest, "guide.yaml", {"EMAIL_SALT": "salt-of-the-guide"}).pipelines
        assert pipeline.transforms
