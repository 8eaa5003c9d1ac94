"""Fixtures for calls of the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import Frazil, Outcome
from frazil.cli import main


@pytest.fixture
def frazil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Frazil]:
    """Calls the command in this process, in an empty folder. Logging is as before when the test has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    root, own = logging.getLogger(), logging.getLogger("frazil")
    before = (list(root.handlers), root.level, own.level)

    def call(*arguments: str | Path) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = capfd.readouterr()
        return Outcome(code, printed.out, printed.err)

    yield call
    root.handlers[:], root.level, own.level = before
