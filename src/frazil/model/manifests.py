"""Which manifests of a table are rewritten so that a scan of one partition opens few of them: a decision, as pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Manifests are rewritten when a scan of one partition opens so many of them, and at least twice as many as afterwards.
TOO_MANY = 4
# Manifests are rewritten by this process, not by executors: so many bytes of them at once.
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Manifest:
    """A manifest with data files, and how many of them are in each partition. Without ``partitions`` it was not read."""

    path: str
    bytes: int
    partitions: Mapping[str, int]


@dataclass(frozen=True)
class Clustering:
    """Manifests that are rewritten, the number of the new one for each partition, and how many manifests a scan of one partition
    opens on average, before and after.
    """

    paths: tuple[str, ...]
    groups: Mapping[str, int]
    bytes: int
    before: float
    after: float

    @property
    def manifests_after(self) -> int:
        """How many manifests there are in their place."""
        return len(set(self.groups.values()))


def worth_reading(sizes: Mapping[str, int], target_bytes: int) -> tuple[str, ...]:
    """The manifests of one spec that may be worth rewriting, by their sizes in the order of the list; none if they are few.

    Small ones are left to the commits that merge manifests, unless there are so many that these cannot keep up. As long as all
    fit into one manifest of the target's size, commits merge them into one.
    """
    small = {path for path, size in sizes.items() if 2 * size < target_bytes}
    if sum(sizes[path] for path in small) >= target_bytes:
        small = set()
    found: list[str] = []
    left = MOST_BYTES
    for path, size in sizes.items():
        if path not in small and size <= left:
            found.append(path)
            left -= size
    enough = len(found) >= TOO_MANY and MOST_BYTES - left > target_bytes
    return tuple(found) if enough else ()


def cluster(manifests: Sequence[Manifest], target_bytes: int) -> Clustering | None:
    """How manifests of one spec are rewritten by partition; None when a scan of one partition would open hardly fewer of them.

    A manifest whose partitions are mostly in no other stays as it is. Partitions next to each other share a new manifest of the
    target's size: smaller ones would be merged again by the next commits.
    """
    times = Counter(partition for manifest in manifests for partition in manifest.partitions)
    shared = [one for one in manifests if sum(times[p] for p in one.partitions) >= 2 * len(one.partitions)]
    files: Counter[str] = Counter()
    for manifest in shared:
        files.update(manifest.partitions)
    size = sum(one.bytes for one in shared)
    if not files or size <= target_bytes:
        return None
    each = size / sum(files.values())
    groups: dict[str, int] = {}
    number, used = 0, 0.0
    for partition in sorted(files, key=_natural):
        if used and used + files[partition] * each > target_bytes:
            number, used = number + 1, 0.0
        groups[partition] = number
        used += files[partition] * each
    before = sum(len(one.partitions) for one in shared) / len(files)
    after = sum(-(-files[partition] * each // target_bytes) for partition in files) / len(files)
    if before < TOO_MANY or before < 2 * after:
        return None
    return Clustering(tuple(one.path for one in shared), groups, size, round(before, 1), round(after, 1))


def _natural(text: str) -> list[tuple[int, str]]:
    """Numbers in a text are compared as numbers: day 9 comes before day 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
