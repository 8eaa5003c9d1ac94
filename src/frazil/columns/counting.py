"""Numbers of the rows of a frame, taken while they pass on their way to somewhere else."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Observation, Row


class Counted:
    """A frame that is counted when it is read."""

    def __init__(self, frame: DataFrame, *numbers: Column) -> None:
        self._frame, self._numbers = frame, numbers
        self._seen = Observation()
        self.frame = frame.observe(self._seen, *numbers)
        """The rows. Whatever reads them also counts."""

    def get(self) -> Row:
        """The numbers, once the rows have been read."""
        try:
            return Row(**self._seen.get)
        except Exception:  # noqa: BLE001 - what really fails, fails again
            # Spark forgets what it has seen when nothing of the rows comes through, and leaves out of its plan what was counted.
            row = self._frame.agg(*self._numbers).first()
            assert row is not None, "an aggregate has one row"
            return row
