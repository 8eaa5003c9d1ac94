"""A table as a sink on a branch sees it: the branch's head is the table's head, and everything else is the table's.

Reads, staging and working copies take the table from here, so that they need not know of branches. Only the port of the commit
loop moves the real reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.commit.fast_forward import BranchesView, Goal
from frazil.errors import ConfigError
from frazil.iceberg.jvm import Jvm, attempt_errors
from frazil.model.publishing import MAIN, Step


def seen_from(jvm: Jvm, metadata: Any, branch: str) -> Any:
    """The metadata with the branch's head as its current snapshot. A branch that is missing begins at the head of main."""
    head = head_of(metadata, branch)
    current = metadata.currentSnapshot()
    if head is None or (current is not None and int(current.snapshotId()) == head):
        return metadata
    return jvm.build_metadata_from(metadata).setBranchSnapshot(head, MAIN).discardChanges().build()


def head_of(metadata: Any, branch: str) -> int | None:
    """The snapshot that a branch has; None if there is no such branch."""
    if branch == MAIN:
        head = metadata.currentSnapshot()
        return None if head is None else int(head.snapshotId())
    ref = metadata.ref(branch)
    if ref is None:
        return None
    if not ref.isBranch():
        raise ConfigError(
            "branch-is-tag",
            f"{branch!r} is a tag of the table at {metadata.location()}, and a tag is not written to.",
            fix="Choose another name for the branch.",
        )
    return int(ref.snapshotId())


def with_branch(transaction: Any, branch: str) -> Any:
    """The metadata of a transaction in which the branch is there: one that is missing is made from the head of main.

    Without it Iceberg would count the totals of the branch's first snapshot from zero.
    """
    metadata = transaction.table().operations().current()
    current = metadata.currentSnapshot()
    if branch == MAIN or current is None or metadata.ref(branch) is not None:
        return metadata
    transaction.manageSnapshots().createBranch(branch, current.snapshotId()).commit()
    return transaction.table().operations().current()


class Seen:
    """A table, and the same table as it is seen from a branch."""

    def __init__(self, jvm: Jvm, table: Any, branch: str) -> None:
        self._jvm = jvm
        self._table = table
        self._operations = table.operations()
        self._cached: tuple[Any, Any, Any] | None = None
        self.branch = branch

    @property
    def original(self) -> Any:
        """The current metadata as it is in the catalog."""
        return self._operations.current()

    @property
    def metadata(self) -> Any:
        """The current metadata, with the branch's head as the head."""
        return self._view()[0]

    @property
    def table(self) -> Any:
        """The table to read; nothing can be committed to it."""
        return self._view()[1]

    @property
    def head(self) -> int | None:
        """The current snapshot that the branch has; that of main if the branch is not there yet."""
        return head_of(self.metadata, MAIN)

    def _view(self) -> tuple[Any, Any]:
        real = self._operations.current()
        if self.branch == MAIN:
            return real, self._table
        if self._cached is None or self._cached[0] != real:
            metadata = seen_from(self._jvm, real, self.branch)
            self._cached = (real, metadata, self._jvm.view(self._table, metadata))
        return self._cached[1], self._cached[2]


class BranchesPort:
    """See :class:`frazil.commit.fast_forward.BranchesPort`."""

    def __init__(self, jvm: Jvm, address: str, table: Any, goal: Goal) -> None:
        self._jvm = jvm
        self._address = address
        self._table = table
        self._operations = table.operations()
        self._goal = goal

    def refresh(self) -> BranchesView:
        """Step 1."""
        with attempt_errors(self._address):
            self._jvm.asks("load")
            metadata = self._operations.refresh()
            return _branches_view(self._jvm, metadata, self._goal)

    def swap(self, view: BranchesView) -> None:
        """Step 5."""
        with attempt_errors(self._address):
            after = self._jvm.build_metadata_from(view.base).setBranchSnapshot(self._goal.snapshot, MAIN).build()
            self._jvm.asks("commit")
            self._operations.commit(view.base, after)


def _branches_view(jvm: Jvm, metadata: Any, goal: Goal) -> BranchesView:
    """What is known of main and a branch whose snapshot is to be published."""
    parents = parents_of(jvm, metadata)
    main = head_of(metadata, MAIN)
    of_main, line = line_of(parents, main), line_of(parents, goal.snapshot)
    published = goal.snapshot in of_main
    known = set(of_main)
    return BranchesView(
        table_uuid=str(metadata.uuid()),
        main=main,
        next_sequence=int(metadata.nextSequenceNumber()),
        published=published,
        on_branch=published or goal.snapshot in line_of(parents, head_of(metadata, goal.branch)),
        # Without a head main has nothing that could be lost.
        follows_main=main is None or main in line,
        fork=next((one for one in line if one in known), None),
        base=metadata,
    )


def steps_between(jvm: Jvm, metadata: Any, older: int | None, newer: int) -> list[Step]:
    """The snapshots after one up to another, from old to new; all as far as they are known if the older is not among them."""
    line = line_of(parents_of(jvm, metadata), newer)
    wanted = line[: line.index(older)] if older in line else line
    found = ((one, metadata.snapshot(one)) for one in reversed(wanted))
    return [Step(one, str(snapshot.operation()), jvm.texts(snapshot.summary())) for one, snapshot in found]


def parents_of(jvm: Jvm, metadata: Any) -> dict[int, int | None]:
    """The parent of every snapshot of a table, read in a few calls."""
    listed = metadata.snapshots()
    return dict(zip(jvm.each(listed, "Snapshot.snapshotId"), jvm.each(listed, "Snapshot.parentId"), strict=True))


def line_of(parents: Mapping[int, int | None], head: int | None) -> list[int]:
    """A snapshot and its ancestors, as far back as they have not expired."""
    line = []
    while head is not None and head in parents:
        line.append(head)
        head = parents[head]
    return line
