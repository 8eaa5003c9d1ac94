"""What happened to a pipeline's table, put together from its snapshots and from what this process knows. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frazil.observe.lake import SnapshotFacts, TableFacts
from frazil.ui.live import LiveCommit, LiveFacts

# Of a stream that commits rarely, a rate is that of several commits.
RATE_SECONDS, RATE_INTERVALS = 60, 3
# Snapshots of these kinds belong to batches, claims and moves of the source; all others were made for the table's health.
_OF_THE_SOURCE = ("data", "claim", "rewind")


@dataclass(frozen=True)
class Commit:
    """One batch in the table. What is None is not known: how long a commit took stands in no snapshot."""

    at_ms: int
    snapshot: int
    batch: int
    read: int
    written: int
    dead_lettered: int
    filtered: int
    files: int | None
    bytes: int | None
    instance: str | None = None
    seconds: float | None = None
    attempts: int | None = None


@dataclass(frozen=True)
class Upkeep:
    """A snapshot that was made for the table's health, or by an erasure: what it did, in numbers by their names."""

    at_ms: int
    snapshot: int
    kind: str
    counts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Instance:
    """A process that has owned the sink. Each fences those before it."""

    epoch: int
    name: str
    first_ms: int
    last_ms: int
    batches: int


@dataclass(frozen=True)
class Pace:
    """The rates between a commit and what came before it: a commit, or the start of an instance."""

    at_ms: int
    rows: float | None
    bytes: float | None
    seconds: float | None


@dataclass(frozen=True)
class History:
    """What is known of a sink, from old to new. ``starts``: when instances began."""

    commits: tuple[Commit, ...] = ()
    starts: tuple[int, ...] = ()
    upkeep: tuple[Upkeep, ...] = ()
    instances: tuple[Instance, ...] = ()


def history_of(facts: TableFacts | None, sink_id: str, live: LiveFacts | None, *, has_many_tables: bool = False) -> History:
    """The history of a sink. Of one with many tables, the snapshots of its home say nothing of files."""
    snapshots = facts.snapshots if facts is not None else ()
    own = [one for one in snapshots if one.frazil.get("frazil.sink") == sink_id]
    made = {one.snapshot: one for one in live.commits} if live is not None else {}
    data = [one for one in own if _kind(one) == "data"]
    seen = [_of_snapshot(one, made.get(one.id), has_many_tables=has_many_tables) for one in data]
    known = {one.snapshot for one in seen}
    seen += [_of_event(one) for one in made.values() if one.snapshot not in known]
    starts = {one.at_ms for one in own if _kind(one) == "claim"} | set(live.started_ms if live is not None else ())
    upkeep = [one for one in snapshots if _kind(one) not in (None, *_OF_THE_SOURCE)]
    return History(
        tuple(sorted(seen, key=lambda one: (one.at_ms, one.batch))),
        tuple(sorted(starts)),
        tuple(_upkeep(one) for one in upkeep),
        tuple(_instances(own)),
    )


def _kind(snapshot: SnapshotFacts) -> str | None:
    return snapshot.frazil.get("frazil.kind")


def _number(snapshot: SnapshotFacts, name: str) -> int:
    text = snapshot.frazil.get(f"frazil.{name}", "")
    return int(text) if text.isdecimal() else 0


def _of_snapshot(one: SnapshotFacts, event: LiveCommit | None, *, has_many_tables: bool) -> Commit:
    of_event = (event.files, event.bytes) if event is not None else (None, None)
    files, size = of_event if has_many_tables else (one.added_files, one.added_bytes)
    return Commit(
        at_ms=one.at_ms,
        snapshot=one.id,
        batch=_number(one, "batch"),
        read=_number(one, "rows-in"),
        written=_number(one, "rows-out"),
        dead_lettered=_number(one, "rows-dead-lettered"),
        filtered=_number(one, "rows-filtered"),
        files=files,
        bytes=size,
        instance=one.frazil.get("frazil.instance"),
        seconds=event.seconds if event is not None else None,
        attempts=event.attempts if event is not None else None,
    )


def _of_event(one: LiveCommit) -> Commit:
    """One that is not among the snapshots: it is too new, too old, or they cannot be read."""
    counts = one.counts
    return Commit(
        one.at_ms, one.snapshot, one.batch, counts.read, counts.written, counts.dead_lettered, counts.filtered, one.files,
        one.bytes, seconds=one.seconds, attempts=one.attempts,
    )  # fmt: skip


def _upkeep(one: SnapshotFacts) -> Upkeep:
    names = [name for name in one.frazil if name.startswith("frazil.") and one.frazil[name].isdecimal()]
    plain = ("frazil.epoch", "frazil.batch", "frazil.committed-at-ms")
    counts = tuple((name.removeprefix("frazil.").replace("-", " "), int(one.frazil[name])) for name in names if name not in plain)
    return Upkeep(one.at_ms, one.id, _kind(one) or "", counts)


def _instances(own: Sequence[SnapshotFacts]) -> Iterator[Instance]:
    groups: dict[tuple[int, str], list[SnapshotFacts]] = {}
    for one in own:
        groups.setdefault((_number(one, "epoch"), one.frazil.get("frazil.instance", "")), []).append(one)
    for (epoch, name), members in sorted(groups.items(), key=lambda group: group[0][0]):
        times = [one.at_ms for one in members]
        yield Instance(epoch, name, min(times), max(times), sum(_kind(one) == "data" for one in members))


def paces(history: History) -> list[Pace]:
    """The rate of each commit, over the time since the commit or the start before it; None where that is not known."""
    found = []
    before: int | None = None
    for one in history.commits:
        begun = max((at for at in history.starts if at < one.at_ms), default=None)
        since = max((at for at in (before, begun) if at is not None), default=None)
        span = None if since is None or since >= one.at_ms else (one.at_ms - since) / 1000
        rows, size = (None, None) if span is None else (one.written / span, None if one.bytes is None else one.bytes / span)
        found.append(Pace(one.at_ms, rows, size, one.seconds))
        before = one.at_ms
    return found


@dataclass(frozen=True)
class Rate:
    """Rows and bytes a second, lately."""

    rows: float
    bytes: float | None


def rate_of(history: History, now_ms: int, flush_secs: int) -> Rate | None:
    """The rate of the last minute, or of the last three flush intervals if these are longer; None if too little is known.

    Where the history begins later, it is the rate since its beginning. If that is a commit, nobody knows since when its rows
    came.
    """
    known = [*history.starts, *(one.at_ms for one in history.commits)]
    if not known:
        return None
    begin = max(min(known), now_ms - max(RATE_SECONDS, RATE_INTERVALS * flush_secs) * 1000)
    lately = [one for one in history.commits if one.at_ms > begin]
    if not lately and any(one.at_ms == begin for one in history.commits):
        return None
    span = max(now_ms - begin, 1000) / 1000
    sizes = [one.bytes for one in lately]
    whole = None if any(size is None for size in sizes) else sum(size for size in sizes if size is not None)
    return Rate(sum(one.written for one in lately) / span, None if whole is None else whole / span)
