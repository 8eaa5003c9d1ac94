"""`settings.state_dir`: where the scratch of a Spark goes that frazil starts."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.commands import Frazil, sql_pipeline
from frazil.iceberg.index_folders import look_after, network_kind
from frazil.model.settings import Settings
from frazil.spark.session import SCRATCH, SUBMITTED, with_scratch

# In a process of its own: a Spark that runs already keeps the scratch that it has.
PROGRAM = """
import json, sys
from pathlib import Path
import frazil
from pyspark.sql import SparkSession

found = {}

def look(event):
    if isinstance(event, frazil.Committed):
        found["option"] = SparkSession.active().sparkContext.getConf().get("spark.local.dir")
        found["folders"] = [path.name.split("-")[0] for path in Path("state/scratch").iterdir()]

frazil.run(sys.argv[1], once=True, listeners=[look])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_run_puts_sparks_scratch_there(tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path, rows=10)
    file.write_text(f"{file.read_text()}settings: {{state_dir: state/scratch, spark: {{master: 'local[1]'}}}}\n")
    done = subprocess.run([sys.executable, "-c", PROGRAM, file], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["option"] == str(tmp_path / "state" / "scratch")
    assert "blockmgr" in found["folders"]


def test_a_relative_folder_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert with_scratch(Settings(state_dir="./state")).conf == {SCRATCH: str(tmp_path / "state")}
    assert with_scratch(Settings()).conf == {}
    assert not (tmp_path / "state").exists()


def test_an_option_of_sparks_own_wins() -> None:
    settings = Settings.model_validate({"state_dir": "/state", "spark": {"conf": {SCRATCH: "/a,/b"}}})
    assert with_scratch(settings).conf == {SCRATCH: "/a,/b"}


def test_under_spark_submit_the_command_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "1")
    assert with_scratch(Settings(state_dir="/state")).conf == {}


def test_a_folder_that_cannot_be_made_is_reported(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    (tmp_path / "taken").write_text("a file")
    file = sql_pipeline(tmp_path)
    file.write_text(f"{file.read_text()}settings: {{state_dir: taken/state}}\n")
    result = frazil("run", "--once", "--json")
    assert (result.code, result.json["error"]["code"]) == (78, "scratch-folder")
    assert str(tmp_path / "taken" / "state") in result.json["error"]["message"]


MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
filer:/export /home nfs4 rw,vers=4.2 0 0
bucket /mnt/my\\040bucket fuse.s3fs rw 0 0
/dev/sdb1 /home/me/disk xfs rw 0 0
/dev/sdc1 /mnt/usb fuseblk rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/state", None),
        ("/home/me/.cache", "nfs4"),
        ("/home/me/disk/state", None),
        ("/mnt/my bucket/state", "fuse.s3fs"),
        ("/mnt/usb/state", None),
        ("/homework", None),
    ],
)
def test_a_network_drive_is_known_by_its_mount(folder: str, kind: str | None) -> None:
    assert network_kind(Path(folder), MOUNTS) == kind


def test_a_network_drive_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"host:/ {tmp_path} nfs rw 0 0\n")
    monkeypatch.setattr("frazil.iceberg.index_folders._MOUNTS", mounts)
    for _ in range(2):
        look_after(tmp_path / "state" / "key-index")
    (message,) = caplog.messages
    assert str(tmp_path / "state") in message
    assert "network drive (nfs)" in message


HELD = """
import fcntl, sys
lock = open(sys.argv[1], "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_key_indexes_that_nobody_used_for_long_are_cleared_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "frazil")
    for name, days in (("used", 20), ("unused", 40), ("held", 40)):
        (tmp_path / name).mkdir()
        for file in ("state", "lock", "3.run"):
            (tmp_path / name / file).write_text("")
        then = time.time() - days * 24 * 3600
        os.utime(tmp_path / name / "state", (then, then))
    (tmp_path / "something else").mkdir()
    command = [sys.executable, "-c", HELD, str(tmp_path / "held" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        look_after(tmp_path)
        holder.communicate("")
    assert {folder.name for folder in tmp_path.iterdir()} == {"used", "held", "something else"}
    assert len(list((tmp_path / "held").iterdir())) == 3
    assert [message for message in caplog.messages if "unused" in message and "40 days" in message]
