"""What is wrong with a source in Python, or with its settings, is reported at its place in the Bizon file or the Python file."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest
from bizon_cases import EXAMPLES
from paged_cases import FILE, SOURCE

from cli.commands import Frazil
from cli.test_light import HEAVY
from cli.test_light import loaded as loaded_modules
from frazil.doors.bizon import known_sources, load_text, streams_of
from frazil.errors import ConfigErrors, EnvironmentFault
from frazil.files import load
from frazil.model.pipeline import ProjectSpec
from frazil.model.source import PagesSource

DEV = EXAMPLES / "example.dev.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shelf.py").write_text(SOURCE)
    return tmp_path


def text(folder: Path, source: str = "", config: str = "") -> str:
    return FILE.format(folder=folder, catalog="lake", source=source, config=config)


def loaded(folder: Path, source: str = "", config: str = "", **change: str) -> ProjectSpec:
    whole = text(folder, source, config)
    for before, after in change.items():
        whole = whole.replace(before, after)
    return load_text(whole, "shelf.yaml", {})


def source_of(project: ProjectSpec) -> PagesSource:
    (pipeline,) = project.pipelines
    assert isinstance(pipeline.source, PagesSource)
    return pipeline.source


def problem(folder: Path, source: str = "", config: str = "", **change: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        loaded(folder, source, config, **change)
    return str(caught.value)


def test_settings_are_what_yaml_sees_in_them_but_texts_where_texts_are_asked_for(folder: Path) -> None:
    source = source_of(loaded(folder, "  shelf: 0815\n  most: 5\n  options: {deep: [1, yes, 'two', 2.5]}\n"))
    assert source.config["shelf"] == "0815"
    assert source.config["most"] == 5
    assert source.config["options"] == {"deep": [1, "yes", "two", 2.5]}
    assert (source.mode, source.tables, source.table) == ("full_refresh", ("shelf_books",), "shelf_books")


def test_each_run_ends_unless_it_is_a_stream(folder: Path) -> None:
    assert loaded(folder).pipelines[0].once
    assert not loaded(folder, "  sync_mode: stream").pipelines[0].once
    assert loaded(folder).pipelines[0].sink.commit_mode.value == "overwrite"
    assert loaded(folder, "  sync_mode: incremental").pipelines[0].sink.commit_mode.value == "append"


CASES = {
    "a value": ("  most: none", "", "6:9", "`most` must be a whole number"),
    "a value out of range": ("  most: 0", "", "6:9", "must be at least 1"),
    "a key": ("  mots: 5", "", "6:3", "Did you mean `most`?"),
    "a mode": ("  sync_mode: incremntal", "", "6:14", "Did you mean `incremental`?"),
    "a reset of what is replaced anyway": ("  reset: true", "", "6:3", "it belongs to incremental"),
    "rows that would be doubled": (
        "  sync_mode: incremental\n  force_ignore_checkpoint: true", "", "7:3", "`frazil reset` empties the table",
    ),
    "no pages": ("  max_iterations: 0", "", "6:19", "must be at least 1"),
    "an upsert into what is replaced": (
        "", "    upsert: {enabled: true, join_cols: [_source_record_id]}", "16:5", "replaces all rows",
    ),
}  # fmt: skip


def test_a_table_that_is_not_declared_is_reported(folder: Path) -> None:
    named = "    destination_id: bookes\n    destination_table_config: "
    one = loaded(folder, "", f"{named}[{{destination_id: books}}]")
    assert any(
        "16:5: `destination_id` has no effect: records that name no table go into the only one" in notice
        for notice in one.notices
    )
    source: Any = one.pipelines[0].source
    assert (source.tables, source.table) == (("books",), "books")
    two = loaded(folder, "", f"{named}[{{destination_id: books}}, {{destination_id: papers}}]")
    assert any("no table is declared for the destination_id `bookes`" in notice for notice in two.notices)
    source = two.pipelines[0].source
    assert (source.tables, source.table) == (("books", "papers", "bookes"), "bookes")


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_reported_where_it_stands(folder: Path, case: str) -> None:
    source, config, place, words = CASES[case]
    message = problem(folder, source, config)
    assert message.startswith(f"shelf.yaml:{place}: "), message
    assert words in message


def test_a_stream_that_the_class_does_not_have(folder: Path) -> None:
    message = problem(folder, **{"stream: books": "stream: boks"})
    assert message.startswith("shelf.yaml:4:11: There is no stream `boks`")
    assert "Did you mean `books`?" in message


def test_a_file_that_does_not_exist(folder: Path) -> None:
    message = problem(folder, **{"shelf.py": "shlef.py"})
    assert message.startswith("shelf.yaml:5:21: The file ")
    assert "does not exist" in message


def test_a_source_that_bizon_does_not_have(folder: Path) -> None:
    gone = {f"  source_file_path: {folder}/shelf.py\n": "", "  name: shelf\n": "  name: pokeapy\n"}
    message = problem(folder, **gone)
    assert message.startswith("shelf.yaml:3:9: There is no source `pokeapy`")
    assert "Did you mean `pokeapi`?" in message
    assert "--custom-source" in message


WRONG = {
    "no class": ("class Shelf(AbstractSource):", "class Shelf:", "source-class-missing", ""),
    "a method that is missing": ("def check_connection", "def check_conection", "source-class-missing", "check_connection"),
    "no streams": ('return ["books", "papers"]', "return []", "source-class-missing", "streams() of the class Shelf"),
    "an error when it is run": ("HERE = Path", "HERE = Pth", "source-failed", "NameError"),
    "no Python": ("HERE = Path", "HERE = = Path", "source-failed", "SyntaxError"),
    "another package": ("import json\n", "import jsson\n", "source-failed", "No module named 'jsson'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_without_a_source(folder: Path, case: str) -> None:
    before, after, code, words = WRONG[case]
    assert before in SOURCE
    wrong = SOURCE.replace(before, after)
    (folder / "shelf.py").write_text(wrong)
    with pytest.raises(ConfigErrors) as caught:
        loaded(folder)
    (error,) = caught.value.errors
    assert error.code == code
    assert words in str(error)
    if code == "source-failed":
        line = wrong[: wrong.index(after)].count("\n") + 1
        assert str(error.location).startswith(f"{folder / 'shelf.py'}:{line}:"), str(error)


def test_a_file_beside_the_source_is_found(folder: Path) -> None:
    (folder / "beside_the_shelf.py").write_text("STREAMS = ['books']\n")
    changed = SOURCE.replace('["books", "papers"]', "STREAMS").replace(
        "import json\n", "import json\nfrom beside_the_shelf import STREAMS\n"
    )
    (folder / "shelf.py").write_text(changed)
    assert source_of(loaded(folder)).stream == "books"
    assert str(folder) not in sys.path


def test_without_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "bizon"]:
        monkeypatch.delitem(sys.modules, name)
    original = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "bizon":
            raise ModuleNotFoundError("No module named 'bizon'", name="bizon")
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EnvironmentFault) as caught:
        loaded(folder)
    assert (caught.value.code, caught.value.fix) == ("package-missing", "Install it: pip install 'frazil[bizon]'.")


def test_what_the_package_has() -> None:
    assert {"kafka", "dummy", "pokeapi", "hubspot", "notion"} <= set(known_sources())
    assert streams_of("dummy") == {"creatures": "full_refresh", "plants": "full_refresh"}
    assert set(streams_of("notion").values()) == {"incremental"}


def test_a_source_on_the_command_line(frazil: Frazil, folder: Path) -> None:
    (folder / "b.yaml").write_text(text(folder).replace(f"  source_file_path: {folder}/shelf.py\n", ""))
    result = frazil("validate", "b.yaml")
    assert (result.code, "--custom-source" in result.err) == (78, True)
    found = frazil("validate", "b.yaml", "--custom-source", "shelf.py", "--json")
    assert (found.code, found.json["pipelines"][0]["table"]) == (0, "ns.shelf_books")
    missing = frazil("run", "b.yaml", "--custom-source", "none.py")
    assert (missing.code, "There is no file none.py" in missing.err) == (2, True)
    assert source_of(load(folder / "b.yaml", {}, custom_source=folder / "shelf.py")).file == str(folder / "shelf.py")
    (folder / "own.yaml").write_text("version: '1.0'\nsources: {}\n")
    assert frazil("validate", "own.yaml", "--custom-source", "shelf.py").code == 2


def test_a_connection_is_tried_without_spark(frazil: Frazil, folder: Path) -> None:
    (folder / "b.yaml").write_text(text(folder))
    known = ("check", "b.yaml", "--source", "shelf.shelf_books", "--json")
    assert frazil(*known).json["checks"][0]["message"] == "the stream books of shelf can be read"
    (folder / "away").touch()
    away = frazil(*known)
    assert (away.code, "the shelf is gone" in away.json["checks"][0]["error"]["message"]) == (75, True)


def test_a_file_that_reads_topics_needs_no_bizon(tmp_path: Path) -> None:
    assert loaded_modules(tmp_path, ["validate", str(DEV)], [*HEAVY, "bizon", "loguru", "polars"]) == (0, [])


def test_secrets_of_a_source_are_not_shown(frazil: Frazil, folder: Path) -> None:
    secret = "s3cr3t-of-the-shelf"
    wrong = SOURCE.replace("return self._page(pagination, None)", "").replace(
        "HERE = Path(__file__).parent", f"HERE = Path(__file__).parent\nif True: raise ValueError('{secret}')"
    )
    (folder / "shelf.py").write_text(wrong.replace("    def get(self, pagination=None):\n        \n", ""))
    (folder / "b.yaml").write_text(text(folder, f"  authentication: {{type: api_key, params: {{token: {secret}}}}}"))
    result = frazil("validate", "b.yaml")
    assert result.code == 78
    assert secret not in result.text
