"""The command line: one file a command. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    from frazil.cli.app import run_command_line

    return run_command_line(argv)
