"""A topic with bad messages into twenty tables, by a process that is killed at random; the broker goes away and comes back."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from exactly_once.children import started
from exactly_once.programs.topics import PARTITIONS, TABLES, messages, name_of
from helpers.lakes import Lake
from services.kafka import Kafka, Message, write
from services.processes import wait_until

MESSAGES, KILLS = 60_000, 3


@pytest.mark.slow(seconds=90)
def test_every_message_is_in_a_table_or_a_dead_letter_once(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS, config={"max.message.bytes": "20000000"})
    chance = random.Random(3)
    roomy = {"queue.buffering.max.messages": 2 * MESSAGES, "message.max.bytes": 20_000_000, "linger.ms": 20}
    producer = kafka.new_producer(**roomy)
    write(producer, topic, (Message(value, partition=n % PARTITIONS) for n, value in enumerate(messages(MESSAGES))))
    assert producer.flush(120) == 0
    sql = {"uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": (tmp_path / "warehouse").as_uri()}
    lake = Lake(spark, {"type": "sql", "name": name_of(tmp_path), "sql": sql}, tmp_path)
    cut_off = 0
    for number in range(KILLS):
        child = started("topics", tmp_path, kafka.address(), topic, log=tmp_path / f"killed-{number}")
        before = snapshots(tmp_path)
        wait_until(lambda: snapshots(tmp_path) > before or not child.running, 120, "a commit")  # noqa: B023
        if number == 1:
            kafka.stop()
            time.sleep(1)
            kafka.start()
        time.sleep(chance.uniform(0, 4))
        if child.running:
            os.killpg(child.process.pid, signal.SIGKILL)
            cut_off += 1
        child.process.wait(30)
    assert cut_off >= 2, "the process was done before it could be killed"
    last = started("topics", tmp_path, kafka.address(), topic, log=tmp_path / "last")
    wait_until(lambda: not last.running, 300, "its end")
    assert last.process.returncode == 0, last.log_text()[-3000:]
    lake.introduced()
    tables = [lake.table(f"many.t{n}").select("kafka_partition", "kafka_offset", "text") for n in range(TABLES)]
    written = reduce(DataFrame.unionByName, tables)
    found = Counter((row[0], row[1]) for row in written.select("kafka_partition", "kafka_offset").collect())
    letters = Counter(
        (at["partition"], at["offset"])
        for row in lake.table("many.frazil__dead_letters").select("at").collect()
        if (at := json.loads(row[0]))
    )
    expected = {(partition, offset) for partition in range(PARTITIONS) for offset in range(MESSAGES // PARTITIONS)}
    assert set(found) | set(letters) == expected
    assert max((found + letters).values()) == 1
    assert 0.05 * MESSAGES < len(letters) < 0.09 * MESSAGES
    assert written.where("length(text) = 10000000").count() == 1
    codes = {row[0] for row in lake.table("many.frazil__dead_letters").select("code").distinct().collect()}
    assert {"json-malformed", "json-type", "route-unknown"} <= codes


def snapshots(folder: Path) -> int:
    """How many commits the lake has seen, by its files."""
    return len(list((folder / "warehouse").glob("**/metadata/snap-*.avro")))
