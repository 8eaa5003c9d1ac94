"""Spark starts with classes that were prepared, where nobody has said otherwise."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.model.settings import SparkSettings
from frazil.spark.class_archive import archive_of, class_path, sharing_options
from frazil.spark.jars import needed_jars
from frazil.spark.java import java_command
from frazil.spark.session import launch_conf


def java(*options: str) -> int:
    return subprocess.run([java_command(), *options, "-version"], capture_output=True, check=False).returncode


@pytest.fixture
def archive() -> Path:
    path = archive_of()
    assert path.is_file(), "`make setup` makes it"
    return path


def test_java_takes_the_archive_with_the_jars_of_any_component(archive: Path) -> None:
    core, more = needed_jars(), needed_jars(("kafka", "postgres"))
    options = sharing_options(given="").split()
    assert f"-XX:SharedArchiveFile={archive}" in options
    # With -Xshare:on Java does not start when the archive does not fit.
    assert java("-Xshare:on", *options, "-cp", class_path(core)) == 0
    assert java("-Xshare:on", *options, "-cp", class_path(more)) == 0
    assert java("-Xshare:on", *options, "-cp", os.pathsep.join(map(str, reversed(core)))) != 0
    # As Spark is started, it does, and says nothing.
    done = subprocess.run([java_command(), *options, "-cp", "elsewhere", "-version"], capture_output=True, text=True, check=True)
    assert "shared" not in done.stdout.lower()


def test_the_session_of_the_tests_uses_it(spark: SparkSession, archive: Path) -> None:
    assert spark._jvm is not None
    given = list(spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert f"-XX:SharedArchiveFile={archive}" in given


def test_jars_are_where_the_master_needs_them(archive: Path) -> None:
    jars = needed_jars(("postgres",))
    for master in ("local", "local[4]", None):
        conf = launch_conf(SparkSettings(master=master), jars)
        assert conf["spark.driver.extraClassPath"] == class_path(jars)
        assert "spark.jars" not in conf
        assert str(archive) in conf["spark.driver.extraJavaOptions"]
    for master in ("local-cluster[1,1,1024]", "spark://host:7077", "yarn"):
        conf = launch_conf(SparkSettings(master=master), jars)
        assert conf["spark.jars"] == ",".join(map(str, jars))
        assert "spark.driver.extraClassPath" not in conf
        assert str(archive) not in conf["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    "own",
    [{"spark.jars": "/mine.jar"}, {"spark.jars.packages": "a:b:1"}, {"spark.driver.extraClassPath": "/mine"},
     {"spark.driver.extraJavaOptions": "-Xshare:off"}, {"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=/mine.jsa"}],
    ids=str,
)  # fmt: skip
def test_what_the_user_says_of_classes_is_left_alone(archive: Path, own: dict[str, str]) -> None:
    jars = needed_jars()
    conf = launch_conf(SparkSettings(master="local[1]", conf=own), jars)
    for name, value in own.items():
        assert value in conf[name]
    assert str(archive) not in conf["spark.driver.extraJavaOptions"]
    where = conf.get("spark.jars", "") + conf.get("spark.driver.extraClassPath", "")
    assert all(str(jar) in where for jar in jars)
