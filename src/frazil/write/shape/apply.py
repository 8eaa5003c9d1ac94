"""The rows of a source as its sink takes them: one transform after the other, and what may be transformed at all."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from frazil.columns.schema import data_columns, is_key, tells_changes
from frazil.errors import ConfigError, KeyDiffers, KeyMissing
from frazil.model.changes import ChangeFormat, CommitMode
from frazil.model.dead_letters import OnError
from frazil.model.hidden import IMAGE, IMAGES_MARK, OP
from frazil.model.sink import SinkSpec
from frazil.model.transform import (
    FilterRows,
    TransformSpec,
    Unnest,
    UnwrapDebezium,
    WhereRows,
)
from frazil.write.modes.envelopes import envelopes, from_debezium, key_columns_of_envelopes
from frazil.write.modes.rows import with_operations, without_marks
from frazil.write.shape.failing import keeps_apart
from frazil.write.shape.keys import is_followed, marking_keys, with_keys_of_images, without_images
from frazil.write.shape.odd import cleared, completed
from frazil.write.shape.paths import refusal, spot
from frazil.write.shape.tally import Tally, Watch, unwatched
from frazil.write.shape.transforms import How, apply_transform
from frazil.write.shape.unsent import following

# Options by which rows are taken out of envelopes.
_PER_ROW = ("key_fields", "case_sensitive", "commit_mode", "diff_column", "op_values")
_NAME_KEYS = (
    "Name the columns by which the envelopes know a row: `keys: [id]`; or let the messages' keys tell them (key_format; in SQL "
    "KEY FORMAT)."
)


def sink_rows(
    frame: DataFrame,
    sink: SinkSpec,
    transforms: Sequence[TransformSpec] = (),
    tally: Tally | None = None,
    *,
    proven: bool = False,
) -> DataFrame:
    """The source's rows as the sink's table is to hold them, with what they do to it."""
    return with_operations(source_rows(frame, sink, transforms, tally, proven=proven), sink, proven=proven)


def source_rows(
    frame: DataFrame,
    sink: SinkSpec,
    transforms: Sequence[TransformSpec],
    tally: Tally | None = None,
    *,
    proven: bool = False,
) -> DataFrame:
    """The source's rows after all transforms, in order. With a tally the rows are counted that these take away and bring.

    ``proven``: there is a table, so that these transforms have found their columns before, and a batch that lacks one is odd.
    """
    watch = unwatched if tally is None else tally.watch
    whole = IMAGE in frame.columns
    if sink.counts_rows:
        return _shaped(frame.drop(IMAGE), sink, transforms, watch, proven=proven)
    if not _needs_images(frame, sink, transforms, proven=proven):
        return _shaped(without_images(frame), sink, transforms, watch, proven=proven)
    made = _shaped(frame.drop(IMAGE), sink, transforms, watch, images=True, proven=proven)
    return with_keys_of_images(made, sink, whole=whole) if data_columns(made) else made


# Whether the changes of such frames are followed with their images: the same transforms meet the same columns batch after batch.
_imaged: dict[tuple[str, ...], bool] = {}


def _needs_images(frame: DataFrame, sink: SinkSpec, transforms: Sequence[TransformSpec], *, proven: bool) -> bool:
    """Whether the sink's key can be followed only if changes come with their images, which this source can provide."""
    unwraps = any(isinstance(one, UnwrapDebezium) for one in transforms)
    tells = OP in frame.columns and bool(frame.schema[OP].metadata.get(IMAGES_MARK))
    if not sink.has_own_key or not (unwraps or tells):
        return False
    key = (frame.schema.json(), sink.model_dump_json(), *(one.model_dump_json() for one in transforms))
    if key not in _imaged:
        try:
            made = _shaped(without_images(frame), sink, transforms, unwatched, proven=proven)
            _imaged[key] = not is_followed(made, sink)
        except (KeyMissing, KeyDiffers):
            # The sink's key was to tell which rows of envelopes moved, and is not among their columns.
            if any(isinstance(one, FilterRows | WhereRows) for one in transforms):
                raise
            _imaged[key] = True
    return _imaged[key]


