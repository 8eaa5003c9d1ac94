"""One stream into many tables: what a row belongs to, and which tables there are."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.names import NOT_IN_FOLDERS, folder_problem

LEDGER = "frazil__ledger"


class UnknownRoute(StrEnum):
    """What becomes of rows whose value no table is declared for."""

    CREATE = "create"
    REFUSE = "refuse"
    DEAD_LETTER = "dead_letter"


class RouteSpec(Model):
    """How rows find their tables. Exactly one of ``field``, ``expression``, ``header`` and ``source`` decides."""

    field: str | None = Field(None, min_length=1, description="Column whose value decides; a path reaches into structs.")
    expression: str | None = Field(None, min_length=1, description="A Spark SQL expression whose value decides.")
    header: str | None = Field(None, min_length=1, description="Header of a Kafka message whose value decides.")
    source: bool = Field(False, description="Where the row comes from decides: the topic, or the table of a database.")
    tables: dict[str, str | dict[str, Any]] = Field(
        default_factory=dict,
        description="The table of each value: its name, or options of the sink that are different for it, with `table`.",
    )
    name: str = Field("{value}", description="Name of the table of a value that `tables` does not list; `{value}` stands for it.")
    unknown: UnknownRoute = Field(
        UnknownRoute.CREATE,
        description="A value that `tables` does not list: its table is made, or used when it is there; the pipeline stops; "
        "or its rows become dead letters.",
    )
    remove_field: bool = Field(False, description="Whether the column that decides is left out of the tables.")
    every_table: bool = Field(
        False,
        description="Whether each batch goes into all tables of `tables`, also those that it has no rows for: with overwrite, "
        "such a table is emptied.",
    )
    atomic: bool = Field(
        False,
        description="Whether a batch becomes visible in all its tables at once. It needs a SQL catalog, or a REST catalog that "
        "offers multi-table transactions.",
    )
    parallel: int = Field(4, ge=1, le=64, description="How many tables are written at the same time.")
    ledger_table: str = Field(LEDGER, min_length=1, description="Table, in the sink's namespace, that keeps how far the sink is.")

    @model_validator(mode="after")
    def _consistent(self) -> RouteSpec:
        if problems := list(_problems(self)):
            raise InconsistencyError(problems)
        return self

    @property
    def decides(self) -> str:
        """What decides, for people."""
        if self.field is not None:
            return f"column {self.field!r}"
        if self.expression is not None:
            return f"expression {self.expression!r}"
        return f"header {self.header!r}" if self.header is not None else "source"

    def table_of(self, value: str) -> str | None:
        """The name of a value's table; None when the value is not known and no table is to be made for it."""
        given = self.tables.get(value)
        if isinstance(given, str):
            return given
        if given is not None:
            return str(given.get("table", value))
        if self.unknown is not UnknownRoute.CREATE:
            return None
        return self.name.replace("{value}", name_of(value))

    def options_of(self, table: str) -> dict[str, Any]:
        """The options that are different for a table."""
        for value, given in self.tables.items():
            if isinstance(given, dict) and given.get("table", value) == table:
                return {key: option for key, option in given.items() if key != "table"}
        return {}


def name_of(value: str) -> str:
    """The part of a table's name that a value becomes: it must choose neither a namespace, nor a folder."""
    return value.translate(dict.fromkeys(map(ord, f".{NOT_IN_FOLDERS}"), "_"))


def _problems(route: RouteSpec) -> list[Problem]:
    ways = {
        "field": route.field is not None,
        "expression": route.expression is not None,
        "header": route.header is not None,
        "source": route.source,
    }
    given = [name for name, used in ways.items() if used]
    problems = []
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "none is given"
        problems.append(Problem(f"exactly one of {', '.join(ways)} decides the table of a row; {said}", *given[:1]))
    if route.remove_field and route.field is None:
        problems.append(Problem("remove_field has no meaning without field", "remove_field"))
    if route.unknown is not UnknownRoute.CREATE and "name" in route.model_fields_set:
        problems.append(Problem(f"name has no meaning with unknown: {route.unknown}", "name"))
    if route.every_table and not route.tables:
        problems.append(Problem("every_table needs tables: no others are known beforehand", "every_table"))
    if route.unknown is not UnknownRoute.CREATE and not route.tables:
        problems.append(Problem(f"unknown: {route.unknown} needs tables: no row would find one", "unknown"))
    if "." in route.name:
        problems.append(Problem(f"name has a dot, {route.name!r}: all tables of a route are in the sink's namespace", "name"))
    if problem := folder_problem(route.name):
        problems.append(Problem(f"name cannot be {route.name!r}: {problem}", "name"))
    if problem := folder_problem(route.ledger_table):
        problems.append(Problem(f"ledger_table cannot be {route.ledger_table!r}: {problem}", "ledger_table"))
    for value in route.tables:
        problems += [Problem(problem, "tables", value) for problem in _name_problems(route, value)]
    names = [given if isinstance(given, str) else given.get("table", value) for value, given in route.tables.items()]
    with_options = [given.get("table", value) for value, given in route.tables.items() if isinstance(given, dict)]
    problems += [
        Problem(f"the table {name!r} has options in one entry and stands in another: write its values as one entry", "tables")
        for name in dict.fromkeys(with_options)
        if names.count(name) > 1
    ]
    return problems


def _name_problems(route: RouteSpec, value: str) -> list[str]:
    """What is wrong with the name of a table that is listed."""
    name = route.table_of(value) or ""
    if "." in name:
        return [
            f"the table of {value!r} has a dot, {name!r}: all tables of a route are in the sink's namespace; give it one without"
        ]
    if problem := folder_problem(name):
        return [f"the table of {value!r} cannot be {name!r}: {problem}"]
    if name.lower() == route.ledger_table.lower():
        return [f"the table of {value!r} is {name}, which keeps how far the sink is and takes no rows"]
    return []
