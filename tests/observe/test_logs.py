from __future__ import annotations

import inspect
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from frazil.model import secrets
from frazil.model.events import CommitFailed, Event, FencedOut, Started, Stopped, Waiting
from frazil.observe import logs

from .samples import committed, failed, fenced, staged, started, stopped

CANARY = "canary-s3cr3t-0815"


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Every test configures the process's logging; the next one finds it as it was."""
    root, own = logging.getLogger(), logging.getLogger("frazil")
    before = (root.handlers[:], root.level, own.level)
    yield
    root.handlers[:], levels = before[0], before[1:]
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    structlog.reset_defaults()


def json_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_json_lines_have_stable_names_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "json")
    listener = logs.LogEvents()
    events: list[Event] = [
        started(), Waiting("orders", 4), staged(), committed(batch=9, written=5, filtered=1), committed(skipped=True),
        failed("conflict"), failed("refused", will_retry=False), fenced(), stopped(), stopped(error="boom"),
    ]  # fmt: skip
    for event in events:
        listener(event)
    lines = json_lines(capsys)
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "pipeline_started"),
        ("debug", "pipeline_waiting"),
        ("debug", "batch_staged"),
        ("info", "batch_committed"),
        ("info", "batch_skipped"),
        ("warning", "commit_failed"),
        ("error", "commit_failed"),
        ("error", "pipeline_fenced"),
        ("info", "pipeline_stopped"),
        ("error", "pipeline_failed"),
    ]
    assert all(line["pipeline"] == "orders" and str(line["timestamp"]).endswith("Z") for line in lines)
    done = lines[3]
    assert (done["batch"], done["written"], done["filtered"], done["table"]) == (9, 5, 1, "lake.shop.orders")
    assert done["snapshot"] == 7_000_000_000_000_000_009
    assert lines[6]["kind"] == "refused"
    assert lines[9]["error"] == "boom"


def test_the_page_on_operations_lists_every_event() -> None:
    code = inspect.getsource(logs.named)
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert set(re.findall(r'"([a-z]+_[a-z]+)"', code)) == set(
        re.findall(r"^\| `([a-z]+_[a-z]+)` \| (?:info|debug|warning|error)", page, re.M)
    )


def test_text_is_for_people_and_has_no_colours_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logs.LogEvents()(committed(batch=9, written=5))
    out, err = capsys.readouterr()
    assert out == ""
    assert "[info" in err
    assert "batch_committed" in err
    assert "written=5" in err
    assert "pipeline=orders" in err
    assert "\x1b" not in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_on_a_terminal_unless_refused(
    no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    logs.configure()
    logs.LogEvents()(committed())
    assert ("\x1b[" in capsys.readouterr().err) is coloured


def test_the_level_cuts_off_and_the_last_configuration_counts(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "text")
    logs.configure("warning", "json")
    listener = logs.LogEvents()
    listener(committed())
    listener(failed())
    assert [line["event"] for line in json_lines(capsys)] == ["commit_failed"]


def test_other_libraries_are_heard_from_warnings_up(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", "json")
    logging.getLogger("urllib3").info("chatter")
    logging.getLogger("urllib3").warning("a %s problem", "real")
    (line,) = json_lines(capsys)
    assert (line["event"], line["level"], line["logger"]) == ("a real problem", "warning", "urllib3")


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_reaches_the_logs(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    secrets.remember([CANARY, f"-----BEGIN KEY-----\n{CANARY}\n-----END KEY-----"])
    logs.configure("debug", form)  # type: ignore[arg-type]
    listener = logs.LogEvents()
    for event in (
        Started("orders", "lake.shop.orders", 1, f'{{"where":"{CANARY}"}}', continuous=True),
        CommitFailed("orders", "refused", f"403 for {CANARY}", 1, will_retry=True),
        FencedOut("orders", CANARY),
        Stopped("orders", 1, 1, error=f"jdbc:postgresql://u:{CANARY}@host/db said no"),
    ):
        listener(event)
    logger = logs.logger()
    logger.info(f"event {CANARY}", nested={"list": [CANARY, {"deep": CANARY}]}, thing=ValueError(CANARY), raw=CANARY.encode())
    logger.info("never remembered", password="another-one-0815", s3={"secret_access_key": "another-one-0815"})
    structlog.get_logger().warning("by the global way", text=CANARY)
    logging.getLogger("urllib3").error("refused %s", CANARY)
    for name in ("frazil", "urllib3"):
        try:
            try:
                raise ValueError(CANARY)
            except ValueError as inner:
                raise RuntimeError(f"on top of {CANARY}") from inner
        except RuntimeError:
            logging.getLogger(name).exception("it broke")
            logger.exception("it broke again", cause=CANARY)
    out, err = capsys.readouterr()
    assert out == ""
    assert "canary" not in err
    assert "0815" not in err
    assert err.count("it broke again") == 2
    assert "RuntimeError" in err
    assert secrets.MASK in err


def test_a_host_program_sees_whole_lines_without_secrets() -> None:
    """As a library nothing is configured: records go to the program's own handlers."""
    secrets.remember([CANARY])
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    own = logging.getLogger("frazil")
    handler = Keep()
    own.addHandler(handler)
    try:
        logs.LogEvents()(CommitFailed("orders", "refused", f"no, {CANARY}\nFAKE line=1", 1, will_retry=True))
        logs.logger().error("refused", cause=ValueError(CANARY), password="never-remembered")
    finally:
        own.removeHandler(handler)
    first, second = records
    assert second.getMessage() == f"refused cause={secrets.MASK} password={secrets.MASK}"
    assert first.levelname == "WARNING"
    assert first.getMessage() == (
        f"commit_failed pipeline=orders kind=refused message='no, {secrets.MASK}\\nFAKE line=1' attempt=1 will_retry=True"
    )


def test_long_positions_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.LogEvents()(Started("orders", "t", 1, "x" * 5000, continuous=True))
    (line,) = json_lines(capsys)
    assert str(line["start"]).endswith("...")
    assert len(str(line["start"])) < 300


def test_without_configuration_nothing_goes_to_stdout() -> None:
    code = "from frazil.observe.logs import logger; logger().warning('careful'); logger().info('chatter')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("", "careful\n")


def test_importing_it_loads_no_structlog() -> None:
    code = "import sys, frazil.observe.logs; assert 'structlog' not in sys.modules and 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
