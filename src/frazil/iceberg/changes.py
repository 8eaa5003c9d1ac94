"""What one commit changes in a table, as values: columns, properties, files. Rebuilt on whatever metadata an attempt finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from frazil.errors import DataError, FrazilError, OverwriteConflict, Retryable
from frazil.model.column_ids import ColumnIds
from frazil.model.evolution import TableChange


class Restage(Retryable):
    """The table changed between staging and commit in a way that the staged files do not fit: they must be written again."""


class Fits(Enum):
    """What staged files fit."""

    COLUMNS = "a table that has the columns that they were staged on"
    LAYOUT = "the columns and specs that they were staged on"
    FILES = "the files that were there when they were staged, beside any that came since"
    HEAD = "the very snapshot that they were staged on"


@dataclass(frozen=True)
class Base:
    """The table that files were staged on: its head, the ids of its columns, and how many specs it has had."""

    head: int | None
    schema_id: int
    last_column_id: int
    specs: int

    def same_layout(self, other: Base) -> bool:
        """Whether columns and partitioning are those of the other."""
        mine = (self.schema_id, self.last_column_id, self.specs)
        return mine == (other.schema_id, other.last_column_id, other.specs)

    def allows(self, fits: Fits, metadata: Any) -> bool:
        """Whether files that were staged on this fit the table as its metadata is now."""
        match fits:
            case Fits.COLUMNS:
                return self.schema_id == int(metadata.currentSchemaId()) or self._columns_are_there(metadata)
            case Fits.LAYOUT:
                return self.same_layout(base_of(metadata))
            case Fits.FILES:
                return self.same_layout(base_of(metadata)) and self._only_appended(metadata)
            case Fits.HEAD:
                return self == base_of(metadata)

    def _only_appended(self, metadata: Any) -> bool:
        """Whether files were only added since then: no earlier delete applies to them."""
        at = metadata.currentSnapshot()
        while at is not None and int(at.snapshotId()) != self.head:
            if at.operation() != "append":
                return False
            at = None if at.parentId() is None else metadata.snapshot(at.parentId())
        return (at is None) == (self.head is None)

    def _columns_are_there(self, metadata: Any) -> bool:
        """Whether no column was dropped since, nor a part of one: what files have of it nobody would read."""
        then, now = metadata.schemasById().get(self.schema_id), metadata.schema()
        ids = range(1, self.last_column_id + 1)
        return then is not None and all(then.findField(one) is None or now.findField(one) is not None for one in ids)


def base_of(metadata: Any) -> Base:
    """The base that a table's metadata is."""
    head = metadata.currentSnapshot()
    return Base(
        head=None if head is None else int(head.snapshotId()),
        schema_id=int(metadata.currentSchemaId()),
        last_column_id=int(metadata.lastColumnId()),
        specs=int(metadata.specs().size()),
    )


@dataclass(frozen=True)
class StagedFiles:
    """Files that executors have written and no snapshot names yet."""

    files: tuple[Any, ...] = ()
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: StagedFiles) -> StagedFiles:
        return StagedFiles(self.files + other.files, self.rows + other.rows, self.bytes + other.bytes)


class Operation(Protocol):
    """One kind of change to the files of a table."""

    @property
    def staged(self) -> StagedFiles:
        """The data files that it adds."""

    @property
    def fits(self) -> Fits:
        """How much of the table must be as it was when the files were staged."""

    def on(self, transaction: Any, base: Base) -> Any:
        """Iceberg's operation, ready to be applied. ``base`` is what the files were staged on."""

    def overtaken(self, why: str) -> FrazilError:
        """The error for a commit that Iceberg's validation refuses, because somebody else changed what this one relies on."""


@dataclass(frozen=True)
class Append:
    """More rows; none by default, which is how a claim moves the branch."""

    staged: StagedFiles = field(default_factory=StagedFiles)
    fits = Fits.COLUMNS

    def on(self, transaction: Any, base: Base) -> Any:  # noqa: ARG002 - an append fits whatever came before
        """An append that merges manifests when there are many, as the table's properties say; without files, a fast one."""
        operation = transaction.newAppend() if self.staged.files else transaction.newFastAppend()
        for file in self.staged.files:
            operation.appendFile(file)
        return operation

    def overtaken(self, why: str) -> FrazilError:
        """Not known to happen: an append relies on no rows."""
        return DataError("refused-by-iceberg", why)


def replaced_unseen(why: str) -> FrazilError:
    """The answer of a change that would replace rows which came after it was read."""
    return OverwriteConflict(
        "overwrite-conflict",
        f"Another writer changed rows that this batch would replace, after it was read: {why}",
        fix="Look at those rows, then start the pipeline again: it replaces them with the batch.",
    )


