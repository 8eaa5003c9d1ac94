"""frazil's errors as dlt knows errors: those that a retry may cure, and those that a person must look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dlt.common.destination.exceptions import DestinationTerminalException, DestinationTransientException

from frazil.errors import FrazilError, Retryable

_EVOLUTION = ("required-missing", "schema-strict", "schema-mismatch", "extra-column", "column-in-use", "columns-differ-by-case")
_CASTING = ("strict-casting", "value-not-convertible", "epoch-unit", "required-null")


class LoadError(DestinationTerminalException):
    """A load that frazil refuses. ``code`` is stable."""

    def __init__(self, error: FrazilError, where: str = "") -> None:
        self.code = error.code
        super().__init__(_told(error, where))


class CastingError(LoadError):
    """A value does not fit its column, or might lose something on its way there."""


class SchemaEvolutionError(LoadError):
    """The table cannot follow the data."""


class LoadInterrupted(DestinationTransientException):
    """Something did not answer: the same load may succeed later, and nothing of it is doubled then."""

    def __init__(self, error: FrazilError, where: str = "") -> None:
        self.code = error.code
        super().__init__(_told(error, where))


def _told(error: FrazilError, where: str) -> str:
    return f"{where}: {error} [{error.code}]" if where else f"{error} [{error.code}]"


def translated(error: FrazilError, where: str = "") -> Exception:
    """The error in dlt's words."""
    if isinstance(error, Retryable):
        return LoadInterrupted(error, where)
    if error.code in _CASTING:
        return CastingError(error, where)
    return (SchemaEvolutionError if error.code in _EVOLUTION else LoadError)(error, where)


@contextmanager
def dlt_errors(where: str = "") -> Iterator[None]:
    """Turns frazil's errors into dlt's. What was behind them, and is Java's, is for the log of frazil alone."""
    try:
        yield
    except FrazilError as error:
        # dlt keeps the text of all that stands behind an exception in its traces.
        error.__cause__ = error.__context__ = None
        raise translated(error, where) from None
