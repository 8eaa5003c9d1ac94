"""What happens while pipelines run, as values. The engine says them; metrics, health, progress and logs listen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from frazil.model.commit import Position, RowCounts, SinkState
from frazil.model.html import facts_html
from frazil.model.maintenance import TableFigures


@dataclass(frozen=True)
class Started:
    """A pipeline owns its sink and begins. ``total_rows`` is known for finite batch work only."""

    pipeline: str
    table: str
    epoch: int
    start: Position | None
    continuous: bool
    total_rows: int | None = None


@dataclass(frozen=True)
class Waiting:
    """Rows are pending. ``pending_rows``: how many; None if that is only known after reading them."""

    pipeline: str
    pending_rows: int | None


@dataclass(frozen=True)
class Staged:
    """The files of a batch are written, and nothing is committed yet."""

    pipeline: str
    rows: int
    files: int
    bytes: int
    seconds: float
    table: str = ""


@dataclass(frozen=True)
class Committed:
    """A batch is in the table. ``skipped``: it already was."""

    pipeline: str
    table: str
    batch: int
    snapshot: int
    counts: RowCounts
    files: int
    bytes: int
    seconds: float
    attempts: int
    at_ms: int
    skipped: bool = False

    @classmethod
    def before(cls, pipeline: str, table: str, state: SinkState) -> Committed:
        """The event for a batch that was already in the table, made from the ledger's entry."""
        return cls(pipeline, table, state.batch, state.snapshot, RowCounts(0, 0), 0, 0, 0.0, 0, state.at_ms, skipped=True)

    def _repr_html_(self) -> str:
        """For notebooks."""
        done = "was in the table already" if self.skipped else f"{self.counts.written:,} rows in {self.files:,} files"
        facts = [("batch", self.batch), ("written", done), ("snapshot", self.snapshot), ("seconds", f"{self.seconds:.1f}")]
        return facts_html(f"Committed to {self.table}", facts)


@dataclass(frozen=True)
class CommitFailed:
    """One attempt of a commit did not succeed. ``kind``: conflict, unknown, unreachable, refused."""

    pipeline: str
    kind: str
    message: str
    attempt: int
    will_retry: bool


@dataclass(frozen=True)
class SourceFailed:
    """The source did not answer."""

    pipeline: str
    message: str
    attempt: int
    will_retry: bool


@dataclass(frozen=True)
class SourceNoticed:
    """The source has found something that an operator should know. ``gap``: the table lacks values that only a person can
    repair.
    """

    pipeline: str
    code: str
    message: str
    gap: bool


@dataclass(frozen=True)
class Lagged:
    """How far the table is behind the source, as far as the source can say: rows, bytes, and the age of the oldest change."""

    pipeline: str
    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Paused:
    """A pipeline waits because somebody has asked it to, until it is asked to go on."""

    pipeline: str
    by: str
    at_ms: int
    reason: str


@dataclass(frozen=True)
class Resumed:
    """A pipeline that was paused goes on."""

    pipeline: str


@dataclass(frozen=True)
class Restarting:
    """A pipeline failed for a reason that may pass, and is started again after a while."""

    pipeline: str
    error: str
    attempt: int
    seconds: float


@dataclass(frozen=True)
class Maintained:
    """Something was done for the health of a table between batches.

    ``kind``: `merge_files` if small files were merged, `rewrite_manifests` if manifests were rewritten, `write_statistics` if the
    values of columns were counted, `expire_snapshots` if old snapshots went, `delete_files` if files were deleted that nobody
    needs any longer. ``count`` is how many of them, ``bytes`` how much was written anew.
    """

    pipeline: str
    table: str
    kind: str
    count: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class TableMeasured:
    """What is known of a table's files and metadata after a commit; it costs no request to find out."""

    pipeline: str
    table: str
    figures: TableFigures


@dataclass(frozen=True)
class Requested:
    """How often catalogs and stores were asked, by kind, since Spark's Java began to count: by all pipelines of the process."""

    pipeline: str
    since_ms: int
    catalog: Mapping[str, int]
    store: Mapping[str, int]


@dataclass(frozen=True)
class Settled:
    """Deletes were rewritten in a form that costs readers less.

    ``kind``: `settle` if equality deletes became position deletes, or `compact` if data files with delete files were rewritten.
    ``deletes`` is the number of equality deletes, or of delete files.
    """

    pipeline: str
    table: str
    kind: str
    deletes: int
    rows: int
    seconds: float


@dataclass(frozen=True)
class Published:
    """Another system shows the table as it is now. ``target`` is its name there, ``metadata`` the file that is shown."""

    pipeline: str
    target: str
    metadata: str


@dataclass(frozen=True)
class PublishFailed:
    """A commit could not be published to another system. The rows are in the table; the next commit tries again."""

    pipeline: str
    target: str
    message: str
    attempt: int
    will_retry: bool


@dataclass(frozen=True)
class FencedOut:
    """Another instance took the sink."""

    pipeline: str
    message: str


@dataclass(frozen=True)
class Stopped:
    """A pipeline ended; ``error`` is None when it ended well."""

    pipeline: str
    batches: int
    rows: int
    error: str | None = None


Event = (
    Started
    | Waiting
    | Staged
    | Committed
    | CommitFailed
    | SourceFailed
    | SourceNoticed
    | Lagged
    | Paused
    | Resumed
    | Restarting
    | Maintained
    | TableMeasured
    | Requested
    | Settled
    | Published
    | PublishFailed
    | FencedOut
    | Stopped
)

Listener = Callable[[Event], None]


def notify_all(listeners: Sequence[Listener]) -> Listener:
    """One listener that passes every event on to all of these."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell
