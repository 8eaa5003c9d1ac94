"""What is asked of the code that fetches pages, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True)
class Record:
    """One record of a page: ``data`` is its fields, as JSON. ``table``: the one that it names, if any."""

    id: str
    data: str
    timestamp: datetime
    table: str | None = None


@dataclass(frozen=True)
class Page:
    """Some records, what to ask for the next ones with (nothing: there are none), and a state for the next run, if any."""

    records: Sequence[Record]
    pagination: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Since:
    """What an incremental run passes to the source: the state of the last run, and when this one began."""

    last_run: str
    state: Mapping[str, Any]
    started: str


class Pager(Protocol):
    """Fetches pages. What goes wrong comes as a FrazilError: a Retryable when the same call may succeed later."""

    def page(self, pagination: Mapping[str, Any], since: Since | None) -> Page:
        """The page that ``pagination`` asks for (nothing: the first), of everything, or of what is new ``since`` a run."""

    def total(self) -> int | None:
        """How many records there are, where the source knows."""

    def done(self) -> None:
        """Everything that was fetched is in the table for good."""

    def check(self) -> None:
        """Raises a FrazilError when the source cannot be read."""

    def close(self) -> None:
        """Lets go of whatever is held open."""
