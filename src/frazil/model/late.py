"""Late rows: those that come after a row of their key which is later in the order, and the table that remembers deleted keys."""

from __future__ import annotations

from enum import StrEnum

SUFFIX = "__tombstones"
SINK, BRANCH, BATCH, DELETED_AT = "frazil_sink", "frazil_branch", "frazil_batch", "frazil_deleted_at"
"""What a tombstone says beside its key and its place in the order: who wrote it, for which branch, with which batch, and when."""
OWN_COLUMNS = (SINK, BRANCH, BATCH, DELETED_AT)

MOST_HOURS = 87_600
"""The longest time for which deleted keys are remembered: ten years."""


class Late(StrEnum):
    """What becomes of a row that is lower in the order than what the table has of its key."""

    APPLY = "apply"
    IGNORE = "ignore"
