"""A store that fails: real requests to a real S3 server, with a proxy before it that has the faults of S3.

Every row is in the table exactly once, whatever passes by itself. What does not pass ends the run with what a person needs to
know, and leaves at most files that belong to no snapshot.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from catalogs.places import described, lake_of
from frazil.errors import FrazilError
from frazil.model.events import CommitFailed, Event, Maintained
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import RetrySettings, Settings
from helpers.lakes import Lake, commits, fresh_name, run, sqlite_lake
from services.between import Asked, Made, Outcome, between, passed_on, s3_error
from services.faults import Cut, Fault, applied_then_cut_off, cut_off, refused, slow
from services.faulty_s3 import BODIES, KINDS, LOST_ANSWERS, PASSING, FaultyS3
from services.s3proxy import S3Store

TABLE = "db.events"
PATIENT = Settings(retry=RetrySettings(max_retries=5, initial_backoff_ms=10))
# Of a store that did what it was asked for, or that has no such file.
ANSWERS = (200, 204, 206, 404)
MODES: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"commit_mode": "upsert", "key_fields": ["event_number"], "max_equality_deletes": 8},
    "maintained": {"maintenance": {"small_files": 4, "max_snapshots": 5, "reader_grace_minutes": 0, "max_time_share": 1}},
}


def shop(spark: SparkSession, folder: Path, s3: S3Store, endpoint: str, **properties: str) -> Lake:
    """A lake with its files in a new bucket, whose client soon tries again, and soon gives up. ``properties`` are Iceberg's."""
    bucket = fresh_name().replace("_", "-")
    s3.create_bucket(bucket)
    variables = {
        "FOLDER": str(folder),
        "BUCKET": bucket,
        "S3_ENDPOINT": endpoint,
        "S3_ACCESS_KEY_ID": s3.access_key_id,
        "S3_SECRET_ACCESS_KEY": s3.secret_access_key,
    }
    impatient = {"max_retries": 2, "retry_min_wait_ms": 1, "retry_max_wait_ms": 20}
    made = lake_of(sqlite_lake(spark, folder), described("SQLite, S3", variables), **impatient)
    return made.with_catalog({**made.catalog, "properties": properties})


@pytest.fixture
def lake(spark: SparkSession, s3: S3Store, faulty_s3: FaultyS3, tmp_path: Path) -> Lake:
    return shop(spark, tmp_path, s3, faulty_s3.uri)


def numbers(lake: Lake, rows: int, mode: str = "append", batch: int = 10) -> PipelineSpec:
    return lake.pipeline({"connector": "generator", "rows": rows}, TABLE, batch_size=batch, **MODES[mode])


def assert_whole(lake: Lake, s3: S3Store, rows: int) -> None:
    """Every row is there once, every snapshot can be read, and each file that one of them names is there."""
    assert lake.rows("event_number", TABLE) == sorted([(number,) for number in range(rows)], key=repr)
    for snapshot in lake.meta("snapshots", TABLE):
        assert lake.table(TABLE, snapshot.snapshot_id).count() == int(snapshot.summary["total-records"])
        assert s3.file(snapshot.manifest_list).is_file()
    for kind, column in (("all_files", "file_path"), ("all_manifests", "path")):
        assert all(s3.file(row[column]).is_file() for row in lake.meta(kind, TABLE))


UPSERT = pytest.param("upsert", marks=pytest.mark.slow(seconds=30))


@pytest.mark.parametrize("mode", ["append", UPSERT, "maintained"])
def test_what_passes_by_itself_is_not_even_noticed(lake: Lake, s3: S3Store, faulty_s3: FaultyS3, mode: str) -> None:
    """Requests are repeated by the client of the store. Only an answer that breaks off is repeated by frazil."""
    for number, kind in enumerate(KINDS):
        faults = (*PASSING, *LOST_ANSWERS, *(BODIES if kind.startswith("read") else ()))
        # Each kind begins with another one, as there are few requests of some.
        faulty_s3.script([fault for one in (*faults[2 * number :], *faults) for fault in (one, None, None)], on=kind)
    # Requests go side by side, so that one of them may have several faults in a row.
    lake = replace(lake, given={"s3": lake.given["s3"] | {"max_retries": 5}})
    events = run(numbers(lake, 48, mode, batch=4), once=True, settings=PATIENT)
    assert len(commits(events)) == 12
    assert all("Premature end" in event.message for event in events if isinstance(event, CommitFailed))
    met = [exchange for exchange in faulty_s3.log if exchange.fault is not None]
    assert {exchange.fault for exchange in met} == {*PASSING, *LOST_ANSWERS, *BODIES}
    assert len({exchange.kind for exchange in met}) >= 5
    repeated = [one for one in met if one.fault not in (*BODIES, slow(0.2))]
    assert [one for one in repeated if not any(other.to_client in ANSWERS for other in faulty_s3.tries(one))] == []
    for kind in KINDS:
        faulty_s3.script([], on=kind)
    assert_whole(lake, s3, 48)


