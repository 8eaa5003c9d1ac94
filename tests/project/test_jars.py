"""Jars are fetched by the real Ivy, from a repository on the loopback: no network is needed, and none can hide a fault."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

import pytest

from frazil.errors import EnvironmentFault, UsageError
from frazil.spark import jars as subject
from frazil.spark.jars import OWN_JARS, Jar, component_jars, components, ensure_jars, missing_jars, proxy_options, read_lock

SETTINGS = """<ivysettings>
<settings defaultResolver="repository"/>
<resolvers><ibiblio name="repository" m2compatible="true" root="http://127.0.0.1:{port}/"/></resolvers>
</ivysettings>"""


@dataclass
class Repository:
    """A Maven repository on a loopback port that remembers what was asked of it."""

    folder: Path
    settings: Path
    requests: list[str] = field(default_factory=list)

    def publish(self, content: bytes, classifier: str = "", module: str = "tiny") -> Jar:
        name = f"{module}-1.0{f'-{classifier}' if classifier else ''}.jar"
        place = self.folder / "org" / "example" / module / "1.0"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
        return Jar.from_lock_line(f"{hashlib.sha256(content).hexdigest()}  org/example/{module}/1.0/{name}")


class Handler(SimpleHTTPRequestHandler):
    """Serves files quietly and notes each request."""

    def __init__(self, *args: object, requests: list[str], **options: object) -> None:
        self.noted = requests
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        self.noted.append(self.path)

    def log_error(self, *parts: object) -> None:
        """A missing file is the client's business, which it tells."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jars"


