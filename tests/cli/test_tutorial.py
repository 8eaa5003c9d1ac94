"""The tutorial as a reader follows it: its blocks in order, in an empty folder, with the output that the page shows.

- ``sh`` is typed. Commands of frazil run in this process, which has a Spark already; everything else in a shell.
- ``yaml`` and ``python`` are saved under the name in their first line.
- ``text`` is what the block before it prints: each of its lines, in this order. ``...`` is what the page leaves out, and what
  differs from run to run (times, ids, sizes) is not compared. If it shows an error, the command must have failed.
- ``console`` and blocks without a name are not run: how to install frazil, and output that is different each time.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from cli.commands import FRAZIL, Frazil, Outcome
from helpers.readers import EXTENSIONS, extension_file

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"

# What differs from run to run.
_VARYING = (
    (r"\d{15,}", "<id>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
    (r"\b[0-9a-f]{12}\b", "<instance>"),
    (r"\d+ (s|min|h) ago", "<age>"),
    (r"\d+(\.\d+)? [kM]?B\b", "<size>"),
    (r"[─━]+", "─"),
    (r"\s+", " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of the page."""

    kind: str
    text: str
    line: int

    @property
    def name(self) -> str:
        """The file that it is saved as."""
        return self.text.partition("\n")[0].removeprefix("# ")


def blocks(page: str) -> Iterator[Block]:
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        yield Block(found[1], found[2], page.count("\n", 0, found.start()) + 1)


@pytest.mark.slow(seconds=60)
def test_every_block_does_what_the_page_shows(
    frazil: Frazil, spark: object, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{FRAZIL.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home_with_extensions(tmp_path_factory.mktemp("home"))))
    printed = Outcome(0, "", "")
    for block, following in pairwise([*blocks(PAGE.read_text()), Block("", "", 0)]):
        match block.kind:
            case "yaml" | "python":
                (tmp_path / block.name).write_text(block.text)
            case "sh":
                printed = typed(block.text, frazil, tmp_path)
                fails = following.kind == "text" and "error [" in following.text
                assert (printed.code != 0) == fails, f"line {block.line}: {printed.text}"
            case "text":
                require_shown(block, printed.text)
    assert shutil.which("frazil") == str(FRAZIL)


def typed(commands: str, frazil: Frazil, folder: Path) -> Outcome:
    """What a reader sees who types the commands, up to the first that fails."""
    lines = commands.splitlines()
    if not all(line.startswith("frazil ") for line in lines):
        done = subprocess.run(["bash", "-ec", commands], cwd=folder, capture_output=True, text=True, timeout=300)
        return Outcome(done.returncode, done.stdout, done.stderr)
    code, out, err = 0, "", ""
    for line in lines:
        result = frazil(*shlex.split(line, comments=True)[1:])
        code, out, err = result.code, out + result.out, err + result.err
        if code:
            break
    return Outcome(code, out, err)


def require_shown(block: Block, printed: str) -> None:
    found = iter(compared(line) for line in printed.splitlines())
    for line in (one for one in map(compared, block.text.splitlines()) if one not in ("", "...")):
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert any(re.fullmatch(pattern, one) for one in found), f"line {block.line}: {line!r} is not in:\n{printed}"


def compared(line: str) -> str:
    for pattern, shown in _VARYING:
        line = re.sub(pattern, shown, line)
    return line.strip()


def home_with_extensions(home: Path) -> Path:
    """A home folder in which DuckDB finds its extensions, so that INSTALL fetches nothing."""
    [(platform,)] = duckdb.sql("PRAGMA platform").fetchall()
    folder = home / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
    folder.mkdir(parents=True)
    for name in EXTENSIONS:
        shutil.copy(extension_file(name), folder)
    return home
