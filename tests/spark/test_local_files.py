"""Files on this machine: made without a process for each, with the permissions that Hadoop gives them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.model.settings import SparkSettings
from frazil.spark.session import LOCAL_FILES, launch_conf


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Any:
    """The file system that this Spark has for local files."""
    java = spark._jvm
    return java.org.apache.hadoop.fs.Path(str(tmp_path)).getFileSystem(spark._jsc.hadoopConfiguration())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_spark_of_one_process_makes_files_by_itself(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    path = spark._jvm.org.apache.hadoop.fs.Path
    assert files.getClass().getName() == "frazil.LocalFiles"
    files.mkdirs(path(f"{tmp_path}/folder"))
    files.create(path(f"{tmp_path}/folder/a file")).close()
    assert mode(tmp_path / "folder") == 0o755
    assert (mode(tmp_path / "folder" / "a file"), mode(tmp_path / "folder" / ".a file.crc")) == (0o644, 0o644)


@pytest.mark.parametrize("wanted", [0o600, 0o070, 0o751, 0o1777], ids=oct)
def test_permissions_are_set_as_configured(spark: SparkSession, files: Any, tmp_path: Path, wanted: int) -> None:
    java = spark._jvm.org.apache.hadoop.fs
    files.setPermission(java.Path(str(tmp_path)), java.permission.FsPermission(format(wanted, "04o")))
    assert mode(tmp_path) == wanted
    tmp_path.chmod(0o700)


def test_what_was_changed_on_the_disk_is_not_read(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    path = spark._jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/rows")
    out = files.create(path)
    out.write(65)
    out.close()
    (tmp_path / "rows").write_bytes(b"B")
    with pytest.raises(Exception, match="Checksum error"):
        files.open(path).read()


def test_executors_of_their_own_and_users_own_classes_keep_what_they_have() -> None:
    assert LOCAL_FILES not in launch_conf(SparkSettings(master="spark://there:7077"), [])
    own = launch_conf(SparkSettings(master="local[1]", conf={LOCAL_FILES: "mine.Files"}), [])
    assert own[LOCAL_FILES] == "mine.Files"
