"""The transforms of a pipeline as changes of a data frame.

Columns whose names begin with ``__frazil_`` pass through all of them. A row that its source could not make anything of is never
left out: nothing in it says that it should be.
"""

from frazil.write.shape.apply import sink_rows, source_rows
from frazil.write.shape.tally import Tally

__all__ = ["Tally", "sink_rows", "source_rows"]
