from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from frazil.model.base import InconsistencyError
from frazil.model.catalog import CatalogSpec, CatalogType
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import RetrySettings, Settings, SparkSettings
from frazil.model.sink import CODECS, Compression, FileFormat, SinkSpec
from frazil.model.source import FilesSource, GeneratorSource, KafkaSource, QuerySource, SourceFormat

CATALOG = {"type": "memory"}


FULL = {"schema_evolution": "full"}


def sink(**options: Any) -> SinkSpec:
    return SinkSpec.model_validate({"catalog": CATALOG, **options})


def complaint(**options: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        sink(**options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("option", "least", "greatest"),
    [("batch_size", 1, 1_000_000), ("target_file_size_mb", 1, 1024), ("flush_interval_secs", 1, 3600)],
)
def test_ranges(option: str, least: int, greatest: int) -> None:
    for value in (least, greatest):
        assert getattr(sink(**{option: value}), option) == value
    for value in (least - 1, greatest + 1):
        assert option in complaint(**{option: value})


@pytest.mark.parametrize("option", ["namespace", "table", "id"])
def test_names_have_1_to_255_characters(option: str) -> None:
    for value in ("x", "x" * 255):
        assert getattr(sink(**{option: value}), option) == value
    for value in ("", "x" * 256):
        assert option in complaint(**{option: value})


def test_defaults() -> None:
    value = sink()
    assert (value.batch_size, value.flush_interval_secs, value.target_file_size_mb) == (10_000, 60, 128)
    assert (value.partitioning, value.num_buckets, value.time_granularity) == ("none", 16, "day")
    assert (value.commit_mode, value.schema_evolution, value.compression) == ("append", "add_columns", "snappy")
    assert (value.auto_create_table, value.format_version, value.file_format) == (True, 2, "parquet")


def test_a_file_is_never_larger_than_the_cap() -> None:
    assert sink(target_file_size_mb=1024).target_file_bytes == 512 * 1024 * 1024
    assert sink(target_file_size_mb=3).target_file_bytes == 3 * 1024 * 1024


def test_a_value_cannot_be_changed_or_extended() -> None:
    value = sink()
    with pytest.raises(ValidationError):
        value.batch_size = 5  # type: ignore[misc]
    assert "tabel" in complaint(tabel="x")


def test_everything_that_does_not_fit_is_reported_at_once() -> None:
    message = complaint(partitioning="bucket", commit_mode="upsert", namespace="a..b", max_batch_size=1)
    for words in ("Partition fields are required", "a level is empty", "cannot be below batch_size"):
        assert words in message


def test_problems_know_their_key() -> None:
    with pytest.raises(ValidationError) as caught:
        sink(partitioning="bucket")
    (error,) = caught.value.errors()
    cause = error["ctx"]["error"]
    assert isinstance(cause, InconsistencyError)
    assert [problem.at for problem in cause.problems] == [("partitioning",)]


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, []),
        ({"partitioning": "table_default"}, []),
        ({"partitioning": "identity", "partition_fields": ["a", "b"]}, ["a", "b"]),
        ({"partitioning": "bucket", "partition_fields": ["a"], "num_buckets": 64}, ["bucket(64, a)"]),
        ({"partitioning": "bucket", "partition_fields": ["a"]}, ["bucket(16, a)"]),
        ({"partitioning": "time", "partition_fields": ["a"], "time_granularity": "hour"}, ["hour(a)"]),
        ({"partition_by": ["day(a)", "bucket(4", "b)"]}, ["day(a)", "bucket(4, b)"]),
    ],
)
def test_partitioning(options: dict[str, Any], fields: list[str]) -> None:
    assert [str(field) for field in sink(**options).partition] == fields


