"""`frazil replay`: dead letters through their pipeline again, each exactly once, wherever a replay is cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.iceberg import IcebergPort
from frazil.model.pipeline import PipelineSpec
from frazil.runtime.replay import Replayed, replay
from frazil.write.deadletters import LetterBox
from helpers.lakes import IMPATIENT, Lake, run
from services.kafka import Kafka, Message

LETTERS = "db.t__dead_letters"
COLUMNS = {"id": "long", "n": "string", "at": "timestamptz", "price": "decimal(9, 2)", "bytes": "binary"}


def pipeline(lake: Lake, folder: Path, **options: Any) -> PipelineSpec:
    source = {"connector": "files", "path": str(folder), "format": "json", "schema": COLUMNS}
    own = {"schema": COLUMNS | {"n": "int"}, "on_error": "dead_letter"}
    return lake.pipeline(source, batch_size=1000, **(own | options))


def put(folder: Path, name: str, *rows: tuple[int, str]) -> None:
    folder.mkdir(exist_ok=True)
    rest = {"at": "2026-01-31T12:00:00.123456Z", "price": 12.34, "bytes": "AAEC"}
    (folder / name).write_text("\n".join(json.dumps({"id": number, "n": text} | rest) for number, text in rows))


def repair(lake: Lake, before: str, after: str) -> None:
    """As users do it, with SQL."""
    lake.spark.sql(f"update {lake.name}.{LETTERS} set raw = cast(replace(cast(raw as string), '{before}', '{after}') as binary)")


def yes(spec: PipelineSpec, where: str | None = None) -> Replayed:
    return replay(spec, IMPATIENT, where, really=True)


def numbers(done: Replayed) -> tuple[int, int, int]:
    assert done.counts is not None
    return done.counts.read, done.counts.written, done.counts.dead_lettered


def test_what_was_repaired_goes_into_the_table_and_the_rest_stays(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", (1, "1"), (2, "two"), (3, "three"))
    spec = pipeline(lake, tmp_path / "in")
    run(spec, once=True)
    first = lake.rows("failed_at", LETTERS)[0]
    shown = replay(spec, IMPATIENT, None, really=False)
    assert (shown.letters, shown.codes, shown.done) == (2, {"value-not-convertible": 2}, False)
    assert lake.count() == 1
    repair(lake, '"two"', '"2"')
    assert numbers(yes(spec)) == (2, 1, 1)
    whole = lake.rows("id, n, cast(at as string), cast(price as string), hex(bytes)")
    assert {row[2:] for row in whole} == {whole[0][2:]}, "the values that were never wrong are as they were"
    assert [row[:2] for row in whole] == [(1, 1), (2, 2)]
    ((raw, why, failed),) = lake.rows("cast(raw as string), error, failed_at", LETTERS)
    assert (json.loads(raw)["n"], why) == ("three", "column 'n' cannot hold this value as int: three")
    assert failed > first[0]
    repair(lake, '"three"', '"3"')
    assert numbers(yes(spec)) == (1, 1, 0)
    assert (lake.rows("id, n"), lake.count(LETTERS)) == ([(1, 1), (2, 2), (3, 3)], 0)
    assert yes(spec).letters == 0


@pytest.mark.slow
def test_a_pipeline_that_was_repaired_takes_them_as_they_are(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", (1, "1"), (2, "two"), (3, ""))
    run(pipeline(lake, tmp_path / "in"), once=True)
    words = {"type": "select", "expressions": ["id", "if(n = 'two', '2', n) as n"]}
    better = pipeline(lake, tmp_path / "in", transforms=[words, {"type": "where", "condition": "n <> ''"}])
    done = yes(better)
    assert done.counts is not None
    assert (numbers(done), done.counts.filtered) == ((2, 1, 0), 1)
    assert (lake.rows("id, n"), lake.count(LETTERS)) == ([(1, 1), (2, 2)], 0)


@pytest.mark.slow
def test_a_condition_names_the_letters(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", (2, "two"), (3, "three"))
    spec = pipeline(lake, tmp_path / "in")
    run(spec, once=True)
    repair(lake, '"two"', '"2"')
    repair(lake, '"three"', '"3"')
    assert numbers(yes(spec, "raw like '%\"id\":2%'")) == (1, 1, 0)
    assert (lake.rows("id"), lake.count(LETTERS)) == ([(2,)], 1)
    with pytest.raises(frazil.ConfigError, match="--where is not a condition on dead letters"):
        yes(spec, "cod = 'x'")


@pytest.mark.slow
def test_letters_of_another_pipeline_in_the_same_table_are_left_alone(lake: Lake, tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path / name, "1.json", (1, "one"))
        run(pipeline(lake, tmp_path / name, name=name), once=True)
    repair(lake, '"one"', '"1"')
    assert numbers(yes(pipeline(lake, tmp_path / "a", name="a"))) == (1, 1, 0)
    assert lake.rows("pipeline", LETTERS) == [("b",)]


class CutOff(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("answered", [True, False], ids=["before", "after"])
def test_wherever_it_is_cut_off_the_next_one_finishes_it(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """Before or after each of its commits, one further each time, until one comes through."""
    put(tmp_path / "in", "a.json", (1, "1"), (2, "two"), (3, "three"), (4, "four"))
    spec = pipeline(lake, tmp_path / "in")
    run(spec, once=True)
    repair(lake, '"two"', '"2"')
    swap, left = IcebergPort.swap, 0

    def counted(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 and answered:
            raise CutOff
        swap(*arguments)
        if left < 0:
            raise CutOff

    cuts = 0
    with monkeypatch.context() as patch:
        patch.setattr(IcebergPort, "swap", counted)
        while True:
            left = cuts
            try:
                yes(spec)
            except CutOff:
                cuts += 1
                assert [number for (number,) in lake.rows("id")] in ([1], [1, 2])
                assert {json.loads(raw)["id"] for (raw,) in lake.rows("cast(raw as string)", LETTERS)} >= {3, 4}
            else:
                break
    assert cuts > 3
    assert lake.rows("id, n") == [(1, 1), (2, 2)]
    assert sorted(json.loads(raw)["id"] for (raw,) in lake.rows("cast(raw as string)", LETTERS)) == [3, 4]


@pytest.mark.slow
def test_letters_that_come_meanwhile_are_kept(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "in", "a.json", (1, "one"))
    spec = pipeline(lake, tmp_path / "in")
    run(spec, once=True)
    repair(lake, '"one"', '"1"')
    remove = LetterBox.remove

    def after_more(self: LetterBox, *what: Any) -> None:
        monkeypatch.setattr(LetterBox, "remove", remove)
        put(tmp_path / "in", "b.json", (2, "two"))
        run(spec, once=True)
        remove(self, *what)

    monkeypatch.setattr(LetterBox, "remove", after_more)
    yes(spec)
    assert lake.rows("id") == [(1,)]
    assert [json.loads(raw)["id"] for (raw,) in lake.rows("cast(raw as string)", LETTERS)] == [2]


@pytest.mark.slow
def test_letters_that_are_made_to_fit_the_last_condition_are_replayed(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", (2, "two"), (3, "three"))
    spec = pipeline(lake, tmp_path / "in")
    run(spec, once=True)
    repair(lake, '"two"', '"2"')
    assert numbers(yes(spec, "raw not like '%three%'")) == (1, 1, 0)
    repair(lake, '"three"', '"3"')
    assert numbers(yes(spec)) == (1, 1, 0)
    assert (lake.rows("id, n"), lake.count(LETTERS)) == ([(2, 2), (3, 3)], 0)


@pytest.mark.slow
def test_now_is_the_time_when_a_replay_begins(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter that comes to fit the condition between reading and clearing stays."""
    put(tmp_path / "in", "a.json", (2, "two"), (3, "three"))
    spec = pipeline(lake, tmp_path / "in")
    run(spec, once=True)
    repair(lake, '"two"', '"2"')
    letters, remove = f"{lake.name}.{LETTERS}", LetterBox.remove
    when = "if(raw like '%three%', timestamp'2999-01-01', timestamp'2020-01-01')"
    lake.spark.sql(f"update {letters} set sent_at = {when}")

    def later(self: LetterBox, *what: Any) -> None:
        lake.spark.sql(f"update {letters} set sent_at = current_timestamp() where raw like '%three%'")
        remove(self, *what)

    monkeypatch.setattr(LetterBox, "remove", later)
    assert numbers(yes(spec, "sent_at < CURRENT_TIMESTAMP() and raw <> 'now()'")) == (1, 1, 0)
    assert [json.loads(raw)["n"] for (raw,) in lake.rows("cast(raw as string)", LETTERS)] == ["three"]


