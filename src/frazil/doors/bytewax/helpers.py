"""From messages to flat rows: what a step before the sink usually does."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any

from frazil.doors.bytewax.rows import Misfit, as_json, is_writable, moment, raw_text
from frazil.errors import DataError

Row = dict[str, Any]


def from_epoch_ms(milliseconds: int) -> dt.datetime:
    """Milliseconds since 1970 as a datetime in UTC."""
    try:
        return moment(milliseconds)
    except Misfit as misfit:
        raise DataError("epoch-unreadable", f"{misfit}.") from None


def to_json(value: Any) -> str:
    """A nested value as the text that a string column takes."""
    try:
        return as_json(value)
    except Misfit as misfit:
        raise DataError("value-not-json", f"{misfit}.") from None


def error_row(raw: Any, error: BaseException | str, **fields: Any) -> Row:
    """A row for something that could not be read: what is wrong in ``error``, and what it was in ``raw``."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return {**fields, "error": _writable(text), "raw": _text(raw)}


def with_errors(transform: Callable[[Any], Row]) -> Callable[[Any], Row]:
    """The transform, for `op.map`: what it cannot read becomes a row with `error` and `raw` instead of stopping the flow."""

    def safe(message: Any) -> Row:
        try:
            return transform(message)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a message is reported in its row
            return error_row(message, error)

    return safe


def uplink_row(message: Any) -> Row:
    """A device's uplink event as a flat row: `device_id, organization_id, event_timestamp, event_type, payload, error, raw`.

    The message is a dictionary, an object with `model_dump()`, or JSON. Its fields may stand at the top, under `device`,
    `organization` and `event`, or under `metadata`; names in snake_case or camelCase. The time is in milliseconds since 1970, or
    a datetime; the payload becomes JSON. A message that cannot be read becomes a row with `error` and `raw`.
    """
    found: Row = dict.fromkeys(("device_id", "organization_id", "event_timestamp", "event_type", "payload", "error", "raw"))
    try:
        event = _mapping(message)
        found["device_id"] = _as_text(_find(event, "device_id", "device.id", "device.device_id"))
        found["organization_id"] = _as_text(_find(event, "organization_id", "organization.id", "org_id"))
        found["event_type"] = _as_text(_find(event, "event_type", "event.type", "type"))
        payload = _find(event, "payload", "event.payload", "data")
        found["payload"] = _as_text(payload)
        found["error"] = _as_text(_find(event, "error"))
        when = _find(event, "event_timestamp", "event.timestamp", "timestamp", "ts")
        found["event_timestamp"] = None if when is None else moment(when)
    except (Misfit, ValueError) as error:
        return error_row(message, str(error), **{name: value for name, value in found.items() if name not in ("error", "raw")})
    if found["error"] is not None:
        found["raw"] = _text(message)
    return found


def _mapping(message: Any) -> Mapping[str, Any]:
    if hasattr(message, "model_dump"):
        message = message.model_dump()
    if isinstance(message, str | bytes):
        try:
            message = json.loads(message)
        except ValueError as error:
            raise Misfit(f"the message is not JSON: {error}") from None
    if not isinstance(message, Mapping):
        raise Misfit(f"the message is not an object, but {type(message).__name__}")
    return message


def _find(event: Mapping[str, Any], *paths: str) -> Any:
    """The first of these paths that leads to a value, from the top or from `metadata`."""
    metadata = event.get("metadata")
    for start in (event, metadata if isinstance(metadata, Mapping) else {}):
        for path in paths:
            at: Any = start
            for name in path.split("."):
                at = next((at[key] for key in (name, _camel(name)) if key in at), None) if isinstance(at, Mapping) else None
            if at is not None:
                return at
    return None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _as_text(value: Any) -> str | None:
    if isinstance(value, str) and not is_writable(value):
        raise Misfit(f"{value!r} has half a character in it, which a text cannot have")
    return value if value is None or isinstance(value, str) else as_json(value)


def _text(raw: Any) -> str:
    if hasattr(raw, "model_dump"):
        raw = raw.model_dump()
    if isinstance(raw, str):
        return _writable(raw)
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw_text(raw)


def _writable(text: str) -> str:
    return text if is_writable(text) else text.encode(errors="backslashreplace").decode()
