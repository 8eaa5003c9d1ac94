"""How Java is started: what it is given, by which way, and what is said when it does not start or has died."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import ERROR, ERROR_ON_RECEIVE, Py4JNetworkError
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, EnvironmentFault
from frazil.spark import java_process
from frazil.spark.java import java_command
from frazil.spark.java_process import end_java_now, java_options, spark_died, spark_properties, start_java

# In the place of `spark-submit`: says what it was given, and lives as long as its input.
SUBMIT = """#!/bin/sh
{{ printf '%s\\n' "$@"; stat -c '%a' "$2"; cat "$2"; }} > {folder}/given
ps -o pgid= -p $$ > {folder}/group
printf '\\0\\0\\4\\322\\0\\0\\0\\3key' > {folder}/half && mv {folder}/half "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat > {folder}/input
"""


def submit(folder: Path, text: str = SUBMIT) -> Path:
    path = folder / "submit"
    path.write_text(text.format(folder=shlex.quote(str(folder))))
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_java_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java of the shared session is not to be ended by one of these tests."""
    monkeypatch.setattr(java_process._Started, "process", None)
    monkeypatch.setattr(java_process._Started, "heap", "")


def test_java_gets_its_settings_in_a_file_of_its_owner_and_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.conf").write_text("spark.of.the.user 1\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {tmp_path / 'own.conf'} --verbose pyspark-shell")
    made = start_java(submit(tmp_path), {"spark.a": "s3cret", "spark.driver.extraJavaOptions": "-Dx=s3cret"}, Path("/java"))
    try:
        assert (made.port, made.secret) == (1234, "key")
        given = (tmp_path / "given").read_text().splitlines()
        assert (given[0], given[2:6]) == ("--properties-file", ["--load-spark-defaults", "--verbose", "pyspark-shell", "600"])
        assert given[6:8] == ["spark.of.the.user 1", ""]
        assert given[8] == "spark.a=s3cret"
        assert given[9].startswith("spark.driver.extraJavaOptions=@")
        assert "s3cret" not in given[9]
        assert not Path(given[1]).parent.exists(), "the files are gone when Java runs"
        assert int((tmp_path / "group").read_text()) == made.process.pid != os.getpgid(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            made.process.send_signal(number)
        assert made.process.stdin is not None
        made.process.stdin.write(b"still there")
    finally:
        end_java_now()
    assert made.process.returncode is not None
    assert (tmp_path / "input").read_text() == "still there"


def test_a_java_that_does_not_end_by_itself_is_killed(tmp_path: Path) -> None:
    made = start_java(submit(tmp_path, SUBMIT.replace("cat > {folder}/input", "exec sleep 600")), {}, Path("/java"))
    end_java_now(grace=0.1)
    assert made.process.returncode == -signal.SIGKILL


def test_a_java_that_does_not_start_says_so(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        start_java(submit(tmp_path, "#!/bin/sh\nexit 3\n"), {}, Path("/java"))
    assert (caught.value.code, "ended with code 3" in caught.value.message) == ("java-not-started", True)


def test_settings_are_read_by_java_as_they_are(tmp_path: Path, spark: SparkSession) -> None:
    conf = {"spark.a": "plain", "spark.b": " \\ back # ! = : \t two\nlines ü 🧊 ", "spark.c d": "", "other": "left out"}
    file = tmp_path / "p.properties"
    file.write_text(spark_properties(conf))
    assert spark._jvm is not None
    read = spark._jvm.java.util.Properties()
    read.load(spark._jvm.java.io.FileReader(str(file)))
    assert dict(read) == {key: value for key, value in conf.items() if key != "other"}


def test_options_of_java_are_read_by_java_as_they_are(tmp_path: Path) -> None:
    text = """-Da=1 "-Db=with two  spaces" -Dc='a "quoted" # word' -Dd=back\\\\slash"""
    (tmp_path / "options").write_text(java_options(text))
    command = [java_command(), f"@{tmp_path / 'options'}", "-XshowSettings:properties", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    for line in ("a = 1", "b = with two  spaces", 'c = a "quoted" # word', "d = back\\slash"):
        assert f"    {line}\n" in done


@pytest.mark.parametrize(("text", "words"), [("-Da=1 -Xmx4g", "spark.driver.memory"), ("-Da='1", "quotation")])
def test_options_of_java_that_spark_refuses(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        java_options(text)
    assert (caught.value.code, words in caught.value.fix) == ("java-options", True)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ("SIGKILL", "memory left", "smaller heap")),
        ("raise SystemExit(52)", ("code 52", "heap was exhausted", "larger heap")),
        ("raise SystemExit(1)", ("code 1", "hs_err_pid")),
    ],
    ids=["killed", "heap", "otherwise"],
)
def test_a_java_that_died_is_explained(program: str, words: tuple[str, ...]) -> None:
    process = subprocess.Popen([sys.executable, "-c", program])
    process.wait()
    died = spark_died(process)
    assert (died.code, died.exit_code) == ("spark-died", 75)
    assert all(word in str(died) for word in (*words, "Java", "spark.driver.memory"))


class _Lost:
    """A connection that breaks while Java is asked."""

    def send_command(self, _: str) -> str:
        raise Py4JNetworkError("lost", when=ERROR_ON_RECEIVE)

    def close(self, _: bool) -> None:
        """Nothing to close."""


def test_a_connection_that_breaks_is_not_logged_by_the_bridge(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    monkeypatch.setattr(client, "_get_connection", _Lost)
    assert client.send_command("a command\n", retry=False) == ERROR
    assert not caplog.records
