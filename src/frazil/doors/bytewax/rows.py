"""Rows that are Python dictionaries, as Arrow tables of the declared columns.

Nothing is rounded, cut off or guessed: a value that does not fit its column is reported with the field's name. Arrow itself
would make 1 of 1.5, a date of a time, and leave out fields of a struct that it does not know.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context
from decimal import Decimal as Number
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.doors.bytewax.schema import arrow_type, to_arrow
from frazil.errors import DataError
from frazil.model.coercion import MICROS, EpochUnit
from frazil.model.types import Column, Decimal, Fixed, ListType, MapType, StructType, Type

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# More digits than any decimal of Iceberg has.
_EXACT = Context(prec=400)
# Kinds of NumPy's scalars: truth values, whole numbers and floats. Its times are others: they have units.
_NUMBERS = "biuf"
_BOUNDS = {"int": 2**31, "long": 2**63}
# What is beyond would be rounded to infinity.
_LARGEST = {"float": 3.4028235677973366e38, "double": sys.float_info.max}

# Types whose every value goes into a column of the type as it is: most columns hold nothing else, and are not looked at by value.
_PLAIN: dict[str, frozenset[type]] = {
    "boolean": frozenset({bool}),
    "double": frozenset({float}),
    "string": frozenset({str}),
    "date": frozenset({dt.date}),
    "binary": frozenset({bytes}),
}


class Misfit(Exception):
    """A value that does not fit its column, and why. ``where``: the place of the value inside the column's, e.g. ``a.b[0]``."""

    def __init__(self, why: str, where: str = "") -> None:
        super().__init__(f"in {where.removeprefix('.')}, {why}" if where else why)
        self.why, self.where = why, where


@dataclass(frozen=True)
class RowRules:
    """How values are read. ``refuse_extra``: a field of a struct that the schema does not have is an error."""

    unit: EpochUnit = EpochUnit.MILLIS
    refuse_extra: bool = False


