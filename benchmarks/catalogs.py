"""Small batches through every catalog that runs here: the time of a commit, and how many requests a batch takes.

A commit is frazil's commit loop: the look at the table, the snapshot, and the swap. The rest of a batch is the same for all. Each
catalog is described as `docs/catalogs.md` says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

from benchmarks.lab import Lab, interleaved
from benchmarks.services import Services
from benchmarks.stream import Numbers
from benchmarks.summary import Finding, ratio
from catalogs.places import Place, place
from frazil.model.events import Committed, Event, Requested
from frazil.model.settings import RetrySettings
from frazil.runtime.pump import Pump
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter
from helpers.lakes import fresh_name, sqlite_lake

BASE = "SQLite, local files"
PLACES = (
    BASE,
    "PostgreSQL, local files",
    "MariaDB, local files",
    "REST, local files",
    "Hive metastore, local files",
    "Hadoop, local files",
    "SQLite, S3",
    "REST, S3",
    "Nessie, S3",
    "Glue by REST, S3",
    "S3 Tables, S3",
)


class Commits:
    """Streams of small batches into a fresh table of one catalog, and what the last one asked for, batch by batch."""

    def __init__(self, lab: Lab, where: Place) -> None:
        self._lab = lab
        self._where = where
        self._asked: list[dict[str, int]] = []

    def seconds(self) -> float:
        """The median time of a commit."""
        lab, namespace, seconds = self._lab, fresh_name(), list[float]()
        rows = lab.sizes.commits * lab.sizes.rows_per_batch
        spec = self._where.lake.sink(table=f"{namespace}.t", batch_size=lab.sizes.rows_per_batch).spec
        session = session_for(lab.spark, catalog_settings(spec))
        self._asked.clear()

        def listen(event: Event) -> None:
            if isinstance(event, Committed):
                seconds.append(writer.claimed.commit_seconds)
            if isinstance(event, Requested):
                counts = [(f"{whom} {kind}", n) for whom in ("catalog", "store") for kind, n in getattr(event, whom).items()]
                self._asked.append(dict(counts))

        writer = SinkWriter(WriterSetup(session, "bench", "bench", RetrySettings(), listen), spec)
        Pump(writer, Numbers(session, rows), lambda _: None).run(threading.Event(), once=True)
        if (held := session.table(f"{self._where.lake.name}.{namespace}.t").count()) != rows:
            raise RuntimeError(f"{self._where} holds {held} rows, not {rows}")
        self._where.doors().drop((namespace,), "t")
        return median(seconds[lab.sizes.first_batches - 1 :])

    @property
    def requests(self) -> dict[str, float]:
        """Those of a typical batch: the median of each kind, without kinds that most batches do not need."""
        steps = list(zip(self._asked, self._asked[1:], strict=False))
        found = {kind: median(after.get(kind, 0) - before.get(kind, 0) for before, after in steps) for kind in self._asked[-1]}
        return {kind: count for kind, count in found.items() if count}


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """All catalogs, interleaved."""
    with ExitStack() as stack:
        services = stack.enter_context(Services(lab.folder / "services"))
        commits = {}
        for number, title in enumerate(PLACES):
            lake = sqlite_lake(lab.spark, lab.folder / f"lake-{number}")
            lake.folder.mkdir()
            commits[title] = Commits(lab, stack.enter_context(place(title, lake, services)))
        runs = interleaved({title: one.seconds for title, one in commits.items()}, lab.sizes, tell)
        requests = {title: one.requests for title, one in commits.items()}
    for title, counts in requests.items():
        tell(f"requests of a batch  {title}: {', '.join(f'{count:g} {kind}' for kind, count in counts.items())}")
    return [
        Finding(
            benchmark="catalogs",
            case=title,
            goal=f"commit of {lab.sizes.rows_per_batch:,} rows, {title}: time relative to {BASE}",
            value=ratio(runs[title], runs[BASE]),
            against=BASE,
            unit="seconds",
            runs={title: runs[title], BASE: runs[BASE]},
            details={"batches": lab.sizes.commits, "requests": requests[title], "requests_there": requests[BASE]},
        )
        for title in PLACES
        if title != BASE
    ]
