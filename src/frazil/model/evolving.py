"""How far a table may follow its data and its sink: the options of schema and partition evolution."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator

from frazil.model.base import Model, Problem


class SchemaEvolution(StrEnum):
    """What happens when the data has another shape than the table."""

    STRICT = "strict"
    ADD_COLUMNS = "add_columns"
    TYPE_WIDEN = "type_widen"
    FULL = "full"

    @property
    def widens(self) -> bool:
        """Whether columns may be widened and made optional."""
        return self in (SchemaEvolution.TYPE_WIDEN, SchemaEvolution.FULL)


class DroppedColumns(StrEnum):
    """What becomes of a column that the data no longer has."""

    SOFT = "soft"
    HARD = "hard"


class PartitionEvolution(StrEnum):
    """What happens when the sink asks for another partitioning than the table has."""

    EVOLVE = "evolve"
    REFUSE = "refuse"


class EvolutionOptions(Model):
    """The part of a sink that says how its table may change."""

    schema_evolution: SchemaEvolution = Field(SchemaEvolution.ADD_COLUMNS, description="What may change when the data does.")
    aliases: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Earlier names of columns: `{email: mail}`, or a list of them. With schema_evolution full the table's "
        "column is renamed, and data under an earlier name is taken for the new one.",
    )
    dropped_columns: DroppedColumns = Field(
        DroppedColumns.SOFT,
        description="What becomes of a column that the data no longer has: kept, and null in new rows; "
        "or, with schema_evolution full, removed from the table.",
    )
    partition_evolution: PartitionEvolution = Field(
        PartitionEvolution.EVOLVE,
        description="Whether a table that is partitioned otherwise than the sink asks for is changed for new data, or refused.",
    )

    @field_validator("aliases", mode="before")
    @classmethod
    def _lists_of_names(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: (earlier,) if isinstance(earlier, str) else earlier for name, earlier in value.items()}

    @property
    def earlier_names(self) -> dict[str, str]:
        """The current name for each earlier name."""
        return {earlier: name for name, names in self.aliases.items() for earlier in names}

    @property
    def drops_columns(self) -> bool:
        """Whether a column that the source no longer has is dropped from the table."""
        return self.schema_evolution is SchemaEvolution.FULL and self.dropped_columns is DroppedColumns.HARD


def evolution_problems(options: EvolutionOptions, named: Iterable[tuple[str, str]]) -> list[Problem]:
    """What does not fit together. ``named`` are the columns that other options name, each with its option."""
    problems = []
    if options.schema_evolution is not SchemaEvolution.FULL:
        problems += [
            Problem(f"{name} has no meaning with schema_evolution: {options.schema_evolution}; it belongs to full", name)
            for name, given in (("aliases", bool(options.aliases)), ("dropped_columns", _is_hard(options)))
            if given
        ]
    earlier = [name for names in options.aliases.values() for name in names]
    problems += [
        Problem(f"{name!r} is an earlier name of several columns", "aliases")
        for name in dict.fromkeys(earlier)
        if earlier.count(name) > 1
    ]
    problems += [
        Problem(f"{name!r} is both a column and an earlier name of one: a name cannot be passed on", "aliases")
        for name in options.aliases
        if name in earlier
    ]
    problems += [Problem(f"aliases: {name!r} has no earlier name", "aliases") for name, old in options.aliases.items() if not old]
    names = options.earlier_names
    return problems + [
        Problem(f"{option}: {column!r} is an earlier name; write {names[column]!r}", option)
        for option, column in named
        if column in names and column not in options.aliases
    ]


def _is_hard(options: EvolutionOptions) -> bool:
    return options.dropped_columns is DroppedColumns.HARD
