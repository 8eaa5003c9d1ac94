from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from frazil.model import secrets
from frazil.model.events import CommitFailed, Waiting
from frazil.observe.progress import Progress

from .samples import committed, failed, fenced, staged, started, stopped


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pipe() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=200, highlight=False)


def terminal(width: int = 120) -> Console:
    xterm = {"TERM": "xterm-256color"}
    return Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=width, highlight=False, _environ=xterm)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def screen(console: Console) -> str:
    """What a person sees at the end: the last frame, without control codes."""
    from rich.ansi import AnsiDecoder

    return "\n".join(text.plain.rstrip() for text in AnsiDecoder().decode(written(console).split("\x1b[2K")[-1])).strip()


def test_a_pipe_has_one_plain_line_a_commit() -> None:
    console, clock = pipe(), Clock()
    with Progress(console=console, clock=clock) as progress:
        progress(started(total=400))
        for batch in (1, 2):
            clock.now += 1
            progress(staged())
            progress(committed(batch=batch, written=97, filtered=2, dead_lettered=1))
        progress(Waiting("orders", 3))
        clock.now += 2
        progress(stopped())
    assert written(console).splitlines() == [
        "orders: writing to lake.shop.orders, 400 rows to read",
        "orders: batch 1 committed (97 rows, 2 filtered, 1 dead-lettered, 2 files, 0.3 s); "
        "100/400 rows, 100 rows/s, ETA 0:00:03, 1 batch",
        "orders: batch 2 committed (97 rows, 2 filtered, 1 dead-lettered, 2 files, 0.3 s); "
        "200/400 rows, 100 rows/s, ETA 0:00:02, 2 batches",
        "orders: 200/400 rows, 50 rows/s, 2 batches, done",
    ]


def test_a_pipe_tells_of_trouble_without_secrets() -> None:
    secrets.remember(["canary-4711"])
    console = pipe()
    with Progress(console=console, clock=Clock()) as progress:
        progress(started())
        progress(CommitFailed("orders", "unreachable", "no answer for [bold]canary-4711\nat all", 2, will_retry=True))
        progress(committed(skipped=True))
        progress(fenced())
        progress(stopped(error="canary-4711 took over"))
    lines = written(console).splitlines()
    assert lines[1:4] == [
        "orders: commit failed (unreachable, attempt 2), trying again: no answer for [bold]********** at all",
        "orders: batch 1 was in the table already, nothing written",
        "orders: fenced: another instance took over",
    ]
    assert lines[4].endswith("failed: ********** took over")
    assert lines[4].startswith("orders: 0 rows, "), "a skipped batch was not written by this run"
    assert "\x1b" not in written(console)


def test_a_terminal_has_a_bar_with_rate_and_eta() -> None:
    console, clock = terminal(), Clock()
    with Progress(console=console, clock=clock) as progress:
        progress(started(total=1000))
        clock.now += 2
        progress(committed(written=500))
    shown = screen(console)
    assert shown.startswith("orders")
    assert "━" in shown
    assert "500/1,000 rows, 250 rows/s, ETA 0:00:02, 1 batch" in shown


def test_a_terminal_has_a_live_line_for_a_stream() -> None:
    console, clock = terminal(), Clock()
    with Progress(console=console, clock=clock) as progress:
        progress(started())
        clock.now += 10
        progress(committed(batch=1, written=3000))
        clock.now += 5
        progress(Waiting("orders", 42))
    shown = screen(console)
    assert "3,000 rows, 200 rows/s, 1 batch, last commit 5 s ago, 42 pending" in shown
    assert "━" not in shown
    assert "ETA" not in shown


def test_the_rate_forgets_what_is_long_ago() -> None:
    console, clock = terminal(), Clock()
    with Progress(console=console, clock=clock) as progress:
        progress(started())
        progress(committed(written=3000))
        clock.now += 31
    assert "3,000 rows, 0 rows/s" in screen(console)


def test_trouble_stands_under_its_pipeline_until_the_next_commit() -> None:
    console = terminal()
    with Progress(console=console, clock=Clock()) as progress:
        progress(started())
        progress(failed("unreachable", attempt=3))
    assert "commit failed (unreachable, attempt 3), trying again: the catalog said no" in screen(console)
    console = terminal()
    with Progress(console=console, clock=Clock()) as progress:
        progress(started())
        progress(failed("unreachable"))
        progress(committed())
    assert "failed" not in screen(console)


def test_several_pipelines_have_a_line_each() -> None:
    console = terminal()
    with Progress(console=console, clock=Clock()) as progress:
        progress(started("orders", total=100))
        progress(started("users"))
        progress(committed("orders", written=50))
        progress(committed("users", written=7))
        progress(stopped("users"))
    orders, users = screen(console).splitlines()
    assert orders.startswith("orders")
    assert "50/100 rows" in orders
    assert users.startswith("users")
    assert "7 rows" in users
    assert users.endswith("done")


def test_a_narrow_terminal_keeps_the_numbers_that_tell_most() -> None:
    console = terminal(width=60)
    with Progress(console=console, clock=Clock()) as progress:
        progress(started(total=1_000_000))
        progress(committed(written=500_000))
    shown = screen(console)
    assert len(shown.splitlines()) == 1
    assert "500,000/1,000,000 rows" in shown


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    def colours() -> bool:
        console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, color_system="standard", width=120)
        with Progress(console=console, clock=Clock()) as progress:
            progress(started(total=100))
            progress(committed(written=50))
            progress(failed())
        return any(f"\x1b[{code}m" in written(console) for code in (31, 32, 33, 35))

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours()


@pytest.mark.parametrize("console", [pipe(), terminal()], ids=["pipe", "terminal"])
def test_quiet_shows_nothing(console: Console) -> None:
    with Progress(quiet=True, console=console) as progress:
        progress(started())
        progress(committed())
        progress(stopped(error="boom"))
    assert written(console) == ""


def test_it_writes_to_stderr_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with Progress() as progress:
        progress(started())
        progress(committed())
    out, err = capsys.readouterr()
    assert out == ""
    assert "batch 1 committed" in err


def test_log_lines_go_above_the_display_and_data_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    with Progress(console=console) as progress:
        progress(started())
        print("a log line", file=sys.stderr)
        print("data")
    out, err = capsys.readouterr()
    assert out == "data\n"
    assert err == ""
    assert "a log line" in written(console)


def test_events_of_many_threads_while_the_display_runs() -> None:
    console = terminal()
    with Progress(console=console) as progress:
        for name in ("orders", "users"):
            progress(started(name))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: progress(committed(("orders", "users")[n % 2], batch=n, written=10)), range(200)))
        for name in ("orders", "users"):
            progress(stopped(name))
    assert [line.split(",")[0].split()[-2:] for line in screen(console).replace("1,000", "1000").splitlines()] == [
        ["1000", "rows"],
        ["1000", "rows"],
    ]
