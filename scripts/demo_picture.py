"""Draws docs/img/demo.svg, a picture of what the demo prints to a terminal: ``python scripts/demo_picture.py``.

It is run by hand when the demo's output changes. The demo writes into a folder that is removed afterwards.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "img" / "demo.svg"
COLUMNS = 138
LAST = "Next:"  # what follows are commands with the paths of this machine


def output_of(command: list[str | Path], folder: str) -> str:
    """What a command prints to a terminal, without displays that are drawn over again."""
    here, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    settings = {"TERM": "xterm-256color", "TTY_INTERACTIVE": "0", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(command, cwd=folder, stdin=terminal, stdout=terminal, stderr=terminal, env=os.environ | settings)
    os.close(terminal)
    printed = io.BytesIO()
    while True:
        try:
            part = os.read(here, 65536)
        except OSError:  # how Linux tells that nobody has the terminal open any more
            break
        if not part:
            break
        printed.write(part)
    if process.wait() != 0:
        sys.exit(printed.getvalue().decode())
    return printed.getvalue().decode().replace("\r\n", "\n")


def picture(printed: str) -> str:
    """The lines as an image. It names no font that would be fetched from the network."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), ("make demo", "bold")))
    console.print(Text.from_ansi(printed.partition(LAST)[0].rstrip()), soft_wrap=False)
    drawn = console.export_svg(title="frazil", unique_id="demo")
    return re.sub(r"\n *@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(picture(output_of([ROOT / ".venv" / "bin" / "frazil", "demo"], folder)))