LASTING: dict[str, tuple[str, Fault, str, int, str]] = {
    "slow-down": ("write data", refused(503, name="SlowDown"), "storage-unreachable", 75, "SlowDown"),
    "too-many": ("write metadata", refused(429), "storage-unreachable", 75, "Status Code: 429"),
    "gateway": ("write data", refused(502, html=True), "storage-unreachable", 75, "Status Code: 502"),
    "reset": ("write data", cut_off(Cut.RESET), "storage-unreachable", 75, "Connection reset"),
    "closed": ("write metadata", cut_off(Cut.CLOSED), "storage-unreachable", 75, "failed to respond"),
    "denied": ("write data", refused(403), "s3-access-denied", 1, "s3:PutObject"),
    "expired": ("write metadata", refused(400, name="ExpiredToken"), "s3-keys-refused", 78, "session_token"),
    "no-look": ("look", refused(403), "s3-access-denied", 1, "s3:GetObject"),
}


@pytest.mark.parametrize("name", LASTING)
def test_what_lasts_ends_the_run_with_its_cause(lake: Lake, s3: S3Store, faulty_s3: FaultyS3, name: str) -> None:
    kind, fault, code, exit_code, words = LASTING[name]
    run(numbers(lake, 20), once=True)
    # In the middle: the next batch is written as always.
    faulty_s3.script([None] * (1 if kind == "write data" else 3), on=kind)
    faulty_s3.from_now_on(fault, kind)
    with pytest.raises(FrazilError) as ended:
        run(numbers(lake, 60), once=True)
    assert (ended.value.code, ended.value.exit_code) == (code, exit_code)
    assert words in str(ended.value)
    assert "sqlite" not in str(ended.value), "the catalog is not to blame"
    assert s3.secret_access_key not in str(ended.value)
    tries = Counter(one.request.target for one in faulty_s3.log if one.fault is fault)
    assert max(tries.values()) == (3 if exit_code == 75 else 1), "what may pass is tried again by the client, and nothing else"
    faulty_s3.from_now_on(None, kind)
    assert_whole(lake, s3, len(lake.rows("event_number", TABLE)))
    run(numbers(lake, 60), once=True)
    assert_whole(lake, s3, 60)


@pytest.mark.slow(seconds=110)
def test_a_table_that_cannot_be_read_is_waited_for(lake: Lake, s3: S3Store, faulty_s3: FaultyS3) -> None:
    """Iceberg itself reads a table's metadata 20 times before it gives up."""
    run(numbers(lake, 20), once=True)
    faulty_s3.from_now_on(refused(503, name="SlowDown"), "read metadata")
    with pytest.raises(FrazilError) as ended:
        run(numbers(lake, 60), once=True)
    assert (ended.value.code, ended.value.exit_code) == ("storage-unreachable", 75)
    faulty_s3.from_now_on(None, "read metadata")
    run(numbers(lake, 60), once=True)
    assert_whole(lake, s3, 60)


NO_DELETES = {
    "denied": s3_error(403, "AccessDenied", "not authorized to perform: s3:DeleteObject"),
    "no-such-method": s3_error(405, "MethodNotAllowed", "The specified method is not allowed against this resource."),
}


@pytest.mark.parametrize("mode", [UPSERT, "maintained"])
@pytest.mark.parametrize("refusal", NO_DELETES)
def test_nothing_depends_on_deletes(spark: SparkSession, tmp_path: Path, s3: S3Store, refusal: str, mode: str) -> None:
    """Amazon S3 Tables refuses them to all but itself, and many a role has no right to delete."""
    refuses = True

    def change(asked: Asked) -> Asked | Outcome:
        return NO_DELETES[refusal] if refuses and FaultyS3.kind_of(asked) == "delete" else asked

    with between(s3.endpoint, change) as endpoint:
        lake = shop(spark, tmp_path, s3, endpoint)
        events = run(numbers(lake, 48, mode, batch=4), once=True)
        assert len(commits(events)) == 12
        assert_whole(lake, s3, 48)
        assert "delete_files" not in done(events)
        assert not [path for path in s3.files if "frazil-clock" in path and lake_bucket(lake) in path]
        if mode == "maintained":
            assert [event.message for event in events if isinstance(event, CommitFailed) and event.kind == "upkeep"]
            refuses = False
            later = run(numbers(lake, 80, mode, batch=4), once=True)
            assert "delete_files" in done(later), "they are deleted when that is allowed again"
            assert_whole(lake, s3, 80)


def done(events: list[Event]) -> set[str]:
    return {event.kind for event in events if isinstance(event, Maintained)}


def lake_bucket(lake: Lake) -> str:
    return urlsplit(lake.catalog["sql"]["warehouse"]).netloc


MB = 1024 * 1024


