"""Small changes of rows on their way: the four that the pipeline file knows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from frazil.model.base import Model

Scalar = str | int | float | bool | None


class RenameField(Model):
    """`{type: rename_field, from: a, to: b}`."""

    type: Literal["rename_field"] = Field("rename_field", description="Kind of change.")
    from_: str = Field(alias="from", min_length=1, description="Column.")
    to: str = Field(min_length=1, description="Its new name.")


class RemoveField(Model):
    """`{type: remove_field, field: a}`."""

    type: Literal["remove_field"] = Field("remove_field", description="Kind of change.")
    field: str = Field(min_length=1, description="Column to leave out.")


class AddField(Model):
    """`{type: add_field, field: a, value: 1}`."""

    type: Literal["add_field"] = Field("add_field", description="Kind of change.")
    field: str = Field(min_length=1, description="Name of the new column.")
    value: Scalar = Field(description="Its value in every row.")


class FilterRows(Model):
    """`{type: filter, field: a, equals: 1}` keeps the rows where it holds."""

    type: Literal["filter"] = Field("filter", description="Kind of change.")
    field: str = Field(min_length=1, description="Column to look at.")
    equals: Scalar = Field(description="Value that a row must have there to be kept.")


def _tag(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) else None


TransformSpec = Annotated[
    Annotated[RenameField, Tag("rename_field")]
    | Annotated[RemoveField, Tag("remove_field")]
    | Annotated[AddField, Tag("add_field")]
    | Annotated[FilterRows, Tag("filter")],
    Discriminator(_tag),
]
