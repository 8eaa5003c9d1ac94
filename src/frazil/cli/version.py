"""`frazil version`."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from frazil.cli.call import Call
from frazil.cli.output import facts


def version(call: Call) -> None:
    """Print the versions of frazil and of what it runs on."""
    found = versions()
    if call.output.json:
        call.output.document(found)
    else:
        call.output.show(facts((name, value or "not found") for name, value in found.items()))


def versions() -> dict[str, str | None]:
    """The versions, found without starting anything."""
    from frazil.version import __version__

    return {
        "frazil": __version__,
        "python": platform.python_version(),
        "pyspark": package_version("pyspark"),
        "iceberg": iceberg_version(),
        "pyiceberg": package_version("pyiceberg"),
        "java": java_version(),
    }


def package_version(name: str) -> str | None:
    """The version of an installed package."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def iceberg_version() -> str | None:
    """The version of the Iceberg runtime that the lock pins."""
    from frazil.spark.jars import component_jars

    return next((jar.revision for jar in component_jars(["core"]) if jar.module.startswith("iceberg-spark-runtime")), None)


def java_version() -> str | None:
    """The Java that Spark would be given, and where it is."""
    from frazil.errors import EnvironmentFault
    from frazil.spark.java import java_home

    try:
        home = java_home()
    except EnvironmentFault:
        return None
    return f"{_release(home) or 'of the java extra'} ({home})"


def _release(home: Path) -> str | None:
    release = home / "release"
    match = re.search(r'JAVA_VERSION="([^"]+)"', release.read_text(errors="replace")) if release.is_file() else None
    return match[1] if match else None
