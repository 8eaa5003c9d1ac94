"""`frazil forget`: rows are gone from the table, its history and every file of its folder, and the proof says what was seen."""

from __future__ import annotations

import hashlib
import io
import json
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
import pytest

from cli.commands import Frazil, Outcome
from frazil.iceberg import FilesToDelete, TableCare, WorkingCopy
from frazil.write.claim import ClaimedSink
from frazil.write.erase import Erasure
from helpers.lakes import Lake
from services.processes import wait_until

JANE = "jane.doe"
"""What only rows have that are to be forgotten; Iceberg keeps sixteen characters of a bound."""
WHERE = f"mail = '{JANE}@example.org'"

BOTH_VERSIONS = pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.slow(seconds=25))], ids=["v2", "v3"])


@pytest.fixture(params=[2, 3], ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def file(lake: Lake, frazil: Frazil) -> Path:
    """A pipeline file that knows the lake; the call is made in its folder."""
    path = lake.folder / "frazil.yaml"
    config = {"catalog": lake.catalog, "namespace": "db", "table": "t"}
    path.write_text(json.dumps({"version": "1.0", "sinks": {"lake": {"connector": "iceberg", "config": config}}}))
    os.chdir(lake.folder)
    return path


@pytest.fixture
def forget(frazil: Frazil, file: Path) -> Callable[..., Outcome]:
    """Calls the command for the table."""

    def call(*arguments: str, table: str = "db.t") -> Outcome:
        return frazil("forget", table, "-c", file, "--debug", *arguments)

    return call


Forget = Callable[..., Outcome]


def people(first: int, count: int, mail: str = "concat('n', id, '@example.org')") -> str:
    return f"select id, id % 3 p, {mail} mail from range({first}, {first + count})"


def folder_of(lake: Lake) -> Path:
    return lake.folder / "warehouse" / "db" / "t"


def texts_in(path: Path) -> Iterator[bytes]:
    """All that a file says: its bytes, and what they are when they are decoded."""
    content = path.read_bytes()
    yield content
    if path.suffix == ".parquet":
        yield repr(pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()).encode()
    elif path.suffix == ".avro":
        yield repr(list(fastavro.reader(io.BytesIO(content)))).encode()


def traces(lake: Lake, text: str = JANE) -> list[str]:
    """The files of the table's folder in which a text is."""
    files = [path for path in folder_of(lake).rglob("*") if path.is_file()]
    return sorted(path.name for path in files if any(text.encode() in said for said in texts_in(path)))


def proof_of(done: Outcome) -> dict[str, Any]:
    """The proof, which is in the file and on stdout."""
    found: dict[str, Any] = json.loads(Path(done.json["proof_file"]).read_text())
    assert found == done.json["proof"]
    return found


@pytest.mark.parametrize(("version", "partition"), [(2, []), (3, ["p"])], ids=["v2-whole", "v3-partitioned"])
def test_rows_are_gone_from_every_file(lake: Lake, forget: Forget, version: int, partition: list[str]) -> None:
    for batch in range(3):
        lake.sink(people(batch * 10, 10), format_version=version, partition_by=partition).write()
    lake.sink(f"select 7L id, 1L p, '{JANE}@example.org' mail").write()
    lake.sink(people(30, 10, f"if(id in (31, 32), '{JANE}@example.org', concat('n', id, '@example.org'))")).write()
    expected = [row for row in lake.rows() if JANE not in row[2]]
    assert traces(lake)
    # Iceberg deletes manifests that it wrote and then merged some time after the commit.
    manifests = {Path(row.path).name for row in lake.meta("all_manifests")}
    wait_until(lambda: {path.name for path in folder_of(lake).rglob("*-m?.avro")} <= manifests, 30, "manifests in use alone")
    before = {path: path.stat().st_mtime_ns for path in folder_of(lake).rglob("*")}

    looked = forget("--where", WHERE, "--dry-run", "--json")
    assert looked.code == 0, looked.text
    planned = looked.json["found"]
    assert (planned["rows"], planned["copies"], planned["snapshots"], planned["orphans"]) == (3, 3, 2, 0)
    assert {path: path.stat().st_mtime_ns for path in folder_of(lake).rglob("*")} == before, "a dry run changes nothing"

    done = forget("--where", WHERE, "--yes", "--json")
    assert done.code == 0, done.text
    assert traces(lake) == []
    assert lake.rows() == expected
    proof = proof_of(done)
    assert (proof["proven"], proof["left"], proof["rows_deleted"], proof["asked"]) == (True, [], 3, {"where": WHERE})
    assert {Path(one["path"]).name for one in proof["scanned"]} == {path.name for path in lake.files()}
    assert sum(one["rows"] for one in proof["scanned"]) == len(expected)
    assert proof["deleted"]
    assert proof["snapshot"] == lake.metadata()["current-snapshot-id"]
    lake.sink(people(50, 10)).write()
    assert len(lake.rows()) == len(expected) + 10, "the sink goes on where it was"


def upsert(lake: Lake, query: str, version: int, **options: Any) -> None:
    """Upserts by equality deletes, which stay until they are settled."""
    given = {"key_fields": ["id"], "upsert_strategy": "equality_delete", "format_version": version} | options
    lake.sink(query, commit_mode="upsert", **given).write()


def test_rows_that_deletes_hide_are_gone_too(lake: Lake, forget: Forget, version: int) -> None:
    """Their values are in data files, their keys in files of equality deletes, and the bounds of both in manifests."""
    keys = "concat('jane.doe', id) id, 'new' v"
    upsert(lake, f"select {keys} from range(5)", version)
    upsert(lake, "select concat('joe', id) id, 'old' v from range(20)", version)
    upsert(lake, f"select {keys} from range(3)", version, max_equality_deletes=0)
    upsert(lake, f"select {keys} from range(1, 4)", version)
    upsert(lake, "select concat('joe', id) id, 'new' v from range(3)", version)
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    lake.spark.sql(f"DELETE FROM {lake.name}.db.t WHERE id = 'jane.doe0'")
    expected = [row for row in lake.rows() if JANE not in row[0]]
    planned = forget("--where", "id like 'jane.doe%'", "--dry-run", "--json").json["found"]
    assert planned["rows"] == 4
    assert planned["copies"] > 4
    done = forget("--where", "id like 'jane.doe%'", "--yes", "--json")
    assert done.code == 0, done.text
    assert (traces(lake), lake.rows()) == ([], expected)
    assert proof_of(done)["rows_deleted"] == 4
    upsert(lake, "select 'joe1' id, 'newest' v", version)
    assert ("joe1", "newest") in lake.rows()


def test_keys_of_deletes_that_do_not_show_the_condition_are_settled(lake: Lake, forget: Forget, version: int) -> None:
    upsert(lake, f"select concat('{JANE}', id) id, 'x' || id v from range(5)", version)
    upsert(lake, f"select concat('{JANE}', id) id, 'y' v from range(5)", version)
    planned = forget("--where", "v = 'y'", "--dry-run", "--json").json["found"]
    assert (planned["rows"], planned["undecided_files"]) == (5, 1)
    done = forget("--where", "v = 'y'", "--yes", "--json")
    assert done.code == 0, done.text
    assert lake.rows() == []
    hidden = [name for name in traces(lake) if name.endswith(".parquet")]
    assert len(hidden) <= 1, "rows with x are only hidden, and do not match"
    assert {file["content"] for file in (row.asDict() for row in lake.meta("files"))} <= {0, 1}


def test_rows_with_the_keys_of_a_file(lake: Lake, forget: Forget) -> None:
    lake.sink("select id, id % 3 p, cast(id as string) t from range(20)").write()
    lines = {
        "keys.csv": "id,p\n7,1\n8,0\n",
        "keys.jsonl": '{"t": "9"}\n{"t": "10"}\n',
    }
    for name, text in lines.items():
        Path(name).write_text(text)
        done = forget("--keys", name, "--yes", "--proof", "proof.json", "--json")
        assert done.code == 0, done.text
        asked = proof_of(done)["asked"]["keys"]
        assert (asked["count"], asked["sha256"]) == (2, hashlib.sha256(text.encode()).hexdigest())
        assert "7,1" not in Path("proof.json").read_text()
    pyarrow.parquet.write_table(pyarrow.table({"id": [11, 12, 12, 99]}), "keys.parquet")
    assert forget("--keys", "keys.parquet", "--yes").code == 0
    assert lake.rows("id") == sorted([(n,) for n in range(20) if n not in (7, 9, 10, 11, 12)], key=repr)
    for name, text, code in (
        ("unknown.csv", "idd\n1\n", "keys-unknown-column"),
        ("empty.csv", "id\n", "keys-empty"),
        ("wrong.csv", "id\nx\n", "keys-incomplete"),
        ("null.jsonl", '{"id": null}\n', "keys-incomplete"),
        ("keys.txt", "1\n", "keys-unreadable"),
    ):
        Path(name).write_text(text)
        refused = forget("--keys", name, "--yes")
        assert (refused.code, code in refused.err) == (78, True), refused.text
    assert "Did you mean id?" in forget("--keys", "unknown.csv", "--yes").err


def test_what_is_refused(lake: Lake, forget: Forget) -> None:
    lake.sink(people(0, 5)).write()
    lake.sink(f"select 7L id, 1L p, '{JANE}@example.org' mail").write()
    rows = lake.rows()
    refusals = {
        "mial = 'x'": (78, "condition-wrong", "Did you mean mail?"),
        "id in (select 1)": (78, "condition-changes", "subquery"),
        "rand() < 0.5": (78, "condition-changes", "another value"),
        "max(id) = 7": (78, "condition-wrong", ""),
        "id =": (78, "condition-wrong", ""),
        "_file like '%'": (78, "condition-wrong", ""),
    }
    for condition, (code, name, words) in refusals.items():
        refused = forget("--where", condition, "--yes")
        assert (refused.code, name in refused.err, words in refused.err) == (code, True, True), refused.text
    assert forget("--yes").code == forget("--where", "id=1", "--keys", "x.csv", "--yes").code == 2
    assert "confirmation-missing" in forget("--where", "id = 1").err
    assert "table-missing" in forget("--where", "id = 1", "--yes", table="db.other").err
    Path("file").touch()
    # Nobody may make a file in the last one, root neither.
    for place in ("none", "file", "/proc"):
        refused = forget("--where", WHERE, "--yes", "--proof", f"{place}/proof.json")
        assert (refused.code, "proof-not-writable" in refused.err) == (78, True), refused.text
    assert forget("--where", "id =", "--yes", "--proof", "proof.json").code == 78
    assert not Path("proof.json").exists(), "an empty file is not left behind"
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t CREATE TAG audit")
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t CREATE BRANCH theirs")
    refused = forget("--where", WHERE, "--yes")
    assert (refused.code, "branch theirs, tag audit" in refused.err, "DROP TAG" in refused.err) == (1, True, True), refused.text
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t DROP TAG audit")
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t DROP BRANCH theirs")
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t SET TBLPROPERTIES ('gc.enabled' = 'false')")
    assert "files-not-own" in forget("--where", WHERE, "--yes").err
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t UNSET TBLPROPERTIES ('gc.enabled')")
    assert (lake.rows(), len(lake.meta("snapshots"))) == (rows, 2)


def test_a_proof_that_cannot_be_written_after_all_is_printed(lake: Lake, forget: Forget) -> None:
    lake.sink(people(0, 5)).write()
    lake.sink(f"select 7L id, 1L p, '{JANE}@example.org' mail").write()
    done = forget("--where", WHERE, "--yes", "--proof", "/dev/full")
    assert (done.code, "proof-not-written" in done.err) == (1, True), done.text
    assert done.json["proven"]
    again = forget("--where", WHERE, "--yes", "--proof", "/dev/full", "--json")
    assert (again.code, again.json["error"]["code"], again.json["proof"]["proven"]) == (1, "proof-not-written", True)
    assert again.json["proof_file"] is None


def test_a_tag_without_the_rows_stays(lake: Lake, forget: Forget) -> None:
    lake.sink(people(0, 5)).write()
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t CREATE TAG audit")
    lake.sink(f"select 7L id, 1L p, '{JANE}@example.org' mail").write()
    done = forget("--where", WHERE, "--yes")
    assert done.code == 0, done.text
    assert traces(lake) == []
    assert lake.spark.table(f"{lake.name}.db.t.tag_audit").count() == lake.count() == 5


class Killed(BaseException):
    """The process ends here."""


@BOTH_VERSIONS
def test_a_killed_erasure_is_finished_by_the_next_one(lake: Lake, forget: Forget, version: int) -> None:
    """Killed after each commit, and in the middle of deleting; a scratch copy leaves its metadata behind, as a kill does."""
    upsert(lake, f"select concat('{JANE}', id) id, 'old' v from range(5)", version)
    upsert(lake, "select concat('joe', id) id, 'old' v from range(5)", version)
    upsert(lake, f"select concat('{JANE}', id) id, 'new' v from range(2)", version)
    before = lake.rows()
    expected = [row for row in before if JANE not in row[0]]
    arguments = ("--where", f"id like '{JANE}%'", "--yes", "--json")
    run, delete = ClaimedSink.run, FilesToDelete.delete

    def killed_after(claimed: ClaimedSink, intent: Any) -> Any:
        result = run(claimed, intent)
        if intent.epoch is not None:  # not the claim
            raise Killed
        return result

    def killed_within(files: FilesToDelete, paths: Sequence[str]) -> None:
        delete(files, paths[:1])
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WorkingCopy, "discard", lambda *_: None)
        patched.setattr(FilesToDelete, "delete", killed_within)
        patched.setattr(ClaimedSink, "run", killed_after)
        for _ in range(4):
            with pytest.raises(Killed):
                forget(*arguments)
            assert lake.rows() in (before, expected)
        patched.setattr(ClaimedSink, "run", run)
        with pytest.raises(Killed):
            forget(*arguments)
    done = forget(*arguments)
    assert done.code == 0, done.text
    assert (traces(lake), lake.rows()) == ([], expected)


