"""PostgreSQL: a cluster of its own on a free port of 127.0.0.1, for which a password is needed, gone after the test run."""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.processes import LOCALHOST, Child, ServiceFailed, free_port, start, tied

READY_SECONDS = 60
PORT_TRIES = 3
DEBIAN_ROOT = Path("/usr/lib/postgresql")
SETTINGS = {
    "listen_addresses": LOCALHOST,
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "password_encryption": "scram-sha-256",
    "shared_buffers": "32MB",
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
}


@dataclass(frozen=True)
class Postgres:
    """Where the server answers, and the superuser's password."""

    host: str
    port: int
    user: str
    password: str

    def connect(self, database: str = "postgres") -> Any:
        """A connection of psycopg2 on which every statement commits by itself."""
        import psycopg2  # type: ignore[import-untyped]

        opened = psycopg2.connect(host=self.host, port=self.port, user=self.user, password=self.password, dbname=database)
        opened.autocommit = True
        return opened

    def create_database(self, name: str) -> str:
        """Makes an empty database and returns its address, without user and password."""
        from psycopg2.sql import SQL, Identifier  # type: ignore[import-untyped]

        opened = self.connect()
        try:
            with opened.cursor() as cursor:
                cursor.execute(SQL("create database {}").format(Identifier(name)))
        finally:
            opened.close()
        return f"postgresql://{self.host}:{self.port}/{name}"


@contextmanager
def running_postgres(**settings: str) -> Iterator[Postgres]:
    """A server with an empty cluster, as long as the block. Settings are added to those of the tests."""
    programs = find_programs() or install()
    user = unprivileged_user()
    # Not under pytest's own folder: that is closed to the other user that the server runs as.
    folder = Path(tempfile.mkdtemp(prefix="frazil-postgres-"))
    try:
        password = secrets.token_urlsafe(18)
        _initialise(programs, folder, user, password)
        server, port = _start(programs, folder, user, settings)
        try:
            yield Postgres(LOCALHOST, port, "frazil", password)
        finally:
            # SIGINT ends the sessions that are still open; SIGTERM would wait for them.
            server.stop(signal.SIGINT)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for the test run. Tests share it, so that each makes a database of its own."""
    with running_postgres() as server:
        yield server


def find_programs() -> Path | None:
    """The folder with ``initdb`` and ``postgres``: of the search path, or of the newest Debian package."""
    on_path = shutil.which("initdb")
    packaged = sorted(DEBIAN_ROOT.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    candidates = [Path(on_path).resolve().parent] if on_path else []
    return next((folder for folder in (*candidates, *packaged) if (folder / "postgres").is_file()), None)


def install() -> Path:
    """Installs the distribution's package, once even when several test processes ask for it."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServiceFailed(
            "The tests need PostgreSQL, and neither the search path nor /usr/lib/postgresql has its initdb. "
            "Install it, e.g. sudo apt-get install postgresql, or brew install postgresql."
        )
    # RUNLEVEL=1 keeps the package from starting a server of its own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with (Path(tempfile.gettempdir()) / "frazil-install-postgresql.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if programs := find_programs():
            return programs
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "postgresql"]):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        programs = find_programs()
    if programs is None:
        raise ServiceFailed(f"apt-get install postgresql failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return programs


def unprivileged_user() -> str:
    """The user to run the server as, which refuses to run as the superuser; empty for the present one."""
    if os.geteuid() != 0:
        return ""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _initialise(programs: Path, folder: Path, user: str, password: str) -> None:
    """Makes the cluster in ``data``, whose superuser has the password, asked for on every kind of connection."""
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    if user:
        shutil.chown(folder, user)
        shutil.chown(secret, user)
    scram = ("--auth-local=scram-sha-256", "--auth-host=scram-sha-256", f"--pwfile={secret}")
    command = [str(programs / "initdb"), "--pgdata", str(folder / "data"), "--username=frazil", *scram]
    options = ["--encoding=UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(tied([*command, *options], user), cwd=folder, capture_output=True, text=True, check=False)
    secret.unlink()
    if done.returncode != 0:
        raise ServiceFailed(f"initdb failed:\n{done.stdout}{done.stderr}")


def _start(programs: Path, folder: Path, user: str, more: Mapping[str, str]) -> tuple[Child, int]:
    """Starts the server, on another port when the chosen one was taken meanwhile."""
    for attempt in range(PORT_TRIES):
        port = free_port()
        settings = {**SETTINGS, **more, "port": str(port), "unix_socket_directories": str(folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = start(
            "PostgreSQL",
            [str(programs / "postgres"), "-D", str(folder / "data"), *options],
            folder / f"server-{attempt}.log",
            user=user,
            # An immediate stop, which also frees the shared memory that a killed server would leave.
            on_parent_death=signal.SIGQUIT,
        )
        try:
            server.await_line("ready to accept connections", READY_SECONDS)
        except ServiceFailed:
            server.stop(signal.SIGQUIT)
            if "Address already in use" not in server.log_text():
                raise
            continue
        return server, port
    raise ServiceFailed(f"PostgreSQL found its port taken {PORT_TRIES} times")
