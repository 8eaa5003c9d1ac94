"""Tables that keep every version of a row: which columns say from when to when one was valid, and what made it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from frazil.model.base import Model

WITHOUT_TIME_OF_DELETES = (
    "{!r} is a column of the rows, of which a delete has the value from before, or none: it does not say when the row went"
)
LEAVE_TO_SOURCE = "Leave order_by out: versions then begin at the times at which the source says that its rows were changed."


class History(Model):
    """The columns that a table of versions has beside those of its rows."""

    type: Literal["scd2"] = Field("scd2", description="The kind of history: a slowly changing dimension of type 2.")
    valid_from: str = Field(
        "valid_from",
        min_length=1,
        description="Column: since when the version was valid, the value of the first column of order_by, or the time of the "
        "change by the source. It is part of the key.",
    )
    valid_to: str = Field(
        "valid_to", min_length=1, description="Column: until when the version was valid; null while no later one is known."
    )
    current: str = Field("is_current", min_length=1, description="Column: whether the row is as this version says.")
    operation: str = Field(
        "operation", min_length=1, description="Column: what made the version, `insert`, `update`, or `delete`: the row is gone."
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return self.valid_from, self.valid_to, self.current, self.operation
