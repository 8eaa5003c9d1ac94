"""Small changes of rows on their way: columns renamed, made, left out or hashed, rows left out, nested values laid flat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, SecretStr, Tag, model_validator

from frazil.errors import SourceLocation
from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.names import not_reserved

Scalar = str | int | float | bool | None

Way = tuple[str | int, ...]
"""The keys that lead to a value within a transform."""


FieldName = Annotated[str, Field(min_length=1), AfterValidator(not_reserved)]
Expression = Annotated[str, Field(min_length=1), AfterValidator(not_reserved)]


class RowTransform(Model):
    """A change of rows. It remembers its position in the user's file, which is not part of its identity."""

    type: str = Field(description="Kind of change.")

    _places: Mapping[Way, SourceLocation] = PrivateAttr(default_factory=dict)

    def placed(self, places: Mapping[Way, SourceLocation]) -> Self:
        """A copy with the places of its parts in the user's file; the empty path is the whole."""
        copy = self.model_copy()
        copy._places = places
        return copy

    def place(self, *way: str | int) -> SourceLocation | None:
        """Where a part of it stands, or what holds that."""
        while way and way not in self._places:
            way = way[:-1]
        return self._places.get(way)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__: Any  # pydantic's, of the fields


class _Fields(RowTransform):
    """A change of one column or of several."""

    field: FieldName | None = Field(None, description="Column; a path such as `customer.email` for one within a struct.")
    fields: tuple[FieldName, ...] = Field((), description="Several of them, instead of `field`.")

    @model_validator(mode="after")
    def _one_way(self) -> _Fields:
        if (self.field is None) == (not self.fields):
            raise InconsistencyError([Problem(f"{self.type} takes either field or fields")])
        return self

    @property
    def named(self) -> tuple[tuple[str, Way], ...]:
        """The columns, each with its way."""
        if self.field is not None:
            return ((self.field, ("field",)),)
        return tuple((name, ("fields", number)) for number, name in enumerate(self.fields))


class RenameField(RowTransform):
    """`{type: rename_field, from: a, to: b}`. A field of a struct is renamed (`a.b` to `a.c`), or moved (`a.b` to `b`)."""

    type: Literal["rename_field"] = Field("rename_field", description="Kind of change.")
    from_: FieldName = Field(alias="from", description="Column.")
    to: FieldName = Field(description="Its new name.")


class RemoveField(_Fields):
    """`{type: remove_field, field: a}`. A struct that has no field left is removed with its last one."""

    type: Literal["remove_field"] = Field("remove_field", description="Kind of change.")


class AddField(RowTransform):
    """`{type: add_field, field: a, value: 1}` or `{type: add_field, field: a, expression: b + 1}`."""

    type: Literal["add_field"] = Field("add_field", description="Kind of change.")
    field: FieldName = Field(description="Name of the new column; a path for one within a struct.")
    value: Scalar = Field(None, description="Its value in every row.")
    expression: Expression | None = Field(None, description="Its value as Spark SQL, instead of `value`.")

    @model_validator(mode="after")
    def _one_way(self) -> AddField:
        if ("value" in self.model_fields_set) == (self.expression is not None):
            raise InconsistencyError([Problem("add_field takes either value or expression")])
        return self


class FilterRows(RowTransform):
    """`{type: filter, field: a, equals: 1}` keeps the rows where it holds."""

    type: Literal["filter"] = Field("filter", description="Kind of change.")
    field: FieldName = Field(description="Column to look at.")
    equals: Scalar = Field(description="Value that a row must have there to be kept.")


class WhereRows(RowTransform):
    """`{type: where, condition: "a > 1 and b is not null"}` keeps the rows for which it is true."""

    type: Literal["where"] = Field("where", description="Kind of change.")
    condition: Expression = Field(description="Condition as Spark SQL; a row for which it is null is not kept.")


