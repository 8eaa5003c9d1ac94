"""The jars that Spark needs for Iceberg: locked by SHA-256, fetched once by the Ivy that PySpark ships, cached outside the tree.

A lock is a text file of lines ``<sha256>  <repository path>``, one file a component (``locks/*.txt``); a line that begins with
``#`` is a comment. A jar whose digest
is not its lock's is never handed to Spark: in the cache it counts as missing and is fetched again, fresh from a repository
it is refused. Without a network the cache alone is enough.

``FRAZIL_IVY_SETTINGS`` names an Ivy settings file, for a machine that must fetch from a mirror.

``frazil setup aws`` fills the cache ahead of time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from frazil.errors import EnvironmentFault, UsageError
from frazil.spark.cache import cache_dir
from frazil.spark.java import java_command

LOCKS = Path(__file__).parent / "locks"

# What no repository has and is shipped instead, by the component that it belongs to; scripts/build_jars.py makes them.
_JVM = Path(__file__).parent / "jvm"
OWN_JARS = {"core": _JVM / "frazil.jar", "brotli": _JVM / "brotli-codec.jar"}

REPORT_SECONDS = 5.0

IVY_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="frazil" module="jars"/>
<dependencies>
{dependencies}
</dependencies>
</ivy-module>"""

# Jars that are locked are fetched alone: without the descriptions of their modules, of which each names others, and without the
# repository's digests, as the lock has its own. That takes a fifth of the requests. Of a module there may be several versions.
LOCKED_ALONE = """<ivysettings>
<settings defaultResolver="central" defaultConflictManager="all"/>
<resolvers><ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false" checksums=""/></resolvers>
</ivysettings>"""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Jar:
    """One locked jar."""

    sha256: str
    organisation: str
    module: str
    revision: str
    classifier: str

    @classmethod
    def from_lock_line(cls, line: str) -> Jar:
        """Reads ``<sha256>  group/path/artifact/version/file.jar``."""
        sha256, path = line.split()
        *group, module, revision, file = path.split("/")
        classifier = file.removeprefix(f"{module}-{revision}").removesuffix(".jar").removeprefix("-")
        return cls(sha256, ".".join(group), module, revision, classifier)

    @property
    def file_name(self) -> str:
        """The name in the cache."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.module}-{self.revision}{suffix}.jar"


def read_lock(path: Path) -> tuple[Jar, ...]:
    """The jars of one lock file."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return tuple(Jar.from_lock_line(line) for line in lines if line and not line.startswith("#"))


def components() -> tuple[str, ...]:
    """The names of frazil's own locks."""
    return tuple(sorted(lock.stem for lock in LOCKS.glob("*.txt")))


def component_jars(names: Iterable[str]) -> tuple[Jar, ...]:
    """The locked jars of frazil's own components (``core``, ``avro``, ``postgres``, ``aws``, ...)."""
    wanted = tuple(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in components()]:
        raise UsageError(
            "unknown-component", f"There is no component {unknown[0]!r}.", fix=f"Known are: {', '.join(components())}."
        )
    return tuple(jar for name in wanted for jar in read_lock(LOCKS / f"{name}.txt"))


def missing_jars(jars: Iterable[Jar]) -> tuple[Jar, ...]:
    """The jars that the cache does not have, or not whole."""
    return tuple(jar for jar in jars if not _is_cached(jar))


def ensure_jars(jars: Iterable[Jar], report: Report = lambda _: None) -> tuple[Path, ...]:
    """The paths of the jars, fetched first where the cache lacks them."""
    wanted = tuple(jars)
    if missing := missing_jars(wanted):
        _fetch(missing, report)
    return tuple(_folder() / jar.file_name for jar in wanted)


def needed_jars(components: Iterable[str] = (), report: Report = lambda _: None) -> tuple[Path, ...]:
    """The jars of these components, downloaded if they are missing, and those that come with frazil; `core` first."""
    wanted = tuple(dict.fromkeys(("core", *components)))
    locked = {name: component_jars((name,)) for name in wanted}
    every = [jar for jars in locked.values() for jar in jars]
    at = dict(zip(every, ensure_jars(every, report=report), strict=True))
    own = {name: (OWN_JARS[name],) for name in wanted if name in OWN_JARS}
    return tuple(path for name, jars in locked.items() for path in (*(at[jar] for jar in jars), *own.get(name, ())))


def _folder() -> Path:
    return cache_dir() / "jars"


def _is_cached(jar: Jar) -> bool:
    path = _folder() / jar.file_name
    return path.is_file() and _digest(path) == jar.sha256


def _digest(path: Path) -> str:
    status = path.stat()
    return _digest_as_of(path, status.st_size, status.st_mtime_ns)