@pytest.fixture
def repository(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    found = Repository(tmp_path / "repository", tmp_path / "settings.xml")
    found.folder.mkdir()
    handler = partial(Handler, requests=found.requests, directory=str(found.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        found.settings.write_text(SETTINGS.format(port=server.server_port))
        monkeypatch.setenv("FRAZIL_IVY_SETTINGS", str(found.settings))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_a_jar_is_fetched_once_and_then_comes_from_the_cache(repository: Repository, cache: Path) -> None:
    plain, classified = repository.publish(b"one"), repository.publish(b"two", classifier="tests")
    said: list[str] = []

    paths = ensure_jars([plain, classified], said.append)

    assert [path.name for path in paths] == ["tiny-1.0.jar", "tiny-1.0-tests.jar"]
    assert [path.read_bytes() for path in paths] == [b"one", b"two"]
    assert "tiny-1.0.jar" in said[0]
    assert str(cache) in said[0]
    repository.requests.clear()
    assert ensure_jars([plain, classified], said.append) == paths
    assert repository.requests == []
    assert not list(cache.parent.glob("fetch-*"))


def test_a_jar_that_the_repository_changed_is_refused(repository: Repository, cache: Path) -> None:
    good = repository.publish(b"good", module="good")
    locked = repository.publish(b"what the lock says")
    repository.publish(b"something else")

    with pytest.raises(EnvironmentFault) as caught:
        ensure_jars([locked, good])

    assert caught.value.code == "jar-digest"
    assert locked.sha256 in caught.value.message
    assert hashlib.sha256(b"something else").hexdigest() in caught.value.message
    assert [path.name for path in cache.iterdir()] == ["good-1.0.jar"]


def test_a_damaged_jar_in_the_cache_is_fetched_again(repository: Repository, cache: Path) -> None:
    jar = repository.publish(b"whole")
    cache.mkdir(parents=True)
    (cache / jar.file_name).write_bytes(b"who")
    assert missing_jars([jar]) == (jar,)

    (path,) = ensure_jars([jar])

    assert path.read_bytes() == b"whole"
    path.write_bytes(b"bytes")  # damaged again, at the same size, under the same process
    os.utime(path, ns=(1, 1))
    assert missing_jars([jar]) == (jar,)


def test_without_a_network_and_without_a_cache_the_error_says_what_to_do(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        closed = server.server_port
    settings = tmp_path / "closed.xml"
    settings.write_text(SETTINGS.format(port=closed))
    monkeypatch.setenv("FRAZIL_IVY_SETTINGS", str(settings))
    jar = Jar.from_lock_line(f"{'0' * 64}  org/example/tiny/1.0/tiny-1.0.jar")

    with pytest.raises(EnvironmentFault) as caught:
        ensure_jars([jar])

    assert caught.value.code == "jar-not-fetched"
    assert "tiny-1.0.jar" in caught.value.message
    assert "refused" in caught.value.message
    assert str(cache) in caught.value.fix
    assert "FRAZIL_IVY_SETTINGS" in caught.value.fix


def test_a_jar_that_is_not_in_the_repository_is_named(repository: Repository) -> None:
    there = repository.publish(b"there", module="there")
    jar = Jar.from_lock_line(f"{'0' * 64}  org/example/gone/1.0/gone-1.0.jar")

    with pytest.raises(EnvironmentFault) as caught:
        ensure_jars([there, jar])

    assert "gone-1.0.jar" in caught.value.message
    assert "not found" in caught.value.message
    assert "there-1.0.jar" not in caught.value.message
    assert missing_jars([there]) == ()


def test_two_processes_that_fetch_at_once_both_succeed(repository: Repository, cache: Path) -> None:
    jar = repository.publish(os.urandom(2_000_000))
    lock = repository.folder / "lock.txt"
    lock.write_text(f"{jar.sha256}  org/example/tiny/1.0/tiny-1.0.jar\n")
    program = "import sys, pathlib; from frazil.spark.jars import *; print(*ensure_jars(read_lock(pathlib.Path(sys.argv[1]))))"
    fetches = [subprocess.Popen([sys.executable, "-c", program, str(lock)], stdout=subprocess.PIPE, text=True) for _ in range(2)]

    answers = [fetch.communicate(timeout=120)[0].strip() for fetch in fetches]

    assert answers == [str(cache / jar.file_name)] * 2
    assert [fetch.returncode for fetch in fetches] == [0, 0]
    assert missing_jars([jar]) == ()
    assert repository.requests.count("/org/example/tiny/1.0/tiny-1.0.jar") >= 2


def test_a_slow_fetch_says_how_far_it_is(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "REPORT_SECONDS", 0.05)
    said: list[str] = []
    ensure_jars([repository.publish(b"small")], said.append)
    assert any("MB after" in text for text in said[1:])


def test_the_command_fills_the_cache_and_speaks_on_stderr(cache: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("frazil"), "setup", "nothing-like-it"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing-like-it" in done.stderr
    assert "core" in done.stderr


def test_an_unknown_component_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="There is no component 'azur'") as caught:
        component_jars(["core", "azur"])
    assert "azure" in caught.value.fix


def test_every_lock_line_is_a_digest_and_the_path_of_a_jar() -> None:
    assert {"core", "avro", "postgres", "aws", "gcp", "azure"} <= set(components())
    for name in components():
        lock = subject.LOCKS / f"{name}.txt"
        assert read_lock(lock), lock
        lines = [line for line in lock.read_text().splitlines() if not line.startswith("# ")]
        for line, jar in zip(lines, read_lock(lock), strict=True):
            assert len(bytes.fromhex(jar.sha256)) == 32, line
            assert line.endswith(f"/{jar.module}/{jar.revision}/{jar.file_name}"), line


def test_jars_of_spark_have_one_version_or_the_lock_says_why() -> None:
    revisions: dict[str, set[str]] = {}
    for name in components():
        for jar in read_lock(subject.LOCKS / f"{name}.txt"):
            if jar.organisation == "org.apache.spark":
                revisions.setdefault(jar.revision, set()).add(name)
    explained = {name for name in components() if "Spark" in _comments(subject.LOCKS / f"{name}.txt")}
    assert len(revisions) == 1 or set().union(*revisions.values()) <= explained


def _comments(lock: Path) -> str:
    return "\n".join(line for line in lock.read_text().splitlines() if line.startswith("# "))


def test_the_shipped_jars_are_made_from_the_sources_beside_them() -> None:
    digests = {}
    for jar in OWN_JARS.values():
        manifest = ZipFile(jar).read("META-INF/MANIFEST.MF").decode()
        digests |= dict(re.findall(r"Name: (\S+)\nSource: (\w+)", manifest))
    sources = {path for jar in OWN_JARS.values() for path in jar.parent.glob("*.java")}
    assert digests == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sources}, "run scripts/build_jars.py"


def test_components_that_are_named_twice_are_read_once() -> None:
    assert component_jars(["core", "core"]) == component_jars(["core"])


@pytest.mark.parametrize(
    ("proxies", "options"),
    [
        ({}, []),
        ({"no": "localhost"}, []),
        ({"https": "http://proxy:3128"}, ["-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=3128"]),
        (
            {"http": "proxy", "no": "localhost, .example.com"},
            ["-Dhttp.proxyHost=proxy", "-Dhttp.proxyPort=80", "-Dhttp.nonProxyHosts=localhost|*.example.com"],
        ),
    ],
)
def test_the_environment_s_proxies_reach_java(proxies: dict[str, str], options: list[str]) -> None:
    assert proxy_options(proxies) == options
