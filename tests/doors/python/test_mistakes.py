"""Mistakes in calls of the Python API are refused by the call that makes them, with the caller's file and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import frazil
from frazil.bytewax import IcebergSink, IcebergSinkConfig
from frazil.dlt import IcebergRestConfiguration, iceberg_rest
from frazil.doors.bytewax.arguments import SinkArguments
from frazil.doors.dlt.arguments import DestinationArguments
from frazil.doors.python.options import CatalogOptions, RetryOptions, SinkOptions, TriggerOptions
from frazil.model.catalog import CatalogSpec
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec

CATALOG = {"type": "sql", "sql": {"uri": "sqlite:///c.db", "warehouse": "w"}}
SINK = {"catalog": CATALOG, "namespace": "db", "table": "t"}
SOURCE = {"connector": "generator"}
TABLE = {"catalog_uri": "sqlite:///c.db", "table_name": "db.t", "warehouse_path": "w", "catalog_type": "sql"}


def described() -> frazil.Sink:
    return frazil.sink().to("lake.db.t")


def given(call: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], Any]:
    """The call, as somebody makes it who has no type checker."""
    return lambda: call(*args, **options)


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: frazil.sink({"id": 1}), "frazil.sink() takes a Spark data frame, not dict.\nMake one with spark.createDataFrame"),  # type: ignore[arg-type]
    (lambda: frazil.sink([{"id": 1}]), "takes a Spark data frame, not list"),  # type: ignore[arg-type]
    (given(described().options, batch_sise=3), "batch_sise: there is no option of this name.\nDid you mean 'batch_size'?"),
    (given(described().options, batch_size=0), "batch_size: input should be greater than or equal to 1"),
    (given(described().options, catalog={"type": "sql"}), "catalog.sql: SQL catalog URI is required"),
    (lambda: described().mode("ignore"), "commit_mode: input should be 'append', 'overwrite', 'upsert'"),
    (lambda: described().keys(["id"]), "key_fields.0: input should be a valid string"),  # type: ignore[arg-type]
    (lambda: described().partition_by("weekly(ts)"), "unknown transform 'weekly'"),
    (lambda: described().id(""), "id: string should have at least 1 character"),
    (lambda: frazil.sink().to("db.t"), "'db.t' is not catalog.namespace.table"),
    (given(frazil.sink().to, None), "None is not catalog.namespace.table"),
    (lambda: described().catalog(type="sqll"), "catalog.type: input should be 'rest'"),
    (given(described().catalog, typ="sql"), "catalog.typ: there is no option of this name.\nDid you mean 'type'?"),
    (given(described().catalog, "lake"), "catalog: 'lake' is not the description of a catalog"),
    (given(described().catalog, CATALOG, type="rest"), "it is given as a value and by its options"),
    (given(described().retry, max_retry=3), "retry.max_retry: there is no option of this name.\nDid you mean 'max_retries'?"),
    (given(described().trigger, availableNo=True), "trigger.availableNo: there is no option of this name"),
    (given(described().trigger, once=True, availableNow=True), "trigger: there is one, and 2 are given"),
    (given(described().checkpoint, None), "checkpoint: None is not a folder"),
    (given(described().listen, "print"), "listen: 'print' is not a function"),
    (given(described().write, batch=5), "batch: 5 is not a name"),
    (lambda: described().write(), "There is no data frame to write"),
    (lambda: frazil.sink().spec, 'It is not said which table is written.\nWrite for example .to("lake.sales.orders")'),
    (lambda: frazil.sink().catalog(type="memory").spec, "The sink has no namespace"),
    (lambda: described().mode("upsert").spec, "upsert sinks must specify a key"),
    (lambda: frazil.Pipeline(SOURCE, {**SINK, "batch_sise": 3}), "sink.batch_sise: there is no option of this name"),
    (given(frazil.Pipeline, SOURCE, "lake.db.t"), "sink: it must be a dictionary, not str"),
    (lambda: frazil.Pipeline(SOURCE, frazil.sink()), "It is not said which table is written"),
    (given(frazil.Pipeline, SOURCE, SINK, transforms={"type": "where"}), "transforms: it must be a list, not dict"),
    (given(frazil.Pipeline, SOURCE, SINK, listeners=print), "listeners: it must be a list of functions"),
    (given(frazil.Pipeline, SOURCE, SINK, listeners=["print"]), "listeners: 'print' is not a function"),
    (lambda: frazil.Pipeline(SOURCE, described().checkpoint("/c")), "sink: it has a checkpoint, and the rows of a pipeline come"),
    (lambda: frazil.run("missing.yaml"), "The file missing.yaml does not exist"),
    (lambda: frazil.run("pipeline.yaml", only="orders"), "only: it must be a list of names, not 'orders'"),
    (given(frazil.run, "pipeline.yaml", listeners=print), "listeners: it must be a list of functions"),
    (given(frazil.session, {"sparc": {}}), "settings.sparc: there is no option of this name"),
    (lambda: frazil.session(components="aws"), "components: it must be a list, not 'aws'"),
    (given(frazil.register, "spark"), "frazil.register() takes a Spark session, not str"),
    (given(IcebergSinkConfig, **TABLE, batch_sise=3), "batch_sise: there is no option of this name.\nDid you mean 'batch_size'?"),
    (given(IcebergSinkConfig, catalog_type="sql"), "table_name: it is required"),
    (given(IcebergSink, TABLE), "config: it must be an IcebergSinkConfig, not dict"),
    (given(IcebergSink, IcebergSinkConfig(**TABLE), print), "listeners: it must be a list of functions"),  # type: ignore[typeddict-item]
    (given(iceberg_rest, catalog_urii="http://lake"), "unknown option 'catalog_urii'.\nDid you mean 'catalog_uri'?"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[message.splitlines()[0] for _, message in MISTAKES])
def test_a_mistake_is_refused_where_it_is_made(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(frazil.ConfigError) as caught:
        call()
    assert message in str(caught.value)
    place = caught.value.location
    assert place is not None
    assert str(caught.value).startswith(f"{place}: ")
    assert (place.file, place.line) == (__file__, call.__code__.co_firstlineno)


def test_the_line_in_a_chain_is_that_of_the_method() -> None:
    begin = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with pytest.raises(frazil.ConfigError) as caught:
        (
            frazil.sink()
            .to("lake.db.t")
            .mode("ignore")
            .keys("id")
        )  # fmt: skip
    assert caught.value.location is not None
    assert (caught.value.location.file, caught.value.location.line) == (__file__, begin + 5)


def test_what_fits_together_later_is_not_refused_before() -> None:
    made = frazil.sink().mode("upsert").options(combine={"n": "sum"}, partitioning="bucket").keys("id")
    made = made.options(partition_fields=["id"], num_buckets=4).to("lake.db.t")
    assert (made.spec.key_fields, made.spec.num_buckets, made.spec.table) == (("id",), 4, "t")


def test_a_catalog_may_be_a_dictionary() -> None:
    assert described().catalog(CATALOG).spec.catalog.type == "sql"


def test_a_pipeline_takes_the_retries_of_the_sink() -> None:
    heard: list[Any] = []
    pipeline = frazil.Pipeline(SOURCE, described().catalog(CATALOG).retry(max_retries=2).listen(heard.append))
    assert pipeline.spec.retry == RetrySettings(max_retries=2)
    assert pipeline.listeners == (heard.append,)


REQUIRED = {name for name, field in IcebergSinkConfig.model_fields.items() if field.is_required()}
BY_POSITION = {"catalog_uri", "namespace", "warehouse"}


@pytest.mark.parametrize(
    ("call", "typed", "names", "required"),
    [
        (frazil.Sink.options, SinkOptions, {field.alias or name for name, field in SinkSpec.model_fields.items()}, set()),
        (frazil.Sink.retry, RetryOptions, set(RetrySettings.model_fields), set()),
        (frazil.Sink.catalog, CatalogOptions, {*CatalogSpec.model_fields, "jdbc"}, set()),
        (IcebergSinkConfig.__init__, SinkArguments, set(IcebergSinkConfig.model_fields), REQUIRED),
        (iceberg_rest.__init__, DestinationArguments, {*IcebergRestConfiguration.known(), "capabilities"} - BY_POSITION, set()),
    ],
)
def test_type_checkers_know_every_option(call: Callable[..., Any], typed: Any, names: set[str], required: set[str]) -> None:
    """Those that the model takes, and no others: the signature cannot drift from it."""
    assert set(typed.__required_keys__ | typed.__optional_keys__) == names
    assert set(typed.__required_keys__) == required
    annotations = [one.annotation for one in inspect.signature(call).parameters.values() if one.kind is one.VAR_KEYWORD]
    assert annotations == [f"Unpack[{typed.__name__}]"]


def test_triggers_are_those_of_spark() -> None:
    from pyspark.sql.streaming import DataStreamWriter

    known = inspect.signature(DataStreamWriter.trigger).parameters.keys() - {"self", "continuous"}
    assert set(get_type_hints(TriggerOptions)) == known
