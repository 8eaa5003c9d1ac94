"""What a user of the package gets: built by the build backend of the lock, so that nothing is fetched."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from frazil.version import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (path,) = folder.glob("*.whl")
    assert path.name == f"frazil-{__version__}-py3-none-any.whl"
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "frazil").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected
    assert {"frazil/py.typed", "frazil/spark/locks/core.txt"} <= expected


def test_the_package_of_the_older_name_is_built_by_itself(tmp_path: Path) -> None:
    folder = ROOT / "compat" / "dlt_iceberg"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    (path,) = tmp_path.glob("frazil_dlt_iceberg-*.whl")
    with zipfile.ZipFile(path) as built:
        own = {name for name in built.namelist() if ".dist-info/" not in name}
        assert own == {f"dlt_iceberg/{name.name}" for name in (folder / "src" / "dlt_iceberg").iterdir() if name.is_file()}
        (metadata,) = (name for name in built.namelist() if name.endswith("/METADATA"))
        assert "Requires-Dist: frazil[dlt]" in built.read(metadata).decode()
    assert "pip install '.[dlt]' ./compat/dlt_iceberg" in (ROOT / "docs" / "dlt.md").read_text()


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    folder = f"frazil-{__version__}.dist-info"
    metadata = wheel.read(f"{folder}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "Requires-Dist: pyspark<4.2,>=4.1" in metadata
    assert "Requires-Dist: pandas<3,>=2.2; extra == 'dlt'" in metadata, "a dataset's `df` needs it"
    assert {"java", "postgres", "readers"} <= {
        line.removeprefix("Provides-Extra: ") for line in metadata.splitlines() if line.startswith("Provides-Extra: ")
    }
    assert "frazil = frazil.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert wheel.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