@cache
def _digest_as_of(path: Path, _size: int, _changed_ns: int) -> str:
    """The SHA-256 of a file, read once a process unless its size or time changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(jars: tuple[Jar, ...], report: Report) -> None:
    """Lets Ivy bring the jars into a scratch folder, and moves those with the right digest into the cache one by one."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    report(f"fetching into {folder}: {', '.join(jar.file_name for jar in jars)}")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        log = run_ivy(_ivy_dependencies(jars), Path(scratch), report, LOCKED_ALONE)
        fetched = {jar: _fetched_file(Path(scratch), jar) for jar in jars}
        for jar, path in fetched.items():
            if path.is_file() and _digest(path) == jar.sha256:
                # A rename within one file system: two processes that fetch at once both end with a whole file.
                path.replace(folder / jar.file_name)
        for jar, path in fetched.items():
            if path.is_file():
                raise _digest_fault(jar, _digest(path))
    if absent := missing_jars(jars):
        raise _absence_fault(absent, folder, log)


def run_ivy(dependencies: str, scratch: Path, report: Report, settings: str = "") -> str:
    """One run of Ivy, with a message to the user every few seconds. Returns its output; the files show whether it worked.

    ``settings`` are those of Ivy where the user names none.
    """
    module, log = scratch / "ivy.xml", scratch / "ivy.log"
    module.write_text(IVY_MODULE.format(dependencies=dependencies))
    command = [java_command(), *proxy_options(getproxies()), "-jar", str(_ivy_jar()), "-warn"]
    if named := os.environ.get("FRAZIL_IVY_SETTINGS"):
        command += ["-settings", named]
    elif settings:
        own = scratch / "ivysettings.xml"
        own.write_text(settings)
        command += ["-settings", str(own)]
    command += ["-ivy", str(module), "-cache", str(scratch)]
    started = time.monotonic()
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as ivy:
        try:
            while not _ended(ivy):
                report(f"fetching: {_megabytes(scratch):.0f} MB after {time.monotonic() - started:.0f} s")
        finally:
            ivy.kill()
    return log.read_text(errors="replace")


def _fetched_file(scratch: Path, jar: Jar) -> Path:
    """Where Ivy keeps a jar that it downloaded, also when it fails on another one."""
    return scratch / jar.organisation / jar.module / "jars" / jar.file_name


def _ended(process: subprocess.Popen[bytes]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(REPORT_SECONDS)
    return process.poll() is not None


def _megabytes(folder: Path) -> float:
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Ivy renames a file when it is whole
            size += path.stat().st_size
    return size / 1e6


def proxy_options(proxies: Mapping[str, str]) -> list[str]:
    """The proxies that every other program here uses, as Java's own settings: Java does not read the environment's."""
    options = []
    for scheme in ("http", "https"):
        if address := proxies.get(scheme):
            proxy = urlsplit(address if "//" in address else f"//{address}")
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and (direct := proxies.get("no")):
        hosts = [host.strip() for host in direct.split(",") if host.strip()]
        patterns = [f"*{host}" if host.startswith(".") else host for host in hosts]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return options


def _ivy_dependencies(jars: tuple[Jar, ...]) -> str:
    """The jars, and nothing that they would drag along, for Ivy: one element a module, with its classifiers."""
    modules: dict[tuple[str, str, str], list[str]] = {}
    for jar in jars:
        modules.setdefault((jar.organisation, jar.module, jar.revision), []).append(jar.classifier)
    return "\n".join(
        f'<dependency org="{organisation}" name="{module}" rev="{revision}" transitive="false">'
        + "".join(_ivy_artifact(module, classifier) for classifier in classifiers)
        + "</dependency>"
        for (organisation, module, revision), classifiers in modules.items()
    )


def _ivy_artifact(module: str, classifier: str) -> str:
    attribute = f' m:classifier="{classifier}"' if classifier else ""
    return f'<artifact name="{module}" type="jar" ext="jar"{attribute}/>'


def _absence_fault(jars: tuple[Jar, ...], folder: Path, log: str) -> EnvironmentFault:
    return EnvironmentFault(
        "jar-not-fetched",
        f"Could not fetch {', '.join(jar.file_name for jar in jars)}: {_reason(log)}",
        fix="Check the network and its proxy and run the command again; for a mirror, name an Ivy settings file in "
        f"FRAZIL_IVY_SETTINGS; or copy the jars into {folder} by hand.",
    )


def _digest_fault(jar: Jar, fetched: str) -> EnvironmentFault:
    return EnvironmentFault(
        "jar-digest",
        f"The fetched {jar.file_name} has SHA-256 {fetched}, but the lock says {jar.sha256}.",
        fix="It was thrown away: the repository or the network changed the file. Fetch from another repository, or from "
        "another network.",
    )


def _reason(log: str) -> str:
    """The line of Ivy's long answer that names the trouble."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = (line for sign in ("access error", "not found", "error") for line in lines if sign in line.lower())
    return next(telling, lines[-1] if lines else "Ivy said nothing")


def spark_jars() -> Path:
    """The folder with the jars that PySpark ships."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentFault("pyspark-missing", "PySpark is not installed.", fix="Run make setup, or pip install frazil.")
    return Path(spec.origin).parent / "jars"


def _ivy_jar() -> Path:
    found = sorted(spark_jars().glob("ivy-*.jar"))
    if not found:
        raise EnvironmentFault("ivy-missing", "The installed PySpark ships no Ivy.", fix="Install pyspark 4.1 from its package.")
    return found[-1]
