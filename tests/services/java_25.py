"""A whole Java 25, which Trino needs: the machine's own, or Debian's packages, unpacked beside the C libraries that fit them."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from frazil.spark.cache import cache_dir
from frazil.spark.java import WELL_KNOWN, _candidates
from services.processes import ServiceFailed

LOCK = Path(__file__).parent / "locks" / "java-25-debian-13.txt"
HOME = Path("usr/lib/jvm/java-25-openjdk-amd64")
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
LOADER = "ld-linux-x86-64.so.2"
# What small Javas leave out: Trino computes with the one, and the other compiles the few lines that start it.
MODULES = ("jdk.incubator.vector", "jdk.compiler")
DOWNLOAD_SECONDS = 60


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
    if platform.system() != "Linux" or platform.machine() != "x86_64" or not (shutil.which("dpkg") and shutil.which("apt-get")):
        pytest.skip("there is no Java 25 here, and no Debian for x86-64 whose archive has one")
    services = cache_dir() / "services"
    folder = services / f"java-25-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        services.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=services) as scratch:
            made = Path(scratch) / "made"
            for package in _packages(Path(scratch)):
                subprocess.run(["dpkg", "-x", str(package), str(made)], check=True)
            _keep_links_within(made)
            # Java finds its home by the program that runs, which is the loader.
            shutil.copy(made / LIBRARIES / LOADER, made / HOME / "bin" / LOADER)
            with suppress(OSError):  # another process was faster: what it has put there is the same
                made.rename(folder)
    home = folder / HOME
    return [str(home / "bin" / LOADER), "--library-path", str(folder / LIBRARIES), str(home / "bin" / "java")]


def _packages(scratch: Path) -> Iterator[Path]:
    for line in LOCK.read_text().splitlines():
        if line.startswith("#"):
            continue
        sha256, path = line.split()
        content = _fetched(path)
        if (found := hashlib.sha256(content).hexdigest()) != sha256:
            raise ServiceFailed(f"{path} has SHA-256 {found}, and the lock says {sha256}")
        file = scratch / path.rpartition("/")[2]
        file.write_bytes(content)
        yield file


def _fetched(path: str) -> bytes:
    """A file of Debian's archive, from wherever this machine gets its packages."""
    refusals = []
    for archive in _archives():
        try:
            with urlopen(archive + path, timeout=DOWNLOAD_SECONDS) as answer:
                content: bytes = answer.read()
                return content
        except URLError as error:
            refusals.append(f"{archive}: {error}")
    raise ServiceFailed(
        f"No archive of this machine has {path}: {'; '.join(refusals)}. Install a Java 25, or take Debian's newer package "
        f"into {LOCK.name}."
    )


def _archives() -> list[str]:
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return [line for line in dict.fromkeys(found.splitlines()) if re.match("https?://", line)]


def _keep_links_within(folder: Path) -> None:
    """Lets links to places of the whole machine lead to the same places within the folder."""
    for path in list(folder.rglob("*")):
        if path.is_symlink() and (target := os.readlink(path)).startswith("/") and (folder / target[1:]).exists():
            path.unlink()
            path.symlink_to(os.path.relpath(folder / target[1:], path.parent))
