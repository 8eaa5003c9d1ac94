"""A reverse proxy in front of a service that injects faults into certain kinds of requests, and keeps a log of them.

Everything else passes unharmed. A proxy belongs to one test: it is a thread, and starts at once.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from services.between import Asked, Made, Outcome, StandIn, Trickled, Truncated, passed_on
from services.faults import Cut, Delivery, Fault, FromService, Slowly, Status


@dataclass(frozen=True)
class Exchange:
    """A request that can have faults: which it had, what the service answered to each delivery, what the client was told."""

    kind: str
    request: Asked
    fault: Fault | None
    from_service: tuple[Made, ...]
    to_client: int | None
    """The status that the client got; none when the connection was cut."""

    @property
    def applied(self) -> bool:
        """Whether the service accepted one of the deliveries."""
        return any(answer.accepted for answer in self.from_service)

    @property
    def content(self) -> Any:
        """What the client sent."""
        return json.loads(self.request.body) if self.request.body else None


class Faulty(ABC):
    """The proxy: ``uri`` is its address, ``script`` and ``fault_next`` plan the faults, ``log`` tells what happened."""

    def __init__(self, backend: str) -> None:
        self.backend_uri = backend
        """The service's own address, for clients that meet no faults."""
        self._lock = threading.Lock()
        self._planned: dict[str, deque[Fault | None]] = defaultdict(deque)
        self._lasting: dict[str, Fault | None] = {}
        self._log: list[Exchange] = []
        self._late: list[tuple[threading.Thread, float | None]] = []
        self._wake = threading.Event()
        self._closed = False
        self._server = StandIn(self.answer)

    @staticmethod
    @abstractmethod
    def kind_of(asked: Asked) -> str | None:
        """What faults a request can have, if any."""

    @staticmethod
    @abstractmethod
    def own_error(status: Status) -> Made:
        """An error in the service's own format that it did not send."""

    @property
    def uri(self) -> str:
        """The address for clients, in place of the service's own."""
        return self._server.uri

    @property
    def log(self) -> tuple[Exchange, ...]:
        """Every request so far that can have faults, in the order of arrival."""
        with self._lock:
            return tuple(self._log)

    @property
    def unused(self) -> tuple[Fault, ...]:
        """Planned faults that no request has met yet."""
        with self._lock:
            return tuple(fault for plan in self._planned.values() for fault in plan if fault)

    def script(self, faults: Iterable[Fault | None], on: str = "commit") -> None:
        """Plans the fault of each of the next requests of that kind in place of what was planned; none lets one pass."""
        with self._lock:
            self._planned[on] = deque(faults)

    def fault_next(self, fault: Fault, on: str = "commit") -> None:
        """Plans a fault of the very next request of that kind, before what was planned."""
        with self._lock:
            self._planned[on].appendleft(fault)

    def from_now_on(self, fault: Fault | None, on: str) -> None:
        """Gives the fault to all requests of that kind for which nothing is planned."""
        with self._lock:
            self._lasting[on] = fault

    def settle(self) -> None:
        """Waits until the late deliveries that have a delay are made."""
        for thread, after in self._late_deliveries():
            if after is not None:
                thread.join()

    def release(self) -> None:
        """Makes all late deliveries that are still to come, now, and waits for them."""
        self._wake.set()
        for thread, _ in self._late_deliveries():
            thread.join()
        self._wake.clear()

    def close(self) -> None:
        """Ends the proxy; late deliveries that are still to come are never made. Raises what a ``meanwhile`` raised."""
        self._closed = True
        self.release()
        self._server.close()

    def answer(self, asked: Asked) -> Outcome:
        """Does with a request what its fault says; called by the server's threads."""
        kind = self.kind_of(asked)
        if kind is None:
            return self._deliver(asked)
        with self._lock:
            plan = self._planned[kind]
            fault = plan.popleft() if plan else self._lasting.get(kind)
            number = len(self._log)
            self._log.append(Exchange(kind, asked, fault, (), None))
        return self._answer_with(fault or Fault("none"), asked, number)

    def made_up(self, status: Status) -> Made:
        """An error that the service did not send: its own, or a gateway's page."""
        answer = _page(status.code) if status.html else self.own_error(status)
        hint = {} if status.retry_after is None else {"Retry-After": str(status.retry_after)}
        return replace(answer, headers={**answer.headers, **hint})

    def _answer_with(self, fault: Fault, asked: Asked, number: int) -> Outcome:
        deliveries = {Delivery.ONCE: 1, Delivery.TWICE: 2}.get(fault.delivery, 0)
        delivered = [self._deliver_logged(asked, number) for _ in range(deliveries)]
        if fault.meanwhile:
            fault.meanwhile()
        if fault.pause:
            time.sleep(fault.pause)
        if fault.delivery is Delivery.LATER:
            self._deliver_later(asked, number, fault.after)
        if fault.answer is Cut.TRUNCATED:
            return Truncated(delivered[0])
        if isinstance(fault.answer, Cut):
            return fault.answer
        if isinstance(fault.answer, Status):
            answer = self.made_up(fault.answer)
        else:
            answer = delivered[fault.answer.nth if isinstance(fault.answer, FromService) else 0]
        with self._lock:
            self._log[number] = replace(self._log[number], to_client=answer.status)
        return Trickled(answer, fault.answer.seconds) if isinstance(fault.answer, Slowly) else answer

    def _deliver_logged(self, asked: Asked, number: int) -> Made:
        answer = self._deliver(asked)
        with self._lock:
            exchange = self._log[number]
            self._log[number] = replace(exchange, from_service=(*exchange.from_service, answer))
        return answer

    def _deliver_later(self, asked: Asked, number: int, after: float | None) -> None:
        def deliver() -> None:
            self._wake.wait(after)
            if not self._closed:
                self._deliver_logged(asked, number)

        thread = threading.Thread(target=deliver, name="late-delivery", daemon=True)
        with self._lock:
            self._late.append((thread, after))
            thread.start()

    def _late_deliveries(self) -> tuple[tuple[threading.Thread, float | None], ...]:
        with self._lock:
            return tuple(self._late)

    def _deliver(self, asked: Asked) -> Made:
        """Sends the request to the service; one that cannot be reached is answered for as a gateway would."""
        try:
            return passed_on(self.backend_uri, asked)
        except OSError:
            return _page(HTTPStatus.BAD_GATEWAY)


def _page(code: int) -> Made:
    phrase = HTTPStatus(code).phrase
    page = f"<html><head><title>{code} {phrase}</title></head><body><h1>{phrase}</h1></body></html>\n"
    return Made(code, page.encode(), {"Content-Type": "text/html"})
