"""Answers to SQL statements, as `frazil sql` and its prompt show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frazil.cli.call import Call
from frazil.cli.output import AsItIs, table
from frazil.model.words import several

if TYPE_CHECKING:
    from frazil.doors.sql import Answer

# A cell longer than this is not read in a table of a terminal.
_WIDEST = 400


def show(call: Call, answer: Answer) -> None:
    """One answer for people: data on stdout, what was done and what is worth a word on stderr."""
    if answer.message:
        call.output.say(answer.message, "green")
    if answer.columns == ("name", "create_sql"):
        call.output.show(*(str(row[1]) for row in answer.rows))
    elif answer.columns:
        rows = [[_cell(cell) for cell in row] for row in answer.rows]
        call.output.show(table("", answer.columns, rows, is_data=answer.is_data))
        call.output.say(several(len(answer.rows), "row"), "dim")
    for note in answer.notes:
        call.output.say(f"note: {note}", "yellow")


def document(answer: Answer) -> dict[str, Any]:
    """One answer as JSON."""
    made = answer.to_json()
    return made | {"rows": AsItIs(made["rows"])} if answer.is_data and "rows" in made else made


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    text = str(value)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."
