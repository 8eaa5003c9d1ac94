"""Reading files of one format as one data frame, whatever their columns are.

Spark's readers silently lose data: they take the columns of the first Parquet or Avro file for those of all, give CSV columns
by position whatever the header says, and turn what they cannot read into nulls. Here columns are matched by name, the columns
of all files are included, and what cannot be read is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, DatetimeType, StringType, StructField, StructType

from frazil.columns.coerce import within_years
from frazil.columns.schema import error_of, require_data
from frazil.columns.types import iceberg_schema, spark_type
from frazil.errors import ConfigError
from frazil.model.hidden import AT, ERROR, HIDDEN, RAW
from frazil.model.source import FilesSource, SourceFormat
from frazil.model.types import Column as TableColumn
from frazil.model.types import Type, parse_type
from frazil.sources.decode.declared import Declared
from frazil.sources.decode.json_messages import AS_TEXT, VARIANT, declared_carrier
from frazil.sources.decode.objects import as_text
from frazil.sources.decode.parts import fault, fault_of, no_fault, once
from frazil.sources.listing import file_key
from frazil.sources.merge import merged_schema

CORRUPT, _FILE, _ANY, _READ, _WAS = (f"{HIDDEN}{name}" for name in ("corrupt_record", "file", "any", "read", "was"))
EXCERPT = 200
_WHAT = "A file"
_RECORDS = (SourceFormat.JSON, SourceFormat.CSV)
# Options that describe the format of these types to Spark's reader. Without one it would guess.
_SHAPES = {"dateformat": "date", "timestampformat": "timestamptz", "timestampntzformat": "timestamp"}

_ENCODINGS = ("encoding", "charset")

# Whatever the session is set to: a file that cannot be read, or is not there, is an error.
_ALWAYS = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    # Names of folders such as `day=1` do not become columns.
    "recursiveFileLookup": "true",
    # A file's name is a name and no pattern: `a[1].json` means itself.
    "__globPaths__": "false",
}
_DEFAULTS = {
    # A column that is null in all records has no type, and is ignored.
    SourceFormat.JSON: {"columnNameOfCorruptRecord": CORRUPT, "dropFieldIfAllNull": "true"},
    # Without pruning every column of a line is parsed, so that a broken line is found whichever columns are selected.
    SourceFormat.CSV: {
        "columnNameOfCorruptRecord": CORRUPT,
        "header": "true",
        "inferSchema": "true",
        "columnPruning": "false",
    },
    SourceFormat.PARQUET: {"mergeSchema": "true"},
    SourceFormat.AVRO: {},
}
_RESERVED = {
    "path": "path",
    "paths": "path",
    "basepath": "path",
    "pathglobfilter": "pattern",
    "recursivefilelookup": "recursive",
    "modifiedafter": "pattern",
    "modifiedbefore": "pattern",
    "maxfilespertrigger": "the sink's batch_size",
    "ignorecorruptfiles": "",
    "ignoremissingfiles": "",
    "columnnameofcorruptrecord": "",
    "__globpaths__": "",
}


def check_options(spec: FilesSource) -> None:
    """A ConfigError when an option would take over what the source does itself, or hide rows."""
    for name, value in spec.options.items():
        if name.lower() == "mode" and value.upper() != "FAILFAST":
            raise ConfigError(
                "source-option",
                f"The reader option mode: {value} would hide records that cannot be read.",
                fix="Leave it out: a record that cannot be read stops the pipeline, or is kept where the sink's on_error says.",
            )
        if name.lower() in _RESERVED:
            instead = _RESERVED[name.lower()]
            raise ConfigError(
                "source-option",
                f"The reader option {name} cannot be set: the source decides which files are read and how errors are reported.",
                fix=f"Use {instead} instead." if instead else "Leave it out.",
            )


def read_files(spark: SparkSession, spec: FilesSource, uris: Sequence[str]) -> DataFrame:
    """The rows of the files. A JSON or CSV record that cannot be read has no values, and says in hidden columns what is wrong."""
    declared = _declared(spec)
    if spec.format in _RECORDS:
        read_as = None if declared is None else _schema(declared, _carriers(spec))
        if _by_header_names(spec):
            frame = _csv_by_name(spark, spec, uris, read_as)
        else:
            columns = read_as if read_as is not None else _readable(_reader(spark, spec).load(list(uris)).schema)
            frame = _records(_reader(spark, spec), columns, uris)
        return _described(frame, spec, declared)
    if declared is not None:
        return _reader(spark, spec).schema(_schema(declared, spark_type)).load(list(uris))
    if spec.format is SourceFormat.AVRO and not _option(spec, "avroSchema"):
        schemas = [_reader(spark, spec).load([uri]).schema for uri in uris]
        frame = _reader(spark, spec).schema(merged_schema(schemas)).load(list(uris))
    else:
        frame = _reader(spark, spec).load(list(uris))
    require_data(frame.columns, _WHAT)
    return frame


def _declared(spec: FilesSource) -> Declared | None:
    """The declared columns, or None when they are found in the files. Nulls are the table's affair."""
    return Declared.of([TableColumn(one.name, parse_type(one.type)) for one in spec.columns]) if spec.columns else None


