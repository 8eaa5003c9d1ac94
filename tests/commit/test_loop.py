"""The driver of the commit loop: what it waits for, when it gives up, and what it says then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat

import pytest

from commit.memory_table import Fault, MemoryCatalog, MemoryPort
from frazil.commit.protocol import (
    AttemptFailed,
    Done,
    Failed,
    FailureKind,
    Intent,
    NewSnapshot,
    TableView,
    commit,
    contiguous,
    next_state,
    not_done,
)
from frazil.commit.retry import backoff_seconds, retried
from frazil.errors import ConfigError, DataError, Fenced, Halted, OutcomeUnknown, Retryable
from frazil.model.commit import Batch, CommitResult, RowCounts, SinkState, position
from frazil.model.ledger import Ancestor, Lineage, lineage_of
from frazil.model.settings import RetrySettings

SINK = "pipeline/sink"


@dataclass
class Troubled(MemoryPort):
    """A memory port where things happen before and after a call; what is raised there is what the loop gets."""

    before: dict[str, Iterator[Callable[[], object]]] = field(default_factory=dict)
    after: dict[str, Iterator[Callable[[], object]]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def refresh(self) -> TableView:
        with self._around("refresh"):
            return super().refresh()

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        with self._around("apply"):
            return super().apply(view, intent, state)

    def swap(self, view: TableView, snapshot: NewSnapshot, intent: Intent, state: SinkState) -> None:
        with self._around("swap"):
            super().swap(view, snapshot, intent, state)

    def _around(self, call: str) -> Around:
        self.calls.append(call)
        return Around(next(self.before.get(call, iter(())), nothing), next(self.after.get(call, iter(())), nothing))


@dataclass
class Around:
    """Does something before and something after."""

    before: Callable[[], object]
    after: Callable[[], object]

    def __enter__(self) -> None:
        self.before()

    def __exit__(self, *_: object) -> None:
        self.after()


@dataclass
class Run:
    """One commit with its waits and its complaints."""

    port: Troubled = field(default_factory=lambda: Troubled(MemoryCatalog(), SINK))
    retry: RetrySettings = field(default_factory=RetrySettings)
    waits: list[float] = field(default_factory=list)
    complaints: list[tuple[FailureKind, int]] = field(default_factory=list)

    def __call__(self, intent: Intent) -> CommitResult:
        def complain(failed: Failed, failures: int) -> None:
            self.complaints.append((failed.kind, failures))

        return commit(self.port, intent, self.retry, on_failure=complain, sleep=self.waits.append)

    @property
    def catalog(self) -> MemoryCatalog:
        return self.port.catalog

    def faults(self, *faults: Fault | None) -> None:
        self.catalog.faults = deque(faults)

    def rows(self) -> list[int]:
        return [number for writer, number in self.catalog.metadata.rows if writer == "own"]


def nothing() -> None:
    """Nothing happens."""


def raising(error: Exception) -> Callable[[], object]:
    def raise_it() -> None:
        raise error

    return raise_it


def claim(instance: str = "one") -> Intent:
    return Intent(SINK, instance, 1)


def batch(at: int, instance: str = "one", epoch: int | None = 1) -> Intent:
    part = Batch("source", position(at) if at else None, position(at + 1))
    return Intent(SINK, instance, 1, epoch, part, change=(("own", at),))


@pytest.fixture
def run() -> Run:
    return Run()


# ---- waiting


@pytest.mark.parametrize(("initial", "longest", "factor"), [(100, 30_000, 2.0), (1, 10, 1.0), (500, 200, 3.0), (7, 10**9, 50.0)])
@pytest.mark.parametrize("failures", [1, 2, 3, 10, 1000])
def test_a_wait_grows_up_to_its_bound(initial: int, longest: int, factor: float, failures: int) -> None:
    retry = RetrySettings(initial_backoff_ms=initial, max_backoff_ms=longest, backoff_multiplier=factor)
    bound = float(min(longest, initial))
    for _ in range(failures - 1):
        bound = min(longest, bound * factor)
    for _ in range(20):
        assert bound / 2 * 0.999 <= backoff_seconds(retry, failures) * 1000 <= bound * 1.001


def test_waits_differ_so_that_writers_do_not_march_in_step() -> None:
    assert len({backoff_seconds(RetrySettings(), 5) for _ in range(20)}) > 10


# ---- success


def test_a_commit_without_trouble_takes_one_attempt_and_no_wait(run: Run) -> None:
    assert run(claim()).state.epoch == 1
    result = run(batch(0))
    assert (result.attempts, result.skipped, result.state.batch) == (1, False, 1)
    assert (run.waits, run.complaints, run.rows()) == ([], [], [0])


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.APPLIED_409, Fault.APPLIED_5XX])
def test_what_was_applied_and_answered_with_an_error_is_an_own_success(run: Run, fault: Fault) -> None:
    run(claim())
    run.faults(fault)
    result = run(batch(0))
    assert (result.skipped, result.attempts, run.rows()) == (False, 1, [0])
    assert len(run.waits) == 1


def test_a_batch_that_the_table_holds_is_skipped(run: Run) -> None:
    run(claim())
    run(batch(0))
    calls = len(run.port.calls)
    result = run(batch(0))
    assert (result.skipped, result.attempts, run.rows()) == (True, 0, [0])
    assert run.port.calls[calls:] == ["refresh"]


def test_a_batch_that_another_single_run_wrote_first_is_skipped_also_after_an_own_try(run: Run) -> None:
    """The own try was refused; what the table holds is the other's."""
    other = Run(Troubled(run.catalog, SINK))
    run.port.before["swap"] = iter([lambda: other(batch(0, "other", None))])
    assert run(batch(0, "one", None)).skipped
    assert run.rows() == [0]


