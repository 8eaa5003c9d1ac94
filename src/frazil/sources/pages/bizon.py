"""Asks a source of Bizon's for its pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from frazil.errors import ConfigError, SourceAway
from frazil.model.source import PagesSource
from frazil.sources.pages.classes import classes_in, classes_of
from frazil.sources.pages.failures import asking
from frazil.sources.pages.pager import Page, Record, Since


class BizonPager:
    """An instance of a source's class, and what it answers."""

    def __init__(self, spec: PagesSource) -> None:
        self._spec = spec
        self._file = spec.file
        self._name = f"The source {spec.name}, stream {spec.stream}"
        classes = classes_of(spec.name) if spec.file is None else classes_in(spec.file)
        if spec.stream not in classes:
            known = ", ".join(classes)
            raise ConfigError("unknown-value", f"The source {spec.name} has no stream {spec.stream!r}.", fix=f"Known: {known}.")
        with asking(f"{self._name}, could not be made", self._file):
            made = classes[spec.stream]
            self._source = made(config=made.get_config_class().model_validate(spec.config))

    def page(self, pagination: Mapping[str, Any], since: Since | None) -> Page:
        """The next page, as records."""
        from bizon.source.models import SourceIncrementalState, SourceIteration

        with asking(f"{self._name}, failed when it was asked for a page", self._file):
            if since is None:
                found = self._source.get(pagination=dict(pagination))
            else:
                state = SourceIncrementalState(
                    last_run=since.last_run,
                    state=dict(since.state),
                    cursor_field=self._spec.cursor_field,
                    run_started_at=since.started,
                )
                found = self._source.get_records_after(source_state=state, pagination=dict(pagination))
        if not isinstance(found, SourceIteration):
            method = "get" if since is None else "get_records_after"
            raise ConfigError(
                "source-failed",
                f"{self._name}: {method}() answered with {type(found).__name__} instead of a SourceIteration.",
                fix="Return SourceIteration(records=[...], next_pagination={...}); an empty next_pagination is the end.",
            )
        with asking(f"{self._name}, has a record that is no JSON", self._file):
            records = [Record(one.id, json_of(one.data), one.timestamp, one.destination_id) for one in found.records]
        return Page(records, found.next_pagination, found.next_state)

    def total(self) -> int | None:
        """What the source says of itself."""
        with asking(f"{self._name}, failed when it was asked how much it has", self._file):
            count = self._source.get_total_records_count()
        return count if isinstance(count, int) else None

    def done(self) -> None:
        """Tells the source, which may keep a position of its own."""
        with asking(f"{self._name}, failed when it was notified that its records are written", self._file):
            self._source.commit()

    def check(self) -> None:
        """Lets the source try its connection."""
        with asking(f"{self._name}, cannot be reached", self._file):
            fine, why = self._source.check_connection()
        if not fine:
            reason = f": {why}" if why else "."
            raise SourceAway(
                "source-unreachable",
                f"{self._name}, says that it cannot be reached{reason}",
                fix="Check its settings and the network.",
            )

    def close(self) -> None:
        """Ends its connections."""
        self._source.session.close()


def json_of(data: Mapping[str, Any]) -> str:
    """The fields of a record as JSON. Numbers keep their digits, and times are written as ISO 8601 has them."""
    import orjson

    def plain(value: Any) -> Any:
        if isinstance(value, Decimal) and value.is_finite():
            return orjson.Fragment(str(value))
        if isinstance(value, bytes | bytearray):
            return value.decode()
        if isinstance(value, set | frozenset):
            return list(value)
        raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")

    try:
        return orjson.dumps(data, default=plain, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return json.dumps(data)  # whole numbers of more than 64 bits, and halves of characters