def _schema(declared: Declared, made: Callable[[Type], DataType]) -> StructType:
    return StructType([StructField(one.name, made(one.type)) for one in declared.columns])


def _carriers(spec: FilesSource) -> Callable[[Type], DataType]:
    """As what a value is read at first, so that Spark's reader does not round it, or guess at it.

    Where an option says what a value looks like, the reader knows.
    """
    shapes = {kind for name, kind in _SHAPES.items() if _option(spec, name)}
    # Spark's reader of JSON makes the text of a number from a double when an encoding is named. A variant shows that it did.
    number = VARIANT if spec.format is SourceFormat.JSON and _encoding(spec) else StringType()
    return partial(declared_carrier, as_text=[name for name in AS_TEXT if name not in shapes], number=number)


def _readable(found: StructType) -> StructType:
    """The columns that were found in records."""
    columns = StructType([field for field in found.fields if field.name != CORRUPT])
    require_data(columns.names, _WHAT)
    return columns


def _records(reader: DataFrameReader, columns: StructType, uris: Sequence[str]) -> DataFrame:
    """Records with the text of those that cannot be read, and the file that each is in."""
    # Where no record can be read there are no columns, and Spark wants one beside its own.
    whole = StructType([*(columns.fields or [StructField(_ANY, StringType())]), StructField(CORRUPT, StringType())])
    frame = reader.schema(whole).load(list(uris))
    # The records may have a field of this name, too.
    file = frame.metadataColumn("_metadata")["file_path"]
    return frame.select(*(_column(name) for name in whole.names), file.alias(_FILE))


def _described(frame: DataFrame, spec: FilesSource, declared: Declared | None) -> DataFrame:
    """The frame with hidden columns that say what a record was that cannot be read, where it is, and why it cannot."""
    # Spark writes the names of files with percent signs.
    file = sf.coalesce(sf.try_url_decode(sf.replace(sf.col(_FILE), sf.lit("+"), sf.lit("%2B"))), sf.col(_FILE))
    record = sf.rtrim(sf.col(CORRUPT))
    shown = sf.when(sf.length(record) <= EXCERPT, record).otherwise(sf.concat(sf.substring(record, 1, EXCERPT), sf.lit("...")))
    kind = spec.format.value.upper() + (" of the declared columns" if spec.columns else "")
    broken = sf.col(CORRUPT).isNotNull()
    data = [name for name in frame.columns if not name.startswith(HIDDEN)]
    row = sf.struct(*map(_column, data or [_ANY]))
    # A value is parsed, and found to be wrong, only in a column that is asked for. Nothing is shown of all, so that they are.
    looked_at = sf.left(row.cast("string"), sf.lit(0))
    text = sf.concat(sf.lit("The file "), file, sf.lit(f" has a record that cannot be read as {kind}: "), shown, looked_at)
    outside = _outside_years(frame, data)
    bad = broken | outside.isNotNull()
    raw, at = sf.col(CORRUPT).cast("binary"), sf.to_json(sf.struct(file.alias("file"))).alias(AT)
    error = sf.when(broken, error_of("decode", "bad-record", text))
    if declared is None:
        misfit = sf.concat(sf.lit("The file "), file, sf.lit(" has a record that does not fit: "), outside)
        return frame.select(
            *(sf.when(~bad, _column(name)).alias(name) for name in data),
            sf.coalesce(raw, sf.when(bad, _written(row, spec).cast("binary"))).alias(RAW),
            at,
            sf.when(~broken & bad, error_of("decode", "bad-record", misfit)).otherwise(error).alias(ERROR),
        )
    kinds = StructType([frame.schema[name] for name in data])
    read = sf.when(~bad, as_text(row, kinds, _schema(declared, spark_type), sf.lit(False))).alias(_READ)
    wrong = sf.when(outside.isNotNull(), fault("bad-record", outside)).otherwise(no_fault()).alias(fault_of(_READ))
    was = sf.when(~broken, row).alias(_WAS)
    described = frame.select(file.alias(_FILE), raw.alias(RAW), at, error.alias(ERROR), read, was, wrong)
    return _as_declared(described, spec, declared)


def _outside_years(frame: DataFrame, data: Sequence[str]) -> Column:
    """What is said of a date or time, read by Spark, that is outside of the years 1 to 9999; null when there is none."""
    moments = [one for one in frame.schema.fields if one.name in data and isinstance(one.dataType, DatetimeType)]
    kinds = iceberg_schema(StructType(moments)).fields
    words = "has a value outside of the years 1 to 9999: "
    faults = [
        sf.when(
            ~within_years(_column(one.name), one.type),
            sf.concat(sf.lit(f"column {one.name!r} {words}"), _column(one.name).cast("string")),
        )
        for one in kinds
    ]
    return sf.coalesce(*faults, sf.lit(None).cast("string"))


