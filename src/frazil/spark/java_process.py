"""The Java process that Spark runs in: how it is started, how it ends, and the error when it died.

- Its settings reach it in files that only their owner can read, and that are removed when it has read them. Every user of the
  machine can read a command line.
- It has a session of its own and ignores the signals by which a terminal, a shell, ``timeout`` or systemd stops everything at
  once. Otherwise it would be gone before the batch that is being written is committed.
- It ends with this process, however that ends: it lives as long as its standard input is open.
"""

from __future__ import annotations

import os
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from frazil.errors import ConfigError, EnvironmentFault, SparkDied

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# Signals that are ignored when a program starts stay ignored in it; Java leaves them so.
_DEAF = 'trap \'\' INT TERM HUP; exec "$0" "$@"'

# Where PySpark's gateway in Java writes the port that it listens on, and the secret that it asks for.
_CONNECTION = "_PYSPARK_DRIVER_CONN_INFO_PATH"

_POLL_SECONDS = 0.05
# How long Java may take to remove its scratch files when it is asked to end.
_GRACE_SECONDS = 3.0
# A process lets go of its connections shortly before it counts as ended.
_ENDING_SECONDS = 2.0

# Spark's exit code when the heap was exhausted.
_OUT_OF_HEAP = 52


@dataclass(frozen=True)
class Connection:
    """A running Java, and how it is spoken to."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


class _Started:
    """The Java that this process has started last, and the heap that it was given."""

    process: subprocess.Popen[bytes] | None = None
    heap = ""


def start_java(submit: Path, conf: Mapping[str, str], java_home: Path) -> Connection:
    """Starts Java by the script `spark-submit`, and waits until Spark's gateway answers in it."""
    with tempfile.TemporaryDirectory(prefix="frazil-java-") as folder:  # for this user alone
        arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        given, rest = _without_properties_file(shlex.split(arguments))
        settings = dict(conf)
        if settings.get(JAVA_OPTIONS):
            options = _private(Path(folder) / "java.options", java_options(settings[JAVA_OPTIONS]))
            settings[JAVA_OPTIONS] = f'"@{options}"' if " " in folder else f"@{options}"
        properties = _private(Path(folder) / "spark.properties", f"{given}\n{spark_properties(settings)}")
        connection = Path(folder) / "connection"
        environment = {**os.environ, "JAVA_HOME": str(java_home), "SPARK_CONNECT_MODE": "0", _CONNECTION: str(connection)}
        command = [str(submit), "--properties-file", str(properties), "--load-spark-defaults", *rest]
        process = subprocess.Popen(
            ["/bin/sh", "-c", _DEAF, *command], stdin=subprocess.PIPE, env=environment, start_new_session=True
        )
        _Started.process, _Started.heap = process, conf.get("spark.driver.memory", "")
        try:
            _await(connection, process)
        except BaseException:
            end_java_now(process, grace=0)
            _Started.process = None
            raise
        return Connection(process, *_read_connection(connection.read_bytes()))


def _await(connection: Path, process: subprocess.Popen[bytes]) -> None:
    while not connection.is_file():
        if process.poll() is not None and not connection.is_file():
            raise _not_started(process.returncode)
        time.sleep(_POLL_SECONDS)


def _read_connection(content: bytes) -> tuple[int, str]:
    """The port, and the secret after its length."""
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode()


