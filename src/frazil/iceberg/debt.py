"""Finds the deletes that readers pay for, and rewrites them in a form that costs less.

A reader applies an equality delete to every older row. A position delete names the row of the file that is deleted: as a
deletion vector in format version 3, as a position delete file in version 2.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow
from pyarrow import compute
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession, functions

from frazil.errors import FrazilError, Halted
from frazil.iceberg.changes import Base, Fits, Restage, StagedFiles
from frazil.iceberg.jvm import Jvm, items
from frazil.iceberg.staging import metrics_of, stage_files

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The ids that Iceberg reserves for the columns of a position delete file."""

_POSITION_SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": PATH_ID, "name": "file_path", "required": True, "type": "string"},
        {"id": POSITION_ID, "name": "pos", "required": True, "type": "long"},
    ],
}
# With the whole path in the statistics, a reader need not open the delete file to find out which data file it applies to.
_WHOLE_PATHS = {"write.metadata.metrics.column.file_path": "full"}

_POSITIONS = 1  # what a file of position deletes has as its content

_VECTOR_TYPE = "deletion-vector-v1"
_VECTOR_MAGIC = bytes.fromhex("d1d33964")


@dataclass(frozen=True)
class Rewrite:
    """Files in place of others that hold the same rows, whatever rows came since.

    ``as_of``: the sequence number of the table that the rows were read from. With it the files fit beside any change that came
    since: equality deletes of later batches apply to them as to those that they replace, and a delete by position of a row in a
    replaced file makes the rewrite fail. Without it they only fit beside files that were added.
    """

    staged: StagedFiles = field(default_factory=StagedFiles)
    removed: tuple[Any, ...] = ()
    deletes: tuple[Any, ...] = ()
    removed_deletes: tuple[Any, ...] = ()
    as_of: int | None = None

    @property
    def fits(self) -> Fits:
        """How much of the table must be as it was."""
        return Fits.FILES if self.as_of is None else Fits.LAYOUT

    def on(self, transaction: Any, base: Base) -> Any:
        """Iceberg's rewrite: readers of changes see none."""
        operation = transaction.newRewrite().validateFromSnapshot(base.head)
        if self.as_of is not None:
            operation.dataSequenceNumber(self.as_of)
        for file in (*self.staged.files, *self.deletes):
            operation.addFile(file)
        for file in (*self.removed, *self.removed_deletes):
            operation.deleteFile(file)
        return operation

    def overtaken(self, why: str) -> FrazilError:
        """It is left for another time."""
        return Restage("rewrite-overtaken", why)


@dataclass(frozen=True)
class Deletes:
    """Live equality delete files that compare the same columns."""

    columns: tuple[str, ...]
    files: tuple[Any, ...]


