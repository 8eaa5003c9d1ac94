"""Compiles BrotliCodec.java into the jar that is shipped beside it: ``python scripts/build_brotli_codec.py``. Needs a JDK 17.

The jar tells which source it was made from, so that a test can say when it was forgotten to make it again. Its entries have
no times: the same source and compiler give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pyspark

from frazil.engine.jars import component_jars, ensure_jars
from frazil.engine.session import OWN_JARS

BROTLI_CODEC = OWN_JARS["brotli"]
SOURCE = BROTLI_CODEC.with_name("BrotliCodec.java")
EPOCH = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Compiles the source and writes the jar."""
    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    classpath = os.pathsep.join(str(jar) for jar in (*hadoop, *ensure_jars(component_jars(["brotli"]))))
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["javac", "--release", "17", "-Xlint:all", "-cp", classpath, "-d", out, str(SOURCE)], check=True)
        with ZipFile(BROTLI_CODEC, "w") as jar:
            digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
            jar.writestr(ZipInfo("META-INF/MANIFEST.MF", EPOCH), f"Manifest-Version: 1.0\nSource: {digest}\n\n")
            for path in sorted(Path(out).rglob("*.class")):
                jar.writestr(ZipInfo(str(path.relative_to(out)), EPOCH), path.read_bytes())


if __name__ == "__main__":
    main()