def _written(row: Column, spec: FilesSource) -> Column:
    """A row as a record of its format."""
    return sf.to_json(row) if spec.format is SourceFormat.JSON else sf.to_csv(row, {"sep": _option(spec, "sep", ",")})


def _as_declared(described: DataFrame, spec: FilesSource, declared: Declared) -> DataFrame:
    """The values as what they are declared to be. One that does not fit makes its record one that cannot be read."""
    described = declared.convert(described, _READ, "bad-record")
    wrong = sf.col(fault_of(_READ))
    text = sf.concat(sf.lit("The file "), sf.col(_FILE), sf.lit(" has a record that does not fit: "), wrong["text"])
    was = _written(sf.col(_WAS), spec)
    return described.select(
        *(sf.col(_READ)[name].alias(name) for name in declared.names),
        sf.coalesce(sf.col(RAW), sf.when(wrong.isNotNull(), was.cast("binary"))).alias(RAW),
        AT,
        once(sf.coalesce(sf.col(ERROR), sf.when(wrong.isNotNull(), error_of("decode", "bad-record", text)))).alias(ERROR),
    )


def _reader(spark: SparkSession, spec: FilesSource, **more: str) -> DataFrameReader:
    """A reader with the defaults, the user's options over them, and over those what must be. Spark ignores the case of names."""
    # The text of a record that cannot be read is kept in this mode alone.
    layers = (_DEFAULTS[spec.format], spec.options, more, {"mode": "PERMISSIVE"} if spec.format in _RECORDS else {})
    options: dict[str, str] = {name.lower(): value for layer in layers for name, value in layer.items()}
    if spec.format is SourceFormat.JSON and not _encoding(spec):
        options = {name: value for name, value in options.items() if name not in _ENCODINGS}
    return spark.read.format(spec.format.value).options(**options, **_ALWAYS)


def _option(spec: FilesSource, name: str, default: str = "") -> str:
    return next((value for key, value in spec.options.items() if key.lower() == name.lower()), default)


def _encoding(spec: FilesSource) -> str:
    """The encoding of the files; empty where it is UTF-8, which readers of JSON find by themselves."""
    named = next((text for text in (_option(spec, name) for name in _ENCODINGS) if text), "")
    return "" if named.upper() in ("UTF-8", "UTF8") else named


def _column(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")


def _by_header_names(spec: FilesSource) -> bool:
    return spec.format is SourceFormat.CSV and _option(spec, "header", "true").lower() == "true"


def _csv_by_name(spark: SparkSession, spec: FilesSource, uris: Sequence[str], declared: StructType | None) -> DataFrame:
    """Files with the same header are read together; then the columns are put together by name."""
    groups = _by_first_line(spark, spec, uris)
    infer = {} if declared is None else {"inferSchema": "false"}
    found = [_readable(_reader(spark, spec, **infer).load(group).schema) for group in groups]
    wanted = declared if declared is not None else merged_schema(found, or_text=True)
    # The first line is not all of a header that goes over several: then each file's own is compared.
    enforce = "false" if _option(spec, "multiLine").lower() == "true" else "true"
    frames = [
        _records(_reader(spark, spec, enforceSchema=enforce), _with_types_of(schema, wanted), group)
        for schema, group in zip(found, groups, strict=True)
    ]
    rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
    present = set(rows.columns)
    return rows.select(
        *(
            _column(field.name) if field.name in present else sf.lit(None).cast(field.dataType).alias(field.name)
            for field in wanted.fields
        ),
        *(name for name in (CORRUPT, _FILE, _ANY) if name in present),
    )


def _by_first_line(spark: SparkSession, spec: FilesSource, uris: Sequence[str]) -> list[list[str]]:
    """The files in groups of the same first line that is neither blank nor a comment, as Spark finds a header."""
    if len(uris) == 1:
        return [list(uris)]
    reader = spark.read.format("text").options(**_ALWAYS)
    if separator := _option(spec, "lineSep"):
        reader = reader.option("lineSep", separator)
    comment = _option(spec, "comment")
    # A file's first block is read by one task from its beginning, so that the lowest number is its first line.
    lines = (
        reader.load(list(uris))
        .where("_metadata.file_block_start = 0 AND trim(value) <> ''")
        .where(~sf.startswith(sf.col("value"), sf.lit(comment)) if comment else sf.lit(True))
        .select(sf.col("_metadata.file_path").alias("file"), "value", sf.monotonically_increasing_id().alias("line"))
    )
    first_lines = lines.groupBy("file").agg(sf.min_by("value", "line").alias("first")).collect()
    header_of = {file_key(unquote(row.file)): row["first"] for row in first_lines}
    groups: dict[str, list[str]] = {}
    for uri in uris:
        # A file of blank lines has no header and no rows: it may go with any.
        groups.setdefault(header_of.get(file_key(uri), next(iter(header_of.values()), "")), []).append(uri)
    return list(groups.values())


def _with_types_of(schema: StructType, wanted: StructType | None) -> StructType:
    types = {} if wanted is None else {field.name: field.dataType for field in wanted.fields}
    return StructType([StructField(field.name, types.get(field.name, field.dataType)) for field in schema.fields])