class SelectColumns(RowTransform):
    """`{type: select, expressions: [id, "price * amount as total", "address.*"]}`: these columns, and no others."""

    type: Literal["select"] = Field("select", description="Kind of change.")
    expressions: tuple[Expression, ...] = Field(min_length=1, description="Columns as Spark SQL; `*` stands for all there are.")


class MapFields(RowTransform):
    """`{type: map_fields, columns: {uid: user_id, city: address.city}}`: these columns, each from a field, and no others.

    Names may be exchanged. A column whose field is not there is null.
    """

    type: Literal["map_fields"] = Field("map_fields", description="Kind of change.")
    columns: dict[FieldName, FieldName] = Field(
        min_length=1,
        description="Columns by their names, each with the column that it is taken from, or a path such as `customer.email`; "
        "one that is not there is null, as text.",
    )

    @model_validator(mode="after")
    def _distinct(self) -> MapFields:
        seen: dict[str, str] = {}
        for name in self.columns:
            # Spark does not distinguish names by case.
            if (other := seen.setdefault(name.lower(), name)) != name:
                words = f"map_fields: the columns {other!r} and {name!r} have the same name, but for upper and lower case"
                raise InconsistencyError([Problem(words, "columns", name)])
        return self


class Flatten(RowTransform):
    """`{type: flatten}` makes a column of each field of a struct: `address.city` becomes `address_city`."""

    type: Literal["flatten"] = Field("flatten", description="Kind of change.")
    fields: tuple[FieldName, ...] = Field((), description="Structs to lay flat; all when left out.")
    separator: str = Field("_", min_length=1, description="What stands between the names.")
    depth: int | None = Field(None, ge=1, description="How many levels; all when left out.")


class Unnest(RowTransform):
    """`{type: unnest, field: items, as: item}` makes a row of each element of a list."""

    type: Literal["unnest"] = Field("unnest", description="Kind of change.")
    field: FieldName = Field(description="The list; a path for one within a struct.")
    as_: FieldName | None = Field(
        None, alias="as", description="Name of the column that has the element; that of the list when left out."
    )
    keep_empty: bool = Field(False, description="Whether a row stays, with null, whose list is empty or null.")


class _Mask(_Fields):
    """A change that puts something in the place of values that shows less."""

    done: ClassVar[str]
    """What is done to the values, in messages."""
    distinguishes: ClassVar[bool] = False
    """Whether different values stay different, so that what identified a row still does."""

    @property
    def secret(self) -> SecretStr | None:
        """What nobody must know who is not to know the values."""
        return None


class HashFields(_Mask):
    """`{type: hash_field, field: email, salt: "${SALT}"}` puts a salted hash in the place of a value; null stays null."""

    type: Literal["hash_field"] = Field("hash_field", description="Kind of change.")
    algorithm: Literal["sha256", "sha512", "xxhash64"] = Field(
        "sha256",
        description="`sha256` and `sha512` make a text of hexadecimal digits; `xxhash64` a `long`, which protects less.",
    )
    salt: SecretStr = Field(min_length=8, description="Secret text that is hashed before each value.")

    done = "hashed"
    distinguishes = True

    @property
    def secret(self) -> SecretStr:
        """The salt."""
        return self.salt


class TokenizeFields(_Mask):
    """`{type: tokenize_field, field: email, key: "${KEY}"}` puts a token in the place of a value, by AES-256.

    Equal values have equal tokens; who knows the key can turn a token back into the value's text. Null stays null.
    """

    type: Literal["tokenize_field"] = Field("tokenize_field", description="Kind of change.")
    key: SecretStr = Field(min_length=16, description="Secret text from which the key of the encryption is made.")

    done = "tokenized"
    distinguishes = True

    @property
    def secret(self) -> SecretStr:
        """The key."""
        return self.key


