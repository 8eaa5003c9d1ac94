"""Formats of messages: how the bytes of a record become columns."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from frazil.model.base import InconsistencyError, Model, Problem
from frazil.model.hidden import HIDDEN
from frazil.model.sink import ColumnSpec, columns_by_name


class Inference(StrEnum):
    """Where the columns of JSON messages come from when they are not declared."""

    SAMPLE = "sample"
    EVOLVE = "evolve"
    EMBEDDED = "embedded"


class Metadata(StrEnum):
    """What a record has beside its value."""

    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADERS = "headers"
    KEY = "key"
    VALUE = "value"
    JSON = "json"


class RegistrySpec(Model):
    """A schema registry."""

    url: str = Field(
        min_length=1,
        pattern=r"^https?://",
        description="Address; of Apicurio with `/apis/ccompat/v7` at its end, or by itself for its own `api`.",
    )
    api: Literal["confluent", "apicurio"] = Field(
        "confluent",
        description="Whose ids messages have, and whose calls find them: Confluent's, of four bytes; or Apicurio's own global "
        "ids, of eight bytes or of four.",
    )
    user: str | None = Field(None, description="User, where the registry asks for one.")
    password: SecretStr | None = Field(None, description="Password of the user.")
    token: SecretStr | None = Field(None, description="Bearer token, instead of user and password.")
    ca_path: str | None = Field(None, description="File with the certificates that are trusted.")
    cert_path: str | None = Field(None, description="File with the client's own certificate.")
    key_path: str | None = Field(None, description="File with the key of the client's certificate.")
    insecure: bool = Field(False, description="Do not verify the registry's certificate; for tests.")
    timeout_secs: float = Field(10.0, gt=0, le=300, description="How long an answer may take.")

    @model_validator(mode="after")
    def _whole(self) -> RegistrySpec:
        problems = []
        if (self.user is None) != (self.password is None):
            problems.append(Problem("user and password belong together", "user"))
        if self.token is not None and self.user is not None:
            problems.append(Problem("token and user exclude each other", "token"))
        if self.key_path is not None and self.cert_path is None:
            problems.append(Problem("key_path has no meaning without cert_path", "key_path"))
        if problems:
            raise InconsistencyError(problems)
        return self


class Enveloped(Model):
    """The part of a format that says what is around a row."""

    envelope: Literal["debezium"] | None = Field(
        None, description="`debezium`: the message is a change, with `before`, `after` and `op`."
    )
    truncates: Literal["ignore", "error"] | None = Field(
        None, description="Debezium: whether the truncation of a table goes where bad records go (default), or is passed over."
    )
    nanoseconds: Literal["keep", "truncate"] | None = Field(
        None,
        description="Debezium: times in nanoseconds stay numbers (default), or become timestamps without what is below the "
        "microsecond.",
    )
    unavailable_value: str | None = Field(
        None,
        min_length=1,
        description="Debezium: the text that stands for a large value which did not change; `__debezium_unavailable_value` "
        "when left out.",
    )

    @model_validator(mode="after")
    def _only_enveloped(self) -> Enveloped:
        if self.envelope is None:
            options = ("truncates", "nanoseconds", "unavailable_value")
            problems = [
                Problem(f"{name} has no meaning without envelope: debezium", name)
                for name in options
                if getattr(self, name) is not None
            ]
            if problems:
                raise InconsistencyError(problems)
        return self


class _Declared(Model):
    """A format with columns that may be declared."""

    columns: tuple[ColumnSpec, ...] = Field((), alias="schema", description="Columns, as those of a sink.")

    @field_validator("columns", mode="before")
    @classmethod
    def _columns_by_name(cls, value: Any) -> Any:
        return columns_by_name(value)

    @field_validator("columns")
    @classmethod
    def _own_names(cls, columns: tuple[ColumnSpec, ...]) -> tuple[ColumnSpec, ...]:
        names = [column.name.lower() for column in columns]
        for name in names:
            if name.startswith(HIDDEN):
                raise ValueError(f"column {name!r}: names that begin with {HIDDEN} are frazil's own")
            if names.count(name) > 1:
                raise ValueError(f"column {name!r} is declared twice; names are compared without regard to case")
        return columns


class JsonFormat(_Declared, Enveloped):
    """JSON objects. Columns are declared, inferred from the messages, or given by a schema inside each message."""

    type: Literal["json"] = Field("json", description="Name of the format.")
    infer: Inference | None = Field(
        None,
        description="Columns that are not declared: found in the first batch (`sample`), in every batch (`evolve`, the default), "
        'or taken from the schema of Kafka Connect in `{"schema": ..., "payload": ...}` (`embedded`).',
    )
    unwrap: bool = Field(False, description='Whether the row is the `payload` of `{"schema": ..., "payload": ...}`.')

    @model_validator(mode="after")
    def _one_way(self) -> JsonFormat:
        if self.columns and self.infer is not None:
            raise InconsistencyError([Problem("schema and infer exclude each other", "infer")])
        if self.envelope is not None and any(column.required for column in self.columns):
            words = "required has no meaning with an envelope, which may hold a part of a row: set it in the sink"
            raise InconsistencyError([Problem(words, "schema")])
        return self

    @property
    def inference(self) -> Inference | None:
        """How columns are found; None when they are declared."""
        return None if self.columns else self.infer or Inference.EVOLVE


class AvroFormat(Enveloped):
    """Avro. With a registry each message names its writer's schema; without, all have the one that is given."""

    type: Literal["avro"] = Field("avro", description="Name of the format.")
    schema_registry: RegistrySpec | None = Field(None, description="Knows the schema of each message.")
    reader_schema: str | None = Field(
        None, description="With a registry: Avro schema (JSON) as which messages are read, whatever they were written with."
    )
    avro_schema: str | None = Field(None, alias="schema", description="Without a registry: the Avro schema, as JSON.")
    schema_file: str | None = Field(None, min_length=1, description="Without a registry: a local file with the Avro schema.")

    @field_validator("avro_schema", "reader_schema", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        import json

        return json.dumps(value) if isinstance(value, dict | list) else value

    @model_validator(mode="after")
    def _one_schema(self) -> AvroFormat:
        given = [n for n in ("schema_registry", "avro_schema", "schema_file") if getattr(self, n) is not None]
        if len(given) != 1:
            words = "avro needs one of schema_registry, schema and schema_file"
            raise InconsistencyError([Problem(words, *(["schema" if n == "avro_schema" else n for n in given[:1]]))])
        if self.reader_schema is not None and self.schema_registry is None:
            raise InconsistencyError([Problem("reader_schema has no meaning without schema_registry", "reader_schema")])
        return self


class ProtobufFormat(Model):
    """Protocol Buffers, with a file of descriptors as `protoc --include_imports --descriptor_set_out` writes it."""

    type: Literal["protobuf"] = Field("protobuf", description="Name of the format.")
    descriptor_file: str = Field(min_length=1, description="Local file with the descriptors.")
    message: str = Field(min_length=1, description="Full name of the message, e.g. `shop.v1.Order`.")
    framing: Literal["none", "confluent"] = Field(
        "none", description="`confluent`: before the message stand a zero byte, a schema's id and the message's place in it."
    )


class StringFormat(Model):
    """Text in UTF-8, as one column `value`."""

    type: Literal["string"] = Field("string", description="Name of the format.")


class BytesFormat(Model):
    """Bytes as they are, as one column `value`."""

    type: Literal["bytes"] = Field("bytes", description="Name of the format.")


class CsvFormat(_Declared):
    """One line of separated values a message."""

    type: Literal["csv"] = Field("csv", description="Name of the format.")
    separator: str = Field(",", min_length=1, max_length=1, description="What stands between values.")
    quote: str = Field('"', min_length=1, max_length=1, description="What stands around a value that has separators in it.")
    null_value: str = Field("", description="A text that means null. So does nothing at all between separators.")

    @model_validator(mode="after")
    def _with_columns(self) -> CsvFormat:
        problems = [] if self.columns else [Problem("csv needs its columns: add schema", "schema")]
        if self.separator == self.quote:
            problems.append(Problem("separator and quote must differ", "quote"))
        if problems:
            raise InconsistencyError(problems)
        return self


class RawFormat(Model):
    """The record as it came: columns topic, offset, partition, timestamp, keys, headers and value."""

    type: Literal["raw"] = Field("raw", description="Name of the format.")


def _short_form(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


FormatSpec = Annotated[
    Annotated[
        JsonFormat | AvroFormat | ProtobufFormat | StringFormat | BytesFormat | CsvFormat | RawFormat,
        Field(discriminator="type"),
    ],
    BeforeValidator(_short_form),
]
"""A format, or its name alone where it needs nothing else."""


class MessageOptions(Model):
    """The part of a source of messages that says how they become rows."""

    format: FormatSpec = Field(default_factory=JsonFormat, description="Format of the values.")
    key_format: FormatSpec | None = Field(None, description="Format of the keys, whose fields become columns, too.")
    key_prefix: str | None = Field(
        None,
        description="What the names of the key's columns begin with. Without it, a key's field is used where the value has none "
        "of the same name.",
    )
    metadata: tuple[Metadata, ...] = Field((), description="What else of a record becomes a column: `kafka_topic`, ...")
    metadata_prefix: str | None = Field(None, description="What the names of these columns begin with; `kafka_` when left out.")
    tombstones: Literal["delete", "ignore", "error"] | None = Field(
        None,
        description="A record without a value: the row with its key is gone (default with key_format), it is passed over "
        "(default without), or it is a bad record.",
    )
    empty_is_none: bool = Field(
        False,
        description="Whether a value without a byte is none, as that of a tombstone; a bad record otherwise, or an empty text.",
    )
    key_and_value: bool = Field(
        False, description="Whether rows are two columns `key` and `value`, for a sink with change_format: tombstones."
    )

    @property
    def enveloped(self) -> bool:
        """Whether a message is a change of a row."""
        return isinstance(self.format, Enveloped) and self.format.envelope is not None

    @property
    def finds_columns(self) -> bool:
        """Whether messages bring the columns of their values, so that nobody knows them beforehand."""
        if isinstance(self.format, AvroFormat):
            return self.format.schema_registry is not None and self.format.reader_schema is None
        return isinstance(self.format, JsonFormat) and self.format.inference is not None

    @property
    def tells_keys(self) -> bool:
        """Whether the key of a message contains the columns that identify its row."""
        return self.enveloped and isinstance(self.key_format, JsonFormat | AvroFormat | ProtobufFormat)

    @property
    def deletes_by_key(self) -> bool:
        """Whether a message without a value deletes the row with its key, of which it has nothing but that."""
        pairs = self.enveloped or self.key_and_value or isinstance(self.format, RawFormat)
        return self.key_format is not None and not pairs and self.tombstones in (None, "delete")

    def only_of_values(self, columns: Iterable[str], keys: Iterable[str]) -> bool:
        """Whether messages have none of these columns of a row where they have no value. ``keys``: the columns of their keys."""
        beside = {name.lower() for name in (*keys, *self.metadata_columns)}
        return self.deletes_by_key and all(name.lower() not in beside for name in columns)

    @property
    def declared_key_columns(self) -> frozenset[str] | None:
        """The columns of a row that come from its message's key; None where the options do not say which there are."""
        if isinstance(self.key_format, StringFormat | BytesFormat):
            names = ["value"]
        elif isinstance(self.key_format, JsonFormat | CsvFormat) and self.key_format.columns:
            names = [column.name for column in self.key_format.columns]
        else:
            return None
        return frozenset(f"{self.key_prefix or ''}{name}" for name in names)

    @property
    def metadata_columns(self) -> frozenset[str]:
        """The columns of a row that come from what its message has beside key and value."""
        prefix = "kafka_" if self.metadata_prefix is None else self.metadata_prefix
        return frozenset(f"{prefix}{one.value}" for one in self.metadata)

    @property
    def tells_operations(self) -> bool:
        """Whether rows can be deletes or changes."""
        return self.enveloped or (self.key_format is not None and self.tombstones in (None, "delete"))

    @model_validator(mode="after")
    def _together(self) -> MessageOptions:
        problems = []
        if isinstance(self.key_format, RawFormat):
            problems.append(Problem("key_format: raw is a format of whole records", "key_format"))
        if isinstance(self.key_format, Enveloped) and self.key_format.envelope is not None:
            problems.append(Problem("a key has no envelope", "key_format", "envelope"))
        if self.key_format is None:
            if self.key_prefix is not None:
                problems.append(Problem("key_prefix has no meaning without key_format", "key_prefix"))
            if self.key_and_value:
                problems.append(Problem("key_and_value needs key_format", "key_and_value"))
            if self.tombstones == "delete":
                problems.append(Problem("tombstones: delete needs key_format, which tells whose row is gone", "tombstones"))
        if self.empty_is_none and isinstance(self.format, RawFormat):
            problems.append(Problem("empty_is_none has no meaning with format: raw, which keeps what came", "empty_is_none"))
        if self.metadata_prefix is not None and not self.metadata:
            problems.append(Problem("metadata_prefix has no meaning without metadata", "metadata_prefix"))
        if self.key_and_value:
            problems += [
                Problem(f"{name} has no meaning with key_and_value, where the sink decides", name)
                for name in ("tombstones", "key_prefix")
                if getattr(self, name) is not None
            ]
        if self.enveloped or isinstance(self.format, RawFormat):
            problems += [
                Problem(f"{name} has no meaning with this format, which has its own way with empty values", name)
                for name, given in (("tombstones", self.tombstones is not None), ("key_and_value", self.key_and_value))
                if given
            ]
        if problems:
            raise InconsistencyError(problems)
        return self