@dataclass(frozen=True)
class Marked:
    """Position deletes that were written, the delete files that they replace, and how many more rows they delete."""

    added: tuple[Any, ...] = ()
    replaced: tuple[Any, ...] = ()
    rows: int = 0


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot, the task that reads it, and the deletes that apply to it."""

    file: Any
    task: Any
    deletes: tuple[Any, ...] = ()

    @cached_property
    def path(self) -> str:
        """Where it is."""
        return str(self.file.location())

    @cached_property
    def vector(self) -> Any:
        """Its deletion vector, if it has one."""
        return next((delete for delete in self.deletes if delete.contentOffset() is not None), None)

    @cached_property
    def position_files(self) -> tuple[Any, ...]:
        """The position delete files that may be about it; in version 3, too, where rows were deleted under version 2."""
        return tuple(one for one in self.deletes if int(one.content().id()) == _POSITIONS and one.contentOffset() is None)

    @property
    def rows(self) -> int | None:
        """How many rows are left of it; not known where something else than a vector deletes some."""
        if not self.deletes:
            return int(self.file.recordCount())
        vector = self.vector
        return None if vector is None or len(self.deletes) > 1 else int(self.file.recordCount()) - int(vector.recordCount())


def live_file(task: Any) -> LiveFile:
    """The data file that a task of a scan reads."""
    deletes = task.deletes()
    return LiveFile(task.file(), task, tuple(items(deletes)) if deletes.size() else ())


@dataclass(frozen=True)
class FileFacts:
    """When a file was added, and its partition. A file without a partition counts as in all of them."""

    path: str
    sequence: int
    scope: str


def equality_deletes(jvm: Jvm, table: Any) -> dict[tuple[int, ...], list[Any]]:
    """All live equality delete files of the current snapshot, by the ids of the columns that they compare."""
    metadata = table.operations().current()
    snapshot = metadata.currentSnapshot()
    found: dict[tuple[int, ...], list[Any]] = {}
    for manifest in items(snapshot.deleteManifests(table.io())) if snapshot is not None else ():
        reader = jvm.iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), metadata.specsById())
        try:
            for file in items(reader):
                compared = file.equalityFieldIds()
                if compared is not None:
                    found.setdefault(tuple(int(number) for number in items(compared)), []).append(file.copy())
        finally:
            reader.close()
    return found


def counted(jvm: Jvm, table: Any, what: str) -> int:
    """A total of the current snapshot, by its manifests: `records`, `data-files`, `equality-deletes` or `delete-files`."""
    snapshot = table.operations().current().currentSnapshot()
    if what == "equality-deletes":
        return sum(int(file.recordCount()) for files in equality_deletes(jvm, table).values() for file in files)
    if what == "records":
        manifests = items(snapshot.dataManifests(table.io()))
        return sum(int(one.addedRowsCount() or 0) + int(one.existingRowsCount() or 0) for one in manifests)
    manifests = items(snapshot.dataManifests(table.io()) if what == "data-files" else snapshot.deleteManifests(table.io()))
    return sum(int(one.addedFilesCount() or 0) + int(one.existingFilesCount() or 0) for one in manifests)


def with_dropped(jvm: Jvm, metadata: Any, compared: Iterable[int]) -> Any:
    """The table's columns, and those of the compared that were dropped; None when none was.

    Iceberg's readers find a dropped column in the table's earlier schemas, and go on to delete rows by it.
    """
    schema = metadata.schema()
    dropped = [number for number in sorted(set(compared)) if schema.findField(number) is None]
    if not dropped:
        return None
    earlier = sorted(items(metadata.schemas()), key=lambda one: -int(one.schemaId()))
    columns, like = (
        jvm.root.java.util.ArrayList(schema.columns()),
        getattr(getattr(jvm.iceberg.types, "Types$NestedField"), "from"),
    )
    for number in dropped:
        known = next((field for one in earlier if (field := one.asStruct().field(number)) is not None), None)
        if known is None:
            raise Halted(
                "deletes-unreadable",
                f"Equality deletes of the table at {metadata.location()} compare the column with the field id {number}, which "
                "was dropped and is in none of the table's schemas any more. Which rows they delete is not known; readers fail.",
                fix="Roll the table back to a snapshot from before those deletes.",
            )
        # Another column may have its name by now.
        columns.add(like(known).withName(f"dropped_{number}").asOptional().build())
    return jvm.iceberg.Schema(columns)


def facts_of(table: Any, files: Iterable[Any]) -> list[FileFacts]:
    """The facts of data or delete files."""
    divided = {int(spec.specId()): spec for spec in items(table.operations().current().specs()) if not spec.isUnpartitioned()}

    def scope(file: Any) -> str:
        spec = divided.get(int(file.specId()))
        return "" if spec is None else f"{file.specId()}/{spec.partitionToPath(file.partition())}"

    return [FileFacts(str(file.location()), int(file.dataSequenceNumber()), scope(file)) for file in files]


def bounds_of(jvm: Jvm, table: Any, deletes: Deletes) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest value of each key column in the files, if all of them have that statistic."""
    schema, conversions = table.schema(), jvm.iceberg.types.Conversions
    found: dict[str, tuple[Any, Any]] = {}
    for column in deletes.columns:
        field = schema.findField(column)
        number, kind = field.fieldId(), field.type()
        if str(kind.toString()) not in ("int", "long", "string"):
            continue
        lows = [_bound(conversions, kind, f.lowerBounds(), number) for f in deletes.files]
        highs = [_bound(conversions, kind, f.upperBounds(), number) for f in deletes.files]
        if None not in lows and None not in highs:
            found[column] = (min(lows), max(highs))
    return found


