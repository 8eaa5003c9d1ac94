"""Small tables of HTML for notebooks: facts by name, and rows by column. Secrets are scrubbed, and everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from frazil.model.secrets import scrub


def facts_html(title: str, facts: Iterable[tuple[str, Any]]) -> str:
    """A heading, and one line a fact; facts that are None are left out."""
    lines = [f"<tr><th style='text-align:left'>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts
             if value is not None]  # fmt: skip
    return f"<b>{_text(title)}</b><table>{''.join(lines)}</table>"


def rows_html(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with a head."""
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(value: Any) -> str:
    return escape(scrub("" if value is None else str(value)))
