"""The transforms of a pipeline as changes of a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce, singledispatch

from pyspark.sql import DataFrame, functions

from frazil.errors import ConfigError
from frazil.model.transform import AddField, FilterRows, RemoveField, RenameField, TransformSpec


def shaped(frame: DataFrame, transforms: Sequence[TransformSpec]) -> DataFrame:
    """The frame after all transforms, in order."""
    return reduce(lambda shaping, transform: _apply(transform, shaping), transforms, frame)


def drops_rows(transforms: Sequence[TransformSpec]) -> bool:
    """Whether fewer rows may come out than go in."""
    return any(isinstance(transform, FilterRows) for transform in transforms)


@singledispatch
def _apply(transform: object, _frame: DataFrame) -> DataFrame:
    raise TypeError(type(transform))


@_apply.register
def _rename(transform: RenameField, frame: DataFrame) -> DataFrame:
    _require(transform.from_, frame, "rename_field")
    if transform.to in frame.columns and transform.to != transform.from_:
        raise ConfigError("transform-column", f"rename_field: there already is a column {transform.to!r}")
    return frame.withColumnRenamed(transform.from_, transform.to)


@_apply.register
def _remove(transform: RemoveField, frame: DataFrame) -> DataFrame:
    _require(transform.field, frame, "remove_field")
    return frame.drop(transform.field)


@_apply.register
def _add(transform: AddField, frame: DataFrame) -> DataFrame:
    if transform.field in frame.columns:
        raise ConfigError("transform-column", f"add_field: there already is a column {transform.field!r}")
    value = functions.lit(transform.value) if transform.value is not None else functions.lit(None).cast("string")
    return frame.withColumn(transform.field, value)


@_apply.register
def _filter(transform: FilterRows, frame: DataFrame) -> DataFrame:
    _require(transform.field.partition(".")[0], frame, "filter")
    return frame.filter(functions.col(transform.field).eqNullSafe(functions.lit(transform.equals)))


def _require(name: str, frame: DataFrame, what: str) -> None:
    if name not in frame.columns:
        known = ", ".join(frame.columns)
        raise ConfigError("transform-column", f"{what}: there is no column {name!r}. Columns: {known}")
