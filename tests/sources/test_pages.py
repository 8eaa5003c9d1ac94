"""Pages as slices: what is fetched, kept and fetched again, and what stands in the ledger. A double is what fetches them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest
import requests

from frazil.errors import ConfigError, DataError, Halted, Retryable, SourceAway
from frazil.model.source import PagesSource
from frazil.sources.base import Slice
from frazil.sources.pages import spool
from frazil.sources.pages.failures import explained
from frazil.sources.pages.pager import Page, Record, Since
from frazil.sources.pages.place import PagesPlace
from frazil.sources.pages.source import Pages

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Booklet:
    """Pages of numbers. Those of a stream that keeps its own place come one after the other, whatever is asked for."""

    def __init__(self, *pages: list[int], own_place: bool = False, fails: int | None = None) -> None:
        self.pages = pages
        self.asked: list[Any] = []
        self.done_at: list[int] = []
        self.closed = False
        self._own_place = own_place
        self._fails = fails

    def page(self, pagination: Mapping[str, Any], since: Since | None) -> Page:
        number = len(self.asked) if self._own_place else pagination.get("n", 0)
        if self._fails == number:
            self._fails = None
            raise SourceAway("source-unreachable", "away")
        self.asked.append((number, since.state if since is not None else None))
        numbers = self.pages[number] if number < len(self.pages) else []
        records = [Record(str(one), json.dumps({"id": one}), NOON) for one in numbers]
        last = self._own_place or number + 1 >= len(self.pages)
        return Page(records, {} if last else {"n": number + 1}, {"at": number} if last and not self._own_place else None)

    def total(self) -> int | None:
        return sum(map(len, self.pages))

    def done(self) -> None:
        self.done_at.append(len(self.asked))

    def check(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def pages(booklet: Booklet, mode: str = "incremental", **options: Any) -> Pages:
    spec = PagesSource.model_validate({"name": "n", "stream": "s", "mode": mode, "tables": ["t"], "table": "t"} | options)
    return Pages(spec, None, lambda: booklet)  # type: ignore[arg-type]


def ids(part: Slice | None) -> list[int]:
    assert part is not None
    found = [row for file in part.detail for row in pq.read_table(file).to_pylist()]
    assert [row["offset"] for row in found] == list(range(part.rows or 0)), "in the order in which they came"
    return [json.loads(row["value"])["id"] for row in found]


def test_a_slice_ends_with_the_page_that_fills_it_and_is_kept_until_it_is_committed() -> None:
    booklet = Booklet([1, 2], [3, 4], [5])
    source = pages(booklet)
    first = source.plan(None, 3)
    assert (ids(first), first is not None and first.full) == ([1, 2, 3, 4], True)
    assert source.plan(None, 3) == first
    assert len(booklet.asked) == 2, "what was fetched is not asked for again"
    assert first is not None
    source.committed(first.end)
    assert not first.detail[0].exists()
    second = source.plan(first.end, 3)
    assert (ids(second), second is not None and second.full) == ([5], False)
    assert second is not None
    place = PagesPlace.from_position(second.end)
    assert (place.started, place.last_run, place.state) == (None, PagesPlace.from_position(first.end).started, {"at": 2})
    source.close()
    assert booklet.closed


def test_a_large_page_is_in_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FLUSH_ROWS", 2)
    source = pages(Booklet([1, 2, 3, 4, 5]))
    part = source.plan(None, 100)
    assert (ids(part), part is not None and len(part.detail)) == ([1, 2, 3, 4, 5], 3)
    source.close()


def test_a_page_that_could_not_be_fetched_is_asked_for_again_and_those_before_are_not() -> None:
    booklet = Booklet([1], [2], [3], fails=1)
    source = pages(booklet, "full_refresh")
    with pytest.raises(Retryable):
        source.plan(None, 1)
    part = source.plan(None, 1)
    assert ids(part) == [1, 2, 3], "a full refresh is one slice, however large"
    assert [number for number, _ in booklet.asked] == [0, 1, 2]
    assert part is not None
    assert source.finished(part.end)
    assert not source.finished(None)
    source.committed(part.end)
    assert source.plan(part.end, 1) is None, "once a run"


def test_pages_are_gathered_for_so_long_at_most() -> None:
    times = iter(range(0, 1000, 10))
    spec = PagesSource(name="n", stream="s", mode="incremental", tables=("t",), gather_secs=15)
    source = Pages(spec, None, lambda: Booklet([1], [2], [3], [4]), lambda: next(times))  # type: ignore[arg-type]
    part = source.plan(None, 100)
    assert (ids(part), part is not None and part.full) == ([1, 2], True)


def test_another_process_goes_on_and_repeats_a_slice_that_was_cut_off() -> None:
    before = pages(Booklet([1], [2], [3]))
    first = before.plan(None, 1)
    assert first is not None
    before.committed(first.end)
    second = before.plan(first.end, 2)
    assert second is not None
    after = pages(Booklet([1], [2], [3]))
    repeated = after.between(first.end, second.end)
    assert (ids(repeated), repeated is not None and repeated.end) == ([2, 3], second.end)
    third = pages(Booklet([1], [2])).between(first.end, second.end)
    assert third is None, "the source ends elsewhere now"
    with pytest.raises(Halted) as caught:
        pages(Booklet([1], [2]), tables=["t", "u"]).between(first.end, second.end)
    assert caught.value.code == "pages-changed"


def test_a_full_refresh_that_was_cut_off_is_repeated() -> None:
    part = pages(Booklet([1], [2]), "full_refresh").plan(None, 1)
    assert part is not None
    source = pages(Booklet([1], [2]), "full_refresh")
    assert ids(source.between(None, part.end)) == [1, 2]
    assert source.finished(part.end)
    changed = pages(Booklet([1], [2], [3]), "full_refresh", tables=["t", "u"]).between(None, part.end)
    assert (ids(changed), changed is not None and changed.end) == ([1, 2, 3], part.end), "each row is replaced anyway"


def test_a_stream_that_keeps_its_own_place() -> None:
    booklet = Booklet([1], [], [2], own_place=True)
    source = pages(booklet, "stream")
    first = source.plan(None, 10)
    assert ids(first) == [1]
    assert first is not None
    source.committed(first.end)
    assert booklet.done_at == [1]
    assert source.plan(first.end, 10) is None
    second = source.plan(first.end, 10)
    assert ids(second) == [2]
    assert second is not None
    assert second.end != first.end
    source.committed(first.end)
    assert booklet.done_at == [1], "only what is in the table is done"
    assert pages(Booklet([1], own_place=True), "stream").between(None, first.end) is None, "it cannot be asked for again"


def test_a_stream_that_has_asked_for_enough_is_finished_also_when_nothing_came() -> None:
    source = pages(Booklet([], own_place=True), "stream", max_pages=1)
    assert source.plan(None, 10) is None
    assert source.finished(None)


def test_how_much_there_is_is_asked_only_where_all_is_read() -> None:
    assert pages(Booklet([1, 2])).total_rows(None) == 2
    later = PagesPlace(last_run="2026-01-31T12:00:00+00:00").to_position()
    assert pages(Booklet([1, 2])).total_rows(later) is None
    assert pages(Booklet([1, 2]), "full_refresh").total_rows(later) == 2


def test_positions_of_others_and_paginations_that_cannot_be_kept() -> None:
    with pytest.raises(Halted):
        PagesPlace.from_position('{"cursor":{"type":"int","value":"1"}}')
    with pytest.raises(DataError) as caught:
        PagesPlace().begun("now").after(Page([], {"until": NOON})).to_position()
    assert caught.value.code == "pagination-not-json"
    place = PagesPlace("a", {"x": 1}, "b", 2, {"n": 1}, {})
    assert PagesPlace.from_position(place.to_position()) == place
    assert place.ended().state == {}, "an empty state is one, too"


def answered(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status} for url", response=response)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (requests.ConnectionError("refused"), SourceAway, "source-unreachable"),
        (requests.Timeout("read"), SourceAway, "source-unreachable"),
        (TimeoutError(), SourceAway, "source-unreachable"),
        (answered(429), SourceAway, "source-unreachable"),
        (answered(503), SourceAway, "source-unreachable"),
        (answered(401), ConfigError, "source-not-readable"),
        (answered(404), ConfigError, "source-failed"),
        (ValueError("x"), ConfigError, "source-failed"),
    ],
)
def test_what_may_pass_and_what_may_not(error: Exception, kind: type[Exception], code: str) -> None:
    found = explained(error, "The source")
    assert (type(found), found.code) == (kind, code)
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = error
    assert explained(wrapped, "The source").code == code
