"""Where frazil keeps what it fetches once: outside the project's tree, shared by every project of the user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """``FRAZIL_CACHE_DIR``, or ``frazil`` under the user's cache folder."""
    if own := os.environ.get("FRAZIL_CACHE_DIR"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "frazil"


def state_dir(given: str | None = None) -> Path:
    """Where frazil keeps what may be lost: the folder that the settings name, ``FRAZIL_STATE_DIR``, or one of the cache."""
    named = given or os.environ.get("FRAZIL_STATE_DIR")
    return Path(named).expanduser().resolve() if named else cache_dir() / "state"


def keep(path: Path, content: bytes, mode: int = 0o644) -> Path:
    """Writes a file of the cache whole or not at all: another process sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}-{os.getpid()}")
    scratch.write_bytes(content)
    scratch.chmod(mode)
    return scratch.replace(path)