@pytest.mark.slow
def test_records_of_a_topic_go_the_way_that_they_would_have_gone(lake: Lake, kafka: Kafka) -> None:
    """With their place, time, key and headers, by which they are routed here."""
    topic = kafka.create_topic()
    kafka.produce(
        topic,
        [
            Message('{"n": 1}', "a", (("kind", b"red"),), timestamp_ms=1_000),
            Message('{"n": "x"}', "b", (("kind", b"red"), ("more", b"\x00")), timestamp_ms=2_000),
            Message("{broken", "c", (("kind", b"blue"),), timestamp_ms=3_000),
            Message('{"n": 4}', "d", timestamp_ms=4_000),
        ],
    )
    columns = {"type": "json", "schema": {"n": "int"}}
    given = {"bootstrap_servers": kafka.address(), "topics": [topic], "start_offset": "earliest", "format": columns}
    source = {"connector": "kafka", **given, "metadata": ["offset", "timestamp"], "key_format": "string"}
    spec = lake.pipeline(source, route={"header": "kind"}, on_error="dead_letter")
    run(spec, once=True)
    letters = "db.frazil__dead_letters"
    assert lake.rows("n, value, kafka_offset", "db.red") == [(1, "a", 0)]
    assert lake.rows("cast(key as string), unix_millis(sent_at), headers.value[size(headers) - 1] last, stage", letters) == [
        ("b", 2_000, b"\x00", "decode"),
        ("c", 3_000, b"blue", "decode"),
        ("d", 4_000, None, "route"),
    ]
    lake.spark.sql(f"update {lake.name}.{letters} set raw = cast('{{\"n\": 7}}' as binary) where stage = 'decode'")
    assert numbers(yes(spec)) == (3, 2, 1)
    assert lake.rows("n, value, kafka_offset, unix_millis(kafka_timestamp)", "db.red") == [(1, "a", 0, 1_000), (7, "b", 1, 2_000)]
    assert lake.rows("n, value, kafka_offset, unix_millis(kafka_timestamp)", "db.blue") == [(7, "c", 2, 3_000)]
    assert lake.rows("cast(key as string)", letters) == [("d",)]


