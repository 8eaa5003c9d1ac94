"""Programs out of Debian's packages: fetched from wherever this machine gets its own, checked, unpacked, kept in the cache."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from frazil.spark.cache import cache_dir
from services.processes import ServiceFailed

LOCKS = Path(__file__).parent / "locks"
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
DOWNLOAD_SECONDS = 60


def is_possible() -> bool:
    """Whether this machine can run such programs, and knows where packages are."""
    tools = shutil.which("dpkg") and shutil.which("apt-get")
    return platform.system() == "Linux" and platform.machine() == "x86_64" and bool(tools)


def unpacked(name: str, lock: Path, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """The folder with the packages of a lock. ``finish`` completes it, once."""
    services = cache_dir() / "services"
    folder = services / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        services.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=services) as scratch:
            made = Path(scratch) / "made"
            for package in _packages(lock, Path(scratch)):
                subprocess.run(["dpkg", "-x", str(package), str(made)], check=True)
            _keep_links_within(made)
            finish(made)
            with suppress(OSError):  # another process was faster: what it has put there is the same
                made.rename(folder)
    return folder


def _packages(lock: Path, scratch: Path) -> Iterator[Path]:
    for line in lock.read_text().splitlines():
        if line.startswith("#"):
            continue
        sha256, path = line.split()
        content = _fetched(path, lock)
        if (found := hashlib.sha256(content).hexdigest()) != sha256:
            raise ServiceFailed(f"{path} has SHA-256 {found}, and the lock says {sha256}")
        file = scratch / path.rpartition("/")[2]
        file.write_bytes(content)
        yield file


def _fetched(path: str, lock: Path) -> bytes:
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
        f"No archive of this machine has {path}: {'; '.join(refusals)}. Install what it is for, or take Debian's newer package "
        f"into {lock.name}."
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