def _bound(conversions: Any, kind: Any, bounds: Any, number: int) -> Any:
    value = None if bounds is None else conversions.fromByteBuffer(kind, bounds.get(number))
    return value if value is None or isinstance(value, int) else str(value.toString())


def bitmap_of(words: pyarrow.ChunkedArray, bits: pyarrow.ChunkedArray) -> BitMap64:
    """The positions that are set in words of 64 bits, each with its place among all words of the file."""
    flags = pyarrow.array(bits.combine_chunks(), pyarrow.int64())
    buffer = flags.buffers()[1].slice(8 * flags.offset)
    set_ = compute.indices_nonzero(pyarrow.BooleanArray.from_buffers(pyarrow.bool_(), 64 * len(flags), [None, buffer]))
    first = compute.multiply(words.cast(pyarrow.uint64()), 64).take(compute.shift_right(set_, 6))
    positions = compute.add(first, compute.bit_wise_and(set_, 63))
    return BitMap64(array("Q", positions.to_numpy().tobytes()))


def read_positions(rows: DataFrame, paths: Sequence[str]) -> dict[str, BitMap64]:
    """The positions that position deletes, read as data, name in some data files."""
    numbers = pyarrow.array(range(len(paths)), pyarrow.int32())
    wanted = rows.sparkSession.createDataFrame(pyarrow.table({"file_path": list(paths), "number": numbers}))
    found = rows.join(functions.broadcast(wanted), "file_path").select("number", "pos").toArrow()
    lists = found.group_by("number").aggregate([("pos", "list")]).to_pydict()
    return {paths[number]: BitMap64(gone) for number, gone in zip(lists["number"], lists["pos_list"], strict=True)}


def write_vectors(
    jvm: Jvm, table: Any, dead: Mapping[str, BitMap64], files: Mapping[str, LiveFile], earlier: Mapping[str, BitMap64]
) -> Marked:
    """Deletion vectors of the files' dead positions, all in one Puffin file.

    A vector makes all other deletes by position void for its file: what they say goes into it. ``earlier``: the positions that
    are in files of them; of those, the ones that are about a single data file are not needed any longer.
    """
    iceberg = jvm.iceberg
    factory = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(iceberg.FileFormat.PUFFIN).build()
    output = factory.newOutputFile().encryptingOutputFile()
    writer = iceberg.puffin.Puffin.write(output).createdBy("frazil").build()
    blob_of = _Blobs(jvm)
    blobs: list[tuple[str, int, Any]] = []
    replaced: list[Any] = []
    known = 0
    try:
        for path, fresh in dead.items():
            old, files_of_positions = files[path].vector, files[path].position_files
            if old is not None:
                dead_now = fresh | _read_vector(jvm, table, old)
                known += int(old.recordCount())
                replaced.append(old)
            elif files_of_positions:
                dead_now = fresh | earlier.get(path, BitMap64())
                known += len(earlier.get(path, ()))
                replaced += [one for one in files_of_positions if iceberg.util.ContentFileUtil.isFileScoped(one)]
            else:
                dead_now = fresh
            blobs.append((path, len(dead_now), writer.write(blob_of(path, dead_now))))
    finally:
        writer.close()
    specs = {int(spec.specId()): (spec, bool(spec.isUnpartitioned())) for spec in items(table.operations().current().specs())}
    location, size, puffin = output.location(), writer.fileSize(), iceberg.FileFormat.PUFFIN
    begin = iceberg.FileMetadata.deleteFileBuilder
    added = []
    for path, count, blob in blobs:
        file = files[path].file
        spec, whole = specs[int(file.specId())]
        builder = begin(spec).ofPositionDeletes().withFormat(puffin).withPath(location).withFileSizeInBytes(size)
        builder.withReferencedDataFile(path).withContentOffset(blob.offset()).withContentSizeInBytes(blob.length())
        added.append((builder if whole else builder.withPartition(file.partition())).withRecordCount(count).build())
    return Marked(tuple(added), tuple(replaced), sum(count for _, count, _ in blobs) - known)


def position_schema(jvm: Jvm) -> Any:
    """The columns of a position delete file."""
    return jvm.schema_from_json(json.dumps(_POSITION_SCHEMA))


