"""The base of every value in the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from frazil.model.secrets import masked


class Model(BaseModel):
    """A frozen value that refuses unknown keys, and shows no secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Secret fields print as stars by themselves; free-form properties and addresses do not."""
        return [(name, masked(value, name or "")) for name, value in super().__repr_args__()]


class Problem(str):
    """What does not fit together in a value, and at which of its keys, so that a door can point there."""

    at: tuple[str, ...]
    lacks: str

    def __new__(cls, text: str, *at: str, lacks: str = "") -> Problem:
        """``at`` is the way from the value to the key; empty for the value as a whole. ``lacks``: the key that is missing."""
        problem = super().__new__(cls, text)
        problem.at, problem.lacks = at, lacks
        return problem


class InconsistencyError(ValueError):
    """All contradictions within a value, reported at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def _as_texts(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _as_text(item) for key, item in value.items()}


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Texts = Annotated[dict[str, str], BeforeValidator(_as_texts)]
"""Free-form properties: numbers and booleans are taken as their text."""