def test_a_claim_takes_the_next_epoch_and_keeps_the_place(run: Run) -> None:
    run(claim())
    run(batch(0))
    state = run(claim("two")).state
    assert (state.epoch, state.instance, state.batch, state.end) == (2, "two", 1, position(1))


def test_a_claim_whose_reply_is_lost_is_not_made_twice(run: Run) -> None:
    run.faults(Fault.LOST_REPLY)
    assert run(claim()).state.epoch == 1
    assert run.port.calls.count("swap") == 1


def test_any_exception_means_that_the_outcome_is_looked_up(run: Run) -> None:
    run(claim())
    run.port.after["swap"] = iter([raising(ValueError("an answer that nobody can read"))])
    assert not run(batch(0)).skipped
    assert run.rows() == [0]
    assert run.complaints == [(FailureKind.UNKNOWN, 1)]


def test_a_snapshot_that_cannot_be_written_is_tried_again(run: Run) -> None:
    run(claim())
    run.port.before["apply"] = iter([raising(OSError("the store is busy"))])
    assert run(batch(0)).attempts == 2
    assert run.rows() == [0]


# ---- giving up


def test_after_its_retries_the_outcome_is_unknown(run: Run) -> None:
    run(claim())
    run.retry = RetrySettings(max_retries=3)
    run.faults(*[Fault.REFUSED] * 10)
    with pytest.raises(OutcomeUnknown, match="After 4 attempts"):
        run(batch(0))
    assert run.port.calls.count("swap") == 1 + 4
    assert [failures for _, failures in run.complaints] == [1, 2, 3, 4]
    assert run.port.calls[-1] == "refresh", "the last word is a look at the table"


def test_what_is_applied_while_the_last_wait_goes_on_is_seen(run: Run) -> None:
    run(claim())
    run.retry = RetrySettings(max_retries=0)
    run.faults(Fault.DELAYED)
    run.port.before["refresh"] = iter([nothing, lambda: run.catalog.settle(0)])
    assert not run(batch(0)).skipped
    assert run.rows() == [0]


def test_a_catalog_that_was_never_reached_leaves_nothing_unknown(run: Run) -> None:
    down = Retryable("catalog-unreachable", "nobody answers")
    run.retry = RetrySettings(max_retries=2)
    run.port.before["refresh"] = repeat(raising(AttemptFailed(FailureKind.UNREACHABLE, down)))
    with pytest.raises(Retryable) as raised:
        run(claim())
    assert raised.value is down
    assert run.port.calls == ["refresh"] * 3
    assert run.complaints == [(FailureKind.UNREACHABLE, 1), (FailureKind.UNREACHABLE, 2)]


