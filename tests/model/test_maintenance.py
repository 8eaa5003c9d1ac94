"""What is decided about a table's health: which snapshots expire, and which small files are merged."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.model.maintenance import (
    CREATED_BY,
    MaintenanceSpec,
    Merge,
    PastSnapshot,
    References,
    Retention,
    SmallFile,
    TableFigures,
    affordable,
    expired,
    files_needed,
    jobs_of,
    merged_at_once,
    plan_merges,
    read_amplification,
    statistics_due,
    too_many,
)

HOUR = 3_600_000
TARGET = 128 * 1024 * 1024


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
    assert expired(history(100), References(100), Retention(100, 10**15), 0) == ()
    assert expired(history(101), References(101), Retention(100, 10**15), 0) == tuple(range(1, 11))


@given(st.integers(1, 60), st.integers(1, 20), st.sets(st.integers(1, 60)), st.integers(1, 100))
def test_no_snapshot_goes_that_is_named_or_among_the_newest(count: int, most: int, pinned: set[int], hours: int) -> None:
    gone = set(expired(history(count), References(count, pinned=frozenset(pinned)), Retention(most, hours * HOUR), count * HOUR))
    assert not gone & pinned
    fewest = most - Retention(most, 1).step + 1
    newest = set(range(max(1, count - min(fewest, hours) + 1), count + 1))
    assert not gone & newest
    assert len(set(range(1, count + 1)) - gone - pinned) <= most


def written(merge: Merge, now: int, target: int = TARGET) -> list[SmallFile]:
    """What a merge leaves to be looked after: writers make files of the full size, and the last one of the rest."""
    full, rest = divmod(merge.bytes, target)
    assert full + (rest > 0) == files_needed(merge.bytes, target)
    return [SmallFile(rest, now)] if 0 < rest < 0.75 * target else []


def after_merges(files: list[list[SmallFile]], merges: Iterable[Merge], now: int, target: int = TARGET) -> list[list[SmallFile]]:
    """The small files of each partition when merges are done."""
    left = [dict(enumerate(each)) for each in files]
    made: list[list[SmallFile]] = [[] for _ in files]
    for merge in merges:
        for place in merge.files:
            del left[merge.partition][place]
        made[merge.partition] += written(merge, now, target)
    return [[*old.values(), *new] for old, new in zip(left, made, strict=True)]


def live(commits: int, size: int, spec: MaintenanceSpec) -> tuple[list[SmallFile], int]:
    """The files after so many commits of one file each, merged as they come; and how many bytes were rewritten."""
    files: list[SmallFile] = []
    rewritten = 0
    for commit in range(1, commits + 1):
        files.append(SmallFile(size, commit))
        if commit % spec.small_files == 0:
            merges = plan_merges([files], commit, spec, TARGET)
            rewritten += sum(merge.bytes for merge in merges)
            (files,) = after_merges([files], merges, commit)
    return files, rewritten


@pytest.mark.parametrize("commits", [100, 1_000, 10_000])
def test_files_stay_few_and_each_row_is_rewritten_a_logarithmic_number_of_times(commits: int) -> None:
    spec = MaintenanceSpec(small_files=16)
    files, rewritten = live(commits, 1000, spec)
    tiers = math.ceil(math.log(commits / 16, 4)) + 1
    assert len(files) <= 16 + 4 * tiers
    assert rewritten / (commits * 1000) <= tiers + 1


def stream(
    sizes: Iterable[int], partitions: int, spec: MaintenanceSpec, target: int = TARGET
) -> tuple[list[list[SmallFile]], int, int]:
    """The small files of each partition after commits of these sizes in turn, the bytes rewritten, and the files done with."""
    small: list[list[SmallFile]] = [[] for _ in range(partitions)]
    rewritten = done = 0
    for commit, size in enumerate(sizes, 1):
        small[commit % partitions].append(SmallFile(size, commit))
        if commit % spec.small_files:
            continue
        merges = plan_merges(small, commit, spec, target)
        chosen = [merge for job in affordable(jobs_of(merges, spec.max_rewrite_bytes), spec.max_rewrite_bytes) for merge in job]
        at_once = sum(merge.bytes for merge in chosen)
        assert at_once <= spec.max_rewrite_bytes
        for merge in chosen:
            laid_out = bool(spec.z_order) and merge.files_after > 1
            assert merge.z_ordered == laid_out, "once, when files get their final size"
        small = after_merges(small, chosen, commit, target)
        rewritten += at_once
        done += sum(merge.files_after - len(written(merge, commit, target)) for merge in chosen)
    return small, rewritten, done


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 4),
    st.sampled_from([2, 4, 16, 64]),
    st.lists(st.integers(1_000, 4_000_000), min_size=1, max_size=40),
    st.sampled_from([(), ("a",)]),
)
def test_of_many_small_files_few_stay_and_little_is_rewritten(
    partitions: int, at_once: int, sizes: list[int], z_order: tuple[str, ...]
) -> None:
    require_bounds((sizes * 1_000)[:1_000], partitions, at_once, z_order)


@pytest.mark.parametrize("z_order", [(), ("a", "b")], ids=["", "z-order"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_of_ten_thousand_small_files_few_stay_and_little_is_rewritten(partitions: int, z_order: tuple[str, ...]) -> None:
    sizes = random.Random(partitions)
    require_bounds([sizes.randint(1_000, 1_000_000) for _ in range(10_000)], partitions, 16, z_order)


def require_bounds(added: list[int], partitions: int, at_once: int, z_order: tuple[str, ...]) -> None:
    spec = MaintenanceSpec(small_files=at_once, z_order=z_order)
    small, rewritten, done = stream(added, partitions, spec)
    tiers = math.log(TARGET / min(added), 4) + 2
    # With a z-order, files of about a quarter of their final size wait until there is enough for several.
    assert max(map(len, small)) <= at_once + 4 * tiers + (32 if z_order else 0)
    assert rewritten <= (tiers + 1) * sum(added)
    assert done <= sum(added) / (0.5 * TARGET) + 1


MB = 1024 * 1024
SIZES = st.lists(st.integers(1, 96 * MB - 1), max_size=60)
SPECS = st.builds(
    MaintenanceSpec,
    max_rewrite_mb=st.sampled_from([1, 50, 100, 150, 300, 1024, 4096]),
    small_files=st.sampled_from([2, 16]),
    z_order=st.sampled_from([(), ("a",)]),
)


@settings(deadline=None)
@given(st.lists(SIZES, max_size=3), st.booleans(), SPECS, st.booleans())
def test_a_merge_is_of_bounded_size_and_merging_again_and_again_comes_to_an_end(
    sizes: list[list[int]], deleted: bool, spec: MaintenanceSpec, finish: bool
) -> None:
    files = [[SmallFile(size, 1) for size in each] + [SmallFile(3 * TARGET, 1, deleted=True)] * deleted for each in sizes]
    most = merged_at_once(spec, TARGET, finish=finish)
    assert finish or most <= spec.max_rewrite_bytes
    count = sum(map(len, files))
    while merges := plan_merges(files, 1, spec, TARGET, finish=finish):
        assert all(merge.bytes <= most for merge in merges)
        assert all(len(merge.files) > 1 or files[merge.partition][merge.files[0]].deleted for merge in merges)
        assert not sum(map(len, after_merges(files, merges, 1))) >= count, "each time there are fewer files"
        files = after_merges(files, merges, 1)
        count = sum(map(len, files))
    for each in files:
        small = sorted(file.bytes for file in each if not file.deleted)
        if finish:
            assert len(small) < 2 or small[0] + small[1] > min(most, TARGET), "no two files are left that could be one"
            assert len(small) == len(each), "what is mostly deleted is rewritten"


@pytest.mark.parametrize(("size", "at_once"), [(62, 1024), (20, 1024), (2, 100), (1, 30)])
def test_merging_keeps_up_with_what_a_pause_allows(size: int, at_once: int) -> None:
    """Also where all that is due is more than that, or where a pause allows less than one file of the final size."""
    spec, count = MaintenanceSpec(small_files=16, max_rewrite_mb=at_once), 2_000
    small, rewritten, _ = stream([size * MB] * count, 1, spec)
    largest = min(merged_at_once(spec, TARGET), 0.75 * TARGET)
    assert len(small[0]) <= 2 * count * size * MB / largest * (largest < 0.75 * TARGET) + 48
    assert rewritten <= 4 * count * size * MB


def test_more_than_a_pause_allows_is_merged_as_far_as_it_does() -> None:
    spec = MaintenanceSpec(small_files=16)
    files = [SmallFile(70 * MB, 1)] * 16
    (merge,) = plan_merges([files], 1, spec, TARGET)
    assert (len(merge.files), merge.files_after) == (14, 8)
    assert list(affordable(jobs_of([merge], 256 * MB), spec.max_rewrite_bytes)) == [[merge]]


def test_a_backlog_is_worked_off_in_merges_of_a_few_files_each() -> None:
    """Nobody rewrites 90 GB to lose it all to one conflict."""
    files = [SmallFile(90 * MB, 1)] * 1_000
    merges = plan_merges([files], 10**6, MaintenanceSpec(), TARGET, finish=True)
    assert {place for merge in merges for place in merge.files} == set(range(1_000))
    assert sum(len(merge.files) for merge in merges) == 1_000, "each file is in one merge"
    assert max(merge.files_after for merge in merges) <= 8
    assert sum(merge.files_after for merge in merges) <= 750
    ordered = plan_merges([files], 10**6, MaintenanceSpec(z_order=("a",)), TARGET, finish=True)
    assert all(merge.z_ordered and merge.files_after >= 4 for merge in ordered), "none of them is too small to be laid out"


def test_what_does_not_fit_into_a_pause_is_no_stop_for_others_and_comes_first_when_it_has_waited() -> None:
    """Otherwise a large merge would never be done where there always are small ones that gain more."""
    spec = MaintenanceSpec(small_files=4, max_rewrite_mb=512)
    large = [SmallFile(90 * MB, 1)] * 5
    small = [[SmallFile(4 * MB, 1)] * 16] * 2
    planned = plan_merges([large, *small], 1, spec, TARGET)
    assert [merge.partition for merge in planned] == [1, 2, 0]
    done = list(affordable(jobs_of(planned, 64 * MB), 500 * MB))
    assert [merge.partition for job in done for merge in job] == [1, 2]
    several = plan_merges([large, *small, [SmallFile(5 * MB, 1)] * 4], 1, spec, TARGET)
    assert [merge.partition for job in affordable(jobs_of(several, 64 * MB), 150 * MB) for merge in job] == [1, 2, 3]
    later = [[SmallFile(4 * MB, 100)] * 16] * 2
    assert [merge.partition for merge in plan_merges([large, *later], 100, spec, TARGET)] == [0, 1, 2]


def test_merges_that_save_most_for_what_they_cost_come_first() -> None:
    spec = MaintenanceSpec(small_files=4)
    large, tiny = [SmallFile(60_000_000, 1)] * 4, [SmallFile(1_000, 1)] * 4
    plan = plan_merges([large, tiny], 1, spec, TARGET)
    assert [(merge.partition, merge.files_after) for merge in plan] == [(1, 1), (0, 2)]
    assert jobs_of(plan, 1_000_000) == [[plan[0]], [plan[1]]]
    assert jobs_of(plan, 10**9) == [list(plan)]


def test_rows_of_one_partition_are_laid_out_by_a_job_of_its_own() -> None:
    spec = MaintenanceSpec(z_order=("a", "b"))
    plan = plan_merges(
        [[SmallFile(40_000_000, 1)] * 12, [SmallFile(1_000, 1)] * 16, [SmallFile(30_000_000, 1)] * 12],
        1,
        spec,
        TARGET,
        finish=True,
    )
    assert [(merge.partition, merge.z_ordered) for merge in plan] == [(1, False), (2, True), (0, True)]
    assert jobs_of(plan, 10**12) == [[merge] for merge in plan]


def test_a_merge_that_makes_files_no_fewer_is_left_out() -> None:
    """It would be done again each time."""
    files = [SmallFile(int(0.7 * TARGET), 1)] * 2
    assert plan_merges([files], 10**6, MaintenanceSpec(), TARGET, finish=True) == ()
    assert too_many([files], TARGET) == 0


def test_how_many_files_a_scan_opens() -> None:
    groups = [[SmallFile(1_000, 1)] * 6, [SmallFile(1_000, 1)] * 4]
    assert too_many(groups, TARGET) == 8
    assert read_amplification(10, 0, 8) == 5
    assert read_amplification(10, 4, 8) == 7
    assert read_amplification(0, 0, 0) == 1


def test_values_are_counted_again_when_the_table_has_grown() -> None:
    assert statistics_due(10, None)
    assert not statistics_due(0, None)
    assert not statistics_due(149, "100")
    assert statistics_due(151, "100")
    assert statistics_due(60, "100")


def test_what_a_summary_does_not_say_is_not_made_up() -> None:
    figures = TableFigures.of_summary({"total-data-files": "12", "manifests-created": "1", "manifests-kept": "4"}, 7)
    assert (figures.data_files, figures.manifests, figures.snapshots, figures.data_bytes) == (12, 5, 7, None)
    assert TableFigures.of_summary({}) == TableFigures()


def test_a_partition_that_gets_no_more_files_is_finished() -> None:
    spec = MaintenanceSpec(small_files=4)
    files = [SmallFile(10_000, 1), SmallFile(100, 2)]
    assert plan_merges([files], 3, spec, TARGET) == ()
    assert [set(merge.files) for merge in plan_merges([files], 100, spec, TARGET)] == [{0, 1}]
    assert plan_merges([files[:1]], 100, spec, TARGET) == ()


def test_a_file_whose_rows_are_mostly_deleted_is_rewritten_alone() -> None:
    deleted = [SmallFile(10**9, 1, deleted=True)]
    assert [merge.files for merge in plan_merges([deleted], 2, MaintenanceSpec(), TARGET)] == [(0,)]
    assert plan_merges([deleted], 2, MaintenanceSpec(max_rewrite_mb=500), TARGET) == (), "a pause does not allow it"
    assert plan_merges([deleted], 2, MaintenanceSpec(max_rewrite_mb=500), TARGET, finish=True)


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


def test_without_history_only_tags_and_other_branches_stay() -> None:
    named = References(30, branches=frozenset({12}), pinned=frozenset({30, 29}), others=frozenset({12, 5, 30}))
    gone = expired(history(30), named, Retention(1, 0, history=False), 0)
    assert set(gone) == {*range(1, 30)} - {*range(1, 13)}, "the head stays where a tag is on it, a ledger's snapshot does not"
