"""A source that asks a web service, which fails in the ways that such services do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from paged_cases import COLUMNS, Shelf, books

from frazil.errors import ConfigError, Retryable
from frazil.model.events import SourceFailed
from services.web import QuietHandler, served

PAGES = 3
CUT_OFF = -1
CONFIG = f"buffer_size: 0\nwrite_batch_size: 1\nmax_retry_attempts: 3\nretry_backoff_base: 0.001\n{COLUMNS}"

# The only thing that it changes: pages come from a service instead of a file.
ASKS = """\
    def _page(self, pagination, state):
        number = (pagination or {}).get("page", 0)
        answer = self.session.get(self.config.shelf, params={"page": number}).json()
        records = [SourceRecord(id=one["id"], data=one) for one in answer["books"]]
        return SourceIteration(next_pagination={"page": number + 1} if answer["more"] else {}, records=records)

    def _note"""


class Service:
    """Serves pages; before the second it gives the answers that a test wants."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.before_the_second: list[int] = []
        self.address = ""


@pytest.fixture
def service() -> Iterator[Service]:
    """A service that runs."""
    service = Service()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            page = int(parse_qs(urlsplit(self.path).query)["page"][0])
            service.asked.append(page)
            status = service.before_the_second.pop(0) if page == 1 and service.before_the_second else 200
            body = json.dumps({"books": books(page), "more": page + 1 < PAGES}).encode()
            self.send_response(200 if status == CUT_OFF else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:7] if status == CUT_OFF else body)

    with served(Handler) as address:
        service.address = f"{address}/books"
        yield service


@pytest.fixture
def asking(shelf: Shelf, tmp_path: Path) -> Shelf:
    """The source of the other tests, which asks a service now."""
    text = (tmp_path / "shelf.py").read_text()
    before, _, rest = text.partition("    def _page(self, pagination, state):")
    (tmp_path / "shelf.py").write_text(before + ASKS + rest.partition("    def _note")[2])
    return shelf


@pytest.mark.parametrize("answers", [[500, 503], [429], [CUT_OFF]], ids=["down", "too many", "cut off"])
def test_what_may_pass_is_asked_for_again(asking: Shelf, service: Service, answers: list[int]) -> None:
    service.before_the_second += answers
    result = asking.run(f"sync_mode: incremental\nshelf: {service.address}", CONFIG)
    assert [event.will_retry for event in result if isinstance(event, SourceFailed)] == [True] * len(answers)
    assert service.asked == [0, 1, *[1] * len(answers), 2]
    assert asking.rows("books", "id") == [(0,), (1,), (2,)]


@pytest.mark.parametrize(("status", "code"), [(401, "source-not-readable"), (404, "source-failed")])
def test_what_will_not_pass_stops_at_once(asking: Shelf, service: Service, status: int, code: str) -> None:
    service.before_the_second.append(status)
    with pytest.raises(ConfigError) as caught:
        asking.run(f"sync_mode: incremental\nshelf: {service.address}", CONFIG)
    assert (caught.value.code, str(status) in caught.value.message) == (code, True)
    assert caught.value.location is not None
    assert caught.value.location.text.strip().startswith("answer = self.session.get(")
    assert service.asked == [0, 1]
    assert asking.rows("books", "id") == [(0,)], "what came before is there"
    asking.run(f"sync_mode: incremental\nshelf: {service.address}", CONFIG)
    assert (service.asked[2:], asking.rows("books", "id")) == ([1, 2], [(0,), (1,), (2,)])


def test_as_often_as_the_file_says_and_no_more(asking: Shelf, service: Service) -> None:
    service.before_the_second += [503] * 9
    with pytest.raises(Retryable) as caught:
        asking.run(f"sync_mode: incremental\nshelf: {service.address}", CONFIG)
    assert "503" in caught.value.message
    assert service.asked == [0, 1, 1, 1, 1]
