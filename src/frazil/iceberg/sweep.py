"""Deletes what a table's history leaves in its folder, at once, and says of all other files what is in them.

A file that no snapshot reaches may belong to a commit that somebody is making now. That is judged by what the file names, not by
clocks: the folder is listed first, and the table is looked at afterwards.

- What snapshots reached that have expired is never needed again.
- Metadata that does not contain the current snapshot, and a list of manifests whose parent is no head, lose any compare-and-swap.
- A manifest that names a file which is neither the table's nor there cannot become part of it.
- Files with rows or deletes may be staged for a commit to come. They are read; only old ones are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from frazil.iceberg.contents import data_format
from frazil.iceberg.disposal import Lists
from frazil.iceberg.metadata_files import DATA, KEYS, Entry, ManifestList, read_metadata_avro, snapshots_in
from frazil.iceberg.remains import ERASING, Listed, Reachable, Remains, key_of
from frazil.model.doomed import is_list
from frazil.model.forget import Left, Scanned

_METADATA_JSON = (".metadata.json", ".metadata.json.gz")
_WITHOUT_ROWS = (".puffin", ".stats")
_OWN = (ERASING, "version-hint.text")


@dataclass
class Verdict:
    """What the files of a table are, after what nobody needs was deleted."""

    scanned: list[Scanned] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    without_rows: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


class Sweep:
    """One pass over the folder of a table."""

    def __init__(self, remains: Remains, orphan_age_ms: int, now_ms: int, deleted: list[str] | None = None) -> None:
        self._remains = remains
        self._age_ms = orphan_age_ms
        self._now_ms = now_ms
        self._verdict = Verdict(deleted=[] if deleted is None else deleted)

    def orphans(self, reached: Reachable, listed: Iterable[Listed]) -> list[Listed]:
        """The files with rows or deletes that no snapshot reaches and that are on no list; they are read."""
        known = self._keys(reached) | {key_of(path) for path in self._on(self._remains.to_delete.lists())}
        found = [one for one in listed if one.key not in known and _holds_rows(one.path)]
        self._remains.look_into_others({one.path: one.size for one in found if one.size})
        return found

    def run(self, refresh: Callable[[], object]) -> Verdict:
        """Deletes and judges. ``refresh`` looks at the table again, after the folder was listed."""
        remains, verdict = self._remains, self._verdict
        # Rows first: then what only names lost files is known.
        refresh()
        before, lists = remains.reachable(), remains.to_delete.lists()
        self._delete(self._on(lists), before)
        listed = remains.listed()
        refresh()
        reached = remains.reachable()
        # Files that others have committed since are not in the listing.
        remains.require_same_names(before.paths & reached.paths, listed)
        remains.look_into(reached)
        reachable = self._keys(reached)
        there = {one.key for one in listed}
        others = [one for one in listed if one.key not in reachable and not one.path.endswith(_OWN) and not is_list(one.path)]
        rows = [one for one in others if _holds_rows(one.path)]
        remains.look_into_others({one.path: one.size for one in rows if one.size and not self._is_old(one)})
        lost = [one for one in others if self._is_lost(one, reached, reachable | there)]
        self._delete([one.path for one in lost], reached)
        gone = {one.path for one in lost}
        for one in others:
            if one.path not in gone:
                self._judge(one)
        self._judge_reached(reached)
        remains.forget_loose()
        for place in remains.outside():
            verdict.left.append(Left(place, "the table's properties let files be written there, and orphans were not looked for"))
        if not any(one.why.startswith(_NOT_DELETED) for one in verdict.left):
            remains.to_delete.replace(lists, (), self._now_ms)
            remains.delete([remains.erasing.path])
        return verdict

    # What nobody needs

    def _on(self, lists: Lists) -> set[str]:
        """What is on lists of files to delete, and on that of an erasure."""
        return {one.path for files in (*lists.values(), self._remains.erasing.read()) for one in files}

    def _delete(self, paths: Iterable[str], reached: Reachable) -> None:
        reachable = self._keys(reached)
        going = [path for path in paths if key_of(path) not in reachable]
        failed = self._remains.delete(going)
        self._verdict.deleted += [path for path in going if failed is None or not self._remains.exists(path)]
        if failed is not None:
            still = set(going) - set(self._verdict.deleted)
            self._verdict.left += [Left(path, f"{_NOT_DELETED}: {failed}") for path in sorted(still)]

    def _is_lost(self, one: Listed, reached: Reachable, there: set[str]) -> bool:
        """Whether a file that no snapshot reaches can be deleted."""
        if self._is_old(one):
            return True
        head = reached.head
        if one.path.endswith(_METADATA_JSON):
            ids = self._snapshots_in(one)
            earlier = one.key in {key_of(path) for path in reached.previous}
            return earlier or (ids is not None and head is not None and head.id not in ids)
        if not _is_metadata(one.path):
            return False
        content = self._named_by(one)
        if isinstance(content, ManifestList):
            return content.parent not in reached.heads
        return any(key_of(entry.path) not in there and not self._exists(entry) for entry in content or ())

    def _exists(self, entry: Entry) -> bool:
        """Whether a file is there that the listing does not show: it may be outside of the folder, or have come since."""
        return self._remains.exists(entry.path)

    def _is_old(self, one: Listed) -> bool:
        return one.at_ms < self._now_ms - self._age_ms

    def _snapshots_in(self, one: Listed) -> frozenset[int] | None:
        """The snapshots of a metadata file; None if it is not whole."""
        try:
            return snapshots_in(self._remains.content(one.path))
        except Exception:  # noqa: BLE001 - it may be half written, or gone by now
            return None

    def _named_by(self, one: Listed) -> ManifestList | tuple[Entry, ...] | None:
        try:
            return read_metadata_avro(self._remains.content(one.path))
        except Exception:  # noqa: BLE001 - see above
            return None

    # What is left

    def _judge(self, one: Listed) -> None:
        """What is in a file that no snapshot reaches, and that stays."""
        verdict, again = self._verdict, one.at_ms + self._age_ms
        if one.size == 0 or one.path.endswith(_WITHOUT_ROWS):
            verdict.without_rows.append(one.path)
        elif _is_metadata(one.path):
            self._judge_metadata(one, again)
        elif not _holds_rows(one.path):
            verdict.left.append(Left(one.path, "it is none of the files that tables have, and was not read", again))
        else:
            self._judge_rows(one, again)

    def _judge_rows(self, one: Listed, again: int) -> None:
        found = self._remains.what(one.path)
        if found is not None and found.clean:
            self._verdict.scanned.append(Scanned(one.path, "orphan", found.rows))
        elif found is not None and found.matches:
            why = f"it has {found.matches} of the rows, and may belong to a batch that is being written"
            self._verdict.left.append(Left(one.path, why, again))
        elif self._came_later(one):
            self._verdict.later.append(one.path)
        else:
            why = (
                "it cannot be read"
                if found is None or not found.readable
                else "it lacks the columns by which rows are looked for"
            )
            self._verdict.left.append(Left(one.path, f"{why}, and may belong to a batch that is being written", again))

    def _judge_metadata(self, one: Listed, again: int) -> None:
        if one.path.endswith(_METADATA_JSON):
            clean = self._snapshots_in(one) is not None
        else:
            content = self._named_by(one)
            clean = isinstance(content, ManifestList) or (content is not None and all(map(self._remains.clean, content)))
        if clean:
            self._verdict.metadata.append(one.path)
        elif self._came_later(one):
            self._verdict.later.append(one.path)
        elif self._remains.exists(one.path):
            why = "it names files of which it is not known that they hold none of the rows, and may belong to a commit being made"
            self._verdict.left.append(Left(one.path, why, again))

    def _came_later(self, one: Listed) -> bool:
        """Whether a file came when the rows were gone from the table: it is of a later batch."""
        return self._remains.gone_ms is not None and one.at_ms > self._remains.gone_ms

    def _judge_reached(self, reached: Reachable) -> None:
        verdict, remains = self._verdict, self._remains
        for content, kind in ((DATA, "data"), (KEYS, "equality deletes")):
            for entry, _ in reached.named(content):
                found = remains.what(entry.path)
                if found is not None and remains.clean(entry) and not found.clean:
                    verdict.later.append(entry.path)
                elif found is not None and found.clean:
                    verdict.scanned.append(Scanned(entry.path, kind, found.rows))
                else:
                    why = _why(found.matches if found is not None else 0, readable=found is None or found.readable)
                    verdict.left.append(Left(entry.path, why))
        verdict.metadata.append(reached.current)
        verdict.without_rows += sorted(reached.statistics)
        positions = {e.path for s in reached.snapshots for m in s.manifests for e in m.entries if e.live and e.content == 1}
        verdict.without_rows += sorted(positions)
        for path, clean in sorted(_metadata_of(reached, remains)):
            if clean:
                verdict.metadata.append(path)
            else:
                verdict.left.append(Left(path, "it has bounds of columns of files that may have had some of the rows"))

    def _keys(self, reached: Reachable) -> set[str]:
        return {key_of(path) for path in reached.paths}


_NOT_DELETED = "it could not be deleted"


def _metadata_of(reached: Reachable, remains: Remains) -> Iterator[tuple[str, bool]]:
    known: dict[str, bool] = {}
    for snapshot in reached.snapshots:
        for manifest in snapshot.manifests:
            known[manifest.path] = all(remains.clean(entry) for entry in manifest.entries)
        known[snapshot.list] = all(known[manifest.path] for manifest in snapshot.manifests)
    yield from known.items()


def _why(matches: int, *, readable: bool) -> str:
    if matches:
        return f"it has {matches} of the rows: a writer has added them since"
    return "it lacks the columns by which rows are looked for" if readable else "it cannot be read"


def _is_metadata(path: str) -> bool:
    return path.endswith(_METADATA_JSON) or (path.endswith(".avro") and path.rsplit("/", 2)[-2] == "metadata")


def _holds_rows(path: str) -> bool:
    return data_format(path) is not None and not _is_metadata(path)
