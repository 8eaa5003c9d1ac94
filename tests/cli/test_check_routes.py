"""`frazil check` of sinks with many tables: the catalog, every table that the file names, and where their files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cli.commands import Frazil, Outcome, everything_in, sql_pipeline
from cli.tables import make_table, sqlite_catalog

ROUTE = "route: {field: country, tables: {DE: germany, FR: {table: france, auto_create_table: false}}}"

BIZON = """\
name: shop
source:
  name: dummy
  stream: creatures
  authentication: {{type: api_key, params: {{token: none}}}}
destination:
  name: bigquery_iceberg
  config:
    project_id: proj
    dataset_id: lake
    gcs_warehouse_bucket: bucket
    iceberg_namespace: ns
    catalog_config:
      lake: {{type: sql, uri: "sqlite:///{folder}/catalog.db", warehouse: "{folder}/warehouse"}}
    destination_table_config:
      - destination_id: orders
        iceberg_schema: [{{name: id, type: long}}]
      - destination_id: lines
        iceberg_schema: [{{name: id, type: long}}]
"""


def routed(folder: Path, *options: str) -> None:
    file = sql_pipeline(folder, *options)
    file.write_text(file.read_text().replace("      table: events\n", ""))


def messages(result: Outcome, step: str) -> list[str]:
    return [check["message"] for check in result.json["checks"] if check["step"] == step]


def errors(result: Outcome) -> list[tuple[str, Any]]:
    return [(check["step"], check["error"]["code"]) for check in result.json["checks"] if not check["ok"]]


def test_a_sink_whose_tables_are_not_known_yet(frazil: Frazil, tmp_path: Path) -> None:
    routed(tmp_path, "route: {field: country}")
    before = everything_in(tmp_path)
    result = frazil("check", "--json")
    assert (result.code, errors(result)) == (0, [])
    assert messages(result, "names") == ["writes to tables of shop, by the column 'country' of each row"]
    assert messages(result, "table") == ["table shop.frazil__ledger does not exist yet and will be made by the first run"]
    assert messages(result, "storage") == [f"wrote, read and deleted a probe in {tmp_path}"]
    assert everything_in(tmp_path) == before


def test_each_table_that_the_file_names_is_looked_at(frazil: Frazil, tmp_path: Path) -> None:
    routed(tmp_path, ROUTE)
    table = make_table(sqlite_catalog(tmp_path), ("shop", "germany"))
    result = frazil("check", "--json")
    assert (result.code, errors(result)) == (78, [("table", "table-missing")])
    ledger, germany, france = messages(result, "table")
    assert ledger.startswith("table shop.frazil__ledger does not exist yet")
    assert germany.startswith("table shop.germany exists: 2 columns")
    assert france == "Table shop.france does not exist and auto_create_table is disabled"
    folders = [message.removeprefix("wrote, read and deleted a probe in ") for message in messages(result, "storage")]
    assert folders == [str(tmp_path / "warehouse"), table.location().removeprefix("file://")]


def test_a_bizon_file_with_several_tables(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "bizon.yaml").write_text(BIZON.format(folder=tmp_path))
    sink = next(iter(frazil("validate", "bizon.yaml", "--json").json["pipelines"]))["sink"]
    result = frazil("check", "bizon.yaml", "--sink", sink, "--json")
    assert (result.code, errors(result)) == (0, [])
    assert [message.split()[1] for message in messages(result, "table")] == ["ns.frazil__ledger", "ns.orders", "ns.lines"]
