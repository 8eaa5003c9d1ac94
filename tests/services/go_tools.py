"""Servers that are published as Go modules: built once, and kept in the cache beside the jars."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from frazil.spark.cache import cache_dir
from services.processes import ServiceFailed


def built(module: str, version: str) -> Path:
    """The program of a module at a version. Go checks what it downloads against its own database of checksums.

    Skips the test where there is no Go to build it with.
    """
    folder = cache_dir() / "go" / f"{Path(module).name}-{version}"
    program = folder / Path(module).name
    if program.is_file():
        return program
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"{program.name} is built by Go, and there is no go on the search path")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.is_file():
            # Of a program that is half written nobody must think that it is there.
            making = folder / "making"
            environment = {**os.environ, "GOBIN": str(making)}
            done = subprocess.run([go, "install", f"{module}@v{version}"], env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise ServiceFailed(f"go install {module} failed:\n{done.stderr[-2000:]}")
            (making / program.name).rename(program)
    return program
