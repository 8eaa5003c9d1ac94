"""frazil's errors as dlt knows errors: those that a retry may cure, and those that a person must look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dlt.common.destination.exceptions import DestinationTerminalException, DestinationTransientException

from frazil.errors import CastRefused, ColumnsRefused, FrazilError, Retryable

_OPTIONAL = "make it optional in the table: ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL."

# What to do, where the cure that the error brings names an option that this destination does not have.
_CURES = {
    "value-not-convertible": "Correct the data, or declare another data_type for the column: columns={...} of the resource.",
    "required-null": f"Correct the data, or {_OPTIONAL}",
    "required-missing": f"Supply the column, or {_OPTIONAL}",
    "epoch-unit": 'Declare the column as a time: columns={...: {"data_type": "timestamp"}} of the resource; or convert it there.',
    "strict-casting": "Cast the column in the resource, change the table's type, or set strict_casting=False.",
    "schema-mismatch": "Declare the column with the table's data_type: columns={...} of the resource; or change the table.",
    "columns-differ-by-case": "Rename one of them in the resource, or by a naming convention: SCHEMA__NAMING=snake_case.",
    "column-reserved": "Rename them in the resource.",
    "nested-without-root": 'Load the resource anew, with refresh="drop_resources": its nested rows came before it was merged.',
    "types-mixed": "Cast the column in the resource, so that all of its data has one type.",
    "versions-mixed": "Yield each primary_key once, or use the strategy delete-insert, which tells the nested rows apart.",
    "rolled-back": 'Set the table\'s branch to that snapshot again, or load the resource anew with refresh="drop_resources".',
    "namespace-missing": "Run the pipeline again: it makes the namespace.",
    "s3-access-denied": "Check s3_access_key_id and s3_secret_access_key, and the permissions s3:GetObject, s3:PutObject, "
    "s3:DeleteObject.",
    "s3-keys-refused": "Check s3_access_key_id and s3_secret_access_key.",
    "wrong-region": "Set s3_region to the region of the bucket.",
    "spark-runs-already": "Give all destinations of a process the same spark_master and spark_conf, or leave them out.",
}


class LoadError(DestinationTerminalException):
    """A load that frazil refuses. ``code`` is stable."""

    def __init__(self, error: FrazilError, where: str = "") -> None:
        self.code = error.code
        super().__init__(_message(error, where))


class CastingError(LoadError):
    """A value does not fit its column, or might lose something on its way there."""


class SchemaEvolutionError(LoadError):
    """The table cannot follow the data."""


class LoadInterrupted(DestinationTransientException):
    """Something did not answer: the same load may succeed later, and nothing of it is doubled then."""

    def __init__(self, error: FrazilError, where: str = "") -> None:
        self.code = error.code
        super().__init__(_message(error, where))


def _message(error: FrazilError, where: str) -> str:
    text = f"{error.message}\n{_CURES[error.code]}" if error.code in _CURES else str(error)
    return f"{where}: {text} [{error.code}]" if where else f"{text} [{error.code}]"


def translated(error: FrazilError, where: str = "") -> Exception:
    """The error in dlt's words."""
    if isinstance(error, Retryable):
        return LoadInterrupted(error, where)
    if isinstance(error, CastRefused):
        return CastingError(error, where)
    return (SchemaEvolutionError if isinstance(error, ColumnsRefused) else LoadError)(error, where)


@contextmanager
def dlt_errors(where: str = "") -> Iterator[None]:
    """Turns frazil's errors into dlt's. What was behind them, and is Java's, is for the log of frazil alone."""
    try:
        yield
    except FrazilError as error:
        # dlt keeps the text of all that stands behind an exception in its traces.
        error.__cause__ = error.__context__ = None
        raise translated(error, where) from None
