"""Records of a topic as rows: their values, keys and metadata as columns, and what is wrong with those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, NumericType, StringType, StructField, StructType

from frazil.columns.coerce import JSON_OPTIONS, Casting, converted
from frazil.columns.types import iceberg_schema
from frazil.errors import ConfigError
from frazil.model.coercion import CoercionOptions
from frazil.model.format import BytesFormat, MessageOptions, Metadata, RawFormat, StringFormat
from frazil.model.hidden import (
    CHANGES_MARK,
    ERROR,
    ERROR_TYPE,
    HIDDEN,
    KEY_COUNT_MARK,
    KEY_MARK,
    KEYS_MARK,
    OP,
    ORDER,
    ORIGIN,
    UNCHANGED,
    VALUE_MARK,
)
from frazil.model.types import StructType as TableStruct
from frazil.sources.decode.parts import Expecting, Format, column, fault, fault_of, field, fields_of, first_fault, once, utf8

_VALUE, _KEY = f"{HIDDEN}value_read", f"{HIDDEN}key_read"
_NESTED = (StructType, ArrayType, MapType)
_OWN = (ERROR, OP, ORDER, ORIGIN, UNCHANGED)


class Messages:
    """Turns records into rows. The formats inside keep what they learned from batch to batch."""

    def __init__(self, options: MessageOptions, value: Format | None, key: Format | None) -> None:
        self._options = options
        self._value = value
        self._key = key
        self._tombstones = options.tombstones or ("delete" if key is not None else "ignore")
        self._enveloped = options.enveloped

    def check(self) -> None:
        """Raises a FrazilError when something that a format needs, such as a registry, cannot be had."""
        for one in (self._value, self._key):
            if one is not None:
                one.check()

    def expect(self, columns: TableStruct, *, exactly: bool) -> None:
        """The table's columns; those of a value are inside it where a row is a key and a value."""
        if not isinstance(self._value, Expecting):
            return
        kind = next((one.type for one in columns.fields if one.name == "value"), None) if self._options.key_and_value else columns
        if isinstance(kind, TableStruct):
            self._value.expect(kind, exactly=exactly)

    def decode(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame of records, one each. Hidden columns are kept; a bad record has its fault in one of them."""
        hidden = [name for name in frame.columns if name.startswith(HIDDEN)]
        if isinstance(self._options.format, RawFormat) or self._value is None:
            return self._raw(frame, hidden)
        if self._options.empty_is_none:
            frame = frame.withColumn("value", sf.when(sf.length("value") > 0, column("value")))
        frame = self._value.parse(frame, "value", _VALUE)
        if self._key is not None:
            frame = self._key.parse(frame, "key", _KEY)
        frame = frame.withColumn(ERROR, self._error(frame, hidden))
        clashes = not self._options.key_and_value and self._clashing(frame)
        fallible = [_VALUE, _KEY] if self._key is not None else [_VALUE] if clashes else []
        for name in fallible:
            frame = frame.withColumn(name, sf.when(column(ERROR).isNull(), column(name)))
        columns = self._pair() if self._options.key_and_value else self._flat(frame)
        if columns:
            columns |= self._metadata(columns)
        marks = self._marks(frame)
        data = [value.alias(name, metadata=marks.get(name)) for name, value in columns.items()]
        return frame.select(*data, *self._hidden(frame, hidden))

    def _raw(self, frame: DataFrame, hidden: list[str]) -> DataFrame:
        """The record as Bizon has it. Bytes that are no text are written in base64."""
        headers = sf.transform(
            column("headers"), lambda one: sf.struct(one["key"].alias("key"), _readable(one["value"]).alias("value"))
        )
        columns: dict[str, Column] = {
            "topic": column("topic"),
            "offset": column("offset"),
            "partition": column("partition"),
            "timestamp": column("timestamp"),
            "keys": _readable(column("key")),
            "headers": headers,
            "value": _readable(column("value")),
        }
        columns |= self._metadata(columns)
        error = column(ERROR) if ERROR in hidden else sf.lit(None).cast(ERROR_TYPE)
        others = [column(name) for name in hidden if name != ERROR]
        return frame.select(*(value.alias(name) for name, value in columns.items()), *others, error.alias(ERROR))

    def _error(self, frame: DataFrame, hidden: list[str]) -> Column:
        known = [column(ERROR)] if ERROR in hidden else []
        known.append(column(fault_of(_VALUE)))
        if self._key is not None:
            wrong = column(fault_of(_KEY))
            text = sf.concat(sf.lit("key: "), field(wrong, "text"))
            known.append(sf.when(wrong.isNotNull(), wrong.withField("text", text)))
            if not self._options.key_and_value and not self._enveloped and self._tombstones == "delete":
                nobody = column("value").isNull() & column("key").isNull()
                known.append(first_fault([(nobody, fault("message-empty", "the record has neither a key nor a value"))]))
            known.append(first_fault(self._misfits(frame)))
        if not self._options.key_and_value:
            known.append(first_fault(self._clashes(frame)))
        if not self._enveloped and not self._options.key_and_value and self._tombstones == "error":
            absent = column(_VALUE).isNull() & column(fault_of(_VALUE)).isNull()
            known.append(first_fault([(absent, fault("message-empty", "the record has no value"))]))
        return sf.coalesce(*known)

    def _pair(self) -> dict[str, Column]:
        return {"key": column(_KEY), "value": column(_VALUE)}

    def _flat(self, frame: DataFrame) -> dict[str, Column]:
        clashing = self._clashing(frame)
        columns = {one.name: field(column(_VALUE), one.name) for one in fields_of(frame, _VALUE) if one.name not in clashing}
        for one in self._key_fields(frame):
            name = (self._options.key_prefix or "") + one.name
            if name not in columns:
                columns[name] = field(column(_KEY), one.name)
        return columns | {name: sf.coalesce(columns[name], made) for name, (_, made) in self._fillings(frame).items()}

    def _marks(self, frame: DataFrame) -> dict[str, dict[str, bool]]:
        """What is known of columns, where a record without a value deletes its row: it has those of the key alone."""
        if not self._options.deletes_by_key:
            return {}
        of_value = {one.name: {VALUE_MARK: True} for one in fields_of(frame, _VALUE)}
        of_key = {(self._options.key_prefix or "") + one.name: {KEY_MARK: True} for one in self._key_fields(frame)}
        return of_value | of_key

    def _key_fields(self, frame: DataFrame) -> list[StructField]:
        """The fields of the key that are columns. What is in the key of an envelope is in its row as well."""
        beside = self._key is not None and (not self._enveloped or self._options.key_prefix)
        return fields_of(frame, _KEY) if beside else []

    def _fillings(self, frame: DataFrame) -> dict[str, tuple[Column, Column]]:
        """The key's fields that stand in where the value lacks them: each as it is, and as the value's type."""
        kinds = {one.name: one.dataType for one in fields_of(frame, _VALUE)}
        made: dict[str, tuple[Column, Column]] = {}
        for one in self._key_fields(frame):
            name = (self._options.key_prefix or "") + one.name
            if name not in kinds or self._is_apart(one, kinds[name]):
                continue
            given = field(column(_KEY), one.name)
            made[name] = (given, _as_type(given, one.dataType, kinds[name]))
        return made

    def _is_apart(self, key: StructField, value: DataType) -> bool:
        """Whether a field of the key cannot stand in for the value's field of its name."""
        # Only a key with fields can be a part of the value: `value` of a text is the name of nothing.
        alone = isinstance(self._options.key_format, StringFormat | BytesFormat)
        nested = key.dataType != value and any(isinstance(kind, _NESTED) for kind in (key.dataType, value))
        return bool(self._options.key_prefix) or alone or nested

    def _clashing(self, frame: DataFrame) -> dict[str, str]:
        """The fields of the value that have the name of a column beside it, each with the option that names that one.

        Where the fields are declared that is a mistake in the declaration; where messages bring them, one of the message.
        """
        prefix = self._options.key_prefix or ""
        keys = {f"{prefix}{one.name}".lower(): one for one in self._key_fields(frame)}
        found: dict[str, str] = {}
        for one in fields_of(frame, _VALUE):
            key = keys.get(one.name.lower())
            if key is not None and (f"{prefix}{key.name}" != one.name or self._is_apart(key, one.dataType)):
                found[one.name] = "key_prefix"
            if one.name.lower() in self._metadata_names:
                found[one.name] = "metadata_prefix"
        if found and not self._options.finds_columns:
            raise _exists(*next(iter(found.items())))
        return found

    def _clashes(self, frame: DataFrame) -> Iterator[tuple[Column, Column]]:
        for name, option in self._clashing(frame).items():
            error = _exists(name, option)
            yield field(column(_VALUE), name).isNotNull(), fault("column-exists", f"{error.message} {error.fix}")

    @property
    def _metadata_names(self) -> dict[str, Metadata]:
        """The columns of what a record has beside its value, in lower case."""
        prefix = "kafka_" if self._options.metadata_prefix is None else self._options.metadata_prefix
        return {f"{prefix}{one.value}".lower(): one for one in self._options.metadata}

    def _misfits(self, frame: DataFrame) -> Iterator[tuple[Column, Column]]:
        """Keys whose fields are to stand in for the value's, and are no values of their types."""
        if self._options.key_and_value:
            return
        kinds = {one.name: one.dataType for one in fields_of(frame, _KEY)}
        for name, (given, made) in self._fillings(frame).items():
            if made is given:
                continue
            # A number that is cut off is another one.
            same = made.try_cast(kinds[name]) == given if isinstance(kinds[name], NumericType) else made.isNotNull()
            wrong = field(column(_VALUE), name).isNull() & given.isNotNull() & ~sf.coalesce(same, sf.lit(False))
            text = sf.concat(sf.lit(f"key: the field {name!r} is not what the value has under this name: "), given.cast("string"))
            yield wrong, fault("key-misfit", text)

    def _metadata(self, columns: dict[str, Column]) -> dict[str, Column]:
        prefix = "kafka_" if self._options.metadata_prefix is None else self._options.metadata_prefix
        made: dict[str, Column] = {}
        for one in self._options.metadata:
            name = f"{prefix}{one.value}"
            if name in columns:
                raise _exists(name, "metadata_prefix")
            # A bad record has only hidden columns.
            value = self._metadata_value(one)
            made[name] = sf.when(column(ERROR).isNull(), value) if self._value is not None else value
        return made

    def _metadata_value(self, one: Metadata) -> Column:
        if one is not Metadata.JSON:
            return column(one.value)
        return _readable(column("value")) if self._value is None else sf.to_json(column(_VALUE), JSON_OPTIONS)

    def _hidden(self, frame: DataFrame, given: list[str]) -> list[Column]:
        kept = [column(name) for name in given if name not in _OWN]
        for name in (ORIGIN, UNCHANGED):
            if name in frame.columns:
                kept.append(column(name))
        if ORDER in frame.columns:
            kept.append(column(ORDER))
        elif "offset" in frame.columns:
            kept.append(sf.struct(column("offset").alias("offset")).alias(ORDER))
        if self._enveloped:
            keys = [one.name for one in fields_of(frame, _KEY)] if self._options.tells_keys else []
            kept.append(column(OP).alias(OP, metadata={KEYS_MARK: keys}))
        elif not self._options.key_and_value:
            gone = column(_VALUE).isNull() & column(ERROR).isNull()
            deletes = self._tombstones == "delete"
            op = sf.when(gone, "delete" if deletes else "ignore").otherwise("update")
            # Where no key could be read yet, nothing is known of its columns.
            count = len(self._key_fields(frame))
            marks = {CHANGES_MARK: True} | ({KEY_COUNT_MARK: count} if count else {})
            kept.append(op.alias(OP, metadata=marks if deletes else None))
        return [*kept, once(column(ERROR)).alias(ERROR)]


def _readable(value: Column) -> Column:
    return sf.coalesce(utf8(value), sf.base64(value))


def _as_type(given: Column, kind: DataType, wanted: DataType) -> Column:
    """A field of the key as the type of the value's. A text is read as anywhere else: Spark's cast would round a number."""
    if kind == wanted:
        return given
    if not isinstance(kind, StringType):
        return given.try_cast(wanted)
    text, table = iceberg_schema(StructType([StructField("text", kind), StructField("table", wanted)])).fields
    return converted(given, text.type, table.type, "", Casting(CoercionOptions(), collects=True)).value


def _exists(name: str, option: str) -> ConfigError:
    part = "key" if option == "key_prefix" else "metadata"
    return ConfigError(
        "column-exists",
        f"The column {name!r}, which comes from the record's {part}, is in its value already.",
        fix=f"Set {option} to something that no column begins with.",
    )
