"""Compiles the Java sources of ``frazil/spark/jvm`` into the jars beside them: ``python scripts/build_jars.py``. Needs a JDK 17.

A jar tells which sources it was made from, so that a test can say when it was forgotten to make it again. Its entries have
no times: the same sources and compiler give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pyspark

from frazil.spark.jars import OWN_JARS, component_jars, ensure_jars

SOURCES = {
    "brotli": ("BrotliCodec.java",),
    "core": (
        "AwsRequests.java",
        "ChangedFiles.java",
        "DeadRows.java",
        "FoundPlaces.java",
        "JsonPass.java",
        "JsonRows.java",
        "KeyBlocks.java",
        "KeyIndex.java",
        "KeyRun.java",
        "KeyTimes.java",
        "LocalFiles.java",
        "PackedKeys.java",
        "PemTls.java",
        "Places.java",
        "Requests.java",
        "RestCatalog.java",
        "RestLogin.java",
        "RestRequests.java",
        "SinkProvider.java",
        "SqlTransaction.java",
    ),
}
# Other components whose classes the sources name; they need not be there when Spark runs.
BESIDE = {"core": ("aws",)}
# By such a file others find a class: Spark what answers to `format("frazil")`, Amazon's library what is told of its requests.
SERVICES = {
    "core": {
        "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister": "frazil.SinkProvider\n",
        "software/amazon/awssdk/global/handlers/execution.interceptors": "frazil.AwsRequests\n",
    }
}
EPOCH = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Compiles the sources and writes the jars."""
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    for component, jar in OWN_JARS.items():
        sources = [jar.with_name(name) for name in SOURCES[component]]
        needed = ensure_jars(component_jars([component, *BESIDE.get(component, ())]))
        build(jar, sources, (*spark, *needed), SERVICES.get(component, {}))


def build(jar: Path, sources: Sequence[Path], classpath: Sequence[Path], services: Mapping[str, str]) -> None:
    """One jar from its sources."""
    # Spark's own jars name others in their manifests that are not there, and Iceberg's classes annotations: no mistakes of these
    # sources.
    options = ["--release", "17", "-Xlint:all,-path,-classfile", "-Werror", "-cp", os.pathsep.join(map(str, classpath))]
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["javac", *options, "-d", out, *map(str, sources)], check=True)
        with ZipFile(jar, "w") as file:
            file.writestr(ZipInfo("META-INF/MANIFEST.MF", EPOCH), manifest(sources))
            for name, text in services.items():
                file.writestr(ZipInfo(name, EPOCH), text)
            for path in sorted(Path(out).rglob("*.class")):
                file.writestr(ZipInfo(str(path.relative_to(out)), EPOCH), path.read_bytes())


def manifest(sources: Sequence[Path]) -> str:
    """One section for each source, with its digest."""
    entries = [f"Name: {path.name}\nSource: {hashlib.sha256(path.read_bytes()).hexdigest()}\n\n" for path in sources]
    return "Manifest-Version: 1.0\n\n" + "".join(entries)


if __name__ == "__main__":
    main()
