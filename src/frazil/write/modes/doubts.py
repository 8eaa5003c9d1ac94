"""Keys of a batch of which it is not known which change is the last: the batch is refused, as frazil does not guess."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Row, functions

from frazil.columns.schema import quoted
from frazil.errors import DataError
from frazil.model.hidden import HIDDEN

UNCLEAR, APART, LOST = (f"{HIDDEN}{name}" for name in ("unclear", "apart", "lost"))
"""What marks the last change of a key: a different one has the same place in the order; one is in another lane, so that there is
no order between them; or a delete of the key has no place in the order, and would be lost.
"""


def doubted(last: DataFrame, keys: Sequence[str]) -> list[Column]:
    """What is counted of the last changes for :func:`require_certain`: how many are marked, and the key of one of them."""
    key_text = functions.to_json(functions.struct(*[functions.col(quoted(key)) for key in keys]))
    marks = [name for name in (UNCLEAR, APART, LOST) if name in last.columns]
    counts = [functions.count_if(functions.col(name)).alias(name) for name in marks]
    firsts = {name: functions.first(functions.when(functions.col(name), key_text), ignorenulls=True) for name in marks}
    return [*counts, *[first.alias(_example(name)) for name, first in firsts.items()]]


def require_certain(row: Row, order_by: Sequence[str], *, ordered: bool) -> None:
    """Refuses a batch with such keys. ``ordered``: its changes have an order, be it of the sink or of the source."""
    found = row.asDict()
    if lost := found.get(LOST):
        example = found[_example(LOST)]
        raise DataError(
            "order-missing",
            f"{lost} keys have a delete without a value in order_by ({', '.join(order_by)}), and a row in the same batch, for "
            f"example {example}: it is not known which of them is the last.",
            fix="Let the source send the order with deletes, or name in order_by what each change has: its time, or its place in "
            "a log.",
        )
    if apart := found.get(APART):
        example = found[_example(APART)]
        raise DataError(
            "duplicate-keys",
            f"{apart} keys have several different rows in the batch from several partitions of the source, between which "
            f"there is no order, for example {example}.",
            fix="Name a column in order_by that says which is the last: one of the data's, or the time of the record, "
            "kafka_timestamp, with metadata: [timestamp] in the source.",
        )
    if unclear := found.get(UNCLEAR):
        example = found[_example(UNCLEAR)]
        cause = "the same place in the order" if ordered else "no order to tell which is the last"
        raise DataError(
            "duplicate-keys",
            f"{unclear} keys have several different rows in the batch and {cause}, for example {example}.",
            fix="Name a column in order_by by which they differ." if not ordered else "Add a column to order_by.",
        )


def _example(mark: str) -> str:
    return f"{mark}_example"
