"""Which rows a sink's key identifies, if the source identifies its rows by other columns.

A change contains at least the source's key of its row. A column that is derived from that key alone can be followed through
every change. By any other column a row can be followed only if changes come with their images: the whole previous row of an
update, as an additional delete.
"""

from __future__ import annotations

from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions

from frazil.columns.schema import data_columns, error_of, follows_key, is_of_key, is_of_value, quoted, tells_changes
from frazil.model.changes import CommitMode
from frazil.model.hidden import DELETE, ERROR, IGNORE, IMAGE, IMAGES_MARK, KEY_COUNT_MARK, OF_KEY_MARK, OP, VALUE_MARK
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.write.shape.unsent import made_by


def is_followed(frame: DataFrame, sink: SinkSpec) -> bool:
    """Whether the keys that the sink names can be followed through the changes of the frame."""
    if not data_columns(frame) or not tells_changes(frame):
        return True
    return all(follows_key(frame, one) for one in (sink, *sink.apart.values()) if one.commit_mode is CommitMode.UPSERT)


def marking_keys(before: DataFrame, after: DataFrame, transform: TransformSpec) -> DataFrame:
    """The frame after a transform, with marks on the columns that it made from the source's key, or a message's value, alone."""
    if not tells_changes(before) or KEY_COUNT_MARK not in before.schema[OP].metadata:
        return after
    try:
        made = made_by(transform, before)
    except PySparkException:
        return after  # errors of an expression are reported when the transform is applied
    for name in data_columns(after):
        origins = made.columns.get(name) or ()
        if not origins or not all(one in before.columns for one in origins):
            continue
        if not is_of_key(after, name) and all(is_of_key(before, one) for one in origins):
            after = after.withMetadata(name, after.schema[name].metadata | {OF_KEY_MARK: True})
        if not is_of_value(after, name) and all(is_of_value(before, one) for one in origins):
            after = after.withMetadata(name, after.schema[name].metadata | {VALUE_MARK: True})
    return after


def without_images(frame: DataFrame) -> DataFrame:
    """The frame without rows that nobody needs who knows rows by the source's own key."""
    if IMAGE not in frame.columns:
        return frame
    marks = {name: value for name, value in frame.schema[OP].metadata.items() if name != IMAGES_MARK}
    return frame.where(~functions.col(IMAGE)).drop(IMAGE).withMetadata(OP, marks)


def with_keys_of_images(frame: DataFrame, sink: SinkSpec, *, whole: bool) -> DataFrame:
    """Changes with their images, without deletes of rows that have no key.

    ``whole``: the source always sends the whole row, so the row of a delete without a key never was in the table. Otherwise it
    may have sent a part of it, and the deleted row is not known.
    """
    names = [sink.key_column(key, data_columns(frame)) for key in sink.key_fields]
    lacking = [functions.col(quoted(name)).isNull() for name in names if name is not None]
    gone = functions.col(OP) == DELETE
    nobody = gone & reduce(Column.__or__, lacking, functions.lit(False))
    marks = frame.schema[OP].metadata
    if whole:
        op = functions.when(nobody, IGNORE).otherwise(functions.col(OP))
        return frame.withColumn(OP, op).withMetadata(OP, marks)
    words = (
        f"the change has no `before`, by which its row is found in the table ({', '.join(sink.key_fields)}); the "
        "database must log whole rows: in PostgreSQL REPLICA IDENTITY FULL"
    )
    wrong = functions.when(nobody, error_of("transform", "before-missing", functions.lit(words)))
    error = functions.coalesce(functions.col(ERROR), wrong) if ERROR in frame.columns else wrong
    return frame.withColumn(ERROR, error)
