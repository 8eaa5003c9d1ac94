"""JSON messages: objects with columns that are declared, inferred, or given by a schema in the message itself."""

from __future__ import annotations

import json
from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from frazil.columns.types import iceberg_schema, spark_type
from frazil.model.format import Inference, JsonFormat
from frazil.model.hidden import HIDDEN
from frazil.model.types import Decimal, ListType, Type
from frazil.model.types import MapType as TableMap
from frazil.model.types import StructType as TableStruct
from frazil.sources.decode.branches import Branch, merged_branches
from frazil.sources.decode.connect import Node, carrier_of, connect_node, is_plain, meant, without_meaning
from frazil.sources.decode.debezium import changes, envelope_columns, with_one_row_type
from frazil.sources.decode.declared import Declared
from frazil.sources.decode.infer import Known, Path, carrier, likeness
from frazil.sources.decode.objects import FoundColumns, ObjectReader, Reading, first_spelling, found_in, message_text
from frazil.sources.decode.parts import column, expected_schema, fault, fault_of, first_fault, name_trouble

_PAYLOAD = "payload"
_SCHEMA = f"{HIDDEN}schema"
_CODE = "json-type"

AS_TEXT = ("date", "timestamp", "timestamptz", "uuid")
"""Types whose values are texts in JSON."""
VARIANT = VariantType()


