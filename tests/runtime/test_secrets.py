"""Secrets appear nowhere: a real run with a canary in every place that can hold one, and a look at all that it leaves behind."""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.children import COMMAND, finished, write_project
from helpers.lakes import fresh_name
from services.postgres import Postgres
from services.processes import free_port
from services.rest_catalog import RestCatalog

LOOKING = ("validate", "status", "inspect", "check")

# Commands in one process, as a process takes longer to start than a command. Each knows only the secrets that it has read itself.
NEXT = "=== next ==="
ONE_AFTER_THE_OTHER = f"""
import json, sys
from frazil.cli import main
from frazil.model import secrets

sys.stderr = sys.stdout
for command in json.loads(sys.argv[1]):
    secrets._remembered.clear()
    main(command)
    print("\\n{NEXT}", flush=True)
"""


class Canaries:
    """Makes secrets, and finds them."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        return self.made.setdefault(place, f"cnry{secrets.token_hex(8)}")

    def in_text(self, text: str | bytes) -> list[str]:
        """The places whose secret is in the text."""
        raw = text.encode() if isinstance(text, str) else text
        return [place for place, secret in self.made.items() if secret.encode() in raw]

    def in_folder(self, folder: Path) -> dict[str, list[str]]:
        """The canaries that are found in the files below a folder, by file."""
        found = {str(path): self.in_text(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
        return {path: places for path, places in found.items() if places}


@pytest.fixture
def canary() -> Canaries:
    return Canaries()


def sink(catalog: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"connector": "iceberg", "config": {"catalog": catalog, "namespace": "db", "table": "t", **more}}


def sinks(folder: Path, postgres: Postgres, rest: RestCatalog, canary: Canaries) -> dict[str, Any]:
    """Two that work, two that fail, and some that are not used."""
    name = fresh_name()
    address = postgres.create_database(name)
    connection = postgres.connect(name)
    connection.cursor().execute(f"create role {name} login password '{canary('database password')}'")
    connection.cursor().execute(f"grant all on schema public to {name}")
    connection.close()
    warehouse = str(folder / "warehouse")
    rest_port = rest.uri.rpartition(":")[2]
    s3 = {f"s3.{key}": canary(f"catalog property {key}") for key in ("access-key-id", "secret-access-key", "session-token")}
    return {
        "works_sql": sink(
            {
                "type": "sql",
                "sql": {"uri": address, "user": name, "password": "${PG_PASSWORD}", "warehouse": warehouse, "properties": s3},
            }
        ),
        "works_rest": sink(
            {
                "type": "rest",
                "rest": {
                    "uri": f"http://me:{canary('password in a working address')}@127.0.0.1:{rest_port}",
                    "properties": {
                        "header.X-Api-Key": canary("header"),
                        "header.Authorization": f"Basic {canary('authorization')}",
                    },
                },
            },
            namespace=name,
        ),
        "fails_sql": sink(
            {
                "type": "sql",
                "sql": {
                    "uri": address.replace("://", f"://{postgres.user}:{canary('password in an address')}@"),
                    "warehouse": warehouse,
                },
            }
        ),
        "fails_rest": sink(
            {
                "type": "rest",
                "rest": {
                    "uri": f"http://me:{canary('password in a failing address')}@127.0.0.1:{free_port()}",
                    "token": canary("token"),
                },
            }
        ),
        "unused_s3": sink(
            {"type": "rest", "rest": {"uri": rest.uri, "credential": f"id:{canary('credential')}"}},
            s3={"access_key_id": canary("s3 id"), "secret_access_key": canary("s3 secret"), "session_token": canary("s3 token")},
        ),
        "unused_gcs": sink(
            {
                "type": "glue",
                "glue": {"region": "eu-west-1", "access_key_id": canary("glue id"), "secret_access_key": canary("glue")},
            },
            gcs={"service_account_key": canary("gcs key")},
        ),
    } | {
        f"unused_azure_{option}": sink(
            {"type": "hadoop", "warehouse": "abfss://c@acc.dfs.core.windows.net/lake"}, azure={option: canary(f"azure {option}")}
        )
        for option in ("access_key", "sas_token", "connection_string")
    }


def project(folder: Path, made: dict[str, Any], canary: Canaries) -> Path:
    (folder / "events").mkdir()
    conf = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"-Dfrazil.spark.log=info '-Dmy.store.password={canary('option of Java')} with spaces'",
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": False,
        "spark.hadoop.fs.s3a.secret.key": canary("Spark option"),
        "spark.my.password": "${SPARK_WORD}",
        # Under names that say nothing: known by what they look like.
        "spark.sql.catalog.x.uri": f"jdbc:postgresql://me:{canary('password in an option')}@127.0.0.1/db",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:mysql://h/db?user=u&pwd={canary('password in a query')}",
        "spark.hadoop.fs.azure.sas.box.account": canary("SAS under its name"),
        "spark.my.store": f"https://account.blob.core.windows.net/box?sv=2024&sig={canary('signature')}&se=2030",
        "spark.my.repository": f"https://{canary('token as user')}@host/x",
        "spark.my.header": f"Bearer {canary('token')}",
        "spark.sql.catalog.x.header.Cookie": f"session={canary('cookie')}",
    }
    hashed = {"type": "hash_field", "field": "user_id", "salt": canary("salt")}
    return write_project(
        folder,
        {
            "sources": {"events": {"connector": "generator", "config": {"rows": 20}, "transforms": [hashed]}},
            "sinks": made,
            "pipelines": {name: {"source": "events", "sink": name, "enabled": "unused" not in name} for name in made},
            "settings": {
                "log_level": "debug",
                "log_format": "json",
                "health": {"port": 0},
                "metrics": {"port": 0},
                "retry": {"max_retries": 1, "initial_backoff_ms": 10},
                "spark": {"master": "local[2]", "conf": conf},
            },
        },
    )


@contextmanager
def watched_command_lines(canary: Canaries) -> Iterator[dict[str, list[str]]]:
    """Looks at the command lines of all processes as long as the block runs: which ran Java, and which showed a secret.

    And at the environment of Java: what stood in it beside the variables that frazil itself was given.
    """
    seen: dict[str, list[str]] = {"java": [], "leaks": [], "environment": []}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue  # it has ended
                if b"org.apache.spark" in line:
                    seen["java"].append(str(path))
                    seen["environment"] += canary.in_text(environment_of(path))
                if canary.in_text(line):
                    seen["leaks"].append(line.decode(errors="replace"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


def environment_of(command_line: Path) -> bytes:
    try:
        return command_line.with_name("environ").read_bytes()
    except OSError:
        return b""  # it has ended, or is another user's


def test_no_secret_is_printed_logged_or_kept(
    tmp_path: Path, postgres: Postgres, rest_catalog: RestCatalog, canary: Canaries
) -> None:
    path = project(tmp_path, sinks(tmp_path, postgres, rest_catalog, canary), canary)
    env = {"PG_PASSWORD": canary("database password"), "SPARK_WORD": canary("word in the environment")}
    (tmp_path / "tmp").mkdir()
    env["TMPDIR"] = str(tmp_path / "tmp")
    with watched_command_lines(canary) as lines:
        ran = finished([*COMMAND, "run", "--once", "--json", "--debug", "-c", str(path)], env)
    assert ran.returncode in (75, 78), "one catalog cannot be reached, the other refuses the password"
    ended = {one["pipeline"]: (one["rows"], one["error"] is None) for one in json.loads(ran.stdout)["pipelines"]}
    assert ended == {"works_sql": (20, True), "works_rest": (20, True), "fails_sql": (0, False), "fails_rest": (0, False)}
    assert canary.in_text(ran.stdout) == []
    assert canary.in_text(ran.stderr) == []
    assert lines["java"], "the JVM was looked at"
    assert lines["leaks"] == []
    assert set(lines["environment"]) == {"database password", "word in the environment"}, "what frazil was given in its own"
    assert canary.in_folder(tmp_path / "tmp") == {}, "the files by which Java got its settings are gone"

    events = [file for file in (tmp_path / "events").rglob("*") if file.is_file()]
    environment = "".join(file.read_text() for file in events)
    assert "spark.hadoop.fs.s3a.secret.key" in environment, "the options are there, and only their values are not"
    assert canary.in_folder(tmp_path / "events") == {}
    assert len(list((tmp_path / "warehouse").rglob("*.metadata.json"))) > 0
    assert canary.in_folder(tmp_path / "warehouse") == {}
    assert canary.in_folder(Path(rest_catalog.warehouse.removeprefix("file://"))) == {}

    commands = [[command, form, "-c", str(path)] for command in LOOKING for form in ("--json", "--debug")]
    done = finished([sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(commands)], env)
    shown = (done.stdout + done.stderr).split(NEXT)
    assert len(shown) == len(commands) + 1, done.stderr
    assert all(text.strip() for text in shown[:-1]), "each command says something"
    assert {str(command): canary.in_text(text) for command, text in zip([*commands, "after all"], shown, strict=True)} == {
        str(command): [] for command in [*commands, "after all"]
    }


def test_the_canaries_are_found_where_they_are(tmp_path: Path, canary: Canaries) -> None:
    (tmp_path / "leak").write_bytes(b"\0binary" + canary("a place").encode())
    assert canary.in_folder(tmp_path) == {str(tmp_path / "leak"): ["a place"]}
    with watched_command_lines(canary) as lines:
        finished([sys.executable, "-c", "import time; time.sleep(1)", canary("a place")])
    assert lines["leaks"]
