"""Maintains all tables of a pipeline file again and again, until it is killed: ``maintaining.py FILE``."""

from __future__ import annotations

import sys

from frazil.cli import main

# A table that was changed too often meanwhile is maintained the next time.
USUAL = (0, 75)

if __name__ == "__main__":
    (file,) = sys.argv[1:]
    while (code := main(["maintain", "-c", file])) in USUAL:
        print("maintained", code, flush=True)
    sys.exit(code)
