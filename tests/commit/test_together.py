"""Several tables in one step: whatever happens in between, a batch is in all of them or in none, at any moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commit.memory_table import CONFLICT, REPLIES, Compare, Fault, MemoryCatalog, MemoryPort, Request, raise_failed
from frazil.commit.protocol import AttemptFailed, FailureKind, Intent, NewSnapshot, Swap, TableView, commit
from frazil.commit.together import Member, TablesPort
from frazil.errors import DataError, Fenced, Halted, OutcomeUnknown, Retryable
from frazil.model.commit import Batch, CommitResult, SinkState, position
from frazil.model.settings import RetrySettings
from tiers import examples

SINK, SOURCE, OURS, FOREIGN = "sink", "source", "ours", "foreign"
HOME, DEBIT, CREDIT = "home", "debit", "credit"
FEW = RetrySettings(max_retries=2, initial_backoff_ms=1, max_backoff_ms=1)
PATIENT = RetrySettings(max_retries=50, initial_backoff_ms=1, max_backoff_ms=1)

Happening = Callable[[], object]


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Bank:
    """The home and two tables of one catalog, which applies requests for several of them together or not at all."""

    compare: Compare = Compare.BRANCH
    tables: dict[str, MemoryCatalog] = field(default_factory=dict)
    late: list[dict[str, Request]] = field(default_factory=list)
    happens: Happening = lambda: None
    fault: Callable[[], Fault | None] = lambda: None
    names: int = 0

    def __post_init__(self) -> None:
        self.tables = {name: MemoryCatalog(self.compare) for name in (HOME, DEBIT, CREDIT)}

    def receive(self, requests: Mapping[str, Request]) -> bool:
        """Applies all requests if every table accepts its own."""
        if not all(self.tables[name].metadata.accepts(one, self.compare) for name, one in requests.items()):
            return False
        for name, one in requests.items():
            self.tables[name].metadata = self.tables[name].metadata.swapped(one)
        self.require_agreement()
        return True

    def swap_all(self, swaps: Mapping[str, Swap]) -> None:
        """One request for all, with whatever happens to it."""
        self.happens()
        requests = {name: Request(swap.view.base, swap.snapshot.handle, SINK, swap.state) for name, swap in swaps.items()}
        fault = self.fault()
        if fault is Fault.DELAYED:
            self.late.append(requests)
        elif fault is not Fault.REFUSED and not self.receive(requests):
            raise_failed(CONFLICT)
        self.happens()
        if fault is not None:
            raise_failed(REPLIES[fault])

    def ours(self, name: str) -> list[int]:
        """The batches that a table has."""
        return [number for writer, number in self.tables[name].metadata.rows if writer == OURS]

    def require_agreement(self) -> None:
        """What a reader of both tables sees at this moment."""
        state = self.tables[HOME].metadata.ledger(SINK)
        batches = list(range(1, (state.batch if state else 0) + 1))
        assert self.ours(DEBIT) == self.ours(CREDIT) == batches

    def starts(self) -> Instance:
        """A new instance claims all tables, the home first."""
        self.names += 1
        return Instance(self, f"instance-{self.names}")


@dataclass
class Port(MemoryPort):
    """One table, with whatever happens before each look and each snapshot."""

    bank: Bank

    def refresh(self) -> TableView:
        self.bank.happens()
        return super().refresh()

    def apply(self, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        self.bank.happens()
        return super().apply(view, intent, state)


class Instance:
    """A process that owns the sink, or believes so."""

    def __init__(self, bank: Bank, name: str, retry: RetrySettings = PATIENT) -> None:
        self.bank, self.name, self.retry = bank, name, retry
        self.epochs: dict[str, int] = {}
        for table in (HOME, DEBIT, CREDIT):
            claim = commit(self.port(table), Intent(SINK, f"{name}-{table}", 0), PATIENT, sleep=lambda _: None)
            self.epochs[table] = claim.state.epoch
            if table == HOME:
                self.batch, self.end = claim.state.batch, claim.state.end

    def port(self, table: str) -> Port:
        return Port(self.bank.tables[table], SINK, self.bank)

    def member(self, table: str) -> Member:
        """What a table gets of the next batch."""
        following = None if table == HOME else self.batch + 1
        batch = Batch(SOURCE, self.end, position({"batch": self.batch + 1}), home_batch=following)
        rows = () if table == HOME else ((OURS, self.batch + 1),)
        uuid = self.bank.tables[table].metadata.uuid
        own = Intent(SINK, f"{self.name}-{table}", 0, epoch=self.epochs[table], batch=batch, table_uuid=uuid, change=rows)
        return Member(table, self.port(table), own)

    def writes(self) -> tuple[CommitResult, ...]:
        """Commits the next batch; what became of it at home and in the other tables."""
        home, others = self.member(HOME), [self.member(DEBIT), self.member(CREDIT)]
        port = TablesPort(home, others, self.bank.swap_all)
        done = commit(port, home.intent, self.retry, sleep=lambda _: None)
        self.batch, self.end = done.state.batch, done.state.end
        return (done, *(port.result_of(member, done) for member in others))


@settings(max_examples=examples(600), deadline=None)
@given(seed=st.integers(0, 2**32), compare=st.sampled_from([Compare.BRANCH, Compare.METADATA]))
def test_all_or_none_whatever_happens(seed: int, compare: Compare) -> None:
    """Others write, answers are lost, requests arrive late, processes die and are replaced between any two calls."""
    bank, chance = Bank(compare), Random(seed)

    def happens() -> None:
        bank.happens = lambda: None  # what another instance does is not disturbed in turn
        match chance.choice([None, None, None, None, None, FOREIGN, "late", "replaced", "crash"]):
            case "foreign":
                bank.tables[chance.choice([HOME, DEBIT, CREDIT])].append((FOREIGN, 0))
            case "late" if bank.late:
                bank.receive(bank.late.pop(chance.randrange(len(bank.late))))
            case "replaced" if chance.random() < 0.3:
                bank.starts().writes()
            case "crash" if chance.random() < 0.3:
                raise Crash
        bank.happens = happens

    bank.fault = lambda: chance.choice([None, None, *Fault])
    for _ in range(4):
        bank.happens = happens
        try:
            instance = bank.starts()
            for _ in range(chance.randrange(4)):
                before = instance.batch
                results = instance.writes()
                assert instance.batch == before + 1
                assert {one.state.source for one in results} == {SOURCE}
        except (Crash, Fenced, OutcomeUnknown):
            continue
    bank.happens, bank.fault = lambda: None, lambda: None
    last = bank.starts()
    last.writes()
    for requests in bank.late:
        bank.receive(requests)
    last.writes()
    bank.require_agreement()
    assert bank.ours(DEBIT) == list(range(1, last.batch + 1))


def test_a_conflict_in_one_table_makes_all_of_them_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often somebody else comes first: that is no failing catalog."""
    bank, left = Bank(), [DEBIT, CREDIT] * 5
    instance = Instance(bank, "ours", FEW)
    bank.fault = lambda: bank.tables[left.pop()].append((FOREIGN, len(left))) if left else None  # type: ignore[func-returns-value]
    assert [one.skipped for one in instance.writes()] == [False] * 3
    assert not left
    assert (bank.ours(DEBIT), bank.ours(CREDIT)) == ([1], [1])