@BOTH_VERSIONS
def test_a_pipeline_writes_meanwhile(lake: Lake, forget: Forget, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch comes before each step, and one between the staging of files and their commit; small files are merged."""
    turn = iter(range(100, 1000))
    eager = {"small_files": 4, "max_snapshots": 5, "reader_grace_minutes": 0, "max_time_share": 1}

    def batch() -> None:
        upsert(lake, f"select 'joe{next(turn)}' id, 'new' v union all select 'joe1', 'newer'", version, maintenance=eager)

    upsert(lake, f"select concat('{JANE}', id) id, 'old' v from range(5)", version)
    upsert(lake, f"select concat('{JANE}', id) id, 'new' v from range(2)", version)
    upsert(lake, "select concat('joe', id) id, 'old' v from range(5)", version)
    step, merge = Erasure.step, TableCare.merge

    left, between_steps = [1] * 7, [1]

    def beside(erasure: Erasure) -> bool:
        if left:
            left.pop()
            batch()
        return step(erasure)

    def between(table: TableCare, *asked: Any) -> Any:
        merged = merge(table, *asked)
        if between_steps and "_rewrite" in {frame.name for frame in traceback.extract_stack()}:
            between_steps.pop()
            batch()
        return merged

    monkeypatch.setattr(Erasure, "step", beside)
    monkeypatch.setattr(TableCare, "merge", between)
    done = forget("--where", f"id like '{JANE}%'", "--yes", "--json")
    assert done.code == 0, done.text
    assert traces(lake) == []
    assert not between_steps, "a batch came between the staging of files and their commit"
    others = {"joe1": "newer", **{f"joe{n}": "old" for n in (0, 2, 3, 4)}}
    assert lake.rows() == sorted({**others, **{f"joe{n}": "new" for n in range(100, next(turn))}}.items(), key=repr)


def test_files_that_nobody_knows_are_read_and_only_old_ones_are_deleted(lake: Lake, forget: Forget) -> None:
    lake.sink(people(0, 5)).write()
    lake.sink(f"select 7L id, 1L p, '{JANE}@example.org' mail").write()
    (held,) = [path for path in lake.files() if path.name in traces(lake)]
    (clean,) = [path for path in lake.files() if path != held][:1]
    data = folder_of(lake) / "data"
    young, old, other, cut = (data / f"{name}.parquet" for name in ("young", "old", "other", "cut"))
    for path, source in ((young, held), (old, held), (other, clean)):
        path.write_bytes(source.read_bytes())
    cut.write_bytes(held.read_bytes()[:200])
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert forget("--where", WHERE, "--dry-run", "--json").json["found"]["orphans"] == 2
    done = forget("--where", WHERE, "--yes", "--json")
    assert done.code == 1
    proof = proof_of(done)
    left = {Path(one["path"]).name: one for one in proof["left"]}
    assert set(left) == {"young.parquet", "cut.parquet"}
    assert "1 of the rows" in left["young.parquet"]["why"]
    assert left["young.parquet"]["run_again_at"] > proof["at"]
    assert not old.exists()
    assert "other.parquet" in {Path(one["path"]).name for one in proof["scanned"] if one["kind"] == "orphan"}
    assert set(traces(lake)) <= {"young.parquet", "cut.parquet"}
    for path in (young, cut):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = forget("--where", WHERE, "--yes", "--json")
    assert (again.code, proof_of(again)["rows_deleted"], traces(lake)) == (0, 0, [])


def test_a_table_of_format_version_1(lake: Lake, forget: Forget) -> None:
    lake.introduced()
    name = f"{lake.name}.db.t"
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.name}.db")
    lake.spark.sql(f"CREATE TABLE {name} (id bigint, mail string) USING iceberg TBLPROPERTIES ('format-version' = '1')")
    lake.spark.sql(f"INSERT INTO {name} VALUES (1, 'n'), (2, '{JANE}@example.org'), (3, null)")
    lake.spark.sql(f"INSERT INTO {name} VALUES (4, '{JANE}@example.org')")
    done = forget("--where", WHERE, "--yes", "--json")
    assert done.code == 0, done.text
    assert (traces(lake), lake.rows()) == ([], [(1, "n"), (3, None)])


def test_keys_that_were_deleted_are_remembered_elsewhere_and_the_proof_says_so(lake: Lake, forget: Forget) -> None:
    given = {"commit_mode": "upsert", "key_fields": ["mail"], "order_by": ["at"], "late": "ignore", "op_field": "op"}
    mail = f"{JANE}@example.org"
    lake.sink(f"select * from values ('{mail}', 1, 'u'), ('other', 1, 'u'), ('gone', 1, 'd') t(mail, at, op)", **given).write()
    lake.sink(f"select '{mail}' mail, 2 at, 'd' op", **given).write()
    proof = proof_of(forget("--where", WHERE, "--yes", "--json"))
    assert any("db.t__tombstones" in text for text in proof["not_covered"])
    done = forget("--where", WHERE, "--yes", "--json", table="db.t__tombstones")
    assert (done.code, lake.rows("mail", "db.t__tombstones")) == (0, [("gone",)])
    lake.sink("select 'gone' mail, 0 at, 'u' op union all select 'other', 2, 'd'", **given).write()
    assert (lake.rows("mail"), lake.rows("mail", "db.t__tombstones")) == ([], [("gone",), ("other",)])