def test_a_failure_that_is_known_to_pass_is_waited_for_exactly_so_long(run: Run) -> None:
    early = AttemptFailed(FailureKind.UNREACHABLE, Retryable("clock-differs", "too early", after=7.5))
    run.port.before["apply"] = iter([raising(early)])
    run(claim())
    assert run.waits == [7.5]


@pytest.mark.parametrize(("after", "waits"), [(7.5, [7.5]), (3600.0, [])])
def test_a_call_before_a_commit_is_waited_for_when_that_is_not_long(after: float, waits: list[float]) -> None:
    slept: list[float] = []
    answers = iter([raising(Retryable("clock-differs", "too early", after=after)), nothing])

    def call() -> object:
        return next(answers)()

    def wait() -> None:
        retried(call, RetrySettings(), lambda *_: None, slept.append)

    if waits:
        wait()
    else:
        with pytest.raises(Retryable):
            wait()
    assert slept == waits


def test_a_final_failure_is_raised_after_one_look_and_without_a_wait(run: Run) -> None:
    run(claim())
    denied = DataError("no-permission", "Access denied")
    run.port.before["swap"] = repeat(raising(AttemptFailed(FailureKind.REFUSED, denied, final=True)))
    calls = len(run.port.calls)
    with pytest.raises(DataError) as raised:
        run(batch(0))
    assert raised.value is denied
    assert run.port.calls[calls:] == ["refresh", "apply", "swap", "refresh"]
    assert (run.waits, run.complaints) == ([], [(FailureKind.REFUSED, 1)])


def test_a_final_failure_of_a_swap_that_was_applied_is_a_success(run: Run) -> None:
    run(claim())
    denied = AttemptFailed(FailureKind.REFUSED, DataError("no-permission", "Access denied"), final=True)
    run.port.after["swap"] = iter([raising(denied)])
    assert not run(batch(0)).skipped
    assert run.rows() == [0]


def test_an_error_for_people_is_raised_as_it_is(run: Run) -> None:
    run(claim())
    wrong = ConfigError("catalog-error", "The catalog does not know the branch.")
    run.port.before["apply"] = repeat(raising(wrong))
    with pytest.raises(ConfigError) as raised:
        run(batch(0))
    assert raised.value is wrong
    assert run.port.calls.count("apply") == 1 + 1


def test_a_login_that_ends_at_a_swap_leaves_nothing_unknown(run: Run) -> None:
    run(claim())
    refused = ConfigError("not-authorized", "The token is not valid")
    no_more = raising(AttemptFailed(FailureKind.REFUSED, refused, final=True))
    run.port.before["swap"] = repeat(no_more)
    run.port.before["refresh"] = chain([nothing], repeat(no_more))
    with pytest.raises(ConfigError) as raised:
        run(batch(0))
    assert raised.value is refused


def test_when_the_look_after_a_swap_fails_for_good_the_outcome_is_unknown(run: Run) -> None:
    run(claim())
    run.faults(Fault.LOST_REPLY)
    expired = AttemptFailed(FailureKind.REFUSED, ConfigError("not-authorized", "The token has expired"), final=True)
    run.port.before["refresh"] = chain([nothing], repeat(raising(expired)))
    with pytest.raises(OutcomeUnknown, match="token has expired"):
        run(batch(0))
    assert run.rows() == [0]


def test_contention_does_not_use_up_the_retries(run: Run) -> None:
    run(claim())
    run.retry = RetrySettings(max_retries=0)
    busy = (("foreign", number) for number in range(25))
    run.port.before["swap"] = (partial(run.catalog.append, row) for row in busy)
    result = run(batch(0))
    assert (result.attempts, run.rows()) == (26, [0])
    assert {failures for _, failures in run.complaints} == {1}


