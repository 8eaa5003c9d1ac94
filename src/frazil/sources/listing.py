"""What files a folder holds, wherever it is. Local folders are listed here, others by Spark, which knows every file system."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from frazil.errors import ConfigError, SourceMissing
from frazil.model.secrets import mask_uri
from frazil.sources.base import Session
from frazil.sources.failures import asking_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<authority>//[^/]*)?")


@dataclass(frozen=True)
class FileEntry:
    """A file in a listing. ``path`` is relative to the folder, ``uri`` what Spark reads.

    ``arrived_ms`` is when the file came into the folder, which a modification time does not show: moving a file keeps it. None
    if the store does not know.
    """

    path: str
    mtime_ms: int
    size: int
    uri: str = field(compare=False)
    arrived_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class SourceFolder:
    """Where to look, and for what."""

    location: str
    pattern: str
    recursive: bool

    @property
    def local(self) -> Path | None:
        """The folder on this machine, or None when it is elsewhere."""
        match = _SCHEME.match(self.location)
        if match is None:
            return Path(self.location).expanduser().absolute()
        if match["scheme"].lower() != "file":
            return None
        return Path(unquote(self.location[match.end() :]))

    @property
    def name(self) -> str:
        """The folder's name, which does not depend on how its path was written."""
        return str(self.local) if self.local is not None else mask_uri(self.location.rstrip("/"))

    def takes(self, path: str) -> bool:
        """Whether a file at this relative path counts: its name fits, and nothing in the path is hidden or unfinished."""
        *folders, name = path.split("/")
        if folders and not self.recursive:
            return False
        if any(part.startswith(("_", ".")) for part in (*folders, name)) or name.endswith((".tmp", "._COPYING_")):
            return False
        return fnmatch.fnmatchcase(name, self.pattern)


def file_key(uri: str) -> str:
    """The path of a URI: Spark and Hadoop write `file:/a`, `file:///a` and `/a` for the same file."""
    return _SCHEME.sub("", uri)


def list_folder(folder: SourceFolder, session: Session) -> list[FileEntry]:
    """The files that count and are not empty. A ConfigError when the folder is not there or not readable."""
    found = _local_files(folder.local) if folder.local is not None else _remote_files(folder.location, session())
    # An empty file has no rows, and many writers make the file before they fill it.
    return [entry for entry in found if entry.size > 0 and folder.takes(entry.path)]


def missing_folder(name: str) -> ConfigError:
    """The error for a folder that is not there."""
    return SourceMissing(
        "source-missing",
        f"The folder {name} does not exist.",
        fix="Create it or correct the source's path; on a cluster every worker must see it.",
    )


def _local_files(root: Path) -> Iterator[FileEntry]:
    try:
        if not root.exists():
            raise missing_folder(str(root))
        if not root.is_dir():
            raise ConfigError("source-not-a-folder", f"{root} is not a folder.", fix="Give the folder that holds the files.")
        yield from _scan(root, "")
    except PermissionError as error:
        raise ConfigError(
            "source-not-readable", f"The folder {error.filename or root} may not be read.", fix="Check its permissions."
        ) from error


def _scan(folder: Path, prefix: str) -> Iterator[FileEntry]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _scan(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file():
                try:
                    stat = entry.stat()
                except FileNotFoundError:  # removed since the folder was read: as if it had been removed a moment earlier
                    continue
                yield FileEntry(
                    path=f"{prefix}{entry.name}",
                    mtime_ms=stat.st_mtime_ns // 1_000_000,
                    size=stat.st_size,
                    uri=f"file:{entry.path}",
                    arrived_ms=stat.st_ctime_ns // 1_000_000,
                )


def _remote_files(location: str, spark: SparkSession) -> Iterator[FileEntry]:
    """Lists by the data source for whole files; without its content column no content is read."""
    root = file_key(location).rstrip("/")

    def not_there(error: Exception) -> ConfigError | None:
        missing = isinstance(error, AnalysisException) and error.getCondition() == "PATH_NOT_FOUND"
        return missing_folder(mask_uri(location)) if missing else None

    with asking_spark(f"The folder {mask_uri(location)}", not_there):
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(location)
        rows = files.select("path", sf.unix_millis("modificationTime").alias("mtime_ms"), "length").collect()
    for row in rows:
        path = file_key(row.path).removeprefix(root).lstrip("/")
        yield FileEntry(path=path, mtime_ms=row.mtime_ms, size=row.length, uri=row.path)
