"""Names: which tables and columns may have, how many columns there may be, and names that were probably meant by others."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.model.hidden import HIDDEN

NAME_LENGTH = 255
"""How long the name of a column may be that data brings. Catalogs that keep columns take no longer ones."""
MOST_COLUMNS = 2000
"""How many columns, the fields of structs among them, are found in messages or added to a table because data has them."""

# Catalogs make a folder of the name of a table or of a level of a namespace. A slash would begin another folder within it, and at
# the others the libraries of object stores cut a location off.
NOT_IN_FOLDERS = "/?#"


def folder_problem(name: str) -> str | None:
    """Why a name cannot be that of a table or of a level of a namespace; None when it can."""
    if found := next((character for character in name if character in NOT_IN_FOLDERS), None):
        return f"it has a {found!r}, and is the name of a folder in the warehouse"
    if name in (".", ".."):
        return "it is the name of a folder in the warehouse, and would be another folder"
    return None


def not_reserved(text: str) -> str:
    """The text, in which no name may be one of frazil's own."""
    if HIDDEN in text.lower():
        raise ValueError(f"names that begin with {HIDDEN} are frazil's own, and cannot be used")
    return text


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
