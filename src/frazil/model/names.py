"""Names that were probably meant by others."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    import difflib

    by_form = {_form(each): each for each in known}
    if _form(name) in by_form:
        return by_form[_form(name)]
    close = difflib.get_close_matches(_form(name), list(by_form), n=1)
    return by_form[close[0]] if close else None


def _form(name: str) -> str:
    return name.lower().replace("-", "_")