def test_a_lost_answer_is_looked_up_in_every_table() -> None:
    bank, faults = Bank(), [Fault.LOST_REPLY]
    instance = bank.starts()
    bank.fault = lambda: faults.pop() if faults else None
    home, *others = instance.writes()
    assert [(one.skipped, one.attempts) for one in (home, *others)] == [(False, 1)] * 3
    assert [one.state.home_batch for one in others] == [1, 1]
    assert (bank.ours(DEBIT), bank.ours(CREDIT)) == ([1], [1])


@pytest.mark.parametrize("calls", range(8))
def test_a_request_that_arrives_between_any_two_looks_is_noticed(calls: int) -> None:
    bank, left, faults = Bank(), [calls], [Fault.DELAYED]
    instance = bank.starts()
    bank.fault = lambda: faults.pop() if faults else None

    def happens() -> None:
        if bank.late:
            if not left[0]:
                bank.receive(bank.late.pop())
            left[0] -= 1

    bank.happens = happens
    instance.writes()
    assert (bank.ours(DEBIT), bank.ours(CREDIT)) == ([1], [1])


def test_an_outcome_that_cannot_be_found_out_is_unknown_for_all() -> None:
    bank = Bank()
    instance = Instance(bank, "ours", FEW)
    bank.fault = lambda: Fault.DELAYED
    with pytest.raises(OutcomeUnknown):
        instance.writes()
    bank.receive(bank.late[0])
    bank.fault = lambda: None
    later = bank.starts()
    assert later.batch == 1
    later.writes()
    assert (bank.ours(DEBIT), bank.ours(CREDIT)) == ([1, 2], [1, 2])


def test_what_was_cut_off_between_single_commits_is_finished() -> None:
    bank = Bank()
    instance = bank.starts()
    debit = instance.member(DEBIT)
    commit(debit.port, debit.intent, PATIENT)
    home, first, second = instance.writes()
    assert (home.skipped, first.skipped, second.skipped) == (False, True, False)
    bank.require_agreement()


@pytest.mark.parametrize("answer", [None, Fault.LOST_REPLY], ids=["answered", "answer-lost"])
def test_a_catalog_that_leaves_a_table_out_stops_the_sink(answer: Fault | None) -> None:
    bank = Bank()
    instance = bank.starts()
    bank.require_agreement = lambda: None  # type: ignore[method-assign]
    whole = bank.receive
    bank.receive = lambda requests: whole({name: requests[name] for name in (HOME, DEBIT)})  # type: ignore[method-assign]
    bank.fault = lambda: answer
    with pytest.raises(Halted, match="left out credit: its commits of several tables are not atomic") as torn:
        instance.writes()
    assert torn.value.code == "commit-torn"


def test_an_older_instance_is_fenced_by_any_of_the_tables() -> None:
    bank = Bank()
    older, newer = bank.starts(), bank.starts()
    with pytest.raises(Fenced):
        older.writes()
    newer.writes()
    commit(newer.port(CREDIT), Intent(SINK, "newest", 0), PATIENT)
    with pytest.raises(Fenced, match="Table credit: Another instance"):
        newer.writes()
    bank.require_agreement()


def test_a_failure_names_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank()
    instance = bank.starts()
    real = Port.apply

    def apply(self: Port, view: TableView, intent: Intent, state: SinkState) -> NewSnapshot:
        if self.catalog is bank.tables[CREDIT]:
            raise AttemptFailed(FailureKind.REFUSED, DataError("refused-by-iceberg", "it is too long"), final=True)
        return real(self, view, intent, state)

    monkeypatch.setattr(Port, "apply", apply)
    with pytest.raises(DataError, match="Table credit: it is too long"):
        instance.writes()
    bank.require_agreement()


def test_an_error_keeps_its_kind_when_it_is_said_of_a_table() -> None:
    error = Retryable("away", "no answer", fix="Wait.", after=3)
    named = error.of_table("db.t", " (2 more failed)")
    assert isinstance(named, Retryable)
    assert (str(named), named.code, named.after) == ("Table db.t: no answer (2 more failed)\nWait.", "away", 3)
    assert error.message == "no answer"
