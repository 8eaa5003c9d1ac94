"""The blocks of the documents run as they stand: our own, and those of the one beside the project where it is present."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import bytewax.operators as op
import pytest
from bytewax.dataflow import Dataflow
from bytewax.outputs import StatefulSinkPartition
from bytewax.testing import TestingSource, run_main
from flows import Pond
from pyspark.sql import SparkSession

from frazil.bytewax import IcebergSink, IcebergSinkPartition, uplink_row

ROOT = Path(__file__).parents[3]
BESIDE = sorted((ROOT.parent / "shared" / "seeds").glob("000*.txt"))

MESSAGES = [
    *(
        {"device": {"id": f"d-{n}"}, "organization": {"id": "o"}, "event": {"type": "up", "timestamp": at, "payload": {"t": n}}}
        for n, at in ((1, 1767355200000), (2, 1767441600000))
    ),
    "{broken",
]


def blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_block_of_the_guide_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("uplinks")
    exec(blocks(ROOT / "docs" / "bytewax.md")[0], module.__dict__)
    run_main(module.flow)
    pond = Pond(tmp_path / "lake")
    table = pond.table("iot.uplinks")
    assert table.scan().to_arrow().num_rows == 100
    assert table.scan(limit=1).to_arrow().to_pylist()[0]["payload"].startswith('{"temperature":')
    assert [field.name for field in table.spec().fields] == ["at_day"]


@pytest.mark.skipif(not BESIDE, reason="the document is not beside the project")
def test_the_blocks_of_the_document(pond: Pond) -> None:
    schema_block, arrow_block, class_block = blocks(BESIDE[0])
    names: dict[str, Any] = {"records": [uplink_row(message) for message in MESSAGES]}
    for row in names["records"]:
        if row["event_timestamp"] is not None:
            row["event_timestamp"] = row["event_timestamp"].replace(tzinfo=None)
    exec(schema_block, names)
    exec(arrow_block, names)
    schema = names["streaming_uplink_test_schema"]
    # The spec by ordinals, as the document has it: the second and the fourth field.
    config = pond.config(arrow_schema=None, table_schema=schema, partition_spec=[2, 4]).for_low_latency()
    flow = Dataflow("uplinks")
    messages = op.input("messages", flow, TestingSource(MESSAGES))
    rows = op.map("row", messages, uplink_row)
    op.output("lake", op.key_on("device", rows, lambda row: row["device_id"] or ""), IcebergSink(config))
    run_main(flow)

    written = {row["device_id"]: row for row in pond.rows()}
    expected = {row["device_id"]: row for row in names["arrow_table"].to_pylist()}
    assert written == expected, "what the document makes of the records is what the table has"
    assert (written[None]["raw"], written["d-1"]["payload"]) == ("{broken", '{"t":1}')
    assert pond.table().schema().as_arrow().names == schema.as_arrow().names
    assert [field.name for field in pond.table().spec().fields] == ["organization_id", "event_type"]

    # Its class is pseudocode: parameters are left out, and the flush is two comments.
    names |= {"StatefulSinkPartition": StatefulSinkPartition, "BATCH_SIZE": 2}
    exec(class_block.replace("(self, ...)", "(self)"), names)
    sketch = names["IcebergSinkPartition"]()
    sketch.write_batch([1, 2])
    own = pond.sink(batch_size=2, table_name="db.u").build_part("flow.lake", "part-0", None)
    own.write_batch([{"id": 1}, {"id": 2}])
    assert (sketch.buffer, own.waiting) == ([], 0), "both have flushed"
    assert isinstance(own, IcebergSinkPartition)
    assert own.snapshot()["seq"] == 1
