"""A branch of Nessie's: a sink writes to it, and the others stay as they are."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from pyspark.sql import SparkSession

from catalogs.places import place
from frazil.observe.lake import open_table
from helpers.lakes import commits, fresh_name, run, sqlite_lake

pytestmark = pytest.mark.slow(seconds=20)


def asked(address: str, content: object = None) -> dict[str, object]:
    """What Nessie answers."""
    body = None if content is None else json.dumps(content).encode()
    with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=30) as answer:
        found: dict[str, object] = json.loads(answer.read())
    return found


def make_branch(server: str, name: str) -> None:
    """Makes a branch from the head of main."""
    main = asked(f"{server}/api/v2/trees/main")["reference"]
    asked(f"{server}/api/v2/trees?name={name}&type=BRANCH", main)


def test_what_is_written_to_a_branch_is_not_on_main(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    table, branch = f"{fresh_name()}.events", fresh_name()
    with place("Nessie by its own protocol, S3", sqlite_lake(spark, tmp_path), request.getfixturevalue) as found:
        main = found.lake
        run(main.pipeline({"connector": "generator", "rows": 20}, table, batch_size=10), once=True)
        make_branch(found.variables["NESSIE_SERVER"], branch)
        aside = main.with_catalog({"type": "nessie", "nessie": main.catalog["nessie"] | {"ref": branch}})
        went_on = run(aside.pipeline({"connector": "generator", "rows": 50}, table, batch_size=10), once=True)
        assert [commit.batch for commit in commits(went_on)] == [3, 4, 5], "it goes on from what the branch has"
        assert [main.introduced().count(table), aside.introduced().count(table)] == [20, 50]
        heads = [open_table(lake.sink(table=table).spec) for lake in (main, aside)]
        assert [head and head.scan().to_arrow().num_rows for head in heads] == [20, 50], "without Spark, too"
        went_on = run(main.pipeline({"connector": "generator", "rows": 30}, table, batch_size=10), once=True)
        assert [commit.batch for commit in commits(went_on)] == [3]
        assert [main.count(table), aside.count(table)] == [30, 50]
