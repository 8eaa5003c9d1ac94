"""Which manifests are rewritten by partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frazil.model.manifests import MOST_BYTES, Manifest, cluster, worth_reading

TARGET = 2_000_000


def manifest(number: int, partitions: range, files: int = 100, size: int = TARGET) -> Manifest:
    return Manifest(f"m{number}", size, {f"PartitionData{{p={one}}}": files for one in partitions})


def opened(manifests: list[dict[str, int]]) -> float:
    """How many of the manifests a scan of one partition opens on average."""
    partitions = {partition for one in manifests for partition in one}
    return sum(map(len, manifests)) / len(partitions)


def test_manifests_that_all_have_all_partitions_are_rewritten_so_that_one_has_each() -> None:
    plan = cluster([manifest(n, range(100)) for n in range(8)], TARGET)
    assert plan is not None
    assert set(plan.paths) == {f"m{n}" for n in range(8)}
    assert (plan.before, plan.after) == (8, 1)
    assert 8 <= plan.manifests_after <= 9
    assert plan.groups["PartitionData{p=9}"] == plan.groups["PartitionData{p=10}"], "days are next to each other, not texts"


def test_manifests_that_follow_each_other_in_time_stay() -> None:
    assert cluster([manifest(n, range(10 * n, 10 * n + 11)) for n in range(20)], TARGET) is None


def test_finished_partitions_stay_where_they_are() -> None:
    old = [manifest(n, range(10 * n, 10 * n + 10)) for n in range(20)]
    fresh = [manifest(100 + n, range(500, 550)) for n in range(6)]
    plan = cluster([*fresh, *old], TARGET)
    assert plan is not None
    assert set(plan.paths) == {one.path for one in fresh}


def test_a_partition_that_fills_manifests_alone_gains_nothing() -> None:
    assert cluster([manifest(n, range(1), files=10_000) for n in range(8)], TARGET) is None


def test_small_manifests_are_left_to_commits_until_there_are_too_many() -> None:
    full = {f"full{n}": TARGET for n in range(4)}
    assert set(worth_reading(full | {"new": 5_000}, TARGET)) == set(full)
    assert worth_reading({"full": TARGET} | {f"new{n}": 5_000 for n in range(9)}, TARGET) == ()
    many = {f"new{n}": 5_000 for n in range(1_000)}
    assert len(worth_reading(many, TARGET)) == 1_000
    assert worth_reading({f"m{n}": 400_000 for n in range(4)}, TARGET) == (), "they fit into one"


def test_no_more_is_rewritten_at_once_than_this_process_bears() -> None:
    found = worth_reading({f"m{n}": TARGET for n in range(1_000)}, TARGET)
    assert len(found) == MOST_BYTES // TARGET
    assert found[0] == "m0", "the newest come first in the list"


@given(st.lists(st.dictionaries(st.integers(0, 60), st.integers(1, 500), min_size=1), min_size=1, max_size=12))
def test_a_rewrite_always_pays_and_is_not_repeated(found: list[dict[int, int]]) -> None:
    manifests = [Manifest(f"m{n}", TARGET, {f"p={p}": files for p, files in one.items()}) for n, one in enumerate(found)]
    plan = cluster(manifests, TARGET)
    if plan is None:
        return
    chosen = [one for one in manifests if one.path in plan.paths]
    made: dict[int, dict[str, int]] = {}
    for one in chosen:
        for partition, files in one.partitions.items():
            group = made.setdefault(plan.groups[partition], {})
            group[partition] = group.get(partition, 0) + files
    assert sum(sum(one.values()) for one in made.values()) == sum(sum(one.partitions.values()) for one in chosen)
    assert opened([dict(one.partitions) for one in chosen]) >= 4
    assert opened(list(made.values())) == 1
    size = plan.bytes // len(made)
    again = cluster([Manifest(f"n{n}", size, files) for n, files in made.items()], TARGET)
    assert again is None
