"""`frazil ui` and `frazil run --ui`: how they are called, what they refuse, and how they end."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from pyspark.sql import SparkSession

from cli.commands import FRAZIL, Frazil, sql_pipeline
from cli.tables import commit, make_table, sqlite_catalog
from frazil.cli.ui import with_addresses
from services.processes import free_port, start, wait_until

TOKEN = "a-token-that-is-long-enough"
PAGE = Path(__file__).parents[2] / "docs" / "ui.md"


def page(url: str, token: str = "") -> str:
    """A page, or nothing while nobody answers."""
    asked = Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(asked, timeout=20) as answer:
            text: str = answer.read().decode()
            return text
    except URLError:
        return ""


def test_it_shows_the_pipelines_of_a_file_until_it_is_stopped(tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    commit(make_table(sqlite_catalog(tmp_path)), 1)
    child = start("ui", [str(FRAZIL), "ui", str(tmp_path / "frazil.yaml"), "--listen", "0"], tmp_path / "log")
    url = child.await_line(r"ui: (http://127\.0\.0\.1:\d+/)", 60)[1]
    wait_until(lambda: "committing" in page(url), 20, "the state of the pipeline", child)
    assert "shop.events" in page(url)
    assert child.stop(signal.SIGTERM) == 0
    assert "Traceback" not in child.log_text()


def test_several_files_and_a_document_for_scripts(tmp_path: Path) -> None:
    files = [sql_pipeline(tmp_path, name=name) for name in ("one.yaml", "two.yaml")]
    files.append(tmp_path / "three.yaml")
    files[2].write_text(files[0].read_text().replace("  load:\n", "  other:\n"))
    child = start("ui", [str(FRAZIL), "ui", *map(str, files), "--json", "--listen", "127.0.0.1:0"], tmp_path / "log")
    child.await_line(r"(?s)\}\s*$", 60)
    found = json.loads(child.log_text())
    assert found["pipelines"] == [f"{files[0]}:load", f"{files[1]}:load", "other"]
    wait_until(lambda: page(found["url"]).count('class="c-name"') == 3, 20, "three pipelines", child)
    assert child.stop(signal.SIGINT) == 0


@pytest.mark.parametrize(
    "how", ["--env-file", *(pytest.param(how, marks=pytest.mark.slow(seconds=4)) for how in ("--token", "environment"))]
)
def test_other_machines_may_look_with_the_token(tmp_path: Path, how: str) -> None:
    file = sql_pipeline(tmp_path)
    (tmp_path / "variables").write_text(f"FRAZIL_UI_TOKEN={TOKEN}\n")
    given = {"--token": ["--token", TOKEN], "environment": [], "--env-file": ["--env-file", str(tmp_path / "variables")]}[how]
    env = {"FRAZIL_UI_TOKEN": TOKEN} if how == "environment" else {}
    child = start("ui", [str(FRAZIL), "ui", str(file), "--listen", "0.0.0.0:0", *given], tmp_path / "log", env=env)
    url = child.await_line(r"ui: http://0\.0\.0\.0(:\d+/)", 60)[1]
    wait_until(lambda: "shop.events" in page(f"http://127.0.0.1{url}", TOKEN), 20, "the page", child)
    assert page(f"http://127.0.0.1{url}") == ""
    child.stop()
    assert TOKEN not in child.log_text()


@pytest.mark.parametrize("command", [("ui", "--listen"), ("run", "--once", "--ui")], ids=["ui", "run"])
def test_what_cannot_be_served_is_refused_before_anything_is_done(
    frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.delenv("FRAZIL_UI_TOKEN", raising=False)
    sql_pipeline(tmp_path)
    *before, option = command
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = {
            busy: "port-in-use",
            "127.0.0.1:http": "address-invalid",
            "0.0.0.0:0": "token-missing",
            "no.such.host.invalid:0": "token-missing",
            "192.0.2.1:0": "token-missing",
        }
        for address, code in refused.items():
            result = frazil(*before, f"{option}={address}", "--json")
            error = result.json["error"]
            assert (result.code, error["code"]) == (78, code)
            assert address in error["message"]
            assert error["fix"]
    found = frazil(*before, f"{option}=192.0.2.1:0", "--token", TOKEN, "--json")
    assert (found.code, found.json["error"]["code"]) == (78, "cannot-listen")
    found = frazil(*before, f"{option}=0.0.0.0:0", "--token", "short", "--json")
    assert (found.code, found.json["error"]["code"]) == (78, "token-too-short")
    assert not (tmp_path / "catalog.db").exists()


def test_a_token_for_nothing_is_refused(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    result = frazil("run", "--once", "--token", TOKEN)
    assert (result.code, "--ui" in result.err, TOKEN in result.text) == (2, True, False)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path)
    probe = f"import sys; sys.modules['jinja2'] = None\nfrom frazil.cli import main\nsys.exit(main(['ui', {str(file)!r}]))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "[package-missing]" in done.stderr
    assert "pip install 'frazil[ui]'" in done.stderr


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (["run", "--ui"], ["run", "--ui=127.0.0.1:8282"]),
        (["run", "--ui", "--once"], ["run", "--ui=127.0.0.1:8282", "--once"]),
        (["run", "--ui", "orders.yaml"], ["run", "--ui=127.0.0.1:8282", "orders.yaml"]),
        (["run", "--ui", "0.0.0.0:80", "orders"], ["run", "--ui", "0.0.0.0:80", "orders"]),
        (["run", "--ui", "9000"], ["run", "--ui", "9000"]),
        (["run", "--ui=9000"], ["run", "--ui=9000"]),
        (["status", "--json"], ["status", "--json"]),
    ],
)
def test_the_address_may_be_left_out(given: list[str], made: list[str]) -> None:
    assert with_addresses(given) == made


def test_a_run_shows_what_it_does(frazil: Frazil, tmp_path: Path, spark: SparkSession) -> None:
    sql_pipeline(tmp_path, "batch_size: 500", "flush_interval_secs: 1", rows=1500)
    port, seen = free_port(), []

    def watch() -> None:
        url = f"http://127.0.0.1:{port}/pipelines/load"
        wait_until(lambda: (text := page(url)) and "this process runs the pipelines" in text, 60, "the page")
        seen.append(wait_until(lambda: (text := page(url)) and "Time of a commit in" in text and text, 60, "two commits"))

    watching = Thread(target=watch)
    watching.start()
    result = frazil("run", "--once", "--ui", f"127.0.0.1:{port}")
    watching.join()
    assert result.code == 0, result.err
    assert f"ui: http://127.0.0.1:{port}/" in result.err
    assert "owns the sink, epoch 1" in seen[0]
    assert page(f"http://127.0.0.1:{port}/") == "", "the pages end with the run"


def commands_of_the_page() -> list[list[str]]:
    """What the page tells to type, without comments."""
    typed = re.findall(r"^frazil .*$", "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)), re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in typed]


@pytest.mark.slow(seconds=20)
def test_the_commands_of_the_page_work(frazil: Frazil, tmp_path: Path, spark: SparkSession) -> None:
    sql_pipeline(tmp_path, rows=10, name="orders.yaml")
    other = sql_pipeline(tmp_path, rows=10, name="clicks.yaml")
    other.write_text(other.read_text().replace("  load:\n", "  clicks:\n"))
    (maker,) = re.findall(r"FRAZIL_UI_TOKEN=\$\((.*)\)", PAGE.read_text())
    token = subprocess.run(maker, shell=True, capture_output=True, text=True, check=True).stdout.strip()
    started = []
    for number, (command, *arguments) in enumerate(commands_of_the_page()):
        # Ports are those that are free here.
        given = [re.sub(r":8282$", ":0", argument) for argument in arguments]
        if command == "run":
            result = frazil(command, *["--ui=127.0.0.1:0" if argument == "--ui" else argument for argument in given], "--once")
            assert (result.code, "ui: http://127.0.0.1:" in result.err) == (0, True), result.err
            continue
        given += [] if "--listen" in given else ["--listen", "0"]
        child = start("ui", [str(FRAZIL), command, *given], tmp_path / f"log{number}", env={"FRAZIL_UI_TOKEN": token})
        started.append((child, child.await_line(r"ui: http://[\d.]+(:\d+/)", 60)[1]))
    assert len(started) == 3
    for child, url in started:
        wait_until(lambda url=url: "shop.events" in page(f"http://127.0.0.1{url}", token), 20, "the page", child)
        assert child.stop() == 0
