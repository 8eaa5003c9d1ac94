"""What files a folder holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.sources.listing import FileEntry, SourceFolder, list_folder
from frazil.sources.listing import _remote_files as by_spark


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")


def names(folder: Path, spark: SparkSession | None = None, pattern: str = "*", recursive: bool = False) -> list[str]:
    listed = list_folder(SourceFolder(str(folder), pattern, recursive), lambda: spark)  # type: ignore[arg-type]
    return sorted(entry.path for entry in listed)


def test_hidden_unfinished_and_empty_files_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "_SUCCESS", ".a.json.crc", "b.json.tmp", "c.json._COPYING_", "d b.json")
    (tmp_path / "empty.json").touch()
    assert names(tmp_path) == ["a.json", "d b.json"]


def test_folders_within_are_read_when_asked_for(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "day=1/b.json", "_temporary/0/c.json", "x/.hidden/d.json", "x/y/e.json")
    assert names(tmp_path) == ["a.json"]
    assert names(tmp_path, recursive=True) == ["a.json", "day=1/b.json", "x/y/e.json"]


def test_the_pattern_is_of_the_file_name(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "b.csv", "sub/c.json")
    assert names(tmp_path, pattern="*.json", recursive=True) == ["a.json", "sub/c.json"]


def test_one_folder_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    written = ("a b", str(folder), f"file:{folder}", f"file://{folder}", folder.as_uri())
    assert {SourceFolder(text, "*", False).name for text in written} == {str(folder)}


def test_a_name_with_a_password_does_not_show_it() -> None:
    assert "hunter2" not in SourceFolder("ftp://me:hunter2@host/in", "*", False).name


def test_a_missing_folder_says_which(tmp_path: Path, spark: SparkSession) -> None:
    for listing in (lambda: names(tmp_path / "none"), lambda: list(by_spark(f"file:{tmp_path}/none", spark))):
        with pytest.raises(ConfigError, match=r"The folder .*none does not exist") as caught:
            listing()
        assert caught.value.code == "source-missing"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    write(tmp_path, "a.json")
    with pytest.raises(ConfigError, match="is not a folder"):
        names(tmp_path / "a.json")


def test_a_folder_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    user = os.geteuid()
    if user == 0:  # root may read everything: be somebody else for a moment
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="may not be read") as caught:
            names(tmp_path / "closed")
    finally:
        os.seteuid(user)
    assert caught.value.code == "source-not-readable"


def test_spark_lists_as_the_operating_system_does(tmp_path: Path, spark: SparkSession) -> None:
    odd = ("a b.json", "a%20b.json", "a[1].json", "a{b,c}.json", "ü.json", "a,b.json", "a#b.json", "k=1/p.json", "s/_t/u.json")
    write(tmp_path, *odd)
    os.utime(tmp_path / "a b.json", (1_700_000_000.5, 1_700_000_000.123))
    folder = SourceFolder(str(tmp_path), "*", True)

    def counted(entries: list[FileEntry]) -> set[FileEntry]:
        return {entry for entry in entries if folder.takes(entry.path)}

    local = set(list_folder(folder, lambda: spark))
    assert len(local) == len(odd) - 1
    for location in (f"file:{tmp_path}", f"file://{tmp_path}/"):
        assert counted(list(by_spark(location, spark))) == local
    (tmp_path / "nothing").mkdir()
    assert list(by_spark(f"file:{tmp_path}/nothing", spark)) == []
