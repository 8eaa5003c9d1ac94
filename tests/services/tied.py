"""Becomes the given command, tied to the life of its parent: ``tied.py PARENT SIGNAL USER COMMAND...``.

Linux sends SIGNAL to this process when the thread that started it ends, however it ends. The wish is lost on a change of user
but survives ``exec``, so that the user changes first. Elsewhere there is no such wish, and only an orderly end stops the command.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1


def become(user: str) -> None:
    """Gives up the rights of the superuser for those of the user."""
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def end_with(parent: int, signal: int) -> None:
    """Asks for the signal when the parent ends; a parent that has ended before it was asked is seen by its changed id."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        sys.exit("the parent has ended")


def main() -> None:
    """Reads the command line, which only ``processes.start`` writes."""
    parent, signal, user, *command = sys.argv[1:]
    if user:
        become(user)
    end_with(int(parent), int(signal))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
