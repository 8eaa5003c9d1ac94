"""The error of values that do not fit their columns."""

from frazil.dlt import CastingError

__all__ = ["CastingError"]