@pytest.mark.slow
def test_upserts_too(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", (1, "1"), (2, "two"))
    spec = pipeline(lake, tmp_path / "in", commit_mode="upsert", key_fields=["id"])
    run(spec, once=True)
    repair(lake, '"two"', '"2"')
    assert numbers(yes(spec)) == (1, 1, 0)
    assert lake.rows("id, n") == [(1, 1), (2, 2)]


@pytest.mark.slow
def test_an_upsert_of_nothing_but_bad_records(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", (1, "one"), (2, "two"))
    spec = pipeline(lake, tmp_path / "in", commit_mode="upsert", key_fields=["id"])
    run(spec, once=True)
    assert (lake.count(), lake.count(LETTERS)) == (0, 2)
    (tmp_path / "in" / "b.json").write_text("{broken\n")
    run(spec, once=True)
    assert (lake.count(), lake.count(LETTERS)) == (0, 3)


def test_what_is_refused(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", (1, "1"))
    with pytest.raises(frazil.ConfigError, match="keeps no dead letters: on_error is stop"):
        yes(pipeline(lake, tmp_path / "in", on_error="stop"))
    with pytest.raises(frazil.ConfigError, match="dead letters alone would replace it"):
        yes(pipeline(lake, tmp_path / "in", commit_mode="overwrite"))
    with pytest.raises(frazil.ConfigError, match="dead letters alone would replace it"):
        yes(pipeline(lake, tmp_path / "in", commit_mode="delete_insert", replace_by="id"))
    replaced = {"field": "n", "tables": {"x": {"commit_mode": "overwrite"}}}
    with pytest.raises(frazil.ConfigError, match=r"replaces what is in the table db\.x: dead letters alone"):
        yes(pipeline(lake, tmp_path / "in", route=replaced))
    with pytest.raises(frazil.ConfigError, match="writes each batch to every table"):
        yes(pipeline(lake, tmp_path / "in", route={"field": "n", "tables": {"x": "x"}, "every_table": True}))
    cdc = {"connector": "postgres-cdc", "host": "h", "database": "d", "user": "u", "password": "p", "streams": [{"name": "t"}]}
    with pytest.raises(frazil.ConfigError, match="changes of the past"):
        yes(lake.pipeline(cdc, on_error="dead_letter"))
    assert yes(pipeline(lake, tmp_path / "in")).letters == 0
