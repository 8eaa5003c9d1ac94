"""The jars that Spark needs for Iceberg: locked by SHA-256, fetched once by the Ivy that PySpark ships, cached outside the tree.

A lock is a text file of lines ``<sha256>  <repository path>``, one file a component (``locks/*.txt``). A jar in the cache
is named by its lock line; one whose digest differs is never handed to Spark. Without a network the cache alone is enough.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from frazil.engine.java import java_command
from frazil.errors import EnvironmentFault

LOCKS = Path(__file__).parent / "locks"

IVY_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="frazil" module="jars"/><dependencies>
{dependencies}
</dependencies></ivy-module>"""


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
    return tuple(Jar.from_lock_line(line) for line in path.read_text().splitlines() if line.strip())


def component_jars(components: Iterable[str]) -> tuple[Jar, ...]:
    """The locked jars of frazil's own components (``core``, ``avro``, ``postgres``, ``aws``, ...)."""
    return tuple(jar for component in dict.fromkeys(components) for jar in read_lock(LOCKS / f"{component}.txt"))


def cache_dir() -> Path:
    """Where jars are kept: ``FRAZIL_CACHE_DIR``, or ``frazil`` under the user's cache folder."""
    if own := os.environ.get("FRAZIL_CACHE_DIR"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "frazil"


def missing_jars(jars: Iterable[Jar]) -> tuple[Jar, ...]:
    """Those that the cache does not hold yet."""
    folder = cache_dir() / "jars"
    return tuple(jar for jar in jars if not (folder / jar.file_name).is_file())


def ensure_jars(jars: Iterable[Jar], report: Callable[[str], None] = lambda _: None) -> tuple[Path, ...]:
    """The paths of the jars, fetched first where the cache lacks them."""
    wanted = tuple(jars)
    folder = cache_dir() / "jars"
    if missing := missing_jars(wanted):
        report(f"fetching {len(missing)} jars into {folder}")
        _fetch(missing, folder)
    return tuple(folder / jar.file_name for jar in wanted)


def _fetch(jars: tuple[Jar, ...], folder: Path) -> None:
    """Lets Ivy bring the jars into a scratch folder, checks each digest, and moves them into the cache one by one."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as name:
        scratch = Path(name)
        module = scratch / "ivy.xml"
        module.write_text(IVY_MODULE.format(dependencies=_ivy_dependencies(jars)))
        pattern = str(scratch / "[artifact]-[revision](-[classifier]).[ext]")
        command = [
            java_command(),
            "-jar",
            str(_ivy_jar()),
            "-ivy",
            str(module),
            "-cache",
            str(scratch / "ivy"),
            "-retrieve",
            pattern,
            "-warn",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for jar in jars:
            _accept(jar, scratch, folder, done.stdout + done.stderr)


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


def _accept(jar: Jar, scratch: Path, folder: Path, log: str) -> None:
    fetched = scratch / jar.file_name
    if not fetched.is_file():
        raise EnvironmentFault(
            "jar-not-fetched",
            f"The jar {jar.file_name} could not be fetched: {_last_line(log)}",
            fix="Check the network (or the proxy settings of Java) and run the command again; "
            f"or copy the jar into {folder} by hand.",
        )
    digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise EnvironmentFault(
            "jar-digest",
            f"The jar {jar.file_name} that was fetched has SHA-256 {digest}, but the lock says {jar.sha256}.",
            fix="Do not use it: the repository or the network changed the file. Nothing was put into the cache.",
        )
    # A rename within one file system: two processes that fetch at once both end with a whole file.
    fetched.replace(folder / jar.file_name)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentFault(
            "pyspark-missing", "PySpark is not installed.", fix="Run make setup, or pip install frazil."
        )
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise EnvironmentFault(
            "ivy-missing", "The installed PySpark ships no Ivy.", fix="Install pyspark 4.1 from its package."
        )
    return found[-1]


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy said nothing"
