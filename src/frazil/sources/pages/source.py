"""A source of pages as slices: fetched ahead, kept until they are committed, and continued after the last committed page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from frazil.errors import ConfigError, FrazilError, Halted
from frazil.model.commit import Position
from frazil.model.source import PagesSource
from frazil.model.types import StructType
from frazil.sources.base import Slice
from frazil.sources.decode import decoder
from frazil.sources.pages.frame import messages_in
from frazil.sources.pages.pager import Pager
from frazil.sources.pages.place import PagesPlace
from frazil.sources.pages.spool import PageSpool


@dataclass
class Ahead:
    """What was fetched after a position: up to which place, how many pages, and whether the run is over there."""

    start: Position | None
    place: PagesPlace
    spool: PageSpool = field(default_factory=PageSpool)
    pages: int = 0
    over: bool = False
    idle: bool = False

    @property
    def end(self) -> Position:
        """Where the slice ends."""
        return (self.place.ended() if self.over else self.place).to_position()


class Pages:
    """The records of a source that is asked for page after page.

    Delivery: pages that were fetched are kept until they are committed, so that a slice reads the same rows as long as this
    object lives. An interrupted run continues with the page after the last committed one; a full refresh, which is one slice,
    starts over. The source must return the same page for the same pagination. A stream without pagination keeps its own
    position: its rows are exactly once if it can fetch again what was not confirmed to it. Parallelism: one page at a time is
    fetched by the driver; files of many pages are read by all executors.
    """

    def __init__(
        self,
        spec: PagesSource,
        spark: SparkSession,
        pager: Callable[[], Pager],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._spark = spark
        self._open = pager
        self._clock = clock
        self._opened: Pager | None = None
        self._decoder = decoder(spec, spark)
        self._ahead: Ahead | None = None
        self._fetched = 0
        self._refreshed: Position | None = None

    @property
    def fingerprint(self) -> str:
        """Source and stream, whatever their settings."""
        return f"bizon:{self._spec.name}/{self._spec.stream}"

    @property
    def poll_seconds(self) -> float:
        """As the source says."""
        return self._spec.poll_interval_secs

    def expect(self, columns: StructType, *, exactly: bool) -> None:
        """The table's columns come before those that are found in records."""
        self._decoder.expect(columns, exactly=exactly)

    @property
    def _pager(self) -> Pager:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    @property
    def _whole(self) -> bool:
        """Whether a run is one slice, which replaces everything."""
        return self._spec.mode == "full_refresh"

    @property
    def _spent(self) -> bool:
        return self._spec.max_pages is not None and self._fetched >= self._spec.max_pages

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The pages after ``start`` with about ``limit`` records; of a full refresh all of them."""
        if self.finished(start):
            return None
        if self._ahead is None or self._ahead.start != start:
            self._keep(self._begin(start))
        ahead = self._ahead
        assert ahead is not None, "it was just made"
        until = self._clock() + self._spec.gather_secs
        ahead.idle = False
        while not (ahead.over or ahead.idle or self._spent):
            if not self._whole and (ahead.spool.rows >= limit or (ahead.pages and self._clock() >= until)):
                break
            self._fetch(ahead)
        if self._whole and not ahead.over:
            ahead.over = True  # so many pages as were asked for
        if not ahead.pages:
            return None
        if self._whole:
            self._refreshed = ahead.end
        return self._slice(ahead, more=not (ahead.over or ahead.idle or self._spent))

    def _begin(self, start: Position | None, moment: str | None = None) -> Ahead:
        place = PagesPlace.from_position(start)
        return Ahead(start, (place.between_runs if self._whole else place).begun(moment or datetime.now(UTC).isoformat()))

    def _fetch(self, ahead: Ahead) -> None:
        """One page more."""
        place = ahead.place
        since = place.since if self._spec.mode == "incremental" else None
        page = self._pager.page(place.pagination, since)
        self._fetched += 1
        if self._spec.mode == "stream" and not page.records and page.pagination in ({}, place.pagination):
            ahead.idle = True  # nothing came, and nothing moved on
            return
        ahead.place = place.after(page)
        ahead.place.to_position()  # what cannot be kept is reported before anything is written
        ahead.spool.add(page.records)
        ahead.pages += 1
        if not page.pagination:
            # A run is over with its last page. A stream has none: it is asked again, after a while.
            ahead.over, ahead.idle = self._spec.mode != "stream", self._spec.mode == "stream"

    def _slice(self, ahead: Ahead, *, more: bool) -> Slice:
        ahead.spool.flush()
        return Slice(ahead.start, ahead.end, ahead.spool.rows, full=more, detail=tuple(ahead.spool.files))

    def _keep(self, ahead: Ahead | None) -> None:
        if self._ahead is not None:
            self._ahead.spool.clear()
        self._ahead = ahead

    def between(self, start: Position | None, end: Position) -> Slice | None:
        """Asks for the same pages again. None when the source returns other pages now."""
        ahead = self._ahead
        if ahead is not None and ahead.start == start and ahead.pages and ahead.end == end:
            return self._slice(ahead, more=True)
        target = PagesPlace.from_position(end)
        ahead = self._begin(start, target.started or target.last_run)
        self._keep(ahead)
        while self._repeatable(ahead) and not ahead.over and (target.started is None or ahead.place.page < target.page):
            self._fetch(ahead)
            if self._whole and self._spent:
                ahead.over = True
        if self._whole:
            # All rows are replaced anyway: what has changed meanwhile is as good as what was there, under the same end.
            ahead.place, self._refreshed = PagesPlace(state=target.state, started=target.last_run), end
        if ahead.pages and ahead.end == end:
            return self._slice(ahead, more=True)
        self._keep(None)
        if len(self._spec.tables) > 1:
            raise Halted(
                "pages-changed",
                f"A batch of {self.fingerprint} was cut off when some of its tables had it already, and its pages cannot be "
                f"fetched again: the source leads elsewhere now.",
                fix="Give the pipeline another name to begin anew, in tables that are empty.",
            )
        return None

    def _repeatable(self, ahead: Ahead) -> bool:
        return self._spec.mode != "stream" or bool(ahead.place.pagination)

    def finished(self, position: Position | None) -> bool:
        """After a full refresh of this run, and after so many pages as a run has at most."""
        if self._whole:
            return position is not None and position == self._refreshed
        return self._spent and (self._ahead is None or not self._ahead.pages or position == self._ahead.end)

    def total_rows(self, start: Position | None) -> int | None:
        """What the source says, for a run that reads all of it."""
        place = PagesPlace.from_position(start)
        first = self._spec.mode == "incremental" and place == PagesPlace()
        return self._pager.total() if (self._whole or first) and self._spec.max_pages is None else None

    def read(self, part: Slice) -> DataFrame:
        """The records of a slice as rows."""
        return self._decoder.decode(messages_in(self._spark, part.detail, self._spec))

    def empty(self) -> DataFrame:
        """The columns, without rows: a plan fetches no pages, which some sources hand out once."""
        return self._decoder.decode(messages_in(self._spark, (), self._spec))

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: the records were counted."""

    def committed(self, position: Position) -> None:
        """Removes the files, and confirms the rows to a stream."""
        ahead = self._ahead
        if ahead is None or not ahead.pages or ahead.end != position:
            return
        self._keep(None)
        if self._spec.mode == "stream":
            self._pager.done()

    def explain(self, error: Exception) -> FrazilError | None:  # noqa: ARG002 - the shape of a source
        """What fails while files of frazil's own are read is not the source's."""
        return None

    def check(self) -> None:
        """The source must say that it can be read, and executors must see this machine's files."""
        master = self._spark.sparkContext.master or ""
        if not master.startswith("local"):
            raise ConfigError(
                "spool-not-shared",
                f"Spark runs on {master}, whose executors cannot read the files of this machine that pages are kept in.",
                fix="Leave settings.spark.master out for this file: Spark runs on this machine then.",
            )
        self._pager.check()

    def close(self) -> None:
        """Lets go of the files and of the source."""
        self._keep(None)
        if self._opened is not None:
            self._opened.close()
            self._opened = None
