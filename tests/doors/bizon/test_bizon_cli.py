"""Bizon files on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from bizon_cases import EXAMPLES, Lake

from cli.commands import Frazil
from frazil.cli.run import LogLevel, Runner, as_asked
from frazil.errors import ConfigError, UsageError
from frazil.files import load
from frazil.reading.environment import variables_of

DEV = EXAMPLES / "example.dev.yaml"


def test_validate_tells_what_is_in_the_file_and_what_has_no_use(frazil: Frazil) -> None:
    found = frazil("validate", DEV, "--json")
    assert (found.code, found.json["pipelines"][0]["table"]) == (0, "dev_bizon.events")
    assert f"{DEV}:18:3: BigQuery does not get the tables" in found.err


def test_a_mistake_is_reported_in_their_file(frazil: Frazil, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(DEV.read_text().replace("write_batch_size", "write_batchsize"))
    found = frazil("validate", "wrong.yaml")
    assert found.code == 78
    assert "wrong.yaml:24:5" in found.err
    assert "Did you mean `write_batch_size`?" in found.err


def test_lists_of_sources_and_streams(frazil: Frazil) -> None:
    known = {one["source"]: one["streams"] for one in frazil("source", "list", "--json").json}
    assert (known["kafka"], known["dummy"]) == (["topic"], ["creatures", "plants"])
    assert frazil("stream", "list", "kafka", "--json").json == [{"stream": "topic", "mode": "incremental"}]
    assert frazil("stream", "list", "dummy", "--json").json[0] == {"stream": "creatures", "mode": "full_refresh"}
    assert "full refresh, incremental and stream" in frazil("stream", "list", "notion").out
    shown = frazil("source", "list").out
    assert "kafka" in shown
    assert "pip install 'bizon[gsheets]'" in shown, "what a source needs that is not there"
    wrong = frazil("stream", "list", "kafak")
    assert wrong.code == 2
    assert "Did you mean kafka?" in wrong.err
    assert "list" in frazil("stream").out


def test_the_runner_decides_whether_pipelines_end() -> None:
    project = load(DEV)
    assert [one.once for one in project.pipelines] == [True]
    streaming, once = as_asked(project, once=False, runner=Runner.STREAM, log_level=LogLevel.TRACE)
    assert ([one.once for one in streaming.pipelines], once) == ([False], False)
    assert streaming.settings.log_level == "debug"
    assert as_asked(project, once=False, runner=Runner.PROCESS, log_level=None) == (project, True)
    with pytest.raises(UsageError):
        as_asked(project, once=True, runner=Runner.STREAM, log_level=None)


def test_variables_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# note\nA=1\nexport B='x # y'\nC=\"a\\nb\" # note\nD=plain # note\nE=\n\nF=p@ss#word\n")
    assert variables_of(file) == {"A": "1", "B": "x # y", "C": "a\nb", "D": "plain", "E": "", "F": "p@ss#word"}
    file.write_text("A=1\nsecret without a name\n")
    with pytest.raises(ConfigError) as caught:
        variables_of(file)
    assert str(caught.value.location) == f"{file}:2:1"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "command", ["validate", "check", "plan", "status", "inspect", "verify", "test", "run", "reset", "doctor"]
)
def test_every_command_that_reads_a_file_takes_its_variables(
    frazil: Frazil, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.yaml").write_text(DEV.read_text().replace("dataset_id: ", "dataset_id: env://BIZON_TEST_SET # "))
    (tmp_path / "vars.env").write_text("BIZON_TEST_SET=set\n")
    monkeypatch.setenv("BIZON_TEST_SET", "")  # put back when the test has ended
    monkeypatch.delenv("BIZON_TEST_SET")
    # A pipeline of that name is looked for once the file is read, and before anything else is done.
    names = ["--source", "none"] if command == "check" else [] if command in ("validate", "doctor") else ["none"]
    lacking = frazil("-c", "b.yaml", command, *names)
    assert "BIZON_TEST_SET is not set" in lacking.text
    found = frazil("-c", "b.yaml", command, *names, "--env-file", "vars.env")
    assert "BIZON_TEST_SET" not in found.text
    assert found.code == (2 if names else 0) or command == "doctor", found.text


def test_a_file_is_run_looked_at_emptied_and_run_again(
    frazil: Frazil, bizon: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1}, {"id": 2}])
    text = bizon.text("write_batch_size: 10", events=topic).replace(bizon.kafka.address(), "env://BIZON_TEST_SERVERS")
    (tmp_path / "b.yaml").write_text(text)
    (tmp_path / "vars.env").write_text(f"BIZON_TEST_SERVERS={bizon.kafka.address()}\n")
    monkeypatch.setenv("BIZON_TEST_SERVERS", "")  # put back when the test has ended
    monkeypatch.delenv("BIZON_TEST_SERVERS")
    assert frazil("validate", "b.yaml").code == 78
    ran = frazil("run", "b.yaml", "--env-file", "vars.env", "--log-level", "WARNING", "--json")
    assert (ran.code, ran.json["pipelines"][0]["rows"]) == (0, 2), ran.text
    assert frazil("status", "b.yaml", "--json").json["pipelines"][0]["rows"] == 2
    shown = frazil("reset", "b.yaml", "events", "--json").json["pipelines"][0]
    assert (shown["table"], shown["done"]) == ("ns.events", False)
    assert bizon.table("events").count() == 2, "without --yes it is only shown"
    assert frazil("reset", "b.yaml", "--yes").code == 0
    assert bizon.table("events").count() == 0
    bizon.send(topic, [{"id": 3}])
    assert frazil("run", "b.yaml", "--runner", "thread", "--json").json["pipelines"][0]["rows"] == 3
    assert bizon.table("events").count() == 3
    assert frazil("check", "-c", "b.yaml").code == 0
    assert frazil("plan", "b.yaml").code == 0
