"""The generator: numbers, times, and events that hang together."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from frazil.columns.schema import schema_of
from frazil.errors import Halted
from frazil.model.source import GeneratorSource
from frazil.sources.base import Slice
from frazil.sources.generator import HEAD_START_MS, LONGEST_BACKLOG_MS, Generator

NOON = 1_800_000_000.0


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def generator(spark: SparkSession | None, clock: Clock, **settings: int) -> Generator:
    return Generator(GeneratorSource(**settings), lambda: spark, clock)  # type: ignore[arg-type]


def planned(source: Generator, start: str | None, limit: int = 10_000) -> Slice:
    part = source.plan(start, limit)
    assert part is not None
    return part


def test_a_fresh_start_has_one_second_of_events_and_follows_the_clock() -> None:
    clock = Clock()
    source = generator(None, clock, rows_per_second=100)
    first = planned(source, None)
    assert first.rows == HEAD_START_MS * 100 // 1000
    clock.now += 2
    grown = planned(source, None)
    assert grown.rows == first.rows + 200, "asked again, it has grown"
    assert source.plan(grown.end, 10) is None, "what was taken is not there again"
    clock.now += 0.5
    assert planned(source, grown.end).rows == 50


def test_the_limit_cuts_a_slice_and_says_that_more_is_there() -> None:
    clock = Clock()
    source = generator(None, clock, rows_per_second=1000)
    assert (planned(source, None, 400).rows, planned(source, None, 400).full) == (400, True)
    assert (planned(source, None, 1000).rows, planned(source, None, 1000).full) == (1000, False)


@pytest.mark.parametrize("rate", [1, 3, 999, 1_000_000])
def test_small_slices_do_not_outrun_the_clock(rate: int) -> None:
    clock = Clock()
    source = generator(None, clock, rows_per_second=rate)
    start, rows = None, 0
    for _ in range(50):
        while (part := source.plan(start, 7)) is not None and rows <= rate * 10:
            start, rows = part.end, rows + (part.rows or 0)
        clock.now += 0.1
    assert rows <= rate * 6 + 7


def test_a_pause_of_a_day_makes_no_day_of_events() -> None:
    clock = Clock()
    part = planned(generator(None, clock, rows_per_second=100), None)
    clock.now += 86_400
    source = generator(None, clock, rows_per_second=100)
    resumed = planned(source, part.end)
    assert resumed.rows == 100
    assert json.loads(resumed.end)["row"] == json.loads(part.end)["row"] + 100, "the numbers go on"
    clock.now += LONGEST_BACKLOG_MS / 1000 * 2
    waited = planned(source, part.end, 10**9)
    assert waited.rows == 100 + 100 * 2 * LONGEST_BACKLOG_MS // 1000, "while it runs nothing is skipped"


def test_a_short_pause_is_caught_up_with() -> None:
    clock = Clock()
    part = planned(generator(None, clock, rows_per_second=100), None)
    clock.now += 10
    assert planned(generator(None, clock, rows_per_second=100), part.end).rows == 1000


def test_a_count_is_there_at_once_and_ends() -> None:
    source = generator(None, Clock(), rows=25, rows_per_second=1)
    assert source.total_rows(None) == 25
    first = planned(source, None, 10)
    assert (first.rows, first.full, source.finished(first.end)) == (10, True, False)
    last = planned(source, first.end, 100)
    assert (last.rows, last.full, source.finished(last.end)) == (15, False, True)
    assert source.plan(last.end, 100) is None
    assert source.total_rows(last.end) == 0


def test_nothing_asked_for_is_finished_at_once() -> None:
    source = generator(None, Clock(), rows=0)
    assert source.finished(None)
    assert source.plan(None, 10) is None


def test_more_rows_or_another_speed_continue_and_another_seed_does_not() -> None:
    one = generator(None, Clock(), rows=10, rows_per_second=5)
    assert one.fingerprint == generator(None, Clock(), rows=20).fingerprint
    assert one.fingerprint != generator(None, Clock(), seed=1).fingerprint


@pytest.mark.parametrize("foreign", ['{"snapshot":3}', '{"row":1}', "[1]"])
def test_a_position_of_another_source_halts(foreign: str) -> None:
    with pytest.raises(Halted, match="not one of the generator") as caught:
        generator(None, Clock()).plan(foreign, 10)
    assert caught.value.code == "position-unknown"


def test_a_slice_reads_the_same_rows_in_another_process(spark: SparkSession) -> None:
    part = planned(generator(spark, Clock(), rows_per_second=50), None)
    later = Clock()
    later.now += 5000
    again = generator(spark, later, rows_per_second=7)
    first = generator(spark, Clock()).read(part).collect()
    assert again.read(Slice(part.start, part.end, part.rows)).collect() == first
    assert [row.event_number for row in first] == list(range(50))


def test_slices_meet_without_gap_in_number_and_time(spark: SparkSession) -> None:
    source = generator(spark, Clock(), rows=120, rows_per_second=10)
    one = planned(source, None, 50)
    two = planned(source, one.end, 100)
    rows = source.read(one).collect() + source.read(two).collect()
    assert [row.event_number for row in rows] == list(range(120))
    micros = source.read(one).union(source.read(two)).select(sf.unix_micros("event_time").alias("t"), "event_number").collect()
    times = [row.t for row in sorted(micros, key=lambda row: row.event_number)]
    assert {after - before for before, after in pairwise(times)} == {100_000}
    assert times[-1] + 100_000 == NOON * 1_000_000, "a count of events ends about now"


def test_the_same_number_is_the_same_event_however_it_is_sliced(spark: SparkSession) -> None:
    whole = generator(spark, Clock(), rows=30_000)
    part = planned(whole, None, 30_000)
    in_one = whole.read(part).drop("event_time").orderBy("event_number")
    assert in_one.count() == 30_000
    tail = Slice(json.dumps({"row": 29_990, "time_ms": 0}), json.dumps({"row": 30_000, "time_ms": 1000}), 10)
    assert whole.read(tail).drop("event_time").orderBy("event_number").collect() == in_one.tail(10)
    other = generator(spark, Clock(), rows=30_000, seed=9)
    assert other.read(tail).drop("event_time").orderBy("event_number").collect() != in_one.tail(10)


def test_the_columns_are_known_without_reading(spark: SparkSession) -> None:
    source = generator(spark, Clock())
    assert source.columns == schema_of(source.read(planned(source, None, 1)))


def test_events_hang_together(spark: SparkSession) -> None:
    source = generator(spark, Clock(), rows=20_000)
    events = source.read(planned(source, None, 20_000)).cache()
    assert events.select("event_id").distinct().count() == 20_000
    shares = {row.event_type: row["count"] / 20_000 for row in events.groupBy("event_type").count().collect()}
    assert shares.keys() == {"page_view", "search", "add_to_cart", "purchase", "refund"}
    assert shares["page_view"] > 0.5 > shares["search"] > shares["purchase"] > shares["refund"] > 0
    paid = "event_type IN ('purchase', 'refund')"
    assert events.where(f"(amount IS NULL) = ({paid})").count() == 0, "only who pays has an amount"
    assert events.where(f"{paid} AND abs(amount) <> product.price * quantity").count() == 0
    assert events.where("event_type = 'refund' AND amount >= 0").count() == 0
    assert events.where(
        "(event_type = 'search') <> (product IS NULL) OR (event_type = 'search') = (search_term IS NULL)"
    ).isEmpty()
    assert events.groupBy("session_id").agg(sf.count_distinct("user_id").alias("users")).where("users > 1").isEmpty()
    assert events.groupBy("user_id").agg(sf.count_distinct("country").alias("countries")).where("countries > 1").isEmpty()
    per_session = events.groupBy("session_id").count().agg({"count": "max"}).collect()[0][0]
    assert 1 < per_session <= 6
    types = dict(events.dtypes)
    assert types["product"] == "struct<id:string,name:string,category:string,price:decimal(10,2)>"
    assert (types["event_time"], types["amount"], types["tags"]) == ("timestamp", "decimal(12,2)", "array<string>")
    events.unpersist()


def test_a_large_slice_is_made_by_several_tasks(spark: SparkSession) -> None:
    source = generator(spark, Clock(), rows=40_000)
    assert source.read(planned(source, None, 1_000)).rdd.getNumPartitions() == 1
    assert source.read(planned(source, None, 40_000)).rdd.getNumPartitions() == spark.sparkContext.defaultParallelism
