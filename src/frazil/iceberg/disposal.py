"""Files that no snapshot needs any longer, and when they may be deleted: a list beside the table's metadata.

Queries that began earlier may still read them, so that they stay for a while; a process that ends meanwhile leaves the list to
the next one. What is on the list was removed from the table for good: its names are never used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.errors import StoreRefused
from frazil.iceberg.faults import ICEBERG
from frazil.iceberg.jvm import Jvm, fault_of
from frazil.model.doomed import NAME, Doomed, list_text, listed_in

# A list that grows beyond this cannot be deleted from. What is left out is found by a cleanup of orphan files.
MOST = 100_000
# So many of the files that were to be deleted together are tried one by one, to learn why.
_ASKED_AGAIN = 20


class FilesToDelete:
    """The list of one table."""

    def __init__(self, jvm: Jvm, io: Any, location: str, name: str = NAME, most: int | None = None) -> None:
        self._jvm = jvm
        self._io = io
        self._most = most
        self.path = f"{location.rstrip('/')}/metadata/{name}"

    def read(self) -> tuple[Doomed, ...]:
        """What is on the list; nothing if there is none."""
        try:
            text = self._text()
        except Exception as error:
            if _is_missing(error) or not self._io.newInputFile(self.path).exists():
                return ()
            raise
        return listed_in(text)

    def _text(self) -> str:
        """The content. Of a file that is missing, some stores say so when it is opened, and S3 when it is read."""
        stream = self._io.newInputFile(self.path).newStream()
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, doomed: Sequence[Doomed]) -> None:
        """Replaces the list."""
        text = list_text(doomed[-(self._most or MOST) :])
        stream = self._io.newOutputFile(self.path).createOrOverwrite()
        try:
            stream.write(text.encode())
        finally:
            stream.close()

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
            return None if _is_missing(error) else error
        return None


def _not_deleted(count: int, refusal: Exception) -> StoreRefused:
    return StoreRefused(
        "files-not-deleted",
        f"Not all of {count:,} files could be deleted that nobody needs any longer: {fault_of(refusal).chain[-1].line}",
        fix="Let this user delete files in the table's folder. They are deleted later; until then they only take room.",
    )


def _is_missing(error: Exception) -> bool:
    return fault_of(error).find(f"{ICEBERG}NotFoundException") is not None
