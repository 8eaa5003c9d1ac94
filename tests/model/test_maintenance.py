"""What is decided about a table's health: which snapshots expire, and which small files are merged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.maintenance import (
    CREATED_BY,
    MaintenanceSpec,
    PastSnapshot,
    References,
    Retention,
    SmallFile,
    expired,
    to_merge,
)

HOUR = 3_600_000


def history(count: int) -> list[PastSnapshot]:
    """A main branch of snapshots, one an hour."""
    return [PastSnapshot(n, n - 1 if n > 1 else None, n * HOUR) for n in range(1, count + 1)]


def test_the_newest_snapshots_of_the_main_branch_stay() -> None:
    gone = expired(history(30), References(head=30), Retention(10, 1000 * HOUR), 30 * HOUR)
    assert gone == tuple(range(1, 21))


def test_a_snapshot_that_is_too_old_goes_but_the_newest_ten_stay_whatever_the_clock_says() -> None:
    gone = expired(history(15), References(head=15), Retention(100, 2 * HOUR), 10**9 * HOUR)
    assert gone == ()
    gone = expired(history(25), References(head=25), Retention(100, 2 * HOUR), 10**9 * HOUR)
    assert gone == tuple(range(1, 16))
    assert expired(history(5), References(head=5), Retention(1, 2 * HOUR), 100 * HOUR) == (1, 2, 3, 4)


def test_what_a_tag_or_a_ledger_names_stays() -> None:
    gone = expired(history(30), References(30, pinned=frozenset({3, 7})), Retention(10, 1000 * HOUR), 30 * HOUR)
    assert set(gone) == {*range(1, 21)} - {3, 7}


def test_another_branch_stays_with_all_its_history() -> None:
    branch = [PastSnapshot(101, 5, 6 * HOUR), PastSnapshot(102, 101, 7 * HOUR)]
    named = References(30, branches=frozenset({102}))
    gone = expired([*history(30), *branch], named, Retention(10, 1000 * HOUR), 30 * HOUR)
    assert set(gone) == set(range(6, 21))


def test_a_snapshot_that_was_rolled_back_goes_by_its_age() -> None:
    rolled_back = PastSnapshot(99, 25, 26 * HOUR)
    assert 99 not in expired([*history(30), rolled_back], References(30), Retention(10, 10 * HOUR), 30 * HOUR)
    assert 99 in expired([*history(30), rolled_back], References(30), Retention(10, 3 * HOUR), 30 * HOUR)


def test_snapshots_go_together_not_one_with_every_commit() -> None:
    assert expired(history(104), References(104), Retention(100, 10**15), 0) == ()
    assert len(expired(history(110), References(110), Retention(100, 10**15), 0)) == 10


@given(st.integers(1, 60), st.integers(1, 20), st.sets(st.integers(1, 60)), st.integers(1, 100))
def test_no_snapshot_goes_that_is_named_or_among_the_newest(count: int, most: int, pinned: set[int], hours: int) -> None:
    gone = set(expired(history(count), References(count, pinned=frozenset(pinned)), Retention(most, hours * HOUR), count * HOUR))
    assert not gone & pinned
    newest = set(range(max(1, count - min(most, hours) + 1), count + 1))
    assert not gone & newest


def live(commits: int, size: int, spec: MaintenanceSpec) -> tuple[list[SmallFile], int]:
    """The files after so many commits of one file each, merged as they come; and how many bytes were rewritten."""
    files: list[SmallFile] = []
    rewritten = 0
    for commit in range(1, commits + 1):
        files.append(SmallFile(size, commit))
        if commit % spec.small_files == 0 and (places := to_merge(files, commit, spec)):
            merged = sum(files[place].bytes for place in places)
            rewritten += merged
            files = [file for place, file in enumerate(files) if place not in places] + [SmallFile(merged, commit)]
    return files, rewritten


@pytest.mark.parametrize("commits", [100, 1_000, 10_000])
def test_files_stay_few_and_each_row_is_rewritten_a_logarithmic_number_of_times(commits: int) -> None:
    spec = MaintenanceSpec(small_files=16)
    files, rewritten = live(commits, 1000, spec)
    tiers = math.ceil(math.log(commits / 16, 4)) + 1
    assert len(files) <= 16 + 4 * tiers
    assert rewritten / (commits * 1000) <= tiers + 1


def test_a_partition_that_gets_no_more_files_is_finished() -> None:
    spec = MaintenanceSpec(small_files=4)
    files = [SmallFile(10_000, 1), SmallFile(100, 2)]
    assert to_merge(files, 3, spec) == ()
    assert set(to_merge(files, 100, spec)) == {0, 1}
    assert to_merge(files[:1], 100, spec) == ()


def test_a_file_whose_rows_are_mostly_deleted_is_rewritten_alone() -> None:
    assert to_merge([SmallFile(10**9, 1, deleted=True)], 2, MaintenanceSpec()) == (0,)


def test_a_table_of_somebody_else_is_left_alone_unless_asked() -> None:
    assert MaintenanceSpec().looks_after({CREATED_BY: "0.1.0"})
    assert not MaintenanceSpec().looks_after({})
    assert MaintenanceSpec(enabled=True).looks_after({})
    assert not MaintenanceSpec(enabled=False).looks_after({CREATED_BY: "0.1.0"})
    assert not MaintenanceSpec(enabled=True).looks_after({"gc.enabled": "false"}), "other tables may use its files"


def test_a_table_that_its_store_maintains_is_left_to_it_unless_asked() -> None:
    made, theirs = {CREATED_BY: "0.1.0"}, "s3://63a8e430-6e0b-46f5--table-s3"
    assert not MaintenanceSpec().looks_after(made, theirs)
    assert MaintenanceSpec(enabled=True).looks_after(made, theirs)
    assert MaintenanceSpec().looks_after(made, "s3://lake/db/not--table-s3")