@dataclass(frozen=True)
class RowMaker:
    """Makes Arrow tables of dictionaries.

    ``refuse_extra``: a field that the table does not have is an error, and otherwise left out. With an ``error_column`` a row
    with a wrong value is kept, with null for the value, what is wrong there, and the row as JSON in the ``raw_column``.
    """

    columns: StructType
    refuse_extra: bool = False
    error_column: str | None = None
    raw_column: str | None = None
    unit: EpochUnit = EpochUnit.MILLIS

    def table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """The rows as Arrow; a DataError with the field's name when one does not fit."""
        if self.refuse_extra:
            self._require_known(rows)
        errors: dict[int, list[str]] = {}
        arrays = {column.name: self._array(column, rows, errors) for column in self.columns.fields}
        if errors:
            for name, values in ((self.error_column, self._texts(errors)), (self.raw_column, self._raws(errors, rows))):
                if name is not None:
                    had = arrays[name]
                    arrays[name] = pa.array([values.get(n, had[n].as_py()) for n in range(len(rows))], pa.string())
        return pa.table(list(arrays.values()), schema=to_arrow(self.columns))

    def _array(self, column: Column, rows: Sequence[Mapping[str, Any]], errors: dict[int, list[str]]) -> pa.Array:
        values: list[Any] = [row.get(column.name) for row in rows]
        if not _all_plain(column.type, values):
            values = [self._fitted(column, value, n, errors) for n, value in enumerate(values)]
        if column.required and None in values:
            raise _error(column, "it is required, and a row has no value for it", "required-null")
        return pa.array(values, arrow_type(column.type))

    def _fitted(self, column: Column, value: Any, number: int, errors: dict[int, list[str]]) -> Any:
        try:
            return None if value is None else fitted(value, column.type, RowRules(self.unit, self.refuse_extra))
        except Misfit as misfit:
            if self.error_column is None or column.required:
                raise _error(column, str(misfit), "value-not-convertible") from None
            errors.setdefault(number, []).append(f"{column.name}: {misfit}")
            return None

    def _texts(self, errors: Mapping[int, list[str]]) -> dict[int, str]:
        return {number: "; ".join(messages) for number, messages in errors.items()}

    def _raws(self, errors: Iterable[int], rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        return {number: raw_text(rows[number]) for number in errors}

    def _require_known(self, rows: Sequence[Mapping[str, Any]]) -> None:
        known = {column.name for column in self.columns.fields}
        for row in rows:
            if extra := sorted(str(name) for name in row if name not in known):
                raise DataError(
                    "field-unknown",
                    f"A row has the field {extra[0]!r}, which is not in the schema: {', '.join(sorted(known))}.",
                    fix="Leave it out (fields of the partition spec are computed, not given), or set extra_columns to ignore.",
                )


def _all_plain(kind: Type, values: Sequence[Any]) -> bool:
    """Whether all values go into a column of the type as they are."""
    present = [value for value in values if value is not None]
    plain = _PLAIN.get(kind.name)
    if plain is None or not {type(value) for value in present} <= plain:
        return False
    return kind.name != "string" or is_writable("".join(present))


def _error(column: Column, why: str, code: str) -> DataError:
    kept = (
        ": the column is required, so that the row cannot be kept without it."
        if column.required
        else ", or name an error_column in extra_options to keep such rows."
    )
    return DataError(
        code, f"The field {column.name!r} ({column.type}): {why}.", fix=f"Correct it in the step before the sink{kept}"
    )


def is_writable(text: str) -> bool:
    """Whether a text has a form in UTF-8: half a character, which JSON and Python let pass, has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_json(value: Any) -> str:
    """A nested value as the text that a string column takes; times in ISO 8601, what JSON does not know as its text.

    A Misfit where that cannot be: NaN, infinity, keys that are neither texts nor numbers, something that is inside itself.
    """

    def written(*, ascii_only: bool) -> str:
        return json.dumps(value, default=_plain, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))

    try:
        text = written(ascii_only=False)
        # JSON has a way to write half a character down.
        return text if is_writable(text) else written(ascii_only=True)
    except (TypeError, ValueError) as error:
        raise Misfit(f"{_shown(value)} cannot be JSON: {error}") from None


def raw_text(value: Any) -> str:
    """Whatever came, as JSON, to be looked at by somebody: a field that cannot be JSON as Python writes it."""
    try:
        return as_json(value)
    except Misfit:
        return as_json({str(name): _or_repr(item) for name, item in value.items()} if isinstance(value, Mapping) else repr(value))


def _or_repr(value: Any) -> Any:
    try:
        as_json(value)
    except Misfit:
        return repr(value)
    return value


def _plain(value: Any) -> Any:
    match value:
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return dict(value)
        case set() | frozenset() | tuple():
            return list(value)
        case np.generic() if value.dtype.kind in _NUMBERS:
            return value.item()
        case _:
            return str(value)


def _own(value: Any) -> Any:
    """NumPy's truth values and numbers as Python's own, which have the same values."""
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS else value


def moment(value: Any, unit: EpochUnit = EpochUnit.MILLIS) -> dt.datetime:
    """A moment in UTC: a datetime, in UTC where it does not say, or a number since 1970."""
    value = _own(value)
    if isinstance(value, dt.datetime):
        try:
            return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
        except OverflowError:
            raise Misfit(f"{_shown(value)} is in UTC not a moment that there is a date for") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misfit(f"{_shown(value)} is neither a datetime nor a whole number of {unit.value} since 1970")
    micros, rest = (value * MICROS[unit], 0) if unit is not EpochUnit.NANOS else divmod(value, 1000)
    if rest:
        raise Misfit(f"{value} nanoseconds are not a whole number of microseconds")
    try:
        return EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        raise Misfit(f"{value} {unit.value} since 1970 are not a moment that there is a date for") from None


def fitted(value: Any, kind: Type, rules: RowRules) -> Any:
    """The value as Arrow takes it without loss; a Misfit when there is none."""
    value = _own(value)
    match kind:
        case StructType():
            return _struct(value, kind, rules)
        case ListType():
            if not isinstance(value, list | tuple):
                raise Misfit(f"{_shown(value)} is not a list")
            inside = (kind.element, kind.element_required, rules)
            return [_inside(item, f"[{number}]", *inside) for number, item in enumerate(value)]
        case MapType():
            if not isinstance(value, Mapping):
                raise Misfit(f"{_shown(value)} is not a dictionary")
            return [
                (_inside(key, ".key", kind.key, True, rules), _inside(item, f"[{key!r}]", kind.value, kind.value_required, rules))
                for key, item in value.items()
            ]
        case Decimal():
            return _decimal(value, kind)
        case Fixed():
            if not isinstance(value, bytes) or len(value) != kind.length:
                raise Misfit(f"{_shown(value)} is not {kind.length} bytes")
            return value
        case _:
            return _READERS[kind.name](value, rules.unit)


def _inside(value: Any, where: str, kind: Type, required: bool, rules: RowRules) -> Any:
    """A value inside another."""
    if value is None:
        if required:
            raise Misfit("a value is required, and there is none", where)
        return None
    try:
        return fitted(value, kind, rules)
    except Misfit as misfit:
        raise Misfit(misfit.why, where + misfit.where) from None


def _struct(value: Any, kind: StructType, rules: RowRules) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Misfit(f"{_shown(value)} is not a dictionary")
    extra = [name for name in value if kind.column(str(name)) is None] if rules.refuse_extra else []
    if extra:
        raise Misfit(f"there is no field {extra[0]!r}")
    return {
        column.name: _inside(value.get(column.name), f".{column.name}", column.type, column.required, rules)
        for column in kind.fields
    }


def _decimal(value: Any, kind: Decimal) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | Number):
        raise Misfit(f"{_shown(value)} is neither a Decimal nor a whole number")
    number = Number(value)
    if not number.is_finite():
        raise Misfit(f"{value} is not a number with digits")
    if number and (abs(number.adjusted()) > _EXACT.prec or len(number.as_tuple().digits) > _EXACT.prec):
        raise Misfit(f"{_shown(value)} does not fit into {kind} without loss")
    scaled = number.scaleb(kind.scale, _EXACT)
    if scaled != scaled.to_integral_value(context=_EXACT) or scaled.copy_abs() >= 10**kind.precision:
        raise Misfit(f"{_shown(value)} does not fit into {kind} without loss")
    # Zeros at its end, of which there may be more than Arrow takes digits, are left out.
    return Number(int(scaled)).scaleb(-kind.scale, _EXACT)


def _integer(name: str) -> Callable[[Any, EpochUnit], int]:
    def read(value: Any, _: EpochUnit) -> int:
        whole = isinstance(value, float) and value.is_integer()
        if isinstance(value, bool) or not (isinstance(value, int) or whole):
            raise Misfit(f"{_shown(value)} is not a whole number")
        if not -_BOUNDS[name] <= value < _BOUNDS[name]:
            raise Misfit(f"{value} is too large for {name}")
        return int(value)

    return read


def _real(name: str) -> Callable[[Any, EpochUnit], float]:
    def read(value: Any, _: EpochUnit) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Number):
            raise Misfit(f"{_shown(value)} is not a number")
        try:
            number = float(value)
        except OverflowError:
            raise Misfit(f"{_shown(value)} is too large for {name}") from None
        except ValueError:
            raise Misfit(f"{_shown(value)} is a signaling NaN, which no {name} can be") from None
        finite = value.is_finite() if isinstance(value, Number) else math.isfinite(value)
        if finite and abs(number) > _LARGEST[name]:
            raise Misfit(f"{_shown(value)} is too large for {name}")
        if isinstance(value, int) and int(_single(number) if name == "float" else number) != value:
            raise Misfit(f"{value} is too large to be a {name} without loss")
        return number

    return read


def _single(number: float) -> float:
    """The number that a column of 32 bits holds."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _string(value: Any, _: EpochUnit) -> str:
    match value:
        case str():
            if not is_writable(value):
                raise Misfit(f"{_shown(value)} has half a character in it, which a text cannot have")
            return value
        case uuid.UUID():
            return str(value)
        case Mapping() | list() | tuple():
            return as_json(value)
        case _:
            raise Misfit(f"{_shown(value)} is not a text")


def _uuid(value: Any, _: EpochUnit) -> str:
    try:
        return str(
            value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=value) if isinstance(value, bytes) else uuid.UUID(value)
        )
    except (ValueError, AttributeError, TypeError):
        raise Misfit(f"{_shown(value)} is not a UUID") from None


def _date(value: Any, _: EpochUnit) -> dt.date:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise Misfit(f"{_shown(value)} is not a date")
    return value


def _boolean(value: Any, _: EpochUnit) -> bool:
    if not isinstance(value, bool):
        raise Misfit(f"{_shown(value)} is neither True nor False")
    return value


def _binary(value: Any, _: EpochUnit) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Misfit(f"{_shown(value)} is not bytes")
    return bytes(value)


def _local(value: Any, unit: EpochUnit) -> dt.datetime:
    return moment(value, unit).replace(tzinfo=None)


_READERS: dict[str, Callable[[Any, EpochUnit], Any]] = {
    "boolean": _boolean,
    "int": _integer("int"),
    "long": _integer("long"),
    "float": _real("float"),
    "double": _real("double"),
    "date": _date,
    "timestamp": _local,
    "timestamptz": moment,
    "string": _string,
    "uuid": _uuid,
    "binary": _binary,
}


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else f'{text[:57]}...'} ({type(value).__name__})"
