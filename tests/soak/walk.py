"""A walk: one table, and what happens to it, step by step and by chance, in the process of the test.

A kill is an exception that nothing catches, at any moment in the work of the writer or of the maintainer: what was under way is
left as it was, and somebody else begins anew.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

from pyspark.sql import SparkSession

from exactly_once.ground import FAR_FUTURE_MS, QUICK
from exactly_once.programs.moments import act_at
from frazil.iceberg import active
from frazil.model.events import Event
from frazil.model.maintenance import USUAL_TASKS, MaintenanceTask
from frazil.model.settings import Settings
from frazil.runtime.maintain import maintain
from frazil.runtime.pump import Pump
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter
from soak.kinds import Changes, Place
from soak.truth import Truth

# Moments of a writer at which it is killed, and at which somebody else does something.
OF_A_WRITER = ("staged", "unsent", "applied", "merging", "merge-staged", "merge-applied", "expired", "listed", "deleting")
OF_A_MAINTAINER = ("merging", "merge-staged", "merge-applied", "expired", "listed", "deleting")
MEETINGS = ("staged", "unsent", "merging", "merge-staged", "expired", "listed")

# The steps and how often they are taken.
WEIGHTS = {
    "write": 10, "write_and_die": 3, "write_and_meet": 4, "restart": 1, "maintain": 2, "maintain_and_die": 2,
    "foreign_rewrite": 1, "foreign_expiry": 1, "tag": 1, "branch": 1, "untag": 1,
}  # fmt: skip
FOREIGN = ("foreign_rewrite", "foreign_expiry", "maintain", "tag", "branch")
OLD = 1_000_000_000


def seed_given(usual: int | None = None) -> int:
    """The seed of the environment, another one each time, or the usual one; it is printed, so that a walk can be taken again."""
    seed = int(os.environ.get("FRAZIL_SOAK_SEED") or usual or random.randrange(1_000_000))
    print(f"FRAZIL_SOAK_SEED={seed}")
    return seed


class Killed(BaseException):
    """The process that did this is no more."""


class Walk:
    """One table, and what happens to it."""

    def __init__(self, spark: SparkSession, place: Place, chance: random.Random) -> None:
        self.place = place
        self.events: list[Event] = []
        self.session = place.session(spark)
        self._chance = chance
        self._names = 0
        self._refs: dict[str, tuple[str, int]] = {}
        self._asked = 0
        self._writer: SinkWriter | None = None
        self._deleting: list[Any] = []
        self.log: list[str] = []

    # Steps

    def step(self) -> None:
        """One step, chosen by chance; then the table is looked at."""
        (name,) = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self.take(name)

    def take(self, name: str) -> None:
        """One step, after which nothing is missing, and nothing has grown beyond its bounds."""
        self.log.append(name)
        getattr(self, name)()
        self.settle_down()
        truth = self.truth()
        truth.assert_whole()
        truth.assert_bounded(self._names)

    def write(self) -> None:
        """One to four batches."""
        self._asked += 10 * self._chance.randint(1, 4)
        writer = self._opened()
        Pump(writer, Changes(self.place.kind, self._asked, self.session), self.events.append).run(threading.Event(), once=True)

    def write_and_die(self) -> None:
        """The writer is killed, and another takes over later."""
        self._dies(self._moment(OF_A_WRITER), self.write)
        self._writer = None

    def write_and_meet(self) -> None:
        """Somebody else does something while a batch is written, or the table is looked after."""
        what = self._chance.choice(FOREIGN)
        self.log[-1] += f" {what}"
        self._amid(self._moment(MEETINGS), getattr(self, what), self.write)

    def restart(self) -> None:
        """A new writer, when there is something to write."""
        self._writer = None

    def maintain(self) -> None:
        """Somebody maintains the table beside the writer."""
        self.maintained(USUAL_TASKS)

    def maintain_and_die(self) -> None:
        """The maintainer is killed."""
        self._dies(self._moment(OF_A_MAINTAINER), self.maintain)

    def foreign_rewrite(self) -> None:
        """Spark merges all files."""
        if not self._made():
            return
        options = "map('rewrite-all', 'true', 'delete-file-threshold', '1')"
        self.session.sql(f"CALL lake.system.rewrite_data_files(table => '{self.place.name}', options => {options})").collect()

    def foreign_expiry(self) -> None:
        """Somebody expires all snapshots but the last, with their files."""
        if not self._made():
            return
        session: Any = self.session
        with active(session):
            util = session._jvm.org.apache.iceberg.spark.Spark3Util
            table = util.loadIcebergTable(session._jsparkSession, f"lake.{self.place.name}")
        table.expireSnapshots().expireOlderThan(FAR_FUTURE_MS).retainLast(self._chance.randint(1, 3)).commit()

    def tag(self) -> None:
        """Somebody needs the table as it is now."""
        self._ref("TAG")

    def branch(self) -> None:
        """Somebody has a branch of the table as it is now."""
        self._ref("BRANCH")

    def untag(self) -> None:
        """Somebody does not need an earlier state any longer."""
        if self._refs:
            name = self._chance.choice(sorted(self._refs))
            kind, _ = self._refs.pop(name)
            self.session.sql(f"ALTER TABLE lake.{self.place.name} DROP {kind} {name}")

    def _ref(self, kind: str) -> None:
        if len(self._refs) >= 2 or not self._made():
            return
        self._names += 1
        name = f"{kind.lower()}_{self._names}"
        self.session.sql(f"ALTER TABLE lake.{self.place.name} CREATE {kind} {name}")
        self._refs[name] = (kind, self.truth().table.refs()[name].snapshot_id)

    # Who does it

    def maintained(self, tasks: tuple[MaintenanceTask, ...], age_hours: int = 72) -> None:
        """The tasks, as `frazil maintain` does them."""
        if not self._made():
            return
        sink, settings = self.place.sink(), Settings(retry=QUICK)
        maintain(sink, settings, tasks, dry_run=False, orphan_age_hours=age_hours, listen=self.events.append)

    def _opened(self) -> SinkWriter:
        if self._writer is None:
            place = self.place
            setup = WriterSetup(self.session, place.sink_id, place.kind.name, QUICK, self.events.append)
            self._writer = SinkWriter(setup, place.sink())
            self._writer.open()
        return self._writer

    def _moment(self, moments: tuple[str, ...]) -> tuple[str, int]:
        chosen = self._chance.choice(moments), self._chance.randint(1, 2)
        self.log[-1] += f" {chosen}"
        return chosen

    def _dies(self, at: tuple[str, int], work: Callable[[], None]) -> None:
        def die() -> None:
            raise Killed

        try:
            self._amid(at, die, work)
        except Killed:
            self.log[-1] += " died"

    def _amid(self, at: tuple[str, int], deed: Callable[[], None], work: Callable[[], None]) -> None:
        """Does something once amid some work."""
        under_way = False

        def once() -> None:
            nonlocal under_way
            if not under_way:
                under_way = True
                deed()

        undo = act_at(*at, once)
        try:
            work()
            self.settle_down()
        finally:
            undo()

    def settle_down(self) -> None:
        """Waits until files are deleted that the writer deletes in the background."""
        if self._writer is not None and (deleting := self._writer._upkeep._deleting) is not None:
            wait([deleting])
            if isinstance(deleting.exception(), Killed):
                self._writer = None
                raise Killed

    # What is there

    def _made(self) -> bool:
        return (self.place.folder / "catalog.db").exists() and self.place.files.exists()

    def truth(self) -> Truth:
        """The table as it is now."""
        return Truth(self.place)

    def check(self) -> None:
        """Every snapshot has the rows of the model, and what somebody named is as it was."""
        truth = self.truth()
        for snapshot in truth.snapshots:
            truth.assert_rows(snapshot)
        refs = truth.table.refs()
        assert {name: refs[name].snapshot_id for name in self._refs} == {name: at for name, (_, at) in self._refs.items()}

    def finish(self) -> None:
        """Maintains the table once more and cleans up: then nothing is there that nobody needs, and little that somebody does."""
        self.truth().assert_whole()
        self.check()
        self.maintain()
        self.clean_up()
        self.check()
        truth = self.truth()
        assert truth.on_disk - truth.needed <= truth.listed
        truth.assert_bounded(self._names)

    def clean_up(self) -> None:
        """Deletes what those who were killed have left; everything that nobody needs is old by now."""
        truth = self.truth()
        for path in truth.on_disk - truth.needed:
            os.utime(path, (OLD, OLD))
        self.maintained((MaintenanceTask.DELETE, MaintenanceTask.ORPHANS))