def write_positions(
    jvm: Jvm, table: Any, spark: SparkSession, dead: Mapping[str, BitMap64], files: Mapping[str, LiveFile]
) -> Marked:
    """Position delete files, one for each data file with dead positions.

    The rows are written as data of a view that has the two columns alone, under the ids that Iceberg reserves for them, one task
    for each data file, and the files are declared to be deletes afterwards.
    """
    metadata = table.operations().current()
    schema = position_schema(jvm)
    builder = jvm.build_metadata_from(metadata).setDefaultPartitionSpec(jvm.iceberg.PartitionSpec.unpartitioned())
    builder = builder.setCurrentSchema(schema, metadata.lastColumnId()).setProperties(_WHOLE_PATHS)
    # A path is long, and there are many positions: they meet on the executors.
    paths = pyarrow.table({"task": pyarrow.array(range(len(dead)), pyarrow.int32()), "file_path": list(dead)})
    positions = pyarrow.concat_tables(
        pyarrow.table(
            {
                "task": pyarrow.repeat(pyarrow.scalar(number, pyarrow.int32()), len(gone)),
                "pos": pyarrow.array(gone, pyarrow.int64()),
            }
        )
        for number, gone in enumerate(dead.values())
    )
    rows = spark.createDataFrame(positions).join(functions.broadcast(spark.createDataFrame(paths)), "task")
    rows = rows.repartitionById(len(dead), functions.col("task")).select("file_path", "pos")
    rows = rows.sortWithinPartitions("file_path", "pos")
    # The statistics show which data file each delete applies to; Avro files have none.
    options = {"distribution-mode": "none", "check-nullability": "false", "write-format": "parquet"}
    staged = stage_files(jvm, rows, options, jvm.view(table, builder.discardChanges().build()))
    return Marked(tuple(_as_positions(jvm, table, file, files) for file in staged.files), rows=staged.rows)


def _as_positions(jvm: Jvm, table: Any, file: Any, files: Mapping[str, LiveFile]) -> Any:
    iceberg = jvm.iceberg
    bound = file.lowerBounds().get(PATH_ID)
    path = str(iceberg.types.Conversions.fromByteBuffer(getattr(iceberg.types, "Types$StringType").get(), bound).toString())
    data = files[path].file
    spec = table.specs().get(data.specId())
    builder = iceberg.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(file.location())
    builder = builder.withFormat(file.format()).withFileSizeInBytes(file.fileSizeInBytes())
    builder = builder.withMetrics(metrics_of(jvm, file)).withReferencedDataFile(path)
    return (builder if spec.isUnpartitioned() else builder.withPartition(data.partition())).build()


class _Blobs:
    """Deletion vectors as blobs of a Puffin file. What they share is made once: every part of one is a call to Java."""

    def __init__(self, jvm: Jvm) -> None:
        self._new = jvm.iceberg.puffin.Blob
        self._wrap = jvm.root.java.nio.ByteBuffer.wrap
        self._map_of = jvm.root.java.util.Map.of
        self._fields = jvm.root.java.util.List.of(POSITION_ID)

    def __call__(self, path: str, dead: BitMap64) -> Any:
        body = _VECTOR_MAGIC + dead.serialize()
        content = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        properties = self._map_of("referenced-data-file", path, "cardinality", str(len(dead)))
        return self._new(_VECTOR_TYPE, self._fields, -1, -1, self._wrap(bytearray(content)), None, properties)


def _read_vector(jvm: Jvm, table: Any, vector: Any) -> BitMap64:
    streams = jvm.iceberg.relocated.com.google.common.io.ByteStreams
    stream = table.io().newInputFile(vector.location()).newStream()
    try:
        stream.seek(vector.contentOffset())
        content = bytes(streams.toByteArray(streams.limit(stream, vector.contentSizeInBytes())))
    finally:
        stream.close()
    (length,) = struct.unpack(">I", content[:4])
    body = content[4 : 4 + length]
    if not body.startswith(_VECTOR_MAGIC) or struct.unpack(">I", content[4 + length : 8 + length])[0] != zlib.crc32(body):
        raise ValueError(f"the deletion vector in {vector.location()} cannot be read")
    return BitMap64.deserialize(body[len(_VECTOR_MAGIC) :])
