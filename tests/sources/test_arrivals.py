"""Which files of a folder are new: the logic alone, over made-up listings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frazil.errors import DataError, Halted
from frazil.sources.arrivals import BEGINNING, REMEMBERED_FILES, Bookmark, Remembered, Watch
from frazil.sources.listing import FileEntry
from frazil.sources.sketch import CAPACITY
from tiers import examples

HOUR = 3_600_000
NOW = 1_800_000_000_000


def file(path: str, mtime_ms: int, size: int = 10, arrived_ms: int | None = None) -> FileEntry:
    return FileEntry(path, mtime_ms, size, f"file:/in/{path}", arrived_ms)


def watching(bookmark: Bookmark, cap: int = REMEMBERED_FILES) -> Watch:
    """A process that starts, with what the ledger says."""
    return Watch(Bookmark.from_position(bookmark.to_position()), NOW, cap)


def committed(bookmark: Bookmark, listing: list[FileEntry], count: int | None = None, cap: int = REMEMBERED_FILES) -> Bookmark:
    """The bookmark after the next batch of a process that starts, by default with everything that is new."""
    watch = watching(bookmark, cap)
    return watch.after(watch.pending(listing)[:count], listing)


def read(*files: FileEntry, cap: int = REMEMBERED_FILES) -> Bookmark:
    return committed(BEGINNING, list(files), cap=cap)


def pending(bookmark: Bookmark, *listing: FileEntry) -> list[str]:
    return [entry.path for entry in watching(bookmark).pending(listing)]


def test_at_the_beginning_every_file_is_new_oldest_first() -> None:
    assert pending(BEGINNING, file("b", 20), file("a", 30), file("c", 10)) == ["c", "b", "a"]


def test_files_of_the_same_time_are_read_in_the_order_of_their_names_also_over_batches() -> None:
    files = [file(f"part-{number:05}.json", NOW) for number in range(40)]
    assert pending(BEGINNING, *reversed(files)) == [entry.path for entry in files]
    bookmark, found = BEGINNING, list[str]()
    for _ in files:
        found += pending(bookmark, *reversed(files))[:1]
        bookmark = committed(bookmark, files, 1, cap=3)
    assert found == [entry.path for entry in files]


def test_what_was_read_is_not_new_and_what_came_since_is() -> None:
    old, new = file("a", NOW - 5), file("b", NOW)
    assert pending(read(old), old, new) == ["b"]


@pytest.mark.parametrize("arrived_ms", [None, NOW + 10, NOW - 90 * HOUR], ids=["unknown", "later", "clock-set-back"])
@pytest.mark.parametrize("count", [1, 9, REMEMBERED_FILES + 200])
def test_a_file_that_was_never_read_is_new_whatever_its_times_are(arrived_ms: int | None, count: int) -> None:
    """With few files in the folder and with more than are remembered one by one; in a process, and after a restart."""
    archive = [file(f"old{number}", NOW - number * HOUR, arrived_ms=NOW - number * HOUR) for number in range(count)]
    new = [file(f"new{number}", NOW - number * 7 * HOUR, arrived_ms=arrived_ms) for number in range(CAPACITY // 2)]
    running = watching(BEGINNING)
    running.advance(running.pending(archive), running.after(running.pending(archive), archive))
    assert running.pending(archive) == []
    for watch in (running, watching(read(*archive))):
        assert set(watch.pending([*archive, *new])) == set(new)
        assert set(watch.pending([*new, *archive])) == set(new), "they stay new until they are read"


def test_any_number_of_files_may_come_late_where_the_store_tells_when_they_came() -> None:
    archive = [file(f"old{number}", NOW - number, arrived_ms=NOW - HOUR) for number in range(2 * REMEMBERED_FILES)]
    late = [file(f"late{number:05}", 5 + number, arrived_ms=NOW + number % 7) for number in range(4 * CAPACITY)]
    listing = [*archive, *late]
    bookmark, found = read(*archive), list[FileEntry]()
    for _ in range(4):
        found += watching(bookmark).pending(listing)[:CAPACITY]
        bookmark = committed(bookmark, listing, CAPACITY)
    assert found == late
    assert pending(bookmark, *listing) == []


def test_any_files_may_be_removed_where_all_are_remembered_one_by_one() -> None:
    archive = [file(f"old{number:03}", NOW + number) for number in range(REMEMBERED_FILES)]
    new = [file(f"new{number}", 5) for number in range(5 * CAPACITY)]
    assert set(watching(read(*archive)).pending([*archive[::7], *new])) == set(new)


def test_files_that_were_removed_or_came_are_distinguished_in_a_large_folder() -> None:
    archive = [file(f"old{number:05}", NOW + number) for number in range(5 * REMEMBERED_FILES)]
    new = [file(f"new{number}", 5) for number in range(CAPACITY // 2)]
    assert set(watching(read(*archive)).pending([*archive[CAPACITY // 2 :], *new])) == set(new)


def test_when_too_many_were_removed_old_times_are_taken_as_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    archive = [file(f"old{number:05}", NOW + number, arrived_ms=NOW) for number in range(5 * REMEMBERED_FILES)]
    old, new = file("a-late", 5, arrived_ms=NOW), file("new", NOW + 10 * HOUR, arrived_ms=NOW)
    watch = watching(read(*archive))
    left = archive[2 * REMEMBERED_FILES :]
    assert watch.pending([*left, old, new]) == [new]
    (warning,) = caplog.messages
    assert f"which of {2 * REMEMBERED_FILES + 1} files with old times are new is not known" in warning
    assert "file:/in/a-late file:/in/old02000" in warning
    assert warning.endswith(" ...")
    later = file("b-late", 5, arrived_ms=NOW + 10)
    assert watch.pending([*left, later]) == [later], "it came while this process was looking"
    assert watch.pending(archive) == [], "the others are back"


def test_files_of_which_some_must_be_new_stop_when_nothing_shows_which() -> None:
    archive = [file(f"old{number:05}", NOW + number) for number in range(REMEMBERED_FILES + 10)]
    late = [file(f"late{number}", 5 + number) for number in range(2 * CAPACITY)]
    watch = watching(read(*archive))
    for _ in range(2):
        with pytest.raises(DataError, match="at most 10 were read") as caught:
            watch.pending([*archive, *late])
    assert caught.value.code == "files-undecided"
    touched = [replace(entry, mtime_ms=NOW + HOUR) for entry in late]
    assert set(watch.pending([*archive, *touched])) == set(touched)


def test_names_that_vanish_and_come_back_are_not_read_twice() -> None:
    early, late = file("early", NOW - 10 * HOUR), file("late", NOW)
    watch = watching(BEGINNING)
    assert watch.pending([early, late]) == [early, late]
    watch.advance([early, late], watch.after([early, late], [early, late]))
    assert watch.pending([]) == []
    assert watch.pending([early, late]) == []


@pytest.mark.parametrize("count", [9, REMEMBERED_FILES + 2000])
def test_a_folder_that_is_not_mounted_when_a_process_starts_is_not_read_again(count: int) -> None:
    archive = [file(f"old{number:05}", NOW + number) for number in range(count)]
    watch = watching(read(*archive))
    assert watch.pending([]) == []
    assert watch.pending(archive) == []


def test_files_that_were_not_mounted_when_the_last_batch_was_committed_are_not_read_again() -> None:
    archive = [file(f"old{number}", NOW - number * HOUR) for number in range(9)]
    bookmark = committed(read(*archive), [*archive[:4], file("new", NOW + 1)])
    assert pending(bookmark, *archive) == []


@pytest.mark.parametrize("changed", [{"size": 11}, {"mtime_ms": NOW + 5}, {"mtime_ms": NOW + 100 * HOUR}, {"mtime_ms": 5}])
@pytest.mark.parametrize("which", [0, -1])
def test_a_file_that_was_read_and_changed_stops_after_a_restart(changed: dict[str, int], which: int) -> None:
    archive = [file(f"old{number:05}", NOW + number * 10) for number in range(REMEMBERED_FILES + 10)]
    bookmark = read(*archive)
    archive[which] = replace(archive[which], **changed)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"file:/in/{archive[which].path} was read before") as caught:
        pending(bookmark, *archive)
    assert caught.value.code == "file-changed"


def test_a_file_that_changes_stops_within_the_process() -> None:
    early, late = file("early", NOW - 2 * HOUR), file("late", NOW)
    watch = watching(read(early, late))
    assert watch.pending([early, late]) == []
    with pytest.raises(DataError, match="early"):
        watch.pending([replace(early, mtime_ms=NOW + 1), late])


def test_a_file_from_the_future_does_no_harm() -> None:
    future, present = file("future", NOW + 1000 * HOUR), file("present", NOW)
    assert pending(read(future), future, present) == ["present"]


def test_a_mass_of_files_keeps_the_bookmark_small_and_none_is_read_twice_or_lost() -> None:
    files = [file(f"f{number:04}", NOW) for number in range(5 * REMEMBERED_FILES)]
    bookmark = committed(BEGINNING, files, 2 * REMEMBERED_FILES)
    assert len(bookmark.seen) == REMEMBERED_FILES
    assert watching(bookmark).pending(files) == files[2 * REMEMBERED_FILES :]
    assert len(bookmark.to_position()) < 50_000


def test_a_position_of_an_earlier_version_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "frazil")
    archive = [file(f"old{number}", NOW - number * HOUR) for number in range(9)]
    seen = Remembered.of(archive[0]).to_token()
    for position in (
        f'{{"mark_ms":{NOW},"seen":["{seen}"]}}',
        f'{{"mark_ms":{NOW},"seen":["{seen}"],"floor":[{NOW - HOUR},"ffff"],"behind":[8,"ab",{NOW}]}}',
    ):
        bookmark = Bookmark.from_position(position)
        late, new = file("late", 5), file("new", NOW - 1)
        watch = watching(bookmark)
        assert watch.pending([*archive, new][::-1]) == ([new] if "floor" in position else [archive[1], new])
        assert watch.pending([*archive, new, late])[0] == late, "it came while this process was looking"
        assert set(pending(committed(bookmark, archive), *archive, late)) == {"late"}
    assert caplog.messages[0].endswith("since an earlier version read last: 7.")


NAMES = st.binary(min_size=1, max_size=8).map(lambda name: name.decode(errors="surrogateescape"))
TIMES_AND_SIZES = (st.integers(-(2**60), 2**60), st.integers(0, 2**60))
ODD_FILES = st.lists(st.tuples(NAMES, *TIMES_AND_SIZES), max_size=8, unique_by=lambda raw: raw[0])


@given(ODD_FILES, st.integers(1, 4))
def test_a_bookmark_survives_the_ledger(raw: list[tuple[str, int, int]], cap: int) -> None:
    files = [file(*entry) for entry in raw]
    watch = Watch(BEGINNING, NOW, cap)
    bookmark = watch.after(files, files) if files else BEGINNING
    assert Bookmark.from_position(bookmark.to_position()) == bookmark
    assert pending(bookmark, *files) == []


def test_a_name_of_any_bytes_survives_the_ledger() -> None:
    files = [file("a\udcff.json", NOW), file("ü b%20.json", NOW + 1)]
    bookmark = read(*files, cap=1)
    bookmark.to_position().encode()
    assert pending(bookmark, *files) == []


@pytest.mark.parametrize(
    "foreign",
    [
        '{"row":5,"time_ms":1}',
        '{"snapshot":3}',
        '{"mark_ms":1,"seen":["?"]}',
        '{"seen":[],"older":[1]}',
        '{"seen":[],"older":[1,"a",1,"eJwDAAAAAAE=",1,1,1,"a"]}',
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


class FolderMachine(RuleBasedStateMachine):
    """A folder in which files appear with any times, and are removed, and a reader that crashes at any time.

    The model is the list of files committed: each file that ever appeared exactly once.
    """

    @initialize(cap=st.integers(1, 4))
    def begin(self, cap: int) -> None:
        self.cap = cap
        self.clock = 1000
        self.folder: dict[str, FileEntry] = {}
        self.appeared: set[str] = set()
        self.committed: list[str] = []
        self.ledger = BEGINNING.to_position()
        self.restart()

    def restart(self) -> None:
        self.watch = Watch(Bookmark.from_position(self.ledger), self.clock, self.cap)

    def commit(self, count: int) -> bool:
        listing = list(self.folder.values())
        taken = self.watch.pending(listing)[:count]
        if taken:
            bookmark = self.watch.after(taken, listing)
            self.ledger = bookmark.to_position()
            self.committed += [entry.path for entry in taken]
            self.watch.advance(taken, bookmark)
        return bool(taken)

    @rule(passed=st.integers(-300, 300))
    def clock_is_set(self, passed: int) -> None:
        self.clock += passed

    @rule(age=st.integers(-3, 60), told=st.booleans())
    def file_appears(self, age: int, told: bool) -> None:
        entry = file(f"f{len(self.appeared)}", self.clock - age, arrived_ms=self.clock if told else None)
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

    @precondition(lambda self: set(self.folder) & set(self.committed))
    @rule(data=st.data())
    def committed_file_is_removed(self, data: st.DataObject) -> None:
        del self.folder[data.draw(st.sampled_from(sorted(set(self.folder) & set(self.committed))))]

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
