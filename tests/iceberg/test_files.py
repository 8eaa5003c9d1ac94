"""Data files: format, codec, size, names, and what the table's properties say of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import frazil
from helpers.lakes import Lake, run

MB = 1024 * 1024


def codec_of(path: Path) -> str:
    """What the file itself says, by readers that are not frazil's."""
    match path.suffix:
        case ".parquet":
            import pyarrow.parquet

            return str(pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression)
        case ".orc":
            import pyarrow.orc

            return str(pyarrow.orc.ORCFile(path).compression)
        case _:
            header = re.search(rb"avro\.codec.([a-z]+)", path.read_bytes()[:4096], re.DOTALL)
            return header[1].decode() if header else "null"


@pytest.mark.parametrize(
    ("file_format", "compression", "in_the_file"),
    [
        ("parquet", "none", "UNCOMPRESSED"),
        ("parquet", "snappy", "SNAPPY"),
        ("parquet", "gzip", "GZIP"),
        ("parquet", "lz4", "LZ4"),
        ("parquet", "zstd", "ZSTD"),
        ("orc", "none", "UNCOMPRESSED"),
        ("orc", "snappy", "SNAPPY"),
        ("orc", "gzip", "ZLIB"),
        ("orc", "lz4", "LZ4"),
        ("orc", "zstd", "ZSTD"),
        ("avro", "none", "null"),
        ("avro", "snappy", "snappy"),
        ("avro", "gzip", "deflate"),
        ("avro", "zstd", "zstandard"),
    ],
)
def test_format_and_codec_are_those_asked_for(lake: Lake, file_format: str, compression: str, in_the_file: str) -> None:
    frame = lake.frame("select id, repeat(cast(id as string), 20) text from range(200)")
    lake.sink(frame, file_format=file_format, compression=compression).write()
    files = lake.files()
    assert {path.suffix for path in files} == {f".{file_format}"}
    assert {codec_of(path) for path in files} == {in_the_file}
    assert lake.rows("count(*), min(length(text)), max(id)") == [(200, 20, 199)]
    assert lake.properties()["write.format.default"] == file_format


def test_brotli_is_refused_by_a_session_without_its_codec(lake: Lake) -> None:
    with pytest.raises(frazil.EnvironmentFault, match="without the jars of brotli"):
        lake.sink("select 1 id", compression="brotli").write()
    assert lake.nothing_written()


@pytest.mark.parametrize(("file_format", "files", "largest"), [("parquet", 4, 2 * MB), ("avro", 4, 2 * MB), ("orc", 3, 4 * MB)])
def test_a_file_is_closed_near_the_target_size_and_the_next_begun(lake: Lake, file_format: str, files: int, largest: int) -> None:
    texts = ", ".join(f"sha2(concat({n}, id), 512) t{n}" for n in range(5))
    frame = lake.frame(f"select id, {texts} from range(0, 12000, 1, 1)")  # one task, about 7.5 MB
    written = lake.sink(frame, file_format=file_format, compression="none", target_file_size_mb=1).write()
    sizes = [row.file_size_in_bytes for row in lake.meta("files")]
    assert written.files == len(sizes) >= files
    assert max(sizes) < largest
    assert lake.count() == 12000


@pytest.mark.parametrize(("asked", "kept"), [(64, 64), (1024, 512)])
def test_no_target_is_above_half_a_gigabyte(lake: Lake, asked: int, kept: int) -> None:
    lake.sink("select 1 id", target_file_size_mb=asked).write()
    assert lake.properties()["write.target-file-size-bytes"] == str(kept * MB)


def test_file_names_are_unique_over_batches_writers_and_runs(lake: Lake) -> None:
    pipeline = lake.pipeline({"connector": "generator", "rows": 40}, batch_size=10, partition_by=["bucket(2, event_number)"])
    run(pipeline, once=True)
    run(
        lake.pipeline({"connector": "generator", "rows": 20}, batch_size=10, id="another", partitioning="table_default"),
        once=True,
    )
    names = [path.name for path in lake.files()]
    assert len(names) == len(set(names)) >= 6
    assert lake.count() == 60


def test_write_properties_go_into_a_new_table_and_rule_its_files(lake: Lake) -> None:
    given = {"write.parquet.compression-codec": "gzip", "commit.retry.num-retries": 7, "write.metadata.metrics.default": "counts"}
    lake.sink("select 1 id", write_properties=given).write()
    assert lake.properties().items() >= {key: str(value) for key, value in given.items()}.items()
    assert {codec_of(path) for path in lake.files()} == {"GZIP"}


def test_write_properties_go_into_a_table_that_is_there_already(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    assert {codec_of(path) for path in lake.files()} == {"SNAPPY"}
    changed = {"write.parquet.compression-codec": "zstd", "write.metadata.delete-after-commit.enabled": True}
    lake.sink("select 2 id", write_properties=changed).write()
    assert lake.properties()["write.parquet.compression-codec"] == "zstd"
    assert lake.properties()["write.metadata.delete-after-commit.enabled"] == "true"
    assert sorted(codec_of(path) for path in lake.files()) == ["SNAPPY", "ZSTD"]
    assert lake.count() == 2


def test_the_cap_of_files_holds_for_a_property_too(lake: Lake) -> None:
    frame = lake.frame("select id, sha2(string(id), 512) a, sha2(string(-id), 512) b from range(0, 12000, 1, 1)")
    lake.sink(frame, compression="none", write_properties={"write.target-file-size-bytes": MB}).write()
    assert len(lake.files()) > 1
    with pytest.raises(frazil.ConfigError, match="not a number of bytes"):
        lake.sink("select 1 id", "db.other", write_properties={"write.target-file-size-bytes": "1 MB"}).write()


@pytest.mark.parametrize("name", ["format-version", "frazil.sink.mine", "current-snapshot-id"])
def test_properties_that_are_not_the_users_are_refused(lake: Lake, name: str) -> None:
    with pytest.raises(frazil.ConfigError, match=name):
        lake.sink("select 1 id", write_properties={name: "3"}).write()
    assert lake.nothing_written()


@pytest.mark.parametrize("version", [2, 3])
def test_the_format_version_is_the_one_asked_for(lake: Lake, version: int) -> None:
    lake.sink("select 1 id", format_version=version).write()
    lake.sink("select 2 id", format_version=version).write()
    assert lake.metadata()["format-version"] == version
    assert lake.count() == 2


def test_format_version_two_is_the_default(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    assert lake.metadata()["format-version"] == 2


def test_a_table_is_put_where_the_sink_says(lake: Lake) -> None:
    place = lake.folder / "else where"
    lake.sink("select 1 id", location=str(place)).write()
    assert lake.metadata()["location"] == f"file://{place}"
    assert [path for path in lake.files() if not path.is_relative_to(place)] == []
    assert lake.rows() == [(1,)]