class Json:
    """Objects. What was found in them is remembered from batch to batch."""

    def __init__(self, spec: JsonFormat) -> None:
        self._spec = spec
        self._root = _PAYLOAD if spec.unwrap else ""
        self._known: Known | None = None
        self._expected: StructType | None = None
        self._exactly = False
        self._embedded: dict[str, Node | None] = {}
        self._objects = ObjectReader()
        self._settled: tuple[StructType, Declared] | None = None
        declared = Declared(spec.columns)
        self._declared = Declared.of(envelope_columns(declared.columns)) if spec.envelope else declared
        if spec.columns:
            self._reading = Reading(
                StructType([StructField(one.name, declared_carrier(one.type)) for one in self._declared.columns]),
                StructType([StructField(one.name, spark_type(one.type)) for one in self._declared.columns]),
                self._root,
            )

    def parse(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """Objects become structs; envelopes say what they change."""
        match self._spec.inference:
            case None:
                frame = self._objects.read(frame, source, into, self._reading)
                frame = self._declared.convert(frame, into, _CODE)
            case Inference.EMBEDDED:
                frame = self._by_embedded_schema(frame, source, into)
            case _:
                frame = self._found(frame, source, into)
        return changes(frame, into, self._spec) if self._spec.envelope else frame

    def check(self) -> None:
        """Nothing is needed."""

    def expect(self, columns: TableStruct, *, exactly: bool) -> None:
        """The columns that are found have the names of these, and are read as what fits their types."""
        self._expected, self._exactly = expected_schema(columns), exactly

    def _found(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        sampling = self._spec.inference is Inference.SAMPLE
        found = FoundColumns(StructType([]))
        if self._known is None or not sampling:
            found, known = self._grown(frame, source, nulls_are_text=sampling)
            if self._spec.envelope:
                known = Known(with_one_row_type(known.schema), known.refused)
            # A batch without a single object teaches nothing.
            if known.schema.fields or not sampling:
                self._known = known
        known = self._known or Known()
        types = {one.name: one.dataType for one in found.schema.fields}
        reading = StructType([StructField(f.name, carrier(f.dataType, types.get(f.name))) for f in known.schema.fields])
        frame = self._objects.read(frame, source, into, Reading(reading, known.schema, self._root, known.refused, found.deep))
        if not known.schema.fields:
            return frame
        if self._settled is None or self._settled[0] != known.schema:
            self._settled = (known.schema, Declared.of(iceberg_schema(known.schema).fields))
        return self._settled[1].convert(frame, into, _CODE)

    def _grown(self, frame: DataFrame, source: str, *, nulls_are_text: bool) -> tuple[FoundColumns, Known]:
        """What the batch has, and what is known with it. Messages that are refused for their keys bring no columns."""
        before, root = self._known or Known(), self._root
        like = likeness(before.schema, self._expected)
        refused: tuple[Path, ...] = ()
        while True:
            found = found_in(frame, source, root, like, refused)
            known = before.grown(
                found.schema,
                self._expected,
                first=lambda names: first_spelling(frame, source, root, names),
                exactly=self._exactly,
                nulls_are_text=nulls_are_text,
            )
            if not known.refused:
                return found, Known(known.schema, refused)
            refused += known.refused

    def _by_embedded_schema(self, frame: DataFrame, source: str, into: str) -> DataFrame:
        """Each message is read by the schema inside it. Few differ, so that their texts are collected first."""
        text = sf.get_json_object(message_text(column(source)), "$.schema")
        frame = frame.withColumn(_SCHEMA, text)
        texts = [row[0] for row in frame.select(_SCHEMA).where(f"{_SCHEMA} IS NOT NULL").distinct().collect()]
        branches, spare = [], []
        for number, schema in enumerate(texts):
            node = self._node(schema)
            if node is None:
                continue
            name = f"{into}_{number}"
            frame, branch = self._branch(frame, source, name, node, sf.col(_SCHEMA) == schema)
            branches.append(branch)
            spare += [name, fault_of(name)]
        own, branches = merged_branches(frame, branches, into, self._expected)
        unknown = first_fault(
            [
                (column(source).isNull(), sf.lit(None)),
                (sf.col(_SCHEMA).isNull(), fault("json-schema", "the message has no schema of Kafka Connect")),
                (sf.lit(True), fault("json-schema", "the message's schema is none of Kafka Connect")),
            ]
        )
        chosen = unknown
        for branch in branches:
            chosen = sf.when(branch.when, branch.fault).otherwise(chosen)
        return own.withColumn(fault_of(into), chosen).drop(_SCHEMA, *spare)

    def _branch(self, frame: DataFrame, source: str, name: str, node: Node, when: Column) -> tuple[DataFrame, Branch]:
        """The messages with one embedded schema. A payload that is not an object becomes a column `value`, as in Connect."""
        kind = carrier_of(node)
        schema = kind if isinstance(kind, StructType) else StructType([StructField(_PAYLOAD, kind)])
        root = _PAYLOAD if isinstance(kind, StructType) else ""
        mine = f"{name}_source"
        frame = frame.withColumn(mine, sf.when(when, column(source)))
        frame = self._objects.read(frame, mine, name, Reading(schema, schema, root)).drop(mine)
        if is_plain(node):
            return frame, Branch(when, name, column(fault_of(name)))
        value, wrong = meant(column(name), node)
        lost = sf.concat(sf.lit("a value has no meaning in its type: "), without_meaning(wrong))
        before = column(fault_of(name))
        frame = frame.withColumn(
            fault_of(name), first_fault([(before.isNotNull(), before), (lost.isNotNull(), fault(_CODE, lost))])
        )
        frame = frame.withColumn(name, sf.when(column(fault_of(name)).isNull(), value))
        return frame, Branch(when, name, column(fault_of(name)))

    def _node(self, text: str) -> Node | None:
        if text not in self._embedded:
            try:
                node = connect_node(json.loads(text), truncate=self._spec.nanoseconds == "truncate")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self._embedded[text] = None
            else:
                self._embedded[text] = None if name_trouble(carrier_of(node)) else node
        return self._embedded[text]


def declared_carrier(kind: Type, as_text: Collection[str] = AS_TEXT, number: DataType = VARIANT) -> DataType:
    """As what a declared type is read at first: what Spark's parser would round or guess at is kept as it was written.

    ``number``: what a decimal is read as.
    """
    match kind:
        case TableStruct():
            fields = [StructField(one.name, declared_carrier(one.type, as_text, number)) for one in kind.fields]
            return StructType(fields)
        case ListType():
            return ArrayType(declared_carrier(kind.element, as_text, number))
        case TableMap():
            return MapType(StringType(), declared_carrier(kind.value, as_text, number))
        case Decimal():
            return number
        case _ if kind.name in as_text:
            return StringType()
        case _:
            return spark_type(kind)
