"""Which rows of a merge count: those of keys that come several times, and what is nested in rows that are there already."""

from __future__ import annotations

from typing import Any

import pytest
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_lakes import DltLake, loaded, resource

from frazil.runtime.loads import Loader

INSERT_ONLY: Any = {"write_disposition": {"disposition": "merge", "strategy": "insert-only"}, "primary_key": "id"}


def nested(lake: DltLake) -> tuple[list[Any], list[Any]]:
    """The rows of both levels below the root, each with the number of the row that it belongs to."""
    roots, above = dict(lake.rows("t", "_dlt_id", "id")), dict(lake.rows("t__parts", "_dlt_id", "n"))
    parts = [(roots.get(parent, "nobody"), n) for parent, n in lake.rows("t__parts", "_dlt_parent_id", "n")]
    bits = [(above.get(parent, "nobody"), b) for parent, b in lake.rows("t__parts__bits", "_dlt_parent_id", "b")]
    return sorted(parts, key=repr), sorted(bits, key=repr)


@pytest.mark.slow
def test_rows_that_are_there_keep_what_is_nested_in_them_and_take_what_is_new(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1, "v": "a", "parts": [{"n": 1, "bits": [{"b": 1}]}]}], **INSERT_ONLY)))
    longer = {"id": 1, "v": "b", "parts": [{"n": 10, "bits": [{"b": 10}, {"b": 11}]}, {"n": 11, "bits": [{"b": 12}]}]}
    new = {"id": 2, "v": "c", "parts": [{"n": 2, "bits": [{"b": 2}]}, {"n": 3}]}
    for rows in ([longer, new], [longer], [{"id": 1, "v": "d"}]):
        loaded(pipeline.run(resource(rows, **INSERT_ONLY)))
        assert lake.rows("t", "id", "v") == [(1, "a"), (2, "c")]
        assert nested(lake) == ([(1, 1), (1, 11), (2, 2), (2, 3)], [(1, 1), (1, 11), (11, 12), (2, 2)])


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_load_of_new_rows_that_was_cut_off_is_finished_by_the_next_run(
    lake: DltLake, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1, "parts": [{"n": 1, "bits": [{"b": 1}]}]}], **INSERT_ONLY)))
    more = [{"id": n, "parts": [{"n": n * 10, "bits": [{"b": n * 10}]}, {"n": n * 10 + 1}]} for n in (1, 2)]
    write, last = Loader._write, ("t__parts__bits", "t__parts", "t")[written]

    def cut_off(loader: Loader, sink: Any, *given: Any) -> Any:
        if sink.table == last:
            raise InterruptedError("cut off")
        return write(loader, sink, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Loader, "_write", cut_off)
        with pytest.raises(PipelineStepFailed):
            pipeline.run(resource(more, **INSERT_ONLY))
    assert [len(lake.snapshots(name)) for name in ("t__parts__bits", "t__parts", "t")] == [1 + (written > n) for n in range(3)]
    assert lake.rows("t", "id") == [(1,)]
    again = lake.pipeline()
    assert again.has_pending_data
    loaded(again.run())
    assert lake.rows("t", "id") == [(1,), (2,)]
    assert nested(lake) == ([(1, 1), (1, 11), (2, 20), (2, 21)], [(1, 1), (20, 20)])


@pytest.mark.slow
@pytest.mark.parametrize("hints", [{}, {"columns": {"v": {"dedup_sort": "desc"}}}], ids=["unsorted", "sorted"])
def test_keys_in_several_files_are_reported_unless_something_says_which_row_counts(
    lake: DltLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hints: Any
) -> None:
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "2")
    monkeypatch.setenv("DATA_WRITER__BUFFER_MAX_ITEMS", "1")
    rows = [{"id": 1 + (n > 5), "v": n} for n in range(11)] + [{"id": 3, "v": 0}]
    loaded(lake.pipeline().run(resource(rows, write_disposition="merge", primary_key="id", **hints)))
    messages = [record.getMessage() for record in caplog.records if record.name == "frazil"]
    if hints:
        assert lake.rows("t", "id", "v") == [(1, 5), (2, 10), (3, 0)]
        assert not messages
    else:
        assert [row[0] for row in lake.rows("t", "id")] == [1, 2, 3]
        assert len(messages) == 1
        assert all(part in messages[0] for part in ("analytics.t", "for 2 keys", "dedup_sort"))
