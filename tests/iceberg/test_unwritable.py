"""A store that is full or read-only, and clocks that differ: what is said of them, and that a pipeline goes on afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import frazil
from frazil.commit.protocol import FailureKind
from frazil.errors import Retryable, StoreRefused
from frazil.iceberg.faults import JavaFault, attempt_failed, explain
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.events import CommitFailed, Event
from frazil.model.settings import RetrySettings, Settings
from helpers.lakes import Lake, StopAfter, commits, run

IO = ("java.io.IOException",)
SQL = ("java.sql.SQLException",)


def behind(cause: JavaFault, name: str = "org.apache.iceberg.exceptions.RuntimeIOException") -> JavaFault:
    return JavaFault((name,), "Failed to write", cause)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (behind(JavaFault(IO, "No space left on device")), "storage-full", "No space is left"),
        (
            JavaFault(("org.apache.hadoop.fs.FSError",), "java.io.IOException: No space left on device"),
            "storage-full",
            "No space",
        ),
        (JavaFault(SQL, "[SQLITE_FULL] Insertion failed because database is full"), "storage-full", "database is full"),
        (JavaFault(SQL, "could not extend file", state="53100"), "storage-full", "could not extend file"),
        (behind(JavaFault(IO, "/lake/t/data/a.parquet (Read-only file system)")), "warehouse-not-writable", "Read-only"),
        (behind(JavaFault(IO, "/lake/t/a.parquet (Permission denied)")), "no-permission", "A file cannot be read or written"),
        (behind(JavaFault(IO, "Mkdirs failed to create file:/lake/t")), "warehouse-not-writable", "Mkdirs failed"),
        (JavaFault(SQL, "[SQLITE_READONLY] attempt to write a readonly database"), "catalog-read-only", "The catalog at here"),
    ],
)
def test_a_store_that_takes_nothing_is_called_that_and_tried_again(fault: JavaFault, code: str, words: str) -> None:
    for error in (explain(fault, "here"), attempt_failed(fault, "here").outcome.error):
        assert isinstance(error, Retryable)
        assert (error.code, words in error.message, "Failed to connect" in error.message) == (code, True, False)
    assert attempt_failed(fault, "here").outcome.kind is FailureKind.UNREACHABLE
    staged = explain_staging(JavaFault(("org.apache.spark.SparkException",), "Job aborted", fault))
    assert (type(staged), staged.code) == (StoreRefused, code)


def test_that_a_commit_may_have_been_applied_is_not_forgotten() -> None:
    unknown = behind(JavaFault(IO, "No space left on device"), "org.apache.iceberg.exceptions.CommitStateUnknownException")
    outcome = attempt_failed(unknown, "here").outcome
    assert (outcome.kind, outcome.error.code) == (FailureKind.UNKNOWN, "storage-full")


class Mending(list[Event]):
    """Events, with something that is done when the first attempt to write has failed."""

    def __init__(self, mend: Callable[[], object]) -> None:
        self.failures: list[CommitFailed] = []
        self._mend = mend

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, CommitFailed):
            if not self.failures:
                self._mend()
            self.failures.append(event)


def test_a_pipeline_goes_on_when_the_store_can_be_written_to_again(lake: Lake) -> None:
    pipeline = lake.pipeline({"connector": "generator", "rows": 20}, batch_size=10)
    run(pipeline, once=True, stop=StopAfter(1))
    data, kept = lake.folder / "warehouse" / "db" / "t" / "data", lake.folder / "kept"
    data.rename(kept)
    data.symlink_to("/sys")  # takes no file, whoever asks

    def mend() -> None:
        data.unlink()
        kept.rename(data)

    events = Mending(mend)
    run(pipeline, once=True, settings=Settings(retry=RetrySettings(max_retries=5, initial_backoff_ms=10)), events=events)
    [failure] = events.failures
    assert failure.message.startswith("A file cannot be read or written: ")
    assert "Permission denied" in failure.message
    assert len(commits(events)) == 1
    assert lake.count() == 20


def set_ahead(folder: Path, seconds: float) -> None:
    """As if the last commit to a table had been made by a machine whose clock is ahead."""
    newest = max((folder / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    metadata = json.loads(newest.read_text())
    at = int((time.time() + seconds) * 1000)
    metadata["last-updated-ms"] = metadata["snapshots"][-1]["timestamp-ms"] = metadata["snapshot-log"][-1]["timestamp-ms"] = at
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    newest.write_text(json.dumps(metadata))


def test_a_table_from_the_future_is_waited_for_when_that_is_seconds(lake: Lake) -> None:
    other = lake.with_catalog({"type": "hadoop", "hadoop": {"warehouse": str(lake.folder / "warehouse")}})
    other.sink("select 1 id").write()
    folder = lake.folder / "warehouse" / "db" / "t"
    set_ahead(folder, 3600)
    with pytest.raises(frazil.Retryable, match=r"The table was last changed at .*the clock of another writer is ahead") as caught:
        other.sink("select 2 id").write()
    assert caught.value.code == "clock-differs"
    assert other.count() == 1
    set_ahead(folder, 61)
    other.sink("select 2 id").write()
    assert other.count() == 2
