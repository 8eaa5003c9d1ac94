"""The blocks of the documents as they stand: ours, and those of the one beside the project where it is present.

Addresses are those of the tests' catalog. Its tables are in a folder, so that the settings of an object store are left out there.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from dlt_lakes import DltLake, loaded, resource
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

import frazil.dlt
from frazil.spark.catalogs import catalog_settings
from services.rest_catalog import RestCatalog

ROOT = Path(__file__).parents[3]
OURS = ROOT / "docs" / "dlt.md"
BESIDE = sorted((ROOT.parent / "shared" / "seeds").glob("003*.txt"))

# In place of dots, and of names in angle brackets.
FILLED = {
    'namespace="..."': 'namespace="analytics"',
    'catalog_uri="..."': 'catalog_uri="https://catalog.example.com"',
    'oauth2_server_uri="..."': 'oauth2_server_uri="https://catalog.example.com/tokens"',
    'credential="..."': 'credential="id:secret"',
    "<workspace>": "workspace",
}


@pytest.fixture(autouse=True)
def _older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the older name, where it is not installed."""
    monkeypatch.syspath_prepend(str(ROOT / "compat" / "dlt_iceberg" / "src"))


def blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def run(code: str, folder: Path) -> None:
    """Runs a block as a file of a user's own."""
    file = folder / "users_file.py"
    file.write_text(code)
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with patch.dict(sys.modules, {file.stem: module}):
        spec.loader.exec_module(module)


def settings(document: Path) -> list[str]:
    """The destinations of a document that are shown alone."""
    return [block for block in blocks(document) if block.startswith("iceberg_rest(")]


@pytest.mark.parametrize("document", [pytest.param(path, id=path.stem[:10]) for path in (OURS, *BESIDE)])
def test_destinations_that_are_shown_alone_are_sound(document: Path) -> None:
    for shown in settings(document):
        block = shown
        for dots, value in FILLED.items():
            block = block.replace(dots, value)
        made: Any = eval(block, {"iceberg_rest": frazil.dlt.iceberg_rest})
        config = made.configuration(frazil.dlt.IcebergRestConfiguration()._bind_dataset_name("ds"))
        options = catalog_settings(config.sink("t")).options
        written = set(re.findall(r"^    (\w+)=", block, re.MULTILINE))
        assert written <= set(made.config_params) | {"merge_batch_size", "strict_casting", "max_retries", "retry_backoff_base"}
        assert {config.catalog_uri, config.warehouse} - {None} <= set(options.values()) or config.is_sql
    assert settings(document)


@pytest.mark.skipif(not BESIDE, reason="the document is not beside the project")
def test_the_first_blocks_of_the_document_beside_run_as_written(
    spark: SparkSession, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    first, second = blocks(BESIDE[0])[:2]
    first = re.sub(r'catalog_uri="[^"]*"', f'catalog_uri="{rest_catalog.uri}"', first)
    first = re.sub(r"\n +s3_\w+=.*", "", first)
    run("\n".join((first, second, "pipeline.run(generate_users())")), tmp_path)
    catalog = load_catalog("rest", type="rest", uri=rest_catalog.uri)
    assert catalog.load_table("analytics.events").scan().to_arrow().select(["event_id", "value"]).to_pylist() == [
        {"event_id": 1, "value": 100}
    ]
    assert catalog.load_table("analytics.users").scan().to_arrow().select(["name", "status"]).to_pylist() == [
        {"name": "Alice", "status": "active"}
    ]


def test_our_first_block_can_be_pasted(
    lake: DltLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lake.folder)
    run(blocks(OURS)[0], lake.folder)
    assert "[(1, 'Alicia'), (2, 'Bob')]" in capsys.readouterr().out


@pytest.mark.slow
def test_our_block_of_the_adapter_partitions_and_sorts(lake: DltLake) -> None:
    (block,) = (one for one in blocks(OURS) if "iceberg_adapter(" in one)
    events = resource([{"at": dt.datetime(2026, 11, 1, tzinfo=dt.UTC), "user_id": 1, "region": "eu"}], "events")
    exec(block, {"events": events})
    loaded(lake.pipeline().run(events))
    table = lake.table("events")
    assert {field.name for field in table.spec().fields} == {"at_day", "user_id_bucket_10", "region_identity"}
    assert [table.schema().find_column_name(field.source_id) for field in table.sort_order().fields] == ["at"]


def test_every_block_of_ours_is_run() -> None:
    """One that is added belongs into a test."""
    known = ("import dlt", "from frazil.dlt import iceberg_adapter", "iceberg_rest(")
    assert [one for one in blocks(OURS) if not one.startswith(known)] == []


def test_the_older_names_are_the_same_things() -> None:
    import dlt_iceberg
    from dlt_iceberg.destination import iceberg_rest
    from dlt_iceberg.destination_client import IcebergRestClient

    assert iceberg_rest is dlt_iceberg.iceberg_rest is frazil.dlt.iceberg_rest
    assert IcebergRestClient is frazil.dlt.IcebergRestClient
    assert all(getattr(dlt_iceberg, name) is not None for name in dlt_iceberg.__all__)


def test_without_dlt_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dlt", None)
    monkeypatch.delitem(sys.modules, "frazil.dlt")
    with pytest.raises(frazil.EnvironmentFault, match=r"pip install 'frazil\[dlt\]'"):
        __import__("frazil.dlt")