def test_commits_that_are_rolled_back_at_once_are_contention_too(run: Run) -> None:
    run(claim())
    head = run.catalog.metadata.head
    run.retry = RetrySettings(max_retries=0)

    def append_and_roll_back() -> None:
        run.catalog.append(("foreign", 0))
        run.catalog.rollback(head or 0)

    run.port.before["swap"] = iter([append_and_roll_back] * 5)
    assert run(batch(0)).attempts == 6
    assert list(run.catalog.metadata.rows) == [("own", 0)]


# ---- stopping


def test_a_replaced_instance_stops_and_changes_nothing(run: Run) -> None:
    run(claim("one"))
    run(claim("two"))
    before = run.catalog.metadata
    with pytest.raises(Fenced, match="two"):
        run(batch(0, "one", 1))
    assert run.catalog.metadata == before


def test_an_instance_that_is_replaced_between_look_and_swap_stops(run: Run) -> None:
    run(claim("one"))
    other = Run(Troubled(run.catalog, SINK))
    run.port.before["swap"] = iter([lambda: other(claim("two"))])
    with pytest.raises(Fenced):
        run(batch(0, "one", 1))
    assert run.rows() == []


@pytest.mark.parametrize("at", [0, 2])
def test_a_batch_that_does_not_follow_the_last_one_stops(run: Run, at: int) -> None:
    run(claim())
    run(batch(0))
    run.catalog.expire()
    run(claim("two"))
    part = Batch("source", position(at) if at else None, position(9))
    with pytest.raises(Halted, match="rows would be lost or doubled") as raised:
        run(Intent(SINK, "two", 1, 2, part, change=(("own", at),)))
    assert raised.value.code == "gap-or-overlap"
    assert run.rows() == [0]


def test_a_first_batch_that_does_not_begin_at_the_beginning_stops(run: Run) -> None:
    run(claim())
    with pytest.raises(Halted, match="ends at the beginning"):
        run(batch(3))
    assert run.rows() == []


def test_another_source_stops(run: Run) -> None:
    run(claim())
    run(batch(0))
    with pytest.raises(Halted) as raised:
        run(Intent(SINK, "one", 1, 1, Batch("another", position(1), position(2))))
    assert raised.value.code == "source-changed"


def test_another_table_stops(run: Run) -> None:
    uuid = run.port.refresh().table_uuid
    run.catalog.recreate()
    with pytest.raises(Halted) as raised:
        run(Intent(SINK, "one", 1, table_uuid=uuid))
    assert raised.value.code == "table-replaced"
    assert run.catalog.metadata.head is None


@pytest.mark.parametrize("how", ["removed", "set back"])
def test_a_ledger_that_somebody_meddled_with_stops(run: Run, how: str) -> None:
    run(claim("one"))
    old = run.catalog.metadata.ledgers
    run(claim("two"))
    metadata = run.catalog.metadata
    run.catalog.metadata = type(metadata)(**{**vars(metadata), "ledgers": old if how == "set back" else frozenset()})
    with pytest.raises(Halted) as raised:
        run(batch(0, "two", 2))
    assert raised.value.code == "ledger-lost"
    assert run.rows() == []


def test_a_rolled_back_table_stops_also_the_next_instance(run: Run) -> None:
    run(claim())
    back_to = run.catalog.metadata.head
    run(batch(0))
    run.catalog.rollback(back_to or 0)
    for intent in (batch(1), claim("two")):
        with pytest.raises(Halted) as raised:
            run(intent)
        assert raised.value.code == "rolled-back"
    assert run.rows() == []


def test_a_port_that_says_stop_is_not_asked_again(run: Run) -> None:
    run.port.before["refresh"] = repeat(raising(Halted("table-missing", "The table is not there any more")))
    with pytest.raises(Halted):
        run(claim())
    assert run.port.calls == ["refresh"]


def test_what_a_listener_or_a_wait_raises_is_not_swallowed() -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    catalog = MemoryCatalog(faults=deque([Fault.REFUSED] * 2))
    with pytest.raises(Stop):
        commit(catalog.port(SINK), claim(), RetrySettings(), on_failure=stop, sleep=lambda _: None)
    with pytest.raises(Stop):
        commit(catalog.port(SINK), claim(), RetrySettings(), sleep=stop)


