"""Which files of a folder are new: the logic alone, over made-up listings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frazil.errors import DataError, Halted
from frazil.sources.arrivals import BEGINNING, REMEMBERED_FILES, Bookmark, Remembered, Watch
from frazil.sources.listing import FileEntry
from tiers import examples

HOUR = 3_600_000
NOW = 1_800_000_000_000


def file(path: str, mtime_ms: int, size: int = 10, arrived_ms: int | None = None) -> FileEntry:
    return FileEntry(path, mtime_ms, size, f"file:/in/{path}", arrived_ms)


def read(bookmark: Bookmark, *files: FileEntry, window_ms: int = HOUR, now_ms: int = NOW) -> Bookmark:
    return bookmark.after(files, window_ms, now_ms)


def pending(bookmark: Bookmark, *listing: FileEntry, window_ms: int = HOUR) -> list[str]:
    return [entry.path for entry in Watch(bookmark, window_ms, NOW).pending(listing)]


def test_at_the_beginning_every_file_is_new_oldest_first() -> None:
    assert pending(BEGINNING, file("b", 20), file("a", 30), file("c", 10)) == ["c", "b", "a"]


def test_what_was_read_is_not_new_and_what_came_since_is() -> None:
    old, new = file("a", NOW - 5), file("b", NOW)
    assert pending(read(BEGINNING, old), old, new) == ["b"]


def test_a_file_moved_in_with_an_older_time_inside_the_window_is_new() -> None:
    newest, moved = file("a", NOW), file("moved", NOW - HOUR)
    assert pending(read(BEGINNING, newest), newest, moved) == ["moved"]


def test_after_a_restart_a_file_older_than_the_window_is_taken_as_read() -> None:
    newest, ancient = file("a", NOW), file("ancient", NOW - HOUR - 1)
    assert pending(read(BEGINNING, newest), newest, ancient) == []


def test_a_larger_window_makes_nothing_new_that_was_read() -> None:
    early, newest = file("early", NOW - 2 * HOUR), file("a", NOW)
    bookmark = Bookmark.from_position(read(BEGINNING, early, newest).to_position())
    assert pending(bookmark, early, newest, window_ms=10 * HOUR) == []
    assert pending(bookmark, early, newest, window_ms=0) == []


def test_files_of_the_same_moment_are_told_apart_without_a_window() -> None:
    one, other = file("one", NOW), file("other", NOW)
    assert pending(read(BEGINNING, one, window_ms=0), one, other, window_ms=0) == ["other"]


def test_within_a_process_a_file_that_comes_later_is_new_however_old_its_time() -> None:
    newest, ancient = file("a", NOW), file("ancient", 5, arrived_ms=NOW + 1000)
    watch = Watch(read(BEGINNING, newest), HOUR, NOW)
    assert watch.pending([newest]) == []
    assert watch.pending([newest, ancient]) == [ancient]
    assert watch.pending([newest, ancient]) == [ancient], "it stays new until it is read"
    watch.advance([ancient], watch.bookmark.after([ancient], HOUR, NOW))
    assert watch.pending([newest, ancient]) == []


def committed(bookmark: Bookmark, listing: list[FileEntry], count: int = 100) -> Bookmark:
    """The bookmark after the next batch, as it comes back from the ledger."""
    pending = Watch(bookmark, HOUR, NOW).pending(listing)
    after = bookmark.after(pending[:count], HOUR, NOW).above(listing, pending[count:], HOUR, NOW)
    return Bookmark.from_position(after.to_position())


ARCHIVE = [file(f"old{number}", NOW - (9 - number) * HOUR, arrived_ms=NOW - (9 - number) * HOUR) for number in range(9)]


def test_a_file_that_was_seen_and_not_committed_is_new_after_a_restart_however_old_its_time() -> None:
    bookmark = committed(BEGINNING, ARCHIVE)
    ancient = file("ancient", 5, arrived_ms=NOW + 10)
    watch = Watch(bookmark, HOUR, NOW)
    assert watch.pending(ARCHIVE) == []
    assert watch.pending([*ARCHIVE, ancient]) == [ancient]
    again = Watch(bookmark, HOUR, NOW + 10 * HOUR)
    assert again.pending([*ARCHIVE, ancient]) == [ancient]
    assert again.pending([*ARCHIVE, ancient]) == [ancient], "it stays new until it is read"
    later = committed(bookmark, [*ARCHIVE, ancient])
    assert Watch(later, HOUR, NOW).pending([*ARCHIVE, ancient]) == []


def test_late_files_that_are_committed_in_parts_are_read_in_the_order_in_which_they_came() -> None:
    bookmark = committed(BEGINNING, ARCHIVE)
    late = [file(f"late{number}", 50 - number, arrived_ms=NOW + number) for number in range(6)]
    new = file("new", NOW + 2, arrived_ms=NOW + 2)
    listing = [new, *late, *ARCHIVE]
    found: list[FileEntry] = []
    for _ in range(4):
        found += Watch(bookmark, HOUR, NOW + 10 * HOUR).pending(listing)[:2]
        bookmark = committed(bookmark, listing, 2)
    assert found == [*late, new]
    assert Watch(bookmark, HOUR, NOW + 10 * HOUR).pending(listing) == []


def test_a_late_file_waits_for_those_that_come_with_it() -> None:
    watch = Watch(committed(BEGINNING, ARCHIVE), HOUR, NOW)
    assert watch.just_came(file("ancient", 5, arrived_ms=NOW + 10), NOW)
    assert not watch.just_came(file("ancient", 5, arrived_ms=NOW - 1000), NOW)
    assert not watch.just_came(file("ancient", 5, arrived_ms=NOW + HOUR), NOW), "by another clock"
    assert not watch.just_came(file("ancient", 5), NOW)
    assert not watch.just_came(file("new", NOW, arrived_ms=NOW), NOW)


def test_what_may_have_come_is_told_when_files_were_removed_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    bookmark = committed(BEGINNING, ARCHIVE)
    ancient = [file(f"ancient{number}", 5, arrived_ms=NOW + 10) for number in range(7)]
    watch = Watch(bookmark, HOUR, NOW)
    assert watch.pending(ARCHIVE[3:]) == []
    assert caplog.messages == [], "removing files is nothing to tell of"
    assert Watch(bookmark, HOUR, NOW).pending([*ARCHIVE[3:], *ancient]) == []
    (told,) = caplog.messages
    assert told.startswith("Files older than late_window_secs may have come since the last batch: 7.")
    assert "file:/in/ancient0 file:/in/ancient1" in told
    assert told.endswith("file:/in/ancient4 ...")


def test_files_that_were_read_and_are_touched_are_not_read_again(caplog: pytest.LogCaptureFixture) -> None:
    bookmark = committed(BEGINNING, ARCHIVE)
    every = [replace(entry, arrived_ms=NOW + number) for number, entry in enumerate(reversed(ARCHIVE))]
    assert Watch(bookmark, HOUR, NOW).pending(every) == [], "a folder that was restored"
    assert caplog.messages == []
    ancient = file("ancient", 5, arrived_ms=NOW + 10)
    one = [replace(ARCHIVE[0], arrived_ms=NOW + 20), *ARCHIVE[1:], ancient]
    assert Watch(bookmark, HOUR, NOW).pending(one) == []
    assert "file:/in/ancient file:/in/old0" in caplog.text


def test_files_of_a_folder_that_was_not_mounted_when_the_last_batch_was_committed_are_not_read_again() -> None:
    bookmark = committed(committed(BEGINNING, ARCHIVE), [*ARCHIVE[:4], file("new", NOW + 1, arrived_ms=NOW + 1)])
    assert Watch(bookmark, HOUR, NOW).pending(ARCHIVE) == []


def test_a_store_that_does_not_tell_when_files_came_has_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    archive = [replace(entry, arrived_ms=None) for entry in ARCHIVE]
    bookmark = committed(BEGINNING, archive)
    assert Watch(bookmark, HOUR, NOW).pending([*archive[1:], file("more", NOW)]) == [file("more", NOW)]
    assert caplog.messages == []
    assert Watch(bookmark, HOUR, NOW).pending([*archive, file("ancient", 5)]) == []
    assert "may have come since the last batch: 1." in caplog.text


def test_a_bookmark_of_before_is_read_and_what_it_takes_as_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "frazil")
    bookmark = Bookmark.from_position('{"mark_ms":1800000000000,"seen":[]}')
    assert bookmark.behind is None
    assert Watch(bookmark, HOUR, NOW).pending(ARCHIVE[:-2]) == []
    assert caplog.messages == ["Files older than late_window_secs are taken as read: 7."]


def test_names_that_appear_because_a_folder_is_mounted_again_are_not_new() -> None:
    newest, archived = file("a", NOW), file("archived", 5, arrived_ms=5)
    watch = Watch(read(BEGINNING, newest), HOUR, NOW)
    assert watch.pending([]) == []
    assert watch.pending([newest, archived]) == []


def test_names_that_vanish_and_come_back_are_not_read_twice() -> None:
    early, late = file("early", NOW - 10 * HOUR), file("late", NOW)
    watch = Watch(BEGINNING, HOUR, NOW)
    assert watch.pending([early, late]) == [early, late]
    watch.advance([early, late], read(BEGINNING, early, late))
    assert watch.pending([]) == []
    assert watch.pending([early, late]) == []


@pytest.mark.parametrize("changed", [file("a", NOW, size=11), file("a", NOW + 5)])
def test_a_file_that_was_read_and_changed_stops_after_a_restart(changed: FileEntry) -> None:
    with pytest.raises(DataError, match="file:/in/a was read before") as caught:
        pending(read(BEGINNING, file("a", NOW)), changed)
    assert caught.value.code == "file-changed"


def test_a_file_older_than_the_window_that_changes_stops_within_the_process() -> None:
    early, late = file("early", NOW - 2 * HOUR), file("late", NOW)
    watch = Watch(read(BEGINNING, early, late), HOUR, NOW)
    assert watch.pending([early, late]) == []
    with pytest.raises(DataError, match="early"):
        watch.pending([replace(early, mtime_ms=NOW + 1), late])


def test_a_file_from_the_future_does_not_make_the_present_late() -> None:
    future, present = file("future", NOW + 1000 * HOUR), file("present", NOW)
    assert pending(read(BEGINNING, future), future, present) == ["present"]


def test_a_mass_of_files_keeps_the_bookmark_small_and_none_is_read_twice_or_lost() -> None:
    files = [file(f"f{number}", NOW) for number in range(3 * REMEMBERED_FILES)]
    in_order = Watch(BEGINNING, HOUR, NOW).pending(files)
    bookmark = read(BEGINNING, *in_order[: 2 * REMEMBERED_FILES])
    assert len(bookmark.seen) == REMEMBERED_FILES
    assert Watch(bookmark, HOUR, NOW).pending(files) == in_order[2 * REMEMBERED_FILES :]
    assert len(bookmark.to_position()) < 30_000


@given(st.lists(st.tuples(st.text(max_size=8), st.integers(-(2**60), 2**60), st.integers(0, 2**60)), max_size=8))
def test_a_bookmark_survives_the_ledger(raw: list[tuple[str, int, int]]) -> None:
    files = [file(*entry) for entry in raw]
    bookmark = Bookmark(7, floor=(5, "ab")).after(files, 2**62, NOW)
    assert Bookmark.from_position(bookmark.to_position()) == bookmark
    above = bookmark.above(files, (), 0, NOW)
    assert Bookmark.from_position(above.to_position()) == above


@pytest.mark.parametrize(
    "foreign",
    [
        '{"row":5,"time_ms":1}',
        '{"snapshot":3}',
        '{"mark_ms":1,"seen":["?"]}',
        '{"mark_ms":1,"seen":[],"behind":[1]}',
        '"x"',
        "[1]",
    ],
)
def test_a_position_of_another_source_halts(foreign: str) -> None:
    with pytest.raises(Halted) as caught:
        Bookmark.from_position(foreign)
    assert caught.value.code == "position-unknown"


def test_the_token_is_short() -> None:
    assert len(Remembered.of(file("a" * 500, NOW, size=2**40)).to_token()) == 24
    assert json.loads(read(BEGINNING, file("a", NOW)).to_position())["mark_ms"] == NOW


class FolderMachine(RuleBasedStateMachine):
    """A folder in which files appear in any order within the window, and a reader that crashes at any time.

    Files older than the window appear, too, but not between a removal and the next batch. The model is the list of files
    committed: each file that ever appeared exactly once.
    """

    @initialize(window=st.integers(0, 20), cap=st.integers(1, 4))
    def begin(self, window: int, cap: int) -> None:
        self.window, self.cap = window, cap
        self.clock = 1000
        self.folder: dict[str, FileEntry] = {}
        self.removed: dict[str, FileEntry] = {}
        self.appeared: set[str] = set()
        self.committed: list[str] = []
        self.ledger = BEGINNING.to_position()
        self.as_listed = True
        self.restart()

    def restart(self) -> None:
        self.watch = Watch(Bookmark.from_position(self.ledger), self.window, self.clock)

    def commit(self, count: int) -> bool:
        listing = list(self.folder.values())
        pending = self.watch.pending(listing)
        taken = pending[:count]
        if taken:
            bookmark = self.watch.bookmark.after(taken, self.window, self.clock, self.cap)
            bookmark = bookmark.above(listing, pending[count:], self.window, self.clock)
            self.as_listed = True
            self.ledger = bookmark.to_position()
            self.committed += [entry.path for entry in taken]
            self.watch.advance(taken, bookmark)
        return bool(taken)

    @rule(passed=st.integers(1, 5))
    def time_passes(self, passed: int) -> None:
        self.clock += passed

    @rule(age=st.integers(-3, 60))
    def file_appears(self, age: int) -> None:
        """After a file was removed not older than the window, nor behind the floor of those remembered."""
        self.clock += 1
        entry = file(f"f{len(self.appeared)}", self.clock - age, arrived_ms=self.clock)
        if self.as_listed or not self.watch.bookmark.takes_as_read(Remembered.of(entry), self.window):
            self.folder[entry.path] = entry
            self.appeared.add(entry.path)

    @rule(count=st.integers(1, 3))
    def batch_is_committed(self, count: int) -> None:
        self.commit(count)

    @rule(crashes=st.booleans())
    def batch_is_not_committed(self, crashes: bool) -> None:
        self.watch.pending(list(self.folder.values()))
        if crashes:
            self.restart()

    def late_waits(self) -> bool:
        files = (Remembered.of(entry) for path, entry in self.folder.items() if path not in self.committed)
        return any(self.watch.bookmark.takes_as_read(file, self.window) for file in files)

    @precondition(lambda self: set(self.folder) & set(self.committed) and not self.late_waits())
    @rule(data=st.data())
    def committed_file_is_removed(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(set(self.folder) & set(self.committed))))
        self.removed[path] = self.folder.pop(path)
        self.as_listed = False

    @precondition(lambda self: self.removed and not self.late_waits())
    @rule()
    def removed_files_come_back(self) -> None:
        """Those that are remembered still: who brings an old file into the folder wants it read."""
        remembered = {
            path: entry
            for path, entry in self.removed.items()
            if not self.watch.bookmark.takes_as_read(Remembered.of(entry), self.window)
        }
        self.folder |= remembered
        self.as_listed = False

    @invariant()
    def nothing_is_read_twice(self) -> None:
        committed = getattr(self, "committed", [])
        assert len(committed) == len(set(committed))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            while self.commit(2):
                pass
            assert sorted(self.committed) == sorted(self.appeared)


FolderMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
TestFolder = FolderMachine.TestCase