def test_commits_by_size_follow_what_rows_take() -> None:
    by_rows, by_bytes = sink(batch_size=500), sink(batch_bytes=2_000_000)
    assert (by_rows.rows_wanted(10.0), by_rows.rows_planned(10.0)) == (500, 500)
    assert (by_bytes.rows_wanted(100.0), by_bytes.rows_planned(100.0)) == (20_000, 20_000)
    assert (by_bytes.rows_wanted(2_000.0), by_bytes.rows_planned(2_000.0)) == (1_000, 10_000)
    assert by_bytes.rows_planned(0.001) == 2_000_000
    assert sink(batch_bytes=10**10).rows_planned(1.0) == 100_000_000
    assert sink(batch_bytes=2_000_000, max_batch_size=15_000).rows_planned(1.0) == 15_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitioning": "time"}, "Partition fields are required for identity/bucket/time partitioning"),
        ({"partition_fields": ["a"]}, "partition_fields has no meaning with partitioning: none"),
        ({"partitioning": "identity", "partition_fields": ["a"], "partition_by": ["a"]}, "say the same thing twice"),
        ({"num_buckets": 4}, "num_buckets has no meaning"),
        ({"batch_size": 5, "batch_bytes": 100}, "batch_size and batch_bytes exclude each other"),
        ({"time_granularity": "hour"}, "time_granularity has no meaning"),
        ({"schema": {"a": "int", "A": "int"}}, "column 'a' is declared twice"),
        ({"schema": {"a": "int"}, "key_fields": ["b"]}, "key field 'b' is not among the declared columns"),
        ({"schema": {"a": "double"}, "key_fields": ["a"]}, "column a has type double which cannot be used as an Iceberg"),
        ({"schema": {"a": "int"}, "partition_by": ["b"]}, "partition column 'b' is not among the declared columns"),
        ({"aliases": {"a": "b"}}, "aliases has no meaning with schema_evolution: add_columns; it belongs to full"),
        ({"dropped_columns": "hard", "schema_evolution": "type_widen"}, "dropped_columns has no meaning"),
        (FULL | {"aliases": {"a": "c", "b": ["d", "c"]}}, "'c' is an earlier name of several columns"),
        (FULL | {"aliases": {"a": "b", "b": "c"}}, "'b' is both a column and an earlier name of one"),
        (FULL | {"aliases": {"a": []}}, "aliases: 'a' has no earlier name"),
        (FULL | {"aliases": {"a": "b"}, "key_fields": ["b"]}, "key_fields: 'b' is an earlier name; write 'a'"),
        (FULL | {"aliases": {"a": "b"}, "schema": {"b": "int"}}, "schema: 'b' is an earlier name; write 'a'"),
        (FULL | {"aliases": {"a": "b"}, "partition_by": ["day(b)"]}, "partition_by: 'b' is an earlier name; write 'a'"),
        (FULL | {"dropped_columns": "hard", "commit_mode": "upsert", "key_fields": ["a"], "partial_updates": True},
         "dropped_columns: hard would drop the columns whose values partial_updates is to keep"),
        ({"schema": {"a": ["int"]}}, "schema"),
        ({"schema": {"a": None}}, "schema"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together(options: dict[str, Any], words: str) -> None:
    assert words in complaint(**options)


def test_earlier_names_are_one_or_several() -> None:
    value = sink(schema_evolution="full", aliases={"email": "mail", "name": ["nom", "Name"]})
    assert value.aliases == {"email": ("mail",), "name": ("nom", "Name")}
    assert value.earlier_names == {"mail": "email", "nom": "name", "Name": "name"}
    assert "aliases" in complaint(schema_evolution="full", aliases=["mail"])


def test_codecs_of_the_formats() -> None:
    for file_format in FileFormat:
        for codec in Compression:
            if codec in CODECS[file_format]:
                assert sink(file_format=file_format, compression=codec).compression is codec
            else:
                assert f"cannot be compressed with {codec}" in complaint(file_format=file_format, compression=codec)


def test_keys_are_found_among_declared_columns_whatever_their_case_when_configured_so() -> None:
    given = {"schema": {"Id": "long", "v": "double"}, "commit_mode": "upsert"}
    assert sink(**given, key_fields=["ID"], case_sensitive=False).key_fields == ("ID",)
    with pytest.raises(ValidationError, match="key field 'ID' is not among the declared columns"):
        sink(**given, key_fields=["ID"])
    with pytest.raises(ValidationError, match="column v has type double which cannot be used"):
        sink(**given, key_fields=["V"], case_sensitive=False)


def test_declared_columns_as_a_list_or_by_name() -> None:
    by_name = sink(schema={"id": "bigint", "note": {"type": "string", "doc": "d"}})
    as_list = sink(schema=[{"name": "id", "type": "bigint"}, {"name": "note", "type": "string", "doc": "d"}])
    assert by_name == as_list
    assert by_name.declared_schema is not None
    assert str(by_name.declared_schema) == "struct<id: long, note: string>"
    files = FilesSource.model_validate({"path": "p", "format": "json", "schema": {"id": "long"}})
    assert [column.name for column in files.columns] == ["id"]


def test_properties_are_texts() -> None:
    written = {"a": 1, "b": True, "c": "x", "d": 1.5}
    texts = {"a": "1", "b": "true", "c": "x", "d": "1.5"}
    assert sink(write_properties=written).write_properties == texts
    assert SparkSettings.model_validate({"conf": written}).conf == texts
    assert FilesSource(path="p", format=SourceFormat.CSV, options=written).options == texts  # type: ignore[arg-type]
    assert "write_properties" in complaint(write_properties={"a": None})
    assert "write_properties" in complaint(write_properties={"a": [1]})


def test_batches_while_catching_up() -> None:
    assert sink(batch_size=10).rows_per_batch == 10
    assert sink(batch_size=10, max_batch_size=50).rows_per_batch == 50


def test_the_identity_of_a_sink() -> None:
    pipeline = PipelineSpec(
        name="p", source_name="a", source=GeneratorSource(), sink_name="s", sink=sink(namespace="x.y", table="t")
    )
    assert pipeline.sink_id == "p/s"
    assert pipeline.sink.full_name == "x.y.t"
    assert pipeline.sink.namespace_levels == ("x", "y")
    assert pipeline.model_copy(update={"sink": sink(id="mine")}).sink_id == "mine"


def test_jdbc_is_another_name_of_sql() -> None:
    written = {"type": "jdbc", "jdbc": {"uri": "jdbc:sqlite:x.db", "warehouse": "w"}}
    catalog = CatalogSpec.model_validate(written)
    assert (catalog.type, catalog.location) == (CatalogType.SQL, "w")
    assert written["type"] == "jdbc"


def test_the_warehouse_of_the_section_wins() -> None:
    catalog = CatalogSpec.model_validate({"type": "hadoop", "warehouse": "outer", "hadoop": {"warehouse": "inner"}})
    assert catalog.location == "inner"
    assert CatalogSpec.model_validate({"type": "hadoop", "warehouse": "outer"}).location == "outer"


def test_sources_that_contradict_themselves() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        QuerySource(query="q", cursor="c", every_run=True)
    with pytest.raises(ValidationError, match="belong together"):
        KafkaSource(bootstrap_servers="b", topics=("t",), start_offset="timestamp")


def test_settings() -> None:
    levels = {"WARN": "warning", "trace": "debug", "TRACE": "debug", "Critical": "error", "info": "info"}
    assert {word: Settings.model_validate({"log_level": word}).log_level for word in levels} == levels
    for value in (0.5, float("inf"), float("nan")):
        with pytest.raises(ValidationError):
            RetrySettings(backoff_multiplier=value)


def test_the_users_own_words_for_operations_count_before_the_defaults_of_others() -> None:
    own = {"insert": ["A"], "update": ["M"], "delete": ["X"]}
    meant = sink(op_field="op", op_values=own).op_values.by_value
    assert (meant["a"], meant["m"], meant["x"], meant["-u"]) == ("insert", "update", "delete", "ignore")
    meant = sink(op_field="op", op_values={"delete": ["-u", "-d"]}).op_values.by_value
    assert (meant["-u"], meant["-d"], meant["u"], meant["m"]) == ("delete", "delete", "update", "ignore")


def test_a_word_for_two_operations_is_refused() -> None:
    own = {"insert": ["A"], "delete": ["a"]}
    with pytest.raises(ValidationError) as caught:
        sink(op_field="op", op_values=own)
    error = caught.value.errors()[0]["ctx"]["error"]
    assert isinstance(error, InconsistencyError)
    assert [(str(one), one.at) for one in error.problems] == [
        ("op_values: 'a' cannot mean both insert and delete; upper and lower case are alike", ("op_values", "delete"))
    ]


def test_columns_that_the_sink_adds_are_declared_with_the_others() -> None:
    options = {"op_field": "o", "op_column": "op", "diff_column": "diff", "time_column": "at", "error_column": "wrong"}
    value = sink(schema={"id": "long", "diff": "long"}, partition_by=["day(at)"], sort_by=["at"], **options)
    assert str(value.declared_schema) == "struct<id: long, diff: long, op: string, at: timestamptz, wrong: string>"
    assert sink(**options).declared_schema is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": ["day(at)", "days(at)"]}, r"day\(at\) partitions the table twice"),
        ({"partition_by": ["day(at)", "at_day"]}, r"day\(at\) and at_day would both be the partition field 'at_day'"),
        ({"partitioning": "identity", "partition_fields": ["a", "a"]}, "a partitions the table twice"),
    ],
)
def test_partition_fields_have_names_of_their_own(options: dict[str, Any], message: str) -> None:
    assert re.search(message, complaint(**options))
    named = [{"source": "at", "transform": "day", "name": "d"}, "at_day", "bucket(4, id)", "bucket(8, id)"]
    assert len(sink(partition_by=named).partition) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "../../x"}, "table cannot be '../../x'"),
        ({"table": "a/b"}, "table cannot be 'a/b'"),
        ({"table": ".."}, "table cannot be '..'"),
        ({"table": "a?b"}, "table cannot be 'a?b'"),
        ({"namespace": "db/a", "table": "b"}, "namespace cannot be 'db/a'"),
        ({"table": "a", "on_error": "dead_letter", "dead_letter_table": "db.a/b"}, "dead_letter_table cannot be 'a/b'"),
        ({"route": {"field": "k", "name": "a/{value}"}}, "name cannot be 'a/{value}'"),
        ({"route": {"field": "k", "ledger_table": "a/b"}}, "ledger_table cannot be 'a/b'"),
        ({"route": {"field": "k", "tables": {"x": "a/b"}}}, "the table of 'x' cannot be 'a/b'"),
        ({"route": {"field": "k", "tables": {"x": {"table": "../y"}}}}, "the table of 'x' "),
    ],
)
def test_a_name_is_one_folder_of_the_warehouse(options: dict[str, Any], message: str) -> None:
    assert message in complaint(**{"namespace": "db", **options})


def test_a_value_of_a_route_chooses_no_folder() -> None:
    route = sink(namespace="db", route={"field": "k", "name": "t_{value}"}).route
    assert route is not None
    assert [route.table_of(value) for value in ("a/b", "../../x", "a?b#c", "a.b")] == ["t_a_b", "t_______x", "t_a_b_c", "t_a_b"]
