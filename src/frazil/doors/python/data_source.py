"""The door of Spark's own writers: `df.write.format("frazil").mode("append").option("table", "lake.db.t").save()`.

Delivery: a stream is written exactly once as long as its checkpoint lives. A single write counts once with an option `batch` that
names it, however often it is repeated; without one each call adds its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from frazil.doors.python.sink import Sink, sink
from frazil.errors import ConfigError
from frazil.model.arguments import argument_errors, located_at_caller
from frazil.model.changes import CommitMode
from frazil.model.load import ALL_ROWS
from frazil.model.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODE = "format-option"

# Where Spark keeps the columns of partitionBy, and what it takes for itself.
_PARTITION_COLUMNS = "__partition_columns"
_OVERWRITE_MODE = "partitionOverwriteMode"
_SPARK_OPTIONS = ("checkpointlocation", "path", "table", "batch", _OVERWRITE_MODE.lower(), _PARTITION_COLUMNS)
_LISTS = ("key_fields", "order_by", "readers", "partition_fields", "replace_by")
_MODES = {"Append": None, "Overwrite": CommitMode.OVERWRITE.value}


@located_at_caller
def session(settings: Settings | Mapping[str, Any] | None = None, components: Sequence[str] = ("core",)) -> SparkSession:
    """A SparkSession with everything that frazil needs in it: the one that runs, when it has what the settings ask for."""
    from frazil.spark.data_source import is_known
    from frazil.spark.jars import component_jars
    from frazil.spark.session import spark_session, with_scratch, with_settings

    if isinstance(components, str):
        raise ConfigError(
            "session-option", f"components: it must be a list, not {components!r}.", fix=f"Write components=[{components!r}]."
        )
    component_jars(components)  # refuses names that are not known, also where Spark runs already
    try:
        made = Settings.model_validate({} if settings is None else settings)
    except ValidationError as error:
        raise argument_errors(error, Settings, code="session-option", of="settings") from None
    asked = with_scratch(made)
    spark = with_settings(spark_session(asked, components), asked)
    if is_known(spark):  # one that was there before may have been started without frazil's jar
        register(spark)
    return spark


@located_at_caller
def register(spark: SparkSession) -> None:
    """Lets `format("frazil")` work in a Spark session. One that `frazil.session()` gives knows it already."""
    from frazil.spark.data_source import register as register_in

    register_in(spark, _write, _open)


def _write(frame: DataFrame, options: Mapping[str, str], mode: str) -> None:
    if mode not in _MODES:
        word = "errorifexists" if mode == "ErrorIfExists" else mode.lower()
        raise ConfigError(CODE, f'frazil cannot write with .mode("{word}").', fix='Write .mode("append") or .mode("overwrite").')
    columns = json.loads(options.get(_PARTITION_COLUMNS, "[]"))
    described = _described(frame, options, columns, commit_mode=_MODES[mode])
    if mode != "Overwrite":
        _require_no_overwrite_mode(options)
    elif _replaces_all(options, frame.sparkSession):
        described = described.options(overwrite_where=ALL_ROWS)
    described.write(batch=_own(options, "batch"))


def _open(options: Mapping[str, str], columns: list[str], output_mode: str) -> Callable[[DataFrame, int], None]:
    if _own(options, "batch") is not None:
        raise ConfigError(CODE, "batch: Spark numbers the batches of a stream.", fix="Leave the option out.")
    _require_no_overwrite_mode(options)
    described = _described(None, options, columns, commit_mode=_stream_mode(output_mode, options))
    if output_mode == "Complete":
        if "overwrite_where" in options:
            raise ConfigError(
                CODE, 'overwrite_where: .outputMode("complete") takes the place of all rows.', fix="Leave the option out."
            )
        described = described.options(overwrite_where=ALL_ROWS)
    described.spec, described.retry_settings  # noqa: B018 - a wrong option is reported before the table is looked at
    return described


def _replaces_all(options: Mapping[str, str], spark: SparkSession) -> bool:
    """Whether an overwrite replaces all rows, as Spark's own do unless they are dynamic, and not those of touched partitions."""
    given = _own(options, _OVERWRITE_MODE.lower())
    if given is not None and "overwrite_where" in options:
        raise ConfigError(CODE, f"{_OVERWRITE_MODE}: overwrite_where says which rows are replaced.", fix="Keep one of the two.")
    word = (given or spark.conf.get(f"spark.sql.sources.{_OVERWRITE_MODE}") or "").lower()
    if word not in ("static", "dynamic"):
        raise ConfigError(CODE, f"{_OVERWRITE_MODE}: there is no mode {given!r}.", fix="Write static or dynamic.")
    return word == "static" and "overwrite_where" not in options


