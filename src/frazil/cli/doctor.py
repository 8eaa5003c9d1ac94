"""`frazil doctor`."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import typer

from frazil.cli.call import DEFAULT_FILE, Call
from frazil.cli.output import text
from frazil.cli.packages import OPTIONAL, Package, needed_packages
from frazil.cli.version import java_version, package_version
from frazil.errors import FrazilError

if TYPE_CHECKING:
    from rich.text import Text

    from frazil.model.pipeline import ProjectSpec

State = Literal["ok", "warn", "fail"]
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True)
class Finding:
    """What was found of one thing, and the cure where it is not well."""

    name: str
    state: State
    message: str
    fix: str = ""


def doctor(call: Call) -> None:
    """Look at this machine: Python, Java, PySpark, jars, cache, ports, and what the pipeline file needs. Names cures."""
    findings = []
    for finding in examine(call):
        findings.append(finding)
        if not call.output.json:
            call.output.show(_line(finding))
    failed = any(finding.state == "fail" for finding in findings)
    if call.output.json:
        call.output.document({"ok": not failed, "checks": findings})
    if failed:
        raise typer.Exit(1)


def _line(finding: Finding) -> Text:
    made = text(f"{finding.state:<4}", STYLES[finding.state])
    made.append_text(text(f"  {finding.name}: {finding.message}"))
    if finding.fix and finding.state != "ok":
        made.append_text(text(f"\n      {finding.fix}", "dim"))
    return made


def examine(call: Call) -> Iterator[Finding]:
    """Everything, one after the other."""
    project, problem = _project(call)
    yield _python()
    yield _java()
    yield _pyspark()
    yield _cache()
    yield from _jars(project)
    yield from _classes()
    yield from _ports(project)
    yield from _optional_packages(project)
    if problem is not None:
        yield Finding("pipeline file", "fail", problem.message, problem.fix or "See: frazil validate")
    elif project is not None:
        yield Finding("pipeline file", "ok", f"{project.file} is valid")


def _project(call: Call) -> tuple[ProjectSpec | None, FrazilError | None]:
    if call.config is None and not DEFAULT_FILE.is_file():
        return None, None
    try:
        return call.project(), None
    except FrazilError as error:
        return None, error


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", "ok", f"{version} ({sys.executable})")


def _java() -> Finding:
    found = java_version()
    if found is None:
        return Finding("java", "fail", "no Java 17 or 21", "Install one and set JAVA_HOME, or: pip install 'frazil[java]'")
    return Finding("java", "ok", found)


def _pyspark() -> Finding:
    version = package_version("pyspark")
    cure = "pip install 'pyspark>=4.1,<4.2'"
    if version is None:
        return Finding("pyspark", "fail", "not installed", cure)
    if version.split(".")[:2] != ["4", "1"]:
        return Finding("pyspark", "fail", f"{version} does not fit: Iceberg's runtime is made for 4.1", cure)
    return Finding("pyspark", "ok", version)


def _cache() -> Finding:
    from frazil.spark.cache import cache_dir

    folder = next(place for place in (cache_dir(), *cache_dir().parents) if place.exists())
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Finding("cache", "ok", f"{cache_dir()} can be written")
    return Finding(
        "cache", "fail", f"{folder} cannot be written", "Set FRAZIL_CACHE_DIR to a folder that this user may write to."
    )


def _jars(project: ProjectSpec | None) -> Iterator[Finding]:
    from frazil.spark.jars import component_jars, missing_jars

    for component in _components(project):
        jars = component_jars([component])
        missing = missing_jars(jars)
        if missing:
            names = ", ".join(jar.file_name for jar in missing)
            cure = f"The first run fetches them, which needs a network. At once: frazil setup {component}"
            yield Finding(f"jars ({component})", "warn", f"not in the cache: {names}", cure)
        else:
            yield Finding(f"jars ({component})", "ok", f"{len(jars)} in the cache")


def _components(project: ProjectSpec | None) -> list[str]:
    """What the file's pipelines need, and its sinks and sources that no pipeline uses; `core` comes first."""
    from frazil.spark.catalogs import catalog_settings
    from frazil.spark.components import components_of

    if project is None:
        return ["core"]
    of_sinks = [component for sink in project.sinks.values() for component in catalog_settings(sink).components]
    others = {*of_sinks, *components_of(project.pipelines, tuple(project.sources.values()))} - {"core"}
    return ["core", *sorted(others)]


def _classes() -> Iterator[Finding]:
    """Only where all jars are there: to look must not fetch any."""
    from frazil.spark.class_archive import archive_of
    from frazil.spark.jars import component_jars, missing_jars

    if java_version() is None or package_version("pyspark") is None or missing_jars(component_jars(["core"])):
        return
    archive = archive_of()
    if archive.is_file():
        yield Finding("classes", "ok", f"{archive} is there: Spark starts quickly")
    else:
        yield Finding("classes", "warn", "not prepared: Spark starts slowly", "Run: frazil setup")


def _ports(project: ProjectSpec | None) -> Iterator[Finding]:
    from frazil.model.settings import Settings

    settings = project.settings if project is not None else Settings()
    for name, place in (("health", settings.health), ("metrics", settings.metrics)):
        if not place.enabled or place.port == 0:
            continue
        address = f"{place.host}:{place.port}"
        if _is_free(place.host, place.port):
            yield Finding(f"port ({name})", "ok", f"{address} is free")
        else:
            cure = f"Set settings.{name}.port to another port, or to 0 for any free one."
            yield Finding(f"port ({name})", "warn", f"{address} is in use: frazil may be running, or something else", cure)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _optional_packages(project: ProjectSpec | None) -> Iterator[Finding]:
    """What the file needs, each by itself; without a file what is there, in one line."""
    if project is None:
        words = (f"{one.module} {'yes' if one.is_installed else f'no ({one.purpose}: {_installed_by(one)})'}" for one in OPTIONAL)
        yield Finding("optional packages", "ok", "; ".join(words))
        return
    for package, user in needed_packages(project).items():
        name, needs = f"package ({package.module})", f"{user} needs it for {package.purpose}"
        if package.is_installed:
            yield Finding(name, "ok", "installed")
        elif package.for_runs:
            yield Finding(name, "fail", f"not installed; {needs}", _installed_by(package))
        else:
            yield Finding(name, "warn", f"not installed; {needs}", f"{_installed_by(package)}. A run does not need it.")


def _installed_by(package: Package) -> str:
    return f"pip install '{package.brought_by}'"
