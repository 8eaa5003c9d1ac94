from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frazil.errors import ConfigError
from frazil.model.settings import Settings
from frazil.observe.health import Health
from frazil.observe.metrics import Metrics
from frazil.observe.web import Web

from .samples import committed, failed, fenced, started


def fetch(url: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    try:
        with urlopen(url, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def status(url: str) -> int:
    return fetch(url)[0]


def on_ports(health: int | None = 0, metrics: int | None = 0, **more: str) -> Settings:
    """None switches one off."""
    return Settings.model_validate(
        {
            "health": {"enabled": health is not None, "port": health or 0} | more,
            "metrics": {"enabled": metrics is not None, "port": metrics or 0},
        }
    )


@contextmanager
def serving(settings: Settings) -> Iterator[tuple[Web, Metrics, Health]]:
    metrics, health = Metrics(), Health(["orders"])
    with Web(settings, metrics, health) as web:
        yield web, metrics, health


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def free_port() -> int:
    with taken_port() as port:
        return port


def two_free_ports() -> tuple[int, int]:
    with taken_port() as first, taken_port() as second:
        return first, second


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/", maxsplit=1)[0])


def test_health_follows_the_commits() -> None:
    with serving(on_ports()) as (web, _, health):
        assert status(web.urls["live"]) == 200
        assert status(web.urls["ready"]) == 503
        assert status(web.urls["health"]) == 200
        health(started())
        assert status(web.urls["ready"]) == 200
        health(committed(batch=1))
        health(failed("unreachable"))
        code, kind, body = fetch(web.urls["health"])
        assert (code, kind) == (503, "application/json")
        answer = json.loads(body)
        assert answer["status"] == "unhealthy"
        assert answer["pipelines"]["orders"]["batch"] == 1
        assert answer["pipelines"]["orders"]["last_error"] == "unreachable: the catalog said no"
        assert status(web.urls["live"]) == 200
        assert status(web.urls["ready"]) == 200
        health(committed(batch=2))
        assert status(web.urls["health"]) == 200
        health(fenced())
        assert status(web.urls["health"]) == 503
        assert json.loads(fetch(web.urls["ready"])[2]) == {"status": "not ready", "not_ready": ["orders"]}


def test_metrics_are_scraped() -> None:
    with serving(on_ports()) as (web, metrics, _):
        metrics(started())
        metrics(committed(written=42))
        code, kind, body = fetch(web.urls["metrics"])
        assert code == 200
        assert kind.startswith("text/plain; version=0.0.4")
        families = {family.name: family for family in text_string_to_metric_families(body)}
        assert families["iceberg_records_written"].samples[0].value == 42


def test_equal_ports_are_one_server() -> None:
    port = free_port()
    with serving(on_ports(port, port)) as (web, _, _):
        assert {port_of(url) for url in web.urls.values()} == {port}
        assert [status(f"http://127.0.0.1:{port}{path}") for path in ("/metrics", "/health", "/live", "/ready")] == [
            200, 200, 200, 503,
        ]  # fmt: skip


def test_two_ports_have_their_own_paths() -> None:
    with serving(on_ports(*two_free_ports())) as (web, _, _):
        health, metrics = web.urls["health"], web.urls["metrics"]
        assert port_of(health) != port_of(metrics)
        assert status(metrics) == status(health) == 200
        assert status(health.replace("/health", "/metrics")) == 404
        assert status(metrics.replace("/metrics", "/health")) == 404
        assert status(metrics.replace("/metrics", "/live")) == 404


def test_the_path_of_health_can_be_chosen() -> None:
    with serving(on_ports(path="/is/it/well")) as (web, _, _):
        assert web.urls["health"].endswith("/is/it/well")
        assert status(web.urls["health"]) == 200
        assert status(web.urls["live"].replace("/live", "/health")) == 404


@pytest.mark.parametrize("path", ["/live", "/metrics"])
def test_a_path_with_two_answers_is_refused(path: str) -> None:
    with pytest.raises(ConfigError) as raised, serving(on_ports(path=path)):
        pass
    assert raised.value.code == "health-path-taken"


def test_what_is_switched_off_is_not_served() -> None:
    with serving(on_ports(None, 0)) as (web, _, _):
        assert set(web.urls) == {"metrics"}
        assert status(web.urls["metrics"].replace("/metrics", "/health")) == 404
    with serving(on_ports(None, None)) as (web, _, _):
        assert web.urls == {}
        assert "frazil-web" not in {thread.name for thread in threading.enumerate()}


def test_only_this_machine_is_served_by_default() -> None:
    assert Settings().health.host == Settings().metrics.host == "127.0.0.1"
    with serving(on_ports()) as (web, _, _), socket.socket() as other:
        # Another address of the same machine is free: the wildcard is not bound.
        other.bind(("127.0.0.2", port_of(web.urls["health"])))


def test_it_stops_and_frees_its_ports() -> None:
    settings = on_ports(*two_free_ports())
    for _ in range(2):
        with serving(settings) as (web, _, _):
            urls = dict(web.urls)
            assert status(urls["live"]) == 200
        for url in urls.values():
            with pytest.raises(URLError):
                fetch(url)
    assert "frazil-web" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("setting", ["health", "metrics"])
def test_a_busy_port_is_a_clear_error(setting: str) -> None:
    with taken_port() as port:
        settings = on_ports(port, free_port()) if setting == "health" else on_ports(free_port(), port)
        with pytest.raises(ConfigError) as raised, serving(settings):
            pass
    assert raised.value.code == "port-in-use"
    assert raised.value.exit_code == 78
    assert f"127.0.0.1:{port}" in raised.value.message
    assert f"settings.{setting}.port" in raised.value.fix


def test_a_failed_start_keeps_no_port() -> None:
    first = free_port()
    with taken_port() as busy:
        with pytest.raises(ConfigError), serving(on_ports(first, busy)):
            pass
        with socket.create_server(("127.0.0.1", first)):
            pass


@pytest.mark.parametrize(("host", "code"), [("no.such.host.invalid", "unknown-host"), ("192.0.2.1", "cannot-listen")])
def test_a_host_of_somebody_else_is_a_clear_error(host: str, code: str) -> None:
    with pytest.raises(ConfigError) as raised, serving(on_ports(host=host)):
        pass
    assert raised.value.code == code
    assert host in raised.value.message
    assert "settings.health.host" in raised.value.fix


QUIET = """
import sys
from frazil.observe import logs
from frazil.observe.health import Health
from frazil.observe.metrics import Metrics
from frazil.observe.web import Web
from frazil.model.settings import Settings
assert not {"uvicorn", "starlette"} & set(sys.modules), "the web libraries are loaded when they are needed"
if "--logs" in sys.argv:
    logs.configure("debug")
from urllib.request import urlopen
import socket
with Web(Settings.model_validate({"health": {"port": 0}, "metrics": {"port": 0}}), Metrics(), Health()) as web:
    urlopen(web.urls["live"]).close()
    urlopen(web.urls["metrics"]).close()
    with socket.create_connection(("127.0.0.1", int(web.urls["live"].split(":")[2].split("/")[0]))) as raw:
        raw.sendall(b"this is not HTTP\\r\\n\\r\\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
"""


@pytest.mark.parametrize("options", [[], ["--logs"]])
def test_the_server_writes_nothing(options: list[str]) -> None:
    ran = subprocess.run([sys.executable, "-c", QUIET, *options], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
