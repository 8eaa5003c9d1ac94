"""Messages as rows: the formats of Kafka's values and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from frazil.model.format import (
    AvroFormat,
    BytesFormat,
    CsvFormat,
    FormatSpec,
    JsonFormat,
    MessageOptions,
    ProtobufFormat,
    RawFormat,
    StringFormat,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.model.types import StructType
    from frazil.sources.decode.parts import Format

__all__ = ["Decoder", "check_formats", "decoder", "key_columns"]


class Decoder(Protocol):
    """From records to rows.

    Delivery: one row a record, whatever is in it; a record that cannot be read has `__frazil_error`, and no data. Parallelism:
    that of the frame. One decoder serves one source: it remembers schemas and columns from batch to batch.
    """

    def decode(self, frame: DataFrame) -> DataFrame:
        """The rows of a frame of records: key, value, topic, partition, offset, timestamp, headers, and hidden columns."""

    def check(self) -> None:
        """Raises a FrazilError when something that the format needs cannot be had."""

    def expect(self, columns: StructType, *, exactly: bool) -> None:
        """The columns that the table has, under the names that they have here: they come before those that are found."""


def decoder(spec: FormatSpec | MessageOptions, spark: SparkSession) -> Decoder:
    """The decoder that the options mean; of a format alone, with nothing of keys and metadata."""
    from frazil.sources.decode.messages import Messages

    options = spec if isinstance(spec, MessageOptions) else MessageOptions(format=spec)
    key = None if options.key_format is None else _format(options.key_format, spark)
    return Messages(options, _format(options.format, spark), key)


def check_formats(options: MessageOptions) -> None:
    """What the formats of messages need beside them must be there: a registry that answers, files with schemas.

    Whether Spark can read an Avro schema is seen when there is a Spark.
    """
    for spec in filter(None, (options.format, options.key_format)):
        if isinstance(spec, AvroFormat):
            from frazil.sources.decode.avro import check_avro

            check_avro(spec)
        elif isinstance(spec, ProtobufFormat):
            from frazil.sources.decode.protobuf import Protobuf

            Protobuf(spec)


def key_columns(options: MessageOptions, topic: str) -> frozenset[str] | None:
    """The columns of a row that come from its message's key; None where the key's format does not say which there are.

    A schema registry is asked for the newest schema of the topic's keys.
    """
    if (declared := options.declared_key_columns) is not None:
        return declared
    match options.key_format:
        case AvroFormat() as avro:
            from frazil.sources.decode.avro import avro_columns

            found = avro_columns(avro, f"{topic}-key")
            if found is None:
                return None
            names = found
        case ProtobufFormat() as protobuf:
            from frazil.sources.decode.protobuf import Protobuf

            names = frozenset(Protobuf(protobuf).columns)
        case _:
            return None
    return frozenset(f"{options.key_prefix or ''}{name}" for name in names)


def _format(spec: FormatSpec, spark: SparkSession) -> Format | None:  # noqa: PLR0911 - one for each case
    match spec:
        case JsonFormat():
            from frazil.sources.decode.json_messages import Json

            return Json(spec)
        case AvroFormat():
            from frazil.sources.decode.avro import Avro

            return Avro(spec, spark)
        case ProtobufFormat():
            from frazil.sources.decode.protobuf import Protobuf

            return Protobuf(spec)
        case CsvFormat():
            from frazil.sources.decode.plain import Csv

            return Csv(spec)
        case StringFormat():
            from frazil.sources.decode.plain import Text

            return Text()
        case BytesFormat():
            from frazil.sources.decode.plain import Bytes

            return Bytes()
        case RawFormat():
            return None
