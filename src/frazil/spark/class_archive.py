"""Java's classes, read and checked once and kept in a file: a Spark of this machine then starts with a third of the work.

A new Spark loads some twenty thousand classes before its first rows are written, which takes more of the processor's time than
those rows. Java can keep them as they are in memory (class data sharing) and map the file instead. An archive fits one Java, one
PySpark and one set of jars; Java itself checks that, and goes without it where it does not fit.

The classes must come from Java's own class path, and in the same order, which is why a local Spark gets its jars there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.spark.cache import cache_dir
from frazil.spark.jars import needed_jars, spark_jars
from frazil.spark.java import java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS_PATH = "spark.driver.extraClassPath"

# Options of Spark by which a user has a say in where classes come from.
USERS_OWN = frozenset({CLASS_PATH, "spark.jars", "spark.jars.packages", "spark.driver.userClassPathFirst"})

# Words of Java's options by which a user has a say in archives.
_USERS_OWN_OPTIONS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")

# An archive that does not fit is no reason to talk: everything works without it.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")

_LONGEST_SECONDS = 300
_BASE = "-base"
_KEPT = 2


def class_path(jars: Iterable[Path]) -> str:
    """Spark's own jars, then these. Spark lists its own once more at the end, where Java no longer looks."""
    return os.pathsep.join([str(spark_jars() / "*"), *map(str, jars)])


def sharing_options(given: str) -> str:
    """Java's options for using the archive; none if there is no archive, or if the user's own options name one."""
    archive = archive_of()
    if any(word in given for word in _USERS_OWN_OPTIONS) or not archive.is_file():
        return ""
    return " ".join([_shared(archive), *_QUIET])


def archive_of() -> Path:
    """Where the archive for the current Java, PySpark and jars is, or would be. Those of `core` are always needed."""
    marks = [_mark(path) for path in (Path(java_command()).resolve(), *sorted(spark_jars().glob("*.jar")), *needed_jars())]
    return _folder() / f"{hashlib.sha256(repr(marks).encode()).hexdigest()[:16]}.jsa"


def make_archive(work: Callable[[str], SparkSession]) -> Path | None:
    """Makes the archive of all classes that some work needs. None: this Java cannot make one.

    ``work`` is given options for Java, and returns the Spark that it has started with them.
    """
    from frazil.spark.running_java import end_java

    archive = archive_of()
    archive.parent.mkdir(parents=True, exist_ok=True)
    scratch = archive.with_name(f".{archive.name}-{os.getpid()}")
    base = _base_of(archive)
    if not _has_base() and not _made_base(base):
        return None
    try:
        on_base = (_quoted(f"-XX:SharedArchiveFile={base}"),) if base.is_file() else ()
        end_java(work(" ".join([*on_base, _quoted(f"-XX:ArchiveClassesAtExit={scratch}"), *_QUIET])), _LONGEST_SECONDS)
        if not scratch.is_file():
            return None
        scratch.replace(archive)
    finally:
        scratch.unlink(missing_ok=True)
    _forget_older(archive.parent)
    return archive


def _forget_older(folder: Path) -> None:
    """Leaves the newest archives: some use two kinds of Java, one after the other, and each has its own."""
    archives = [path for path in folder.glob("*.jsa") if not path.stem.endswith(_BASE)]
    for older in sorted(archives, key=lambda path: path.stat().st_mtime_ns)[:-_KEPT]:
        for path in (older, _base_of(older)):
            path.unlink(missing_ok=True)


def _shared(archive: Path) -> str:
    base = _base_of(archive)
    files = os.pathsep.join(map(str, (base, archive) if base.is_file() else (archive,)))
    return _quoted(f"-XX:SharedArchiveFile={files}")


def _quoted(option: str) -> str:
    """As Spark reads options: a path may have spaces."""
    return f'"{option}"' if " " in option else option


def _base_of(archive: Path) -> Path:
    return archive.with_name(f"{archive.stem}{_BASE}.jsa")


def _has_base() -> bool:
    """Whether this Java comes with an archive of its own classes, which others are built upon."""
    return _asked("-Xshare:on", "-version")


def _made_base(path: Path) -> bool:
    return _asked("-Xshare:dump", f"-XX:SharedArchiveFile={path}") and path.is_file()


def _asked(*options: str) -> bool:
    return subprocess.run([java_command(), *options], capture_output=True, check=False).returncode == 0


def _folder() -> Path:
    """In the virtual environment, whose jars it fits and with which it is deleted; where there is none, in the cache."""
    return Path(sys.prefix) / "share" / "frazil" if sys.prefix != sys.base_prefix else cache_dir() / "classes"


def _mark(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns
