"""Files that no snapshot needs any longer, and when they may be deleted: lists beside the table's metadata.

Queries that began earlier may still read them, so that they stay for a while; a process that ends meanwhile leaves its lists to
the others. What is on a list was removed from the table for good: its names are never used again.

A list is a file of its own, and never changes: processes that look after the same table cannot overwrite what others have
written. A list goes when its files are gone, or when they are on a newer one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

from frazil.errors import StoreRefused
from frazil.iceberg.faults import is_missing
from frazil.iceberg.jvm import Jvm, fault_of
from frazil.model.doomed import FOLDER, NAME, Doomed, list_text, listed_in

# Lists that grow beyond this cannot be deleted from. What is left out is found by a cleanup of orphan files.
MOST = 100_000
# More lists than this become one.
MOST_LISTS = 50
# So many of the files that were to be deleted together are tried one by one, to learn why.
_ASKED_AGAIN = 20


Lists = Mapping[str, tuple[Doomed, ...]]
"""Lists by their paths."""


class FileList:
    """One list."""

    def __init__(self, io: Any, path: str) -> None:
        self._io = io
        self.path = path

    def read(self, created_ms: int = 0) -> tuple[Doomed, ...]:
        """What is on the list; nothing if there is none. ``created_ms``: when it was written, as the store says."""
        try:
            text = self._text()
        except Exception as error:
            if is_missing(fault_of(error)) or not self._io.newInputFile(self.path).exists():
                return ()
            raise
        return listed_in(text, created_ms)

    def _text(self) -> str:
        """The content. Of a file that is missing, some stores say so when it is opened, and S3 when it is read."""
        stream = self._io.newInputFile(self.path).newStream()
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, doomed: Sequence[Doomed], at_ms: int) -> None:
        """Replaces the list. ``at_ms`` is the time by the clock that the times of the files are by."""
        stream = self._io.newOutputFile(self.path).createOrOverwrite()
        try:
            stream.write(list_text(doomed, at_ms).encode())
        finally:
            stream.close()


class FilesToDelete:
    """All lists of one table.

    Where a store cannot be listed there is one list, which is read again and written anew: of two processes that do so at the
    same moment one loses what it wrote, and these files are orphans.
    """

    def __init__(self, jvm: Jvm, io: Any, location: str) -> None:
        self._jvm = jvm
        self._io = io
        self._can_list = jvm.is_a(io, "io.SupportsPrefixOperations")
        metadata = f"{location.rstrip('/')}/metadata"
        self._folder, self._old = f"{metadata}/{FOLDER}/", f"{metadata}/{NAME}"

    def lists(self, known: Lists | None = None) -> Lists:
        """The lists as they are now. Those that are known already are not read again; a listing need not show them yet."""
        known, written = known or {}, self._written()
        found = {path: known.get(path) or FileList(self._io, path).read(at) for path, at in written.items()}
        unseen = {path: files for path, files in known.items() if path not in written and path != self._old}
        found |= {path: files for path, files in unseen.items() if self._io.newInputFile(path).exists()}
        found[self._old] = FileList(self._io, self._old).read()
        return {path: files for path, files in found.items() if files}

    def read(self) -> tuple[Doomed, ...]:
        """What is on any list."""
        return tuple(one for files in self.lists().values() for one in files)

    def add(self, doomed: Sequence[Doomed], at_ms: int, known: Lists) -> Lists:
        """Puts files on a list, as far as there is room beside the known ones; returns the lists that are known then."""
        room = max(0, MOST - sum(map(len, known.values())))
        if not self._can_list:
            return self.replace(known, (*FileList(self._io, self._old).read(), *doomed[:room]), at_ms)
        return {**known, **self.replace({}, doomed[:room], at_ms)}

    def replace(self, lists: Lists, doomed: Collection[Doomed], at_ms: int) -> Lists:
        """Makes one list of several, if any files are left of them; then these lists go."""
        path = f"{self._folder}{uuid4().hex}.json" if self._can_list else self._old
        left = tuple({one.path: one for one in doomed}.values())
        if left:
            FileList(self._io, path).write(left, at_ms)
        if going := [each for each in lists if each != path or not left]:
            self.delete(going)
        return {path: left} if left else {}

    def without(self, lists: Lists, gone: Collection[str], at_ms: int) -> Lists:
        """The lists when some of their files are gone."""
        if not self._can_list:
            lists = self.lists()
        changed = {path: files for path, files in lists.items() if any(one.path in gone for one in files)}
        if len(lists) - len(changed) > MOST_LISTS:
            changed = dict(lists)
        left = [one for files in changed.values() for one in files if one.path not in gone]
        return {path: files for path, files in lists.items() if path not in changed} | dict(self.replace(changed, left, at_ms))

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files, many at a time where the store can. Those that are gone already are none to worry about."""
        if self._jvm.is_a(self._io, "io.SupportsBulkOperations"):
            try:
                self._io.deleteFiles(self._jvm.text_list(paths))
            except Exception as error:
                # It only says how many are left.
                why = next(filter(None, map(self._refusal, paths[:_ASKED_AGAIN])), error)
                raise _not_deleted(len(paths), why) from error
            return
        for path in paths:
            if (refusal := self._refusal(path)) is not None:
                raise _not_deleted(len(paths), refusal) from refusal

    def _refusal(self, path: str) -> Exception | None:
        """Why a file cannot be deleted; None when it is gone."""
        try:
            self._io.deleteFile(path)
        except Exception as error:  # noqa: BLE001 - it is the answer
            return None if is_missing(fault_of(error)) else error
        return None

    def _written(self) -> dict[str, int]:
        """The paths of the lists, and when each was written. A folder that is not there yet is empty, or an error."""
        if not self._can_list:
            return {}
        try:
            found = self._jvm.collected(self._io.listPrefix(self._folder))
        except Exception as error:
            if is_missing(fault_of(error)):
                return {}
            raise
        paths, times = self._jvm.each(found, "io.FileInfo.location"), self._jvm.each(found, "io.FileInfo.createdAtMillis")
        # Listings write what is before the name in other ways.
        names = (path.rpartition("/")[2] for path in paths)
        return {f"{self._folder}{name}": at for name, at in zip(names, times, strict=True) if name.endswith(".json")}


def _not_deleted(count: int, refusal: Exception) -> StoreRefused:
    return StoreRefused(
        "files-not-deleted",
        f"Not all of {count:,} files could be deleted that nobody needs any longer: {fault_of(refusal).chain[-1].line}",
        fix="Let this user delete files in the table's folder. They are deleted later; until then they only take room.",
    )
