"""The command line: one file a command. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    from frazil.cli.app import run_command_line
    from frazil.cli.signals import Interrupted, interruptible

    try:
        with interruptible():
            return run_command_line(argv)
    except Interrupted as interrupted:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return interrupted.exit_code
