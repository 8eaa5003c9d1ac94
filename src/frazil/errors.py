"""The error tree. The type says what is known, the code is stable, and every error has a cure.

::

    FrazilError
    |- ConfigError        the user's file, statement or call is wrong; nothing was done         exit 78
    |  |- ConfigErrors    several of them, found in one reading                                 exit 78
    |  |- SourceMissing   what is to be read is not there                                       exit 78
    |  |- ColumnMissing   the settings name a column that the data has not                      exit 78
    |  |  `- KeyMissing   ... which is to be the key                                            exit 78
    |  |- KeyDiffers      the key is not the one by which the source knows its rows             exit 78
    |  `- CredentialsRefused  a catalog or a store does not accept the credentials             exit 78
    |- UsageError         the command line is wrong                                             exit 2
    |- EnvironmentFault   this machine lacks something (Java, a jar, a package)                 exit 1
    |- DataError          the data does not fit the table, and the settings say stop            exit 1
    |  |- NoColumns       nothing in the data shows which columns the table is to have         exit 1
    |  |- ColumnsRefused  the table's columns do not follow those of the data                  exit 1
    |  `- CastRefused     a value does not fit its column, or could lose something there       exit 1
    |     `- RequiredNull a required column has no value in a row                               exit 1
    |- Retryable          a service did not answer; the same call may succeed later             exit 75
    |  |- SourceAway      the source, or what it needs to read its records, did not answer      exit 75
    |  |- CatalogAway     the catalog did not answer                                            exit 75
    |  |  `- CatalogUnborn  its database answers, and no catalog was made in it yet            exit 75
    |  |- StoreRefused    a store is full, or may not be written to                             exit 75
    |  |- OutcomeUnknown  a commit was sent and whether it was applied could not be found out   exit 75
    |  `- SparkDied       Spark's Java has ended; the same work may succeed on a new one         exit 75
    `- Halted             going on could lose or double rows; a person must decide              exit 1
       |- TableGone       the table is not there any more                                      exit 1
       |- Fenced          another instance owns the sink; this one must stop                    exit 1
       |- OutOfOrder      a batch does not begin where the ledger ends                          exit 1
       `- OverwriteConflict  somebody else added rows that an overwrite would take away unseen  exit 1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True)
class SourceLocation:
    """A place in the user's own file: YAML, SQL or Python."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class FrazilError(Exception):
    """Something went wrong that a person has to know: what happened, where, and what to do."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, *, fix: str = "", location: SourceLocation | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.location = location
        self.beside: tuple[FrazilError, ...] = ()
        """Others that happened at the same time, elsewhere."""

    def of_table(self, table: str, others: str = "") -> Self:
        """A copy of the error whose message begins with the table where it happened, and ends with a remark on others."""
        named = type(self).__new__(type(self))
        named.__dict__.update(self.__dict__, message=f"Table {table}: {self.message}{others}")
        named.args = (named.message,)
        return named

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        cure = f"\n{self.fix}" if self.fix else ""
        return "\n".join([f"{where}{self.message}{cure}", *map(str, self.beside)])


class ConfigError(FrazilError):
    """The user's file, statement or call is wrong; nothing was done."""

    exit_code = 78


class ConfigErrors(ConfigError):
    """Everything that is wrong in one file, in the order of its lines."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        one = len(self.errors) == 1
        super().__init__(
            first.code if one else "several-problems",
            first.message if one else f"{len(self.errors)} problems in the configuration",
            fix=first.fix if one else "",
            location=first.location,
        )

    def __str__(self) -> str:
        return "\n".join(str(error) for error in (*self.errors, *self.beside))


class SourceMissing(ConfigError):
    """What is to be read is not there."""


class ColumnMissing(ConfigError):
    """The settings name a column that the data has not, or that cannot be used so."""


class KeyMissing(ColumnMissing):
    """The data has no column that the settings name as its key."""


class KeyDiffers(ConfigError):
    """The key is not the one by which the source knows its rows."""


class CredentialsRefused(ConfigError):
    """A catalog or a store does not accept the credentials. A catalog may have newer ones for those that it has given out."""


class UsageError(FrazilError):
    """The command line is wrong."""

    exit_code = 2


class EnvironmentFault(FrazilError):
    """This machine lacks something that frazil needs."""

    @classmethod
    def package(cls, what: str, package: str | None, extra: str) -> EnvironmentFault:
        """A package that only some need: ``what`` needs it, and the extra of this name brings it."""
        fix = f"Install it: pip install 'frazil[{extra}]'."
        return cls("package-missing", f"{what} needs the package {package}.", fix=fix)


class DataError(FrazilError):
    """The data does not fit the table, and the settings say stop."""


class NoColumns(DataError):
    """Nothing in the data tells which columns the table is to have."""


class ColumnsRefused(DataError):
    """The table's columns do not follow those of the data: the settings forbid it, or it cannot be done."""


class CastRefused(DataError):
    """A value does not fit its column, or could lose something on its way there."""


class RequiredNull(CastRefused):
    """A required column, or a field inside of one, has no value in a row: ``column`` is its path."""

    def __init__(self, message: str, column: str, *, fix: str = "") -> None:
        super().__init__("required-null", message, fix=fix)
        self.column = column


class Retryable(FrazilError):
    """A service did not answer as it should; the same call may succeed later: ``after`` so many seconds, where that is known."""

    exit_code = 75

    def __init__(
        self, code: str, message: str, *, fix: str = "", location: SourceLocation | None = None, after: float | None = None
    ) -> None:
        super().__init__(code, message, fix=fix, location=location)
        self.after = after


class SourceAway(Retryable):
    """The source, or what it needs to read its records, did not answer. The next part is planned anew, after a while."""


class CatalogAway(Retryable):
    """The catalog did not answer."""


class CatalogUnborn(CatalogAway):
    """The database answers, and no catalog has been made in it yet."""


class StoreRefused(Retryable):
    """A store is full, or may not be written to, until somebody changes that."""


class OutcomeUnknown(Retryable):
    """A commit was sent, and whether it was applied could not be found out in the time allowed."""


class SparkDied(Retryable):
    """Spark's Java has ended. No call to it can succeed any more; the same work may, on a new one."""


class Halted(FrazilError):
    """Going on could lose or double rows; a person must decide."""


class TableGone(Halted):
    """The table, or files of it as it was seen last, are not there any more."""


class Fenced(Halted):
    """Another instance owns the sink; this one must stop."""


class OutOfOrder(Halted):
    """A batch does not begin where the ledger says that the last one ended."""


class OverwriteConflict(Halted):
    """Somebody else added rows since an overwrite looked at the table; it would take them away unseen."""


def together(errors: Sequence[BaseException]) -> BaseException:
    """The first of errors that happened side by side, which tells of the others. One that has words for people comes first."""
    first = next((error for error in errors if isinstance(error, FrazilError)), errors[0])
    if isinstance(first, FrazilError):
        others = [error for error in errors if error is not first]
        first.beside = tuple(e if isinstance(e, FrazilError) else FrazilError("internal", repr(e)) for e in others)
    return first
