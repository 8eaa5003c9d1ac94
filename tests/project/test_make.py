"""The commands that a newcomer types first, on machines that lack something."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE_FROM = ("Makefile", "pyproject.toml", "requirements.lock", "scripts")

# What the setup itself calls.
TOOLS = ("sh", "make", "awk", "cat", "cksum", "cut", "dirname", "mkdir", "mktemp", "mv", "rm", "sleep", "touch")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The part of the tree that the setup reads, in a place of its own."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in MADE_FROM:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
    return tree


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with an empty home and nothing but the shell's tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        (tools / tool).symlink_to(shutil.which(tool) or pytest.fail(f"{tool} is missing here"))
    return {"PATH": str(tools), "HOME": str(tmp_path / "home")}


def add_command(machine: dict[str, str], name: str, script: str) -> None:
    command = Path(machine["PATH"]) / name
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def make(target: str, tree: Path, machine: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *target.split()], cwd=tree, env=machine, capture_output=True, text=True, timeout=120)


def test_help_is_the_default_and_lists_every_target(machine: dict[str, str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    helped = make("help", ROOT, machine).stdout
    assert {"setup", "demo", "test", "check", "bench", "docs"} <= set(targets)
    assert re.findall(r"^  make ([a-z-]+) +\S", helped, re.MULTILINE) == targets
    assert make("", ROOT, machine).stdout == helped


def test_every_target_is_a_command_and_not_a_file() -> None:
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert sorted(phony.split()) == sorted(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def test_a_machine_without_python_gets_that_message(clone: Path, machine: dict[str, str]) -> None:
    done = make("setup", clone, machine)
    assert done.returncode != 0
    assert "Python 3.11 or later was not found" in done.stderr
    assert not (clone / ".venv").exists()
    assert not (clone / ".setup-lock").exists()


def test_a_python_that_is_too_old_is_refused_by_name(clone: Path, machine: dict[str, str]) -> None:
    add_command(machine, "python3", "exit 1")
    assert "Python 3.11 or later was not found" in make("setup", clone, machine).stderr
    assert "PYTHON=python3 is not a Python 3.11 or later" in make("setup PYTHON=python3", clone, machine).stderr


def test_without_uv_and_without_pip_the_message_says_what_to_install(clone: Path, machine: dict[str, str]) -> None:
    # A Python that runs, but has neither pip nor ensurepip: Debian's without its extra packages.
    add_command(machine, "python3", 'case "$*" in *pip*) exit 1 ;; esac')
    done = make("setup", clone, machine)
    assert done.returncode != 0
    assert "uv is not installed, and this Python has no pip to fetch it with" in done.stderr
    assert not list(Path(machine["HOME"]).rglob("uv-*"))


def test_the_setup_runs_once_and_again_only_when_the_lock_changes(clone: Path, machine: dict[str, str]) -> None:
    calls = clone / "calls"
    add_command(machine, "python3", "exit 0")
    # Stands for uv, which would need a network: notes how it is called and makes the files that the setup looks for.
    add_command(
        machine,
        "uv",
        f"""echo "$*" >>'{calls}'
case "$1" in
  venv) mkdir -p .venv/bin; printf '#!/bin/sh\\necho "$*" >>"{calls}"\\n' >.venv/bin/python; chmod +x .venv/bin/python ;;
  pip) cat .venv/bin/python >.venv/bin/frazil; chmod +x .venv/bin/frazil ;;
esac""".replace("chmod", shutil.which("chmod") or "chmod"),
    )

    assert make("setup", clone, machine).returncode == 0
    first = calls.read_text()
    assert "pip sync --python .venv/bin/python --require-hashes --build-constraints requirements.lock requirements.lock" in first
    assert first.endswith("setup avro postgres\n")

    calls.unlink()
    assert make("setup", clone, machine).returncode == 0
    assert calls.read_text() == "setup avro postgres\n"

    with (clone / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    (clone / ".setup-lock").mkdir()  # of a setup that was killed
    (clone / ".setup-lock" / "pid").write_text(f"{a_process_that_ended()}\n")
    assert make("setup", clone, machine).returncode == 0
    assert "pip sync" in calls.read_text()
    assert "venv" not in calls.read_text().split("pip sync")[0].split()
    assert not (clone / ".setup-lock").exists()


def a_process_that_ended() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_the_scripts_can_be_run() -> None:
    for name in (".ci/run", "scripts/setup.sh"):
        assert os.access(ROOT / name, os.X_OK)
