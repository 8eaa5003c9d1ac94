"""What the destination's settings and the hints of tables change."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.common import logger
from dlt.common.schema import Schema
from dlt.destinations import adapters
from dlt.destinations.exceptions import DatabaseTerminalException
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_lakes import NAMESPACE, DltLake, loaded, resource
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import LongType, NestedField, StringType

from frazil.dlt import (
    CastingError,
    IcebergRestClient,
    LoadError,
    SchemaEvolutionError,
    iceberg_adapter,
    iceberg_partition,
    iceberg_rest,
)
from frazil.doors.dlt import hints
from frazil.doors.dlt.adapter import PartitionTransform
from frazil.doors.dlt.configuration import IcebergRestConfiguration
from frazil.spark.catalogs import catalog_settings

ROWS = [
    {"id": n, "name": f"name{n}", "at": dt.datetime(2026, 11, 1 + n, tzinfo=dt.UTC), "day": dt.date(2026, 11, 1)}
    for n in range(3)
]


def fields(lake: DltLake, table: str) -> list[str]:
    """The partition fields of a table: name and transform."""
    return [f"{field.name}: {field.transform}" for field in lake.table(table).spec().fields]


def test_hints_and_adapters_partition_and_sort(lake: DltLake) -> None:
    columns = {
        "at": {"data_type": "timestamp", "x-partition": True, "x-partition-transform": "day"},
        "id": {"data_type": "bigint", "x-partition": True, "x-partition-transform": "bucket[10]", "x-partition-name": "b"},
        "day": {"partition": True},
        "name": {"partition": True},
    }
    ours = [iceberg_partition.hour("at"), iceberg_partition.truncate(2, "name"), iceberg_partition.identity("day"), "id"]
    theirs = adapters.iceberg_adapter(
        resource(ROWS, "theirs"),
        partition=adapters.iceberg_partition.bucket(4, "id"),
        table_properties={"write.parquet.row-group-limit": "7"},
    )
    pipeline = lake.pipeline()
    loaded(
        pipeline.run(
            [
                resource(ROWS, "hinted", columns=columns),
                iceberg_adapter(resource(ROWS, "adapted"), partition=ours, sort=["name", "day", "id"]),
                theirs,
            ]
        )
    )
    assert set(fields(lake, "hinted")) == {"at_day: day", "b: bucket[10]", "day_month: month", "name_identity: identity"}
    assert fields(lake, "adapted") == [
        "at_hour: hour", "name_truncate_2: truncate[2]", "day_identity: identity", "id_identity: identity"
    ]  # fmt: skip
    assert fields(lake, "theirs") == ["id_bucket_4: bucket[4]"]
    assert lake.table("theirs").properties["write.parquet.row-group-limit"] == "7"
    assert sorted_by(lake, "adapted") == ["name", "day", "id"]
    assert lake.rows("adapted", "id") == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("field", "hint", "made"),
    [
        ("at", {}, "at_month: month(at)"),
        ("day", {}, "day_month: month(day)"),
        ("id", {}, "id_identity: id"),
        (iceberg_partition.year("at"), {"x-partition-transform": "year"}, "at_year: year(at)"),
        (iceberg_partition.month("day"), {"x-partition-transform": "month"}, "day_month: month(day)"),
        (iceberg_partition.day("at", name="d"), {"x-partition-transform": "day", "x-partition-name": "d"}, "d: day(at)"),
        (iceberg_partition.bucket(8, "id"), {"x-partition-transform": "bucket[8]"}, "id_bucket_8: bucket(8, id)"),
        (
            iceberg_partition.truncate(100, "id", name="t"),
            {"x-partition-transform": "truncate[100]", "x-partition-name": "t"},
            "t: truncate(100, id)",
        ),
    ],
)
def test_a_hint_and_the_adapter_say_the_same(
    tmp_path: Path, field: str | PartitionTransform, hint: dict[str, Any], made: str
) -> None:
    column = field if isinstance(field, str) else field.column
    pipeline = DltLake(tmp_path).pipeline()
    hinted = resource(ROWS, "hinted", columns={column: {"x-partition": True, **hint}})
    pipeline.extract([hinted, iceberg_adapter(resource(ROWS, "adapted"), partition=field)])
    pipeline.normalize()
    with pipeline.destination_client() as client:
        for name in ("hinted", "adapted"):
            (one,) = hints.partition_fields("p", client.prepare_load_table(name), client.capabilities)
            assert f"{one.field_name}: {one.model_copy(update={'name': None})}" == made


def sorted_by(lake: DltLake, name: str) -> list[str | None]:
    """The columns that the files of a table are sorted by."""
    table = lake.table(name)
    return [table.schema().find_column_name(field.source_id) for field in table.sort_order().fields]


@pytest.mark.slow
def test_a_table_keeps_the_order_that_it_was_made_with(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    columns: Any = {"late": {"sort": True}, "id": {"sort": True}}
    loaded(pipeline.run(resource([{"id": 1}], columns=columns)))
    loaded(pipeline.run(resource([{"id": 2, "late": "x"}], columns=columns)))
    loaded(pipeline.run(resource([{"id": 3, "late": "y"}], columns={"late": {"sort": True}, "id": {"sort": False}})))
    assert lake.rows("t", "id", "late") == [(1, None), (2, "x"), (3, "y")]
    assert sorted_by(lake, "t") == ["id"]


@pytest.mark.slow
def test_an_upsert_leaves_columns_alone_that_are_not_dlt_s(lake: DltLake) -> None:
    pipeline = lake.pipeline(readers=["spark"])
    hints: Any = {"write_disposition": {"disposition": "merge", "strategy": "upsert"}, "primary_key": "id"}
    loaded(pipeline.run(resource([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], **hints)))
    loaded(pipeline.run(resource([{"id": 2, "v": "bb"}], **hints)))
    assert lake.snapshots("t")[-1]["frazil.upsert-strategy"] == "equality_delete", "which does not look at the rows"
    with pipeline.destination_client() as client:
        spark = client._loader.session  # type: ignore[attr-defined]
        name = client.config.qualified("t")
        spark.sql(f"ALTER TABLE {name} ADD COLUMN theirs STRING")
        spark.sql(f"UPDATE {name} SET theirs = concat('of ', id)")
    loaded(pipeline.run(resource([{"id": 1, "v": "A", "new": 1}, {"id": 3, "v": "c", "new": 3}], **hints)))
    with pipeline.sql_client() as asked:
        assert sorted(asked.execute_sql("SELECT id, v, new, theirs FROM t") or ()) == [
            (1, "A", 1, "of 1"), (2, "bb", None, "of 2"), (3, "c", 3, None)
        ]  # fmt: skip


@pytest.mark.slow
def test_tables_are_dropped_emptied_and_found_again(lake: DltLake) -> None:
    layout = {"table_location_layout": "{dataset_name}/of_{table_name}", "internal_table_prefix": "own"}
    pipeline = lake.pipeline(**layout)
    loaded(pipeline.run([resource([{"id": 1}], "keep"), resource([{"id": 1}], "go")]))
    assert lake.tables() == {"keep", "go", "own_loads", "own_version", "own_pipeline_state"}
    assert lake.table("go").location() == f"file://{lake.folder}/warehouse/ds/of_go"
    loaded(pipeline.run(resource([{"id": 2}], "go"), refresh="drop_data"))
    assert (lake.rows("keep", "id"), lake.rows("go", "id")) == ([(1,)], [(2,)])
    history = len(lake.table("go").snapshots())
    loaded(pipeline.run(resource([{"other": 3}], "go"), refresh="drop_resources"))
    assert lake.rows("go", "other") == [(3,)]
    assert len(lake.table("go").snapshots()) < history
    with pipeline.sql_client() as asked:
        asked.truncate_tables("go")
        assert lake.rows("go", "other") == []
        asked.drop_tables("go", "never_there")
        assert "go" not in lake.tables()
        with asked.with_staging_dataset(), pytest.raises(DatabaseTerminalException, match="Only the dataset 'ds' can be"):
            asked.drop_dataset()
    # A catalog that was lost finds the tables in the warehouse.
    lake.catalog.drop_table((NAMESPACE, "keep"))
    again = lake.pipeline("other", register_new_tables=True, **layout)
    loaded(again.run(resource([{"id": 5}], "keep")))
    assert lake.rows("keep", "id") == [(1,), (5,)]
    with again.sql_client() as asked:
        assert asked.has_dataset()
        asked.drop_dataset()
        assert not asked.has_dataset()
        asked.create_dataset()
        assert (asked.has_dataset(), lake.tables()) == (True, set())


@pytest.mark.slow
def test_a_table_that_is_made_anew_gets_another_place_if_wanted(lake: DltLake) -> None:
    pipeline = lake.pipeline(table_location_layout="{dataset_name}/{table_name}_{location_tag}")
    places = []
    for number in (1, 2):
        loaded(pipeline.run(resource([{"id": number}], "t"), refresh="drop_resources"))
        places.append(lake.table("t").location())
        loaded(pipeline.run(resource([{"id": number}], "t")))
        assert lake.table("t").location() == places[-1]
    assert lake.rows("t", "id") == [(2,), (2,)]
    first, second = (place.rpartition("/") for place in places)
    assert first[0] == second[0] == f"file://{lake.folder}/warehouse/{pipeline.dataset_name}"
    assert first[2] != second[2]
    assert all(name.startswith("t_") for name in (first[2], second[2]))


@pytest.mark.slow
def test_schemas_with_datasets_of_their_own_have_places_of_their_own(lake: DltLake) -> None:
    layout = {"namespace": "{dataset_name}", "table_location_layout": "in_{dataset_name}/{table_name}"}
    pipeline = lake.pipeline(**layout)
    pipeline.config.use_single_dataset = False
    for number, schema in enumerate(("one", "two")):
        loaded(pipeline.run(resource([{"id": number}], "t"), schema=Schema(schema)))
    places = [lake.catalog.load_table((dataset, "t")).location() for dataset in ("ds", "ds_two")]
    assert places == [f"file://{lake.folder}/warehouse/in_{dataset}/t" for dataset in ("ds", "ds_two")]


@pytest.mark.slow
def test_datasets_have_namespaces_of_their_own_if_wanted(lake: DltLake) -> None:
    loads = {}
    for number, dataset in enumerate(["One", "two"]):
        pipeline = dlt.pipeline(
            "p",
            destination=lake.destination(namespace="lake.{dataset_name}"),
            dataset_name=dataset,
            pipelines_dir=str(lake.folder / "dlt" / dataset),
        )
        loads[dataset] = loaded(pipeline.run(resource([{"id": number, "of": [{"n": number}]}], "t"))).loads_ids
        assert pipeline.dataset()("SELECT id, n FROM t JOIN t__of ON t._dlt_id = _dlt_parent_id").fetchall() == [(number, number)]
        assert [row[0] for row in pipeline.dataset()("SELECT load_id FROM _dlt_loads").fetchall()] == loads[dataset]
    assert set(lake.catalog.list_namespaces("lake")) == {("lake", "one"), ("lake", "two")}
    with pipeline.sql_client() as asked:
        with asked.with_alternative_dataset_name("one"):
            assert asked.execute_sql("SELECT id FROM t") == asked.execute_sql("SELECT id FROM one.t") == [(0,)]
            asked.truncate_tables("t")
            assert (asked.has_dataset(), asked.execute_sql("SELECT id FROM t")) == (True, [])
        assert asked.execute_sql("SELECT id FROM t") == [(1,)]
        with asked.with_staging_dataset():
            assert not asked.has_dataset()
            asked.create_dataset()
            assert asked.has_dataset()
            asked.drop_dataset()
    assert set(lake.catalog.list_namespaces("lake")) == {("lake", "one"), ("lake", "two")}
    with pipeline.destination_client() as client:
        client.drop_storage()
    assert lake.catalog.list_namespaces("lake") == [("lake", "one")]
    assert len(lake.catalog.list_tables(("lake", "one"))) == 5
    with pipeline.sql_client() as asked, asked.with_alternative_dataset_name("one"):
        asked.drop_dataset()
    assert lake.catalog.list_namespaces("lake") == []


@pytest.mark.slow
def test_every_run_in_dev_mode_begins_with_nothing(lake: DltLake) -> None:
    for turn in range(2):
        pipeline = dlt.pipeline(
            "p",
            destination=lake.destination(namespace="{dataset_name}"),
            dataset_name="ds",
            dev_mode=True,
            pipelines_dir=str(lake.folder / "dlt"),
        )
        loaded(pipeline.run(resource([{"id": turn}], "t")))
        assert pipeline.dataset()("SELECT id FROM t").fetchall() == [(turn,)]


def caused(failed: pytest.ExceptionInfo[PipelineStepFailed], kind: type[Exception]) -> str:
    """What the exception of a kind says that was behind a failure."""
    at: BaseException | None = failed.value
    while at is not None and not isinstance(at, kind):
        at = at.__cause__
    assert at is not None, failed.value
    return str(at)


@pytest.mark.slow(seconds=40)
def test_columns_are_widened_and_values_that_do_not_fit_are_reported(lake: DltLake) -> None:
    small = {"n": {"data_type": "bigint", "precision": 32}, "d": {"data_type": "decimal", "precision": 6, "scale": 2}}
    wide = {"n": {"data_type": "bigint", "precision": 64}, "d": {"data_type": "decimal", "precision": 12, "scale": 2}}
    loaded(lake.pipeline("a").run(resource([{"n": 1, "d": 1}], columns=small)))
    loaded(lake.pipeline("b").run(resource([{"n": 2**40, "d": 1_000_000}], columns=wide)))
    schema = lake.table("t").schema()
    assert [str(schema.find_field(name).field_type) for name in ("n", "d")] == ["long", "decimal(12, 2)"]
    # Another pipeline, which knows nothing of the table's types, sends a text.
    loaded(lake.pipeline("c").run(resource([{"n": "7"}], columns={"n": {"data_type": "text"}})))
    assert (7,) in lake.rows("t", "n")
    with pytest.raises(PipelineStepFailed) as failed:
        lake.pipeline("d").run(resource([{"n": "seven"}], columns={"n": {"data_type": "text"}}))
    message = caused(failed, CastingError)
    assert "column 'n'" in message
    assert "declare another data_type" in message
    assert "on_error" not in message, "which this destination does not have"
    loaded(lake.pipeline("g").run(resource([{"at": dt.datetime(2026, 11, 1, tzinfo=dt.UTC)}], "times")))
    with pytest.raises(PipelineStepFailed) as failed:
        lake.pipeline("h").run(resource([{"at": 1_790_000_000}], "times"))
    message = caused(failed, CastingError)
    assert '"data_type": "timestamp"' in message
    assert "epoch_unit" not in message, "which this destination does not have"
    with pytest.raises(PipelineStepFailed) as failed:
        lake.pipeline("e", strict_casting=True).run(resource([{"n": "7"}], columns={"n": {"data_type": "text"}}))
    assert "strict_casting refuses" in caused(failed, CastingError)
    # A table of somebody else requires what dlt does not send.
    theirs = IcebergSchema(NestedField(1, "n", LongType()), NestedField(2, "theirs", StringType(), required=True))
    lake.catalog.create_table((NAMESPACE, "theirs"), theirs)
    with pytest.raises(PipelineStepFailed) as failed:
        lake.pipeline("f").run(resource([{"n": 1}], "theirs"))
    assert "column 'theirs', which the table requires" in caused(failed, SchemaEvolutionError)


@pytest.mark.slow
def test_contracts_are_dlt_s(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1}])))
    with pytest.raises(PipelineStepFailed, match="new_one"):
        pipeline.run(resource([{"id": 2, "new_one": 1}]), schema_contract={"columns": "freeze"})
    pipeline.abort_packages()
    loaded(pipeline.run(resource([{"id": 2, "new_one": 1}]), schema_contract={"columns": "discard_value"}))
    assert lake.rows("t", "id") == [(1,), (2,)]
    assert "new_one" not in lake.table("t").schema().column_names


@pytest.mark.slow
def test_merge_batch_size_makes_neither_tasks_nor_files_and_says_that_it_has_no_effect(
    lake: DltLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(logger, "warning", lambda text, *_: warned.append(text))
    hints = {"write_disposition": "merge", "primary_key": "id"}
    pipeline = lake.pipeline(merge_batch_size=1)
    loaded(pipeline.run(resource([{"id": n, "v": 0} for n in range(64)], **hints)))
    loaded(pipeline.run(resource([{"id": n, "v": 1} for n in range(32, 96)], **hints)))
    assert lake.rows("t", "id", "v") == sorted(((n, int(n >= 32)) for n in range(96)), key=repr)
    assert [int(summary["added-data-files"]) <= 3 for summary in lake.snapshots("t")] == [True, True]
    messages = [text for text in warned if "merge_batch_size" in text]
    assert len(messages) == 1
    assert "merge_batch_size=1: it has no effect" in messages[0]


def test_settings_of_a_spark_that_runs_already_are_set_or_refused(lake: DltLake) -> None:
    def client(**options: Any) -> IcebergRestClient:
        made = lake.destination(**options).client(Schema("s"), IcebergRestConfiguration()._bind_dataset_name("ds"))
        assert isinstance(made, IcebergRestClient)
        return made

    text = r"already, with spark\.master=local\[2\], and local\[7\] is asked for\.\nGive all destinations .* spark_master"
    with pytest.raises(LoadError, match=text):
        client(spark_master="local[7]").is_storage_initialized()
    with pytest.raises(LoadError, match=r"already, without spark\.executor\.cores, and 3 is asked for"):
        client(spark_conf={"spark.executor.cores": 3}).is_storage_initialized()
    with pytest.raises(LoadError, match=r"without spark\.my\.password, and \*+ is asked for"):
        client(spark_conf={"spark.my.password": "hush"}).is_storage_initialized()
    asked = {"spark_master": "local[2]", "spark_conf": {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.memory": "1g"}}
    for options, zone in ((asked, "Asia/Tokyo"), ({}, "UTC")):
        assert client(**options).sql_client.execute_sql("SELECT current_timezone()") == [(zone,)]


def spark_options(**settings: Any) -> dict[str, str]:
    """The settings of a catalog that Spark gets."""
    config = IcebergRestConfiguration(**settings)
    return catalog_settings(config.sink("t")).options


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"token": "t0ken"}, {"token": "t0ken"}),
        (
            {"credential": "id:secret", "oauth2_server_uri": "https://h/tokens"},
            {"credential": "id:secret", "oauth2-server-uri": "https://h/tokens", "scope": "PRINCIPAL_ROLE:ALL"},
        ),
        ({"credential": "id:secret", "scope": "all"}, {"credential": "id:secret", "scope": "all"}),
        ({"token": "t0ken", "credential": "id:secret"}, {"token": "t0ken"}),
        (
            {"sigv4_enabled": True, "signing_region": "eu-west-1", "signing_name": "glue"},
            {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-west-1", "rest.signing-name": "glue",
             "client.region": "eu-west-1"},
        ),
        (
            {"s3_endpoint": "http://h:9000", "s3_access_key_id": "k", "s3_secret_access_key": "s", "s3_region": "r"},
            {"s3.endpoint": "http://h:9000", "s3.access-key-id": "k", "s3.secret-access-key": "s", "client.region": "r",
             "s3.path-style-access": "true"},
        ),
        ({"warehouse": "w"}, {"warehouse": "w", "type": "rest", "uri": "https://h/c"}),
    ],
)  # fmt: skip
def test_every_way_to_authenticate_reaches_the_catalog(settings: dict[str, Any], options: dict[str, str]) -> None:
    assert options.items() <= spark_options(catalog_uri="https://h/c", **settings).items()


@pytest.mark.parametrize(
    ("uri", "given", "name"),
    [
        ("https://glue.eu-west-1.amazonaws.com/iceberg", {}, "glue"),
        ("https://glue-fips.us-east-1.amazonaws.com/iceberg", {}, "glue"),
        ("https://s3tables.eu-west-1.amazonaws.com/iceberg", {}, "s3tables"),
        ("https://a1b2.execute-api.eu-west-1.amazonaws.com/prod", {}, "execute-api"),
        ("https://glue.example.com/amazonaws.com", {}, "execute-api"),
        ("https://glue.eu-west-1.amazonaws.com/iceberg", {"signing_name": "execute-api"}, "execute-api"),
        ("https://catalog.example.com", {"signing_name": "glue"}, "glue"),
    ],
)
def test_signatures_name_the_service_whose_address_it_is(uri: str, given: dict[str, str], name: str) -> None:
    assert spark_options(catalog_uri=uri, sigv4_enabled=True, **given)["rest.signing-name"] == name


@pytest.mark.parametrize(("more", "unused"), [({}, "credential"), ({"oauth2_server_uri": "https://h/tokens"}, "token")])
def test_of_a_token_and_a_credential_the_one_that_is_not_used_is_reported(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str], unused: str
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "warning", lines.append)
    given = {"catalog_uri": "https://h/c", "token": "t0ken", "credential": "id:secret", **more}
    iceberg_rest(**given).configuration(IcebergRestConfiguration()._bind_dataset_name("ds"))
    assert [text.partition(".")[0] for text in lines] == [f"{unused}: it is not used"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.id FROM {t}",
        "SELECT * FROM {ds.t} AS x, {`DS` . `t`} y -- t",
        "SELECT * FROM other.ds.t, RANGE(3), {t}",
        "SELECT * FROM {t} TABLESAMPLE (5 ROWS) JOIN {t} VERSION AS OF 1 AS u USING (id)",
        "SELECT u.load_id FROM {_dlt_loads} u",
        "WITH T AS (SELECT 1 AS id) SELECT * FROM t",
        "WITH t AS (SELECT * FROM {t}) SELECT * FROM T",
        "WITH t AS (SELECT 1) SELECT * FROM {ds.t}",
        "WITH u AS (SELECT * FROM {t}), t AS (SELECT * FROM u) SELECT * FROM t, u",
        "WITH t AS (SELECT 1) SELECT * FROM (WITH t AS (SELECT 2), u AS (SELECT * FROM t) SELECT * FROM t) AS x, t, {u}",
        "WITH t AS (SELECT 1 AS id) SELECT * FROM {u} WHERE id IN (SELECT id FROM t UNION ALL SELECT id FROM {v})",
        "WITH t AS (SELECT 1) (SELECT * FROM t) UNION SELECT * FROM t ORDER BY (SELECT max(id) FROM {u})",
        "WITH RECURSIVE t AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM t WHERE id < 3) SELECT * FROM t",
    ],
)
def test_names_of_tables_in_a_query(tmp_path: Path, query: str) -> None:
    """Those in braces are of tables, and the others of what the query makes itself, or of another catalog."""
    tables = re.compile(r"\{(?:\W*ds\W+)?(\w+)\W*\}", re.IGNORECASE)
    with DltLake(tmp_path).pipeline().destination_client() as client:
        asked = client.sql_client.understood(query.replace("{", "").replace("}", ""))  # type: ignore[attr-defined]
    assert asked == tables.sub(r"`dlt_catalog`.`analytics`.`\1`", query)


def test_tables_of_dlt_that_have_another_name_in_the_catalog_are_known_by_dlt_s(tmp_path: Path) -> None:
    with DltLake(tmp_path).pipeline(internal_table_prefix="own").destination_client() as client:
        asked = client.sql_client.understood("SELECT _dlt_loads.load_id FROM _dlt_loads")  # type: ignore[attr-defined]
    assert asked == "SELECT _dlt_loads.load_id FROM `dlt_catalog`.`analytics`.`own_loads` AS `_dlt_loads`"


def test_a_postgresql_address_is_a_sql_catalog() -> None:
    options = spark_options(catalog_uri="postgresql://u:p@h:5432/db", warehouse="s3://b/w")
    assert (options["type"], options["uri"], options["jdbc.user"]) == ("jdbc", "jdbc:postgresql://h:5432/db", "u")
    assert "p@h" not in str(IcebergRestConfiguration(catalog_uri="postgresql://u:p@h:5432/db"))
