"""Child processes end when they should, and a service that does not start says why."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from services.processes import LOCALHOST, ServiceFailed, answers, free_port, start, started, wait_until

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
PARENT = """
import sys, time
from pathlib import Path
from services.processes import start
child = start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or only waits for someone to ask for its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-c", PARENT, str(tmp_path / "child.log")]
    with subprocess.Popen(command, cwd=tests, env={"PYTHONPATH": str(tests)}, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not has_ended(pid)
        parent.kill()
        wait_until(lambda: has_ended(pid), 10, "the end of the child")


def test_a_child_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    child = start("stubborn", [sys.executable, "-c", STUBBORN], tmp_path / "log")
    child.await_line("ready", 10)
    assert child.stop(timeout=0.2) == -signal.SIGKILL
    assert has_ended(child.pid)


def test_a_child_runs_as_long_as_its_block(tmp_path: Path) -> None:
    with started("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log") as child:
        assert child.running
    assert has_ended(child.pid)


def test_a_service_that_ends_early_is_reported_with_its_log(tmp_path: Path) -> None:
    child = start("service", [sys.executable, "-c", "raise SystemExit('no such folder')"], tmp_path / "log")
    with pytest.raises(ServiceFailed, match=r"service: ended with code 1 .*\n.*no such folder"):
        child.await_line("never printed", 30)


def test_a_service_that_is_never_ready_is_reported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; print('warming up', flush=True); time.sleep(600)"]
    with started("service", command, tmp_path / "log") as child:
        child.await_line("warming up", 10)
        with pytest.raises(ServiceFailed, match=r"service: waited 0.1 s for a line like 'ready'.*\nwarming up"):
            child.await_line("ready", 0.1)


def test_a_free_port_can_be_listened_on() -> None:
    port = free_port()
    assert not answers(port)
    with socket.socket() as listener:
        listener.bind((LOCALHOST, port))
        listener.listen()
        assert answers(port)
