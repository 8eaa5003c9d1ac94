"""What the rows of a table are expected to be, and what becomes of those that are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from frazil.model.base import Model, Problem
from frazil.model.dead_letters import OnError
from frazil.model.names import not_reserved


class OnFail(StrEnum):
    """What becomes of a row that does not meet an expectation."""

    STOP = "stop"
    DEAD_LETTER = "dead_letter"
    WARN = "warn"


ExpectationName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]


class Expectation(Model):
    """`{name: positive, sql: "amount > 0", on_fail: dead_letter}`: a condition that holds for each row that is written."""

    name: ExpectationName = Field(description="Its name in messages, snapshot summaries and metrics.")
    sql: Annotated[str, Field(min_length=1), AfterValidator(not_reserved)] = Field(
        description="Condition as Spark SQL on the columns of the table; a row for which it is null does not meet it."
    )
    on_fail: OnFail = Field(
        OnFail.STOP,
        description="A row that does not meet it stops the pipeline, and nothing of its batch is written; goes into the dead "
        "letter table; or is written and counted.",
    )


def expectation_problems(expectations: Sequence[Expectation], on_error: OnError, *, partial_updates: bool) -> list[Problem]:
    """What does not fit together."""
    problems: list[Problem] = []
    times = Counter(one.name.lower() for one in expectations)
    problems += [Problem(f"the expectation {name!r} is there twice", "expect") for name, count in times.items() if count > 1]
    for one in expectations:
        if one.on_fail is OnFail.DEAD_LETTER and on_error is not OnError.DEAD_LETTER:
            words = f"on_fail: dead_letter of the expectation {one.name!r} needs on_error: dead_letter"
            problems.append(Problem(words, "expect"))
    if expectations and partial_updates:
        words = "expect has no meaning with partial_updates: of a row only what has changed is there to be looked at"
        problems.append(Problem(words, "expect"))
    return problems