@dataclass(frozen=True)
class Replace:
    """Rows in place of others: of the partitions that they are in, or of the ``whole`` table.

    Rows that somebody else added or changed there since the batch was staged are not replaced unseen: the commit is refused.
    """

    staged: StagedFiles
    whole: Any = None
    """Iceberg's expression for all rows, when all are replaced."""
    fits = Fits.LAYOUT

    def on(self, transaction: Any, base: Base) -> Any:
        """Iceberg's replacement of partitions, or its overwrite, validated from the head that was staged on."""
        if self.whole is None:
            operation = transaction.newReplacePartitions()
        else:
            operation = transaction.newOverwrite().overwriteByRowFilter(self.whole).conflictDetectionFilter(self.whole)
        if base.head is not None:
            operation.validateFromSnapshot(base.head)
        operation.validateNoConflictingData().validateNoConflictingDeletes()
        for file in self.staged.files:
            operation.addFile(file)
        return operation

    def overtaken(self, why: str) -> FrazilError:
        """Rows that nobody has seen would be replaced."""
        return replaced_unseen(why)


@dataclass(frozen=True)
class Delta:
    """Rows, and deletes of earlier rows with the same keys. The deletes apply to all that is committed before, whoever wrote it.

    ``fits``: rows without deletes, staged because no earlier row has these keys, only fit the snapshot where that is so.
    """

    staged: StagedFiles
    deletes: StagedFiles
    fits: Fits = Fits.LAYOUT

    def on(self, transaction: Any, base: Base) -> Any:  # noqa: ARG002 - equality deletes fit whatever came before
        """Iceberg's row delta."""
        operation = transaction.newRowDelta()
        for file in self.staged.files:
            operation.addRows(file)
        for file in self.deletes.files:
            operation.addDeletes(file)
        return operation

    def overtaken(self, why: str) -> FrazilError:
        """Not known to happen: equality deletes do not depend on the table's state."""
        return DataError("refused-by-iceberg", why)


@dataclass(frozen=True)
class DeletesWritten:
    """Files that delete rows by position from the table of a snapshot, and the files of deletes that they replace.

    ``duplicates``: how many of the rows had a key that another of them has.
    """

    head: int | None
    added: tuple[Any, ...] = ()
    replaced: tuple[Any, ...] = ()
    duplicates: int = 0


@dataclass(frozen=True)
class PositionDelta:
    """Rows, and deletes by position of the earlier rows with the same keys.

    Each attempt of the commit looks these rows up in the table that it finds: ``look_up`` gets its transaction.
    """

    staged: StagedFiles
    look_up: Callable[[Any], DeletesWritten]
    fits = Fits.LAYOUT

    def on(self, transaction: Any, base: Base) -> Any:  # noqa: ARG002 - what is deleted is found out now
        """A row delta that is made for the head that the transaction is on: nothing can have come in between."""
        found = self.look_up(transaction)
        if not (self.staged.files or found.added):
            return transaction.newFastAppend()
        operation = transaction.newRowDelta()
        if found.head is not None:
            operation.validateFromSnapshot(found.head)
        if found.duplicates:
            operation.set("frazil.duplicate-rows-removed", str(found.duplicates))
        return with_files(operation, self.staged.files, (), found.added, found.replaced)

    def overtaken(self, why: str) -> FrazilError:
        """Not known to happen: see above."""
        return DataError("refused-by-iceberg", why)


def done_again(why: str) -> FrazilError:
    """What a change raises when it was overtaken and has to look at the table again."""
    return Restage("overtaken", f"Another writer changed rows that this batch looked at: {why}")


def with_files(
    row_delta: Any, added: Iterable[Any], removed: Iterable[Any], deletes: Iterable[Any], removed_deletes: Iterable[Any]
) -> Any:
    """A row delta that adds and removes data files and files of deletes."""
    for file in added:
        row_delta.addRows(file)
    for file in removed:
        row_delta.removeRows(file)
    for file in deletes:
        row_delta.addDeletes(file)
    for file in removed_deletes:
        row_delta.removeDeletes(file)
    return row_delta


@dataclass(frozen=True)
class RowChanges:
    """Files added and removed, as SQL on a private copy decided by reading the table's rows.

    What it read must not have changed since: every file that it removes or deletes from must still exist, and nobody may have
    added rows or deletes that match ``conflicts``, Iceberg's expression. ``refusal`` makes the error if somebody has.
    ``referenced`` are the data files that the deletes apply to; without them the change only fits the snapshot that it was made
    from.
    """

    conflicts: Any
    staged: StagedFiles = field(default_factory=StagedFiles)
    removed: tuple[Any, ...] = ()
    deletes: tuple[Any, ...] = ()
    removed_deletes: tuple[Any, ...] = ()
    referenced: tuple[str, ...] | None = ()
    refusal: Callable[[str], FrazilError] = done_again

    @property
    def fits(self) -> Fits:
        """Columns and specs; all files where it is not known which of them it needs."""
        return Fits.HEAD if self.referenced is None else Fits.LAYOUT

    @property
    def any(self) -> bool:
        """Whether there is something to change."""
        return bool(self.staged.files or self.removed or self.deletes)

    def on(self, transaction: Any, base: Base) -> Any:
        """A row delta that is validated from the head that was read."""
        if not self.any:
            return transaction.newFastAppend()
        operation = transaction.newRowDelta().conflictDetectionFilter(self.conflicts)
        if base.head is not None:
            operation.validateFromSnapshot(base.head)
        operation.validateDeletedFiles().validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
        if self.referenced:
            operation.validateDataFilesExist(list(self.referenced))
        return with_files(operation, self.staged.files, self.removed, self.deletes, self.removed_deletes)

    def overtaken(self, why: str) -> FrazilError:
        """As the change itself says."""
        return self.refusal(why)