# ---- where the ledger's snapshot is

LEDGER = SinkState(1, "one", snapshot=20, sequence=5)


@pytest.mark.parametrize(
    ("branch", "lineage"),
    [
        pytest.param([(20, 5, 10)], Lineage.CURRENT, id="the head"),
        pytest.param([(40, 7, 30), (30, 6, 20), (20, 5, 10)], Lineage.CURRENT, id="an ancestor"),
        pytest.param([(40, 7, 30), (30, 6, 20)], Lineage.EXPIRED, id="the parent of the oldest, which has expired"),
        pytest.param([(40, 8, 30)], Lineage.EXPIRED, id="nobody can tell"),
        pytest.param([(10, 4, None)], Lineage.ABANDONED, id="the head is older"),
        pytest.param([(40, 7, 10), (10, 4, 9)], Lineage.ABANDONED, id="the branch passes it by"),
        pytest.param([(40, 6, 10)], Lineage.ABANDONED, id="there is no room for it"),
        pytest.param([(40, 9, None)], Lineage.ABANDONED, id="the branch began after it"),
        pytest.param([], Lineage.ABANDONED, id="there is no branch"),
    ],
)
def test_where_the_ledgers_snapshot_is(branch: list[tuple[int, int, int | None]], lineage: Lineage) -> None:
    assert lineage_of(LEDGER, [Ancestor(*each) for each in branch]) is lineage


def test_a_table_that_had_no_sequence_numbers_is_not_taken_for_rolled_back() -> None:
    """Tables of format version 1 number all snapshots 0; the first after an upgrade has 1, and room for many before it."""
    old = SinkState(1, "one", snapshot=20, sequence=0)
    assert lineage_of(old, [Ancestor(40, 1, 30)]) is Lineage.EXPIRED
    assert lineage_of(old, [Ancestor(40, 0, 20), Ancestor(20, 0, None)]) is Lineage.CURRENT


# ---- tables that follow another


def follower(home_batch: int, start: int | None, end: int) -> Intent:
    batch = Batch("s", None if start is None else position(start), position(end), RowCounts(5, 5), home_batch)
    return Intent(SINK, "one", at_ms=0, epoch=1, batch=batch)


def looked(state: SinkState) -> TableView:
    return TableView("table", head=1, head_sequence=1, next_sequence=2, state=state)


FOLLOWER = SinkState(1, "one", batch=2, source="s", start=position(10), end=position(20), home_batch=7)


def test_a_follower_may_miss_batches() -> None:
    contiguous(looked(FOLLOWER), follower(9, 40, 50))
    state = next_state(looked(FOLLOWER), follower(9, 40, 50))
    assert (state.batch, state.home_batch, state.rows, state.end) == (3, 9, 5, position(50))


def test_a_follower_skips_the_batch_that_it_has() -> None:
    with pytest.raises(Done):
        not_done(looked(FOLLOWER), follower(7, 10, 20))


@pytest.mark.parametrize(("home_batch", "start", "end"), [(7, 10, 25), (6, 5, 10)], ids=["another end", "an earlier one"])
def test_a_follower_takes_no_other_rows_under_a_number_that_it_had(home_batch: int, start: int, end: int) -> None:
    with pytest.raises(Halted, match="holds batch 7 with other rows"):
        contiguous(looked(FOLLOWER), follower(home_batch, start, end))


def test_a_follower_of_another_source_stops() -> None:
    intent = follower(9, 40, 50)
    with pytest.raises(Halted, match="written from another source"):
        contiguous(looked(replace(FOLLOWER, source="t")), intent)


def test_a_home_remembers_its_followers() -> None:
    home = next_state(looked(SinkState(1, "one", followers=("a",))), replace(claim(), followers=("a", "b")))
    assert home.followers == ("a", "b")
    assert next_state(looked(home), claim()).followers == ("a", "b")
    assert SinkState.from_json(home.to_json()) == home
    assert SinkState.from_json(FOLLOWER.to_json()) == FOLLOWER