def _shaped(
    frame: DataFrame,
    sink: SinkSpec,
    transforms: Sequence[TransformSpec],
    watch: Watch,
    *,
    images: bool = False,
    proven: bool = False,
) -> DataFrame:
    frame = without_marks(frame, sink)
    relying: UnwrapDebezium | None = None
    for transform in transforms:
        if not data_columns(frame):
            return frame  # no record has anything to say, and so there is nothing to change
        if isinstance(transform, UnwrapDebezium):
            relying = None if images or transform.keys or key_columns_of_envelopes(frame) else transform
            frame = without_marks(_unwrapped(transform, frame, sink, images=images), sink)
        else:
            if tells_changes(frame):
                _require_for_changes(transform, sink)
            if sink.error_handling is OnError.DEAD_LETTER:
                frame = cleared(completed(frame, transform) if proven else frame, transform)
            made = apply_transform(transform, following(frame, transform), How(watch, keeps_apart(sink)))
            frame = marking_keys(frame, made, transform)
    if relying is not None and data_columns(frame):
        _require_keys_of_the_sink(relying, frame, sink)
    return frame


def _require_for_changes(transform: TransformSpec, sink: SinkSpec) -> None:
    """Refuses what cannot be done to rows that change."""
    sinks = (sink, *sink.apart.values())
    if isinstance(transform, Unnest) and any(one.commit_mode is not CommitMode.APPEND for one in sinks):
        words = "rows of this source change: a delete has no list, and nothing says which elements an update took out"
        fix = "Keep the list, and unnest it when you read the table; or append, with op_column."
    elif isinstance(transform, FilterRows | WhereRows) and any(one.diff_column is not None for one in sinks):
        words = "a row that is gone may say nothing but its key, so that it is not known whether it was counted"
        fix = "Leave diff_column out of the sink, or filter when you read the table."
    else:
        return
    raise refusal(transform, (), words, code="transform-changes", fix=fix)


def _unwrapped(transform: UnwrapDebezium, frame: DataFrame, sink: SinkSpec, *, images: bool) -> DataFrame:
    _require_for_unwrapping(transform, sink)
    frame = envelopes(frame)
    for name in ("op", "before", "after"):
        spot(frame, name, transform, ())
    added = {name: spot(frame, path, transform, ("add", name)).value for name, path in transform.add.items()}
    keys = transform.keys or key_columns_of_envelopes(frame) or (() if images else sink.key_fields)
    try:
        return from_debezium(frame, sink, keys, marked=keys, added=added, images=images)
    except ConfigError as error:
        fix = error.fix or _NAME_KEYS
        raise refusal(
            transform, ("keys",) if transform.keys else (), error.message, code=error.code, kind=type(error), fix=fix
        ) from None


def _require_for_unwrapping(transform: UnwrapDebezium, sink: SinkSpec) -> None:
    """Refuses sinks that would take the rows for something else than changes."""
    differing = [name for name in _PER_ROW if len({str(getattr(one, name)) for one in (sink, *sink.apart.values())}) > 1]
    if sink.change_format is not ChangeFormat.ROWS:
        words = f"the sink would look for envelopes once more, as its change_format: {sink.change_format} says"
        fix = "Leave change_format out of the sink."
    elif sink.op_field is not None:
        words = "the envelopes say what is done to a row, and so would op_field"
        fix = "Leave op_field out of the sink."
    elif sink.commit_mode not in (CommitMode.APPEND, CommitMode.UPSERT):
        words = f"the rows are changes, which commit_mode: {sink.commit_mode} does not follow"
        fix = "Set commit_mode: upsert, or append."
    elif differing:
        words = f"rows are taken out of their envelopes before it is known which table they go into, and {differing[0]} differs"
        fix = "Set change_format: debezium in the sink instead: envelopes are then unwrapped for each table by itself."
    else:
        return
    raise refusal(transform, (), words, code="transform-changes", fix=fix)


def _require_keys_of_the_sink(transform: UnwrapDebezium, frame: DataFrame, sink: SinkSpec) -> None:
    """If key_fields showed which rows of envelopes changed their key, they must still be the same columns as inside of the
    envelopes.
    """
    names = {key: sink.key_column(key, data_columns(frame)) for key in sink.key_fields}
    for key, name in names.items():
        if sink.commit_mode is CommitMode.UPSERT and name is not None and not is_key(frame, name):
            words = f"{key!r} of key_fields is another column than the {key!r} of the envelopes, which identifies rows"
            raise refusal(transform, (), words, code="key-differs", kind=KeyDiffers, fix=_NAME_KEYS)