@dataclass(frozen=True)
class Removal:
    """Files taken out again, with all rows that they hold; every one of them must still be in the table."""

    removed: tuple[Any, ...] = ()
    refusal: Callable[[str], FrazilError] = done_again
    staged: StagedFiles = field(default_factory=StagedFiles)
    fits = Fits.COLUMNS

    def on(self, transaction: Any, base: Base) -> Any:  # noqa: ARG002 - files are named, whatever came after them
        """Iceberg's removal of files; of none it is an append of nothing."""
        if not self.removed:
            return transaction.newFastAppend()
        operation = transaction.newDelete().validateFilesExist()
        for file in self.removed:
            operation.deleteFile(file)
        return operation

    def overtaken(self, why: str) -> FrazilError:
        """As the change itself says."""
        return self.refusal(why)


@dataclass(frozen=True)
class RowsRemoved:
    """Rows taken out by their positions, or, where a table has no deletes, files without them in place of those that had them.

    The files that the rows are in must still be there. Whatever others add meanwhile, rows or deletes, stays as they add it.
    """

    deletes: tuple[Any, ...] = ()
    removed_deletes: tuple[Any, ...] = ()
    referenced: tuple[str, ...] = ()
    staged: StagedFiles = field(default_factory=StagedFiles)
    removed: tuple[Any, ...] = ()
    fits = Fits.COLUMNS

    def on(self, transaction: Any, base: Base) -> Any:
        """A row delta that is validated from the head that was read."""
        operation = transaction.newRowDelta().validateFromSnapshot(base.head).validateDeletedFiles()
        if self.referenced:
            operation.validateDataFilesExist(list(self.referenced))
        return with_files(operation, self.staged.files, self.removed, self.deletes, self.removed_deletes)

    def overtaken(self, why: str) -> FrazilError:
        """It is looked again which files the rows are in."""
        return done_again(why)


@dataclass(frozen=True)
class ManifestsWithoutRemoved:
    """Manifests without the entries of removed files, which would show the bounds of their columns; the table's files stay.

    Manifests of rows are written anew by Iceberg, by ``key`` and ``those``, Java's functions; others are replaced by ``added``.
    """

    key: Any
    those: Any
    replaced: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()
    staged: StagedFiles = field(default_factory=StagedFiles)
    fits = Fits.COLUMNS

    def on(self, transaction: Any, base: Base) -> Any:  # noqa: ARG002 - the manifests are named
        """Iceberg's rewrite of manifests."""
        operation = transaction.rewriteManifests().clusterBy(self.key).rewriteIf(self.those)
        for manifest in self.replaced:
            operation.deleteManifest(manifest)
        for manifest in self.added:
            operation.addManifest(manifest)
        return operation

    def overtaken(self, why: str) -> FrazilError:
        """It is looked again which manifests there are."""
        return done_again(why)


@dataclass(frozen=True)
class Change:
    """All that one commit changes: the table's columns and specs first, then its properties, then its files.

    ``summary`` goes into the snapshot's summary beside the ledger's own entries. ``columns`` is what the table is to remember
    of its source's columns; those that the evolution adds get their ids with it. ``statistics`` is Iceberg's description of a
    file with statistics, which replaces others. ``decided``: the rows that the head has decide what the operation does, so that
    it only fits this head.
    """

    operation: Operation
    base: Base
    evolution: tuple[TableChange, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    summary: Mapping[str, str] = field(default_factory=dict)
    columns: ColumnIds | None = None
    statistics: Any = None
    decided: bool = False

    @property
    def fits(self) -> Fits:
        """How much of the table must be as it was when the files were staged."""
        if self.decided:
            return Fits.HEAD
        return Fits.LAYOUT if self.evolution and self.operation.fits is Fits.COLUMNS else self.operation.fits

    @property
    def leaves_room(self) -> bool:
        """Whether other files of the same kind, staged before this is committed, still fit the table after it."""
        return (
            not self.evolution
            and self.fits in (Fits.COLUMNS, Fits.LAYOUT)
            and isinstance(self.operation, Append | Delta | PositionDelta)
        )
