"""The position of a source of pages in the table's ledger: which page is next, and what the next run passes to the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.errors import DataError
from frazil.model.commit import Position, position
from frazil.sources.pages.pager import Page, Since
from frazil.sources.positions import fields_of, unknown_position

WHAT = "a source of pages"


@dataclass(frozen=True)
class PagesPlace:
    """Between two pages. ``last_run`` and ``state`` belong to the last run that ended, the rest to the current one.

    Times are texts, as they were first written: a run that continues in another process keeps its start time.
    """

    last_run: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    started: str | None = None
    page: int = 0
    pagination: Mapping[str, Any] = field(default_factory=dict)
    next_state: Mapping[str, Any] | None = None

    @classmethod
    def from_position(cls, text: Position | None) -> PagesPlace:
        """Reads the ledger; without a position nothing was read yet."""
        if text is None:
            return cls()
        try:
            return cls(**fields_of(text, WHAT))
        except TypeError:
            raise unknown_position(text, WHAT) from None

    def to_position(self) -> Position:
        """The value as stored in the ledger, without empty fields."""
        known = {name: value for name, value in vars(self).items() if value not in (None, 0, {})}
        # An empty state that a run hands on is another thing than none.
        if self.next_state is not None:
            known["next_state"] = self.next_state
        try:
            return position(known)
        except (TypeError, ValueError) as error:
            raise DataError(
                "pagination-not-json",
                f"The source asks for its next page with something that cannot be kept in the table: {error}.",
                fix="next_pagination and next_state hold texts, numbers, lists and dictionaries.",
            ) from None

    @property
    def between_runs(self) -> PagesPlace:
        """The place between two runs."""
        return PagesPlace(self.last_run, self.state)

    @property
    def since(self) -> Since | None:
        """What the current run passes to the source about the last one; None if it is the first."""
        if self.last_run is None or self.started is None:
            return None
        return Since(self.last_run, self.state, self.started)

    def begun(self, moment: str) -> PagesPlace:
        """A run begins, unless one is under way."""
        return self if self.started is not None else replace(self, started=moment)

    def after(self, page: Page) -> PagesPlace:
        """A page later."""
        state = self.next_state if page.state is None else page.state
        return replace(self, page=self.page + 1, pagination=page.pagination, next_state=state)

    def ended(self) -> PagesPlace:
        """The run has ended. If it returned no state, the previous one stays."""
        return PagesPlace(self.started, self.state if self.next_state is None else self.next_state)