def _private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def _without_properties_file(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The content of the file of properties that the user's own arguments name, and the other arguments.

    `spark-submit` reads one such file only.
    """
    text, rest = "", []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if name != "--properties-file":
            rest.append(argument)
            continue
        path = value if equals else next(left, "")
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                "file-unreadable",
                f"The file {path}, which PYSPARK_SUBMIT_ARGS names with --properties-file, cannot be read: {error.strerror}.",
                fix="Correct PYSPARK_SUBMIT_ARGS, or unset it.",
            ) from error
    return text, rest


def spark_properties(conf: Mapping[str, str]) -> str:
    """Settings of Spark in Java's format for properties. Spark takes those alone whose names say that they are its own."""
    lines = [f"{_escaped(key, ' :=#!')}={_escaped(value)}" for key, value in conf.items() if key.startswith("spark.")]
    return "\n".join(lines) + "\n"


def _escaped(text: str, special: str = "") -> str:
    """Text as a file of properties has it: in ASCII, and a space at the beginning is marked as part of the text."""
    made = "".join(f"\\{char}" if char in special or char == "\\" else _escaped_character(char) for char in text)
    return f"\\{made}" if made.startswith(" ") else made


def _escaped_character(char: str) -> str:
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def java_options(text: str) -> str:
    """Options of Java, which Spark takes as one line, as a file that Java reads: each quoted, on a line of its own."""
    lines = []
    try:
        options = shlex.split(text)
    except ValueError as error:
        fix = "Close the quotation marks in it."
        raise ConfigError("java-options", f"{JAVA_OPTIONS} cannot be read: {error}.", fix=fix) from error
    for option in options:
        if option.startswith("-Xmx"):
            raise ConfigError(
                "java-options",
                f"{JAVA_OPTIONS} sets the size of the heap ({option}), which Spark does not allow there.",
                fix="Set spark.driver.memory instead.",
            )
        quoted = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'"{quoted}"\n')
    return "".join(lines)


def _not_started(code: int) -> EnvironmentFault:
    return EnvironmentFault(
        "java-not-started",
        f"Java {_ending(code)} before Spark was ready; what it printed stands above.",
        fix="Check settings.spark.conf, above all spark.driver.memory and spark.driver.extraJavaOptions, and that the machine "
        "has that much memory. `frazil doctor` shows which Java is used.",
    )


def has_died(process: subprocess.Popen[bytes] | None, *, is_ending: bool = False) -> bool:
    """Whether a Java has ended. ``is_ending``: it no longer answers, and may be about to count as ended."""
    if process is None:
        return False
    if is_ending:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_SECONDS)
    return process.poll() is not None


def started_java_died() -> SparkDied | None:
    """The error of the Java that this process has started last, if it has ended by itself."""
    return spark_died(_Started.process) if has_died(_Started.process) else None


def spark_died(process: subprocess.Popen[bytes] | None) -> SparkDied:
    """The error of a Java that ended by itself."""
    code = None if process is None else process.poll()
    heap = "spark.driver.memory in settings.spark.conf"
    if process is _Started.process and _Started.heap:
        heap = f"{heap} ({_Started.heap} now)"
    if code == -signal.SIGKILL:
        cause = " Most often the machine or the container had no memory left, and the system killed its largest process."
        fix = f"Give the machine or the container more memory, or Spark a smaller heap: {heap}."
    elif code == _OUT_OF_HEAP:
        cause = " Its heap was exhausted."
        fix = f"Give Spark a larger heap: {heap}; or let batches be smaller: batch_size."
    else:
        cause = ""
        fix = f"Look at what it printed, and for hs_err_pid*.log in the working folder. Check this machine's memory, and {heap}."
    return SparkDied(
        "spark-died",
        f"Spark's Java {'does not answer any more' if code is None else _ending(code)} while it was in use.{cause}",
        fix=f"{fix} What is committed stays; the next run goes on from there.",
    )


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    name = signal.Signals(-code).name if -code in {int(one) for one in signal.Signals} else f"signal {-code}"
    return f"was ended by {name}"


def end_java_now(process: subprocess.Popen[bytes] | None = None, *, grace: float = _GRACE_SECONDS) -> None:
    """Ends the Java of this process: it may remove its scratch for as long as ``grace``, then it is killed."""
    process = process or _Started.process
    if process is None:
        return
    with suppress(OSError):  # it may have ended already
        if process.stdin is not None:
            process.stdin.close()
    until = time.monotonic() + grace
    while process.poll() is None and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    if process.poll() is None:
        # Its process group, which it leads: executors of a local cluster are in it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_SECONDS)
