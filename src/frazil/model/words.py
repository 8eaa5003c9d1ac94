"""Numbers and times in words."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def iso(at_ms: int | None) -> str | None:
    """A time as ISO 8601 in UTC."""
    return None if not at_ms else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def seconds_since(at_ms: int | None) -> float | None:
    """How long ago that was."""
    return None if not at_ms else max(0.0, round(time.time() - at_ms / 1000, 1))


def ago(seconds: float | None) -> str:
    """An age: `12 s ago`, `3 min ago`, `5 h ago`, `2 d ago`."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def size(count: int) -> str:
    """A number of bytes: `1.5 MB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def several(count: int, what: str) -> str:
    """`1 row`, `1,200 rows`, `2 batches`."""
    plural = "" if count == 1 else "es" if what.endswith(("ch", "s")) else "s"
    return f"{count:,} {what}{plural}"


def short(content: str | None, length: int = 60) -> str:
    """A long text cut in its middle, where both ends tell something."""
    content = content or ""
    half = (length - 3) // 2
    return content if len(content) <= length else f"{content[:half]}...{content[-half:]}"


def amplified(files: float) -> str:
    """How many files readers open."""
    return f"{files:g} files for each that is needed"
