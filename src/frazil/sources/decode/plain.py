"""Formats without a structure of their own: text, bytes, separated values."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from frazil.model.format import CsvFormat
from frazil.model.hidden import HIDDEN
from frazil.sources.decode.declared import Declared
from frazil.sources.decode.parts import column, excerpt, fault, fault_of, field, first_fault, no_fault, utf8

_CORRUPT, _LINE = f"{HIDDEN}corrupt", f"{HIDDEN}line"
# No line ends inside a message: with a separator that no text has, a second line is not dropped but shows as a wrong value.
_NO_LINES = "\x00"
# The placeholder for an empty text in quotes; without quotes an empty value is null.
_EMPTY = "\x00empty"


class Text:
    """UTF-8 as one column."""

    def parse(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """A message that is no UTF-8 is a bad one."""
        given = column(source)
        broken = fault("text-encoding", "the message is not valid UTF-8")
        frame = frame.withColumn(into, sf.when(utf8(given).isNotNull(), sf.struct(utf8(given).alias("value"))))
        return frame.withColumn(fault_of(into), first_fault([(given.isNotNull() & column(into).isNull(), broken)]))

    def check(self) -> None:
        """Nothing is needed."""


class Bytes:
    """Bytes as one column."""

    def parse(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """Every message can be read."""
        value = sf.when(column(source).isNotNull(), sf.struct(column(source).alias("value")))
        return frame.withColumns({into: value, fault_of(into): no_fault()})

    def check(self) -> None:
        """Nothing is needed."""


class Csv:
    """One line a message, its values by position."""

    def __init__(self, spec: CsvFormat) -> None:
        self._declared = Declared(spec.columns)
        self._options = {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "sep": spec.separator,
            "quote": spec.quote,
            "escape": spec.quote,
            "nullValue": spec.null_value,
            "emptyValue": _EMPTY,
            "lineSep": _NO_LINES,
            "maxCharsPerColumn": "-1",
        }

    def parse(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """Values that are too many, too few, or of the wrong type make a bad message."""
        texts = StructType([StructField(name, StringType()) for name in self._declared.names])
        schema = StructType([*texts.fields, StructField(_CORRUPT, StringType())])
        text = sf.regexp_replace(utf8(column(source)), r"\r?\n$", "")
        frame = frame.withColumn(_LINE, sf.from_csv(text, schema.simpleString(), self._options))
        line, given = column(_LINE), column(source)
        wrong = [
            (given.isNotNull() & text.isNull(), fault("text-encoding", "the message is not valid UTF-8")),
            (text.contains(_NO_LINES), fault("csv-malformed", "the message has a zero byte")),
            (
                field(line, _CORRUPT).isNotNull() | (text == ""),
                fault("csv-malformed", sf.concat(sf.lit(f"not a line of {len(texts)} values: "), excerpt(text))),
            ),
        ]
        frame = frame.withColumn(fault_of(into), first_fault(wrong))
        fine = given.isNotNull() & column(fault_of(into)).isNull()
        values = sf.struct(*(_text(field(line, name)).alias(name) for name in texts.names))
        frame = frame.withColumn(into, sf.when(fine, values)).drop(_LINE)
        return self._declared.convert(frame, into, "csv-type")

    def check(self) -> None:
        """Nothing is needed."""


def _text(value: Column) -> Column:
    return sf.when(value == _EMPTY, "").otherwise(value)