@pytest.mark.parametrize(
    ("server", "megabytes", "part"),
    [
        ("s3", 12, 5),
        pytest.param("s3", 70, 32, marks=pytest.mark.slow(seconds=30)),
        pytest.param("versitygw", 70, 32, marks=pytest.mark.slow(seconds=30)),
    ],
)
def test_a_large_file_is_sent_in_parts(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, server: str, megabytes: int, part: int
) -> None:
    """A part is refused at first, and the answer to the last request of all is lost."""
    store: S3Store = request.getfixturevalue(server)
    proxy = FaultyS3(store.endpoint)
    try:
        lake = shop(spark, tmp_path, store, proxy.uri, **{"s3.multipart.part-size-bytes": str(part * MB)})
        parts = -(-megabytes // part)
        # It begins, sends its parts and the refused one once more, and says that this was all.
        proxy.script([None, refused(503), *[None] * parts, applied_then_cut_off(Cut.RESET)], on="write data")
        rows = megabytes * MB // 128
        frame = spark.range(0, rows, 1, 1).selectExpr("id", "sha2(cast(id as string), 512) text")
        written = lake.sink(frame, TABLE, compression="none", target_file_size_mb=128).write()
        assert (written.counts.written, proxy.unused) == (rows, ())
        assert lake.table(TABLE).selectExpr("count(distinct id)", "count_if(text = sha2(cast(id as string), 512))").collect() == [
            (rows, rows)
        ]
        (file,) = lake.meta("files", TABLE)
        assert file.file_size_in_bytes > megabytes * MB
        assert store.file(file.file_path).stat().st_size == file.file_size_in_bytes
        sent = [one for one in proxy.of_kind("write data") if "partNumber" in one.request.target]
        assert len({one.request.target for one in sent}) >= parts
    finally:
        proxy.close()


@contextmanager
def listing(s3: S3Store, kind: str) -> Iterator[str]:
    """A store whose listings show nothing, or always what they first showed."""
    first: dict[str, Made] = {}

    def change(asked: Asked) -> Asked | Outcome:
        if FaultyS3.kind_of(asked) != "list":
            return asked
        found = passed_on(s3.endpoint, asked)
        if kind == "stale":
            return first.setdefault(asked.target, found)
        shown = re.sub(r"<Contents>.*</Contents>", "", unescape(found.body.decode()), flags=re.DOTALL)
        return Made(found.status, shown.encode(), found.headers)

    with between(s3.endpoint, change) as endpoint:
        yield endpoint


@pytest.mark.parametrize("kind", ["empty", "stale"])
def test_nothing_depends_on_listings(spark: SparkSession, tmp_path: Path, s3: S3Store, kind: str) -> None:
    with listing(s3, kind) as endpoint:
        lake = shop(spark, tmp_path, s3, endpoint)
        events = run(numbers(lake, 48, "maintained", batch=4), once=True)
        assert len(commits(events)) == 12
        assert done(events) == {"merge_files", "expire_snapshots", "delete_files"}
        assert not [event for event in events if isinstance(event, CommitFailed)]
        assert_whole(lake, s3, 48)


def refused_by_google(asked: Asked) -> Asked | Outcome:
    error = {"error": {"code": 403, "message": "lacks storage.objects.create access", "errors": [{"reason": "forbidden"}]}}
    refused_now = asked.method in ("POST", "PUT") and "/upload/" in asked.target
    return Made(403, json.dumps(error).encode(), {"Content-Type": "application/json"}) if refused_now else asked


def refused_by_azure(asked: Asked) -> Asked | Outcome:
    words = "This request is not authorized to perform this operation using this permission."
    refused_now = asked.method == "PUT" and ".parquet" in asked.target
    return s3_error(403, "AuthorizationPermissionMismatch", words) if refused_now else asked


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("store", ["GCS", "Azure"])
def test_a_right_that_is_lost_in_the_middle(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, store: str
) -> None:
    refusing = False

    def change(asked: Asked) -> Asked | Outcome:
        refuse = refused_by_google if store == "GCS" else refused_by_azure
        return refuse(asked) if refusing else asked

    service = request.getfixturevalue(store.lower())
    bucket = urlsplit(service.create_bucket(fresh_name().replace("_", "-")))
    parts = urlsplit(service.endpoint)
    with between(f"http://{parts.netloc}", change) as endpoint:
        variables = {"FOLDER": str(tmp_path)}
        if store == "GCS":
            variables |= {"BUCKET": bucket.netloc, "GCS_ENDPOINT": endpoint}
        else:
            reached = service.connection_string.replace(f"http://{parts.netloc}", endpoint)
            variables |= {"CONTAINER": bucket.username or "", "ACCOUNT": service.account, "CONNECTION_STRING": reached}
        lake = lake_of(sqlite_lake(spark, tmp_path), described(f"SQLite, {store}", variables))
        run(numbers(lake, 20), once=True)
        refusing = True
        with pytest.raises(FrazilError) as ended:
            run(numbers(lake, 60), once=True)
        assert (ended.value.code, ended.value.exit_code) == ("no-permission", 1), ended.value
        assert "sqlite" not in str(ended.value)
        refusing = False
        run(numbers(lake, 60), once=True)
        assert lake.rows("event_number", TABLE) == sorted([(number,) for number in range(60)], key=repr)
