"""Sources: each plans slices that can be read again, and reads them as Spark data frames."""

from frazil.sources.base import Slice, Source
from frazil.sources.registry import letter_topic, open_source, rereader

__all__ = ["Slice", "Source", "letter_topic", "open_source", "rereader"]
