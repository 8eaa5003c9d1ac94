"""Finds the classes of sources: those of the package bizon, and those in a Python file of the user's."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from frazil.errors import ConfigError, EnvironmentFault
from frazil.sources.pages.failures import asking

PACKAGE = "bizon"
_SOURCES = f"{PACKAGE}.connectors.sources"

# frazil reads topics itself.
_OWN = ("kafka",)


def source_names() -> tuple[str, ...]:
    """The sources of the package, which is not loaded for that; none when it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    folders = [Path(folder) for folder in (found.submodule_search_locations or ())] if found is not None else []
    sources = [one for folder in folders for one in folder.joinpath("connectors", "sources").glob("*/src") if one.is_dir()]
    return tuple(sorted({one.parent.name for one in sources} - set(_OWN)))


def require_package() -> type[Any]:
    """The base class of all sources; raises an EnvironmentFault if the package is not installed."""
    alone = "loguru" not in sys.modules
    try:
        from bizon.source.source import AbstractSource
    except ModuleNotFoundError as error:
        raise EnvironmentFault.package("A source of Bizon's", error.name, "bizon") from error
    if alone:
        _log_with_frazil()
    base: type[Any] = AbstractSource
    return base


def _log_with_frazil() -> None:
    """What sources log comes out as frazil's own entries do. Where a program has loaded its logger before, it is left alone."""
    from loguru import logger

    own = logging.getLogger("frazil.bizon")
    logger.configure(handlers=[{"sink": lambda entry: own.log(entry.record["level"].no, entry.record["message"]), "level": 0}])


def classes_of(name: str) -> dict[str, type[Any]]:
    """The classes of one of the package's sources by the streams that they read."""
    base = require_package()
    folder = Path(inspect.getfile(base)).parents[1].joinpath("connectors", "sources", name, "src")
    found: dict[str, type[Any]] = {}
    for file in sorted(folder.rglob("*.py")):
        module = ".".join((_SOURCES, name, "src", *file.relative_to(folder).with_suffix("").parts))
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise EnvironmentFault(
                "package-missing",
                f"The source {name} of bizon needs the package {error.name}.",
                fix=f"Install it: pip install 'bizon[{name}]'.",
            ) from error
        found |= _by_stream(loaded, base)
    return found


def classes_in(file: str) -> dict[str, type[Any]]:
    """The classes in a Python file by the streams that they read. The file is run for that."""
    path = Path(file)
    if not path.is_file():
        there = "is no file" if path.exists() else "does not exist"
        raise ConfigError("file-missing", f"The file {file} with the source {there}.", fix="Name a Python file.")
    if path.suffix != ".py":
        raise ConfigError("invalid-value", f"{file} is not a Python file: its name does not end in .py.")
    base = require_package()
    state = path.stat()
    module = _loaded(os.path.realpath(file), file, state.st_mtime_ns, state.st_size)
    with asking(f"The streams of {file}", file):
        found = _by_stream(module, base)
    if not found:
        raise ConfigError(
            "source-class-missing",
            f"{file} has no class of a source: one that derives from bizon.source.source.AbstractSource, has all of its abstract "
            f"methods, and names a stream.",
            fix=_lacking(module, base),
        )
    return found


@lru_cache(maxsize=16)
def _loaded(path: str, shown: str, _changed: int, _size: int) -> ModuleType:
    """The file as a module, run once as long as it does not change. It may import what lies beside it."""
    # Two files of one name in different folders are two modules.
    name = f"frazil_source_{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    described = importlib.util.spec_from_file_location(name, path)
    assert described is not None, "the name ends in .py"
    assert described.loader is not None, "files have loaders"
    module = importlib.util.module_from_spec(described)
    sys.modules[name] = module
    folder = str(Path(path).parent)
    sys.path.insert(0, folder)
    try:
        with asking(f"{shown} cannot be run", shown):
            described.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def _by_stream(module: ModuleType, base: type[Any]) -> dict[str, type[Any]]:
    own = [one for one in _sources(module, base) if not inspect.isabstract(one)]
    return {str(getattr(stream, "value", stream)): one for one in own for stream in one.streams()}


def _sources(module: ModuleType, base: type[Any]) -> list[type[Any]]:
    made = [one for one in vars(module).values() if inspect.isclass(one) and issubclass(one, base)]
    return [one for one in made if one.__module__ == module.__name__]


def _lacking(module: ModuleType, base: type[Any]) -> str:
    """What keeps a class from being one."""
    for one in _sources(module, base):
        if methods := sorted(getattr(one, "__abstractmethods__", ())):
            return f"Add to the class {one.__name__}: {', '.join(methods)}."
        return f"Let streams() of the class {one.__name__} name one."
    return "Write one: docs/bizon.md shows how."


def reads_increments(source: type[Any]) -> bool:
    """Whether a class can be asked for what is new."""
    return source.get_records_after is not require_package().get_records_after
