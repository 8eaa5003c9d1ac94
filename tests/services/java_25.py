"""A whole Java 25, which Trino needs: the machine's own, or Debian's packages, unpacked beside the C libraries that fit them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from frazil.spark.java import WELL_KNOWN, _candidates
from services import debian

LOCK = debian.LOCKS / "java-25-debian-13.txt"
HOME = Path("usr/lib/jvm/java-25-openjdk-amd64")
LOADER = "ld-linux-x86-64.so.2"
# What small Javas leave out: Trino computes with the one, and the other compiles the few lines that start it.
MODULES = ("jdk.incubator.vector", "jdk.compiler")


def java_25() -> list[str]:
    """The command of a Java 25 that has all modules. Skips the test where there is none, and none can be had."""
    return installed() or unpacked()


def installed() -> list[str]:
    """The command of one that the machine has; nothing if it has none."""
    return next(([str(home / "bin" / "java")] for home in _candidates(WELL_KNOWN) if _is_whole(home)), [])


def _is_whole(home: Path) -> bool:
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    return 'JAVA_VERSION="25' in text and all(module in text for module in MODULES)


def unpacked() -> list[str]:
    """The command of Debian's, fetched once and kept in the cache.

    It runs by the loader of its own C library, so that it does not matter which one the machine has.
    """
    if not debian.is_possible():
        pytest.skip("there is no Java 25 here, and no Debian for x86-64 whose archive has one")
    folder = debian.unpacked("java-25", LOCK, _with_loader)
    home = folder / HOME
    return [str(home / "bin" / LOADER), "--library-path", str(folder / debian.LIBRARIES), str(home / "bin" / "java")]


def _with_loader(folder: Path) -> None:
    """Java finds its home by the program that runs, which is the loader."""
    shutil.copy(folder / debian.LIBRARIES / LOADER, folder / HOME / "bin" / LOADER)