def _require_no_overwrite_mode(options: Mapping[str, str]) -> None:
    if _own(options, _OVERWRITE_MODE.lower()) is not None:
        raise ConfigError(CODE, f'{_OVERWRITE_MODE}: it has no meaning without .mode("overwrite").', fix="Leave the option out.")


def _stream_mode(output: str, options: Mapping[str, str]) -> str | None:
    """Rows that come are appended; groups that change can only be upserted, and a whole answer takes the place of the last."""
    given = options.get("commit_mode")
    if output == "Complete":
        return CommitMode.OVERWRITE.value
    if output == "Update" and given != CommitMode.UPSERT.value:
        raise ConfigError(
            CODE,
            '.outputMode("update"): rows of earlier batches come again, with other values.',
            fix='Add .option("commit_mode", "upsert") and .option("key_fields", ...): the columns of the groups.',
        )
    return None


def _described(frame: DataFrame | None, options: Mapping[str, str], columns: list[str], *, commit_mode: str | None) -> Sink:
    named = [value for name in ("table", "path") if (value := _own(options, name)) is not None]
    if not named:
        fix = 'Write .option("table", "lake.sales.orders"), or .save("lake.sales.orders").'
        raise ConfigError(CODE, "table: it is required.", fix=fix)
    if (path := _own(options, "path")) is not None and "/" in path:
        raise ConfigError(
            CODE,
            f"table: {path!r} is a place, which Spark also gives for .saveAsTable().",
            fix='Write .save("lake.sales.orders") or .start("lake.sales.orders").',
        )
    if len(set(named)) > 1:
        raise ConfigError(
            CODE, f"table: {named[0]} and {named[1]} are given, and rows go into one table.", fix="Keep one of the two."
        )
    given = _nested({name: value for name, value in options.items() if name.lower() not in _SPARK_OPTIONS})
    if commit_mode is not None:
        if given.get("commit_mode", commit_mode) != commit_mode:
            raise ConfigError(
                CODE, f"commit_mode: {given['commit_mode']} and the mode of the write, {commit_mode}, say different things."
            )
        given["commit_mode"] = commit_mode
    if columns:
        if "partition_by" in given:
            raise ConfigError(CODE, "partition_by: .partitionBy() says the same thing.", fix="Keep one of the two.")
        given["partition_by"] = columns
    retry = given.pop("retry", {})
    if not isinstance(retry, dict):
        raise ConfigError(CODE, "retry: it is a section.", fix='Write for example .option("retry.max_retries", 3).')
    return sink(frame).retry(**retry).options(**given).to(named[0])


def _own(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name), None)


def _nested(options: Mapping[str, str]) -> dict[str, Any]:
    """`catalog.sql.uri` is an option of a section; lists have commas, and what else is no text is JSON."""
    made: dict[str, Any] = {}
    for name, text in options.items():
        first, *rest = name.split(".", 1) if name.startswith("write_properties.") else name.split(".")
        value: Any = text
        if text.lstrip()[:1] in ("{", "["):
            value = _json(name, text)
        elif name in _LISTS:
            value = [part.strip() for part in text.split(",")]
        at = made
        for step in (first, *rest)[:-1]:
            at = at.setdefault(step, {})
            if not isinstance(at, dict):
                raise ConfigError(CODE, f"{name}: {step} is given as a whole already.")
        at[(first, *rest)[-1]] = value
    return made


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(CODE, f"{name}: this is not JSON: {error}.") from None