class RedactFields(_Mask):
    """`{type: redact_field, field: name}` makes a value null; `keep_last: 4` makes a text one of stars, but for its end."""

    type: Literal["redact_field"] = Field("redact_field", description="Kind of change.")
    with_: str | None = Field(None, alias="with", description="Text in the place of each text; null when left out.")
    keep_first: int = Field(
        0, ge=0, le=100, description="Characters at the beginning of a text that stay; the others become `*`."
    )
    keep_last: int = Field(
        0, ge=0, le=100, description="Characters at its end that stay. A text that is not longer becomes stars as a whole."
    )

    done = "redacted"

    @property
    def keeps(self) -> bool:
        """Whether a part of each value stays."""
        return self.keep_first + self.keep_last > 0

    @model_validator(mode="after")
    def _one_form(self) -> RedactFields:
        if self.with_ is not None and self.keeps:
            raise InconsistencyError([Problem("redact_field takes either with, or keep_first and keep_last", "with")])
        return self


class TruncateFields(_Mask):
    """`{type: truncate_field, field: postcode, length: 3}` keeps the beginning of a value; numbers have `width`, times `unit`."""

    type: Literal["truncate_field"] = Field("truncate_field", description="Kind of change.")
    length: int | None = Field(None, ge=1, description="Characters of a text that stay.")
    width: int | None = Field(None, ge=1, description="A number becomes the next lower multiple of this one.")
    unit: Literal["year", "quarter", "month", "week", "day", "hour", "minute", "second"] | None = Field(
        None, description="A date or timestamp becomes the beginning of its year, its month and so on."
    )

    done = "truncated"

    @property
    def means(self) -> str:
        """The option that says how."""
        return next(name for name in ("length", "width", "unit") if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _one_way_to_truncate(self) -> TruncateFields:
        if [self.length, self.width, self.unit].count(None) != 2:
            raise InconsistencyError([Problem("truncate_field takes one of length, width and unit")])
        return self


MaskFields = HashFields | TokenizeFields | RedactFields | TruncateFields


class UnwrapDebezium(RowTransform):
    """`{type: unwrap_debezium}` puts the rows that Debezium's envelopes tell of in their place, with what is done to them."""

    type: Literal["unwrap_debezium"] = Field("unwrap_debezium", description="Kind of change.")
    keys: tuple[FieldName, ...] = Field(
        (),
        description="Columns that identify a row, as the envelopes call them: one whose key changed leaves its old place. "
        "Those of the messages' keys when left out, or else the sink's key_fields.",
    )
    add: dict[FieldName, FieldName] = Field(
        default_factory=dict, description="Columns from the envelope itself: `{lsn: source.lsn, changed_ms: ts_ms}`."
    )


TRANSFORMS: tuple[type[RowTransform], ...] = (
    RenameField,
    RemoveField,
    AddField,
    FilterRows,
    WhereRows,
    SelectColumns,
    MapFields,
    Flatten,
    Unnest,
    HashFields,
    TokenizeFields,
    RedactFields,
    TruncateFields,
    UnwrapDebezium,
)


def _tag(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) else None


TransformSpec = Annotated[
    Annotated[RenameField, Tag("rename_field")]
    | Annotated[RemoveField, Tag("remove_field")]
    | Annotated[AddField, Tag("add_field")]
    | Annotated[FilterRows, Tag("filter")]
    | Annotated[WhereRows, Tag("where")]
    | Annotated[SelectColumns, Tag("select")]
    | Annotated[MapFields, Tag("map_fields")]
    | Annotated[Flatten, Tag("flatten")]
    | Annotated[Unnest, Tag("unnest")]
    | Annotated[HashFields, Tag("hash_field")]
    | Annotated[TokenizeFields, Tag("tokenize_field")]
    | Annotated[RedactFields, Tag("redact_field")]
    | Annotated[TruncateFields, Tag("truncate_field")]
    | Annotated[UnwrapDebezium, Tag("unwrap_debezium")],
    Discriminator(_tag),
]
