"""The folders of key indexes: which may be cleared away, and which are on a disk that is not of this machine."""

from __future__ import annotations

import fcntl
import logging
import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_MOUNTS = Path("/proc/mounts")
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "glusterfs", "afs"})
_UNUSED_SECONDS = 30 * 24 * 3600
_log = logging.getLogger("frazil")


def network_kind(folder: Path, mounts: str) -> str | None:
    """The type of the file system of a folder, if it is one over a network; ``mounts`` is the text of `/proc/mounts`."""
    lines = [line.split(" ") for line in mounts.splitlines()]
    found = [
        (len(place.parts), kind)
        for _, place, kind in ((line[0], Path(line[1].replace(r"\040", " ")), line[2]) for line in lines if len(line) > 2)
        if folder.is_relative_to(place)
    ]
    # Of several at one place the last one is seen.
    kind = max(reversed(found), key=lambda one: one[0], default=(0, ""))[1]
    return kind if kind in _NETWORK or kind.startswith("fuse.") else None


@cache
def look_after(parent: Path) -> None:
    """What is done once in a process for the folder of all indexes: old ones are cleared away, and a slow disk is reported."""
    if _MOUNTS.exists() and (kind := network_kind(parent.resolve(), _MOUNTS.read_text(encoding="utf-8", errors="replace"))):
        _log.warning(
            "Key indexes are in %s, which is on a network drive (%s): lookups are slow there, and locks may not hold. "
            "Set settings.state_dir to a folder on a disk of this machine.",
            parent, kind,
        )  # fmt: skip
    with suppress(OSError):
        for folder in list(parent.iterdir()):
            _clear_unused(folder)


def _clear_unused(folder: Path) -> None:
    """Deletes an index that no process has, and that none has written for long. It can be built anew."""
    state, lock = folder / "state", folder / "lock"
    try:
        age = time.time() - state.stat().st_mtime
        if age < _UNUSED_SECONDS:
            return
        with lock.open("a") as held:
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state.unlink()
            shutil.rmtree(folder)
    except OSError:
        return  # It has none, somebody has it, or it cannot be deleted.
    _log.info("The key index in %s was not used for %d days, and was deleted.", folder, age // (24 * 3600))
