"""How small files are divided into tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frazil.iceberg.splits import OPEN_BYTES, TASK_BYTES, share

SIZES = st.lists(st.integers(1, 3 * TASK_BYTES), min_size=1, max_size=60)


def tasks_of(weights: list[int], size: int) -> list[int]:
    """What each task gets, when files are handed out in their order as long as one fits."""
    tasks = [0]
    for weight in weights:
        if tasks[-1] and tasks[-1] + weight > size:
            tasks.append(0)
        tasks[-1] += weight
    return tasks


@given(SIZES, st.integers(1, 64), st.data())
def test_no_core_has_a_task_more_than_another(sizes: list[int], cores: int, data: st.DataObject) -> None:
    """Nor are there more tasks than those that were wanted, or than what there is to read asks for."""
    weights = [max(size, OPEN_BYTES) for size in sizes]
    at_least = data.draw(st.integers(1, cores))
    tasks = tasks_of(weights, share(weights, cores, at_least))
    asked = max(-(-sum(weights) // TASK_BYTES), at_least)
    assert len(tasks) <= (asked if asked <= cores else cores * -(-asked // cores))


def test_few_small_files_are_one_task_where_one_is_enough() -> None:
    """However many cores there are."""
    weights = [OPEN_BYTES] * 20
    assert len(tasks_of(weights, share(weights, cores=64, at_least=1))) == 1


def test_small_files_keep_two_cores_equally_busy() -> None:
    """160 files, as 20 upserts into 8 partitions leave them, would be five tasks."""
    weights = [OPEN_BYTES] * 160
    assert [task // OPEN_BYTES for task in tasks_of(weights, share(weights, cores=2, at_least=1))] == [27, 27, 27, 27, 27, 25]
