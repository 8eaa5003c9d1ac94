"""Polaris, Lakekeeper, Unity Catalog and Gravitino: their stand-ins refuse and fail as these servers do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from catalogs.places import described, lake_of
from frazil.errors import ConfigError, DataError, FrazilError
from frazil.model.events import CommitFailed, Committed, Event
from frazil.observe.check import check_sink
from frazil.spark.session import give_components
from helpers.lakes import Lake, commits, fresh_name, run, sqlite_lake
from services.rest_catalog import RestCatalog
from services.rest_servers import SERVERS, RestServer, unity

pytestmark = pytest.mark.slow(seconds=5)

NUMBERS = [(number,) for number in range(40)]


@dataclass(frozen=True)
class Known:
    """A server, and a lake in its catalog as the page describes it."""

    server: RestServer
    lake: Lake

    def without(self, **rest: Any) -> Lake:
        """The lake with other settings of the catalog."""
        return self.lake.with_catalog({**self.lake.catalog, "name": fresh_name(), "rest": self.lake.catalog["rest"] | rest})


@contextmanager
def started(
    title: str, request: pytest.FixtureRequest, start: Callable[..., AbstractContextManager[RestServer]]
) -> Iterator[Known]:
    behind: RestCatalog = request.getfixturevalue("rest_catalog_s3")
    spark = request.getfixturevalue("spark")
    give_components(spark, ("core", "aws"))
    with start(behind.uri, request.getfixturevalue("s3"), urlsplit(behind.warehouse).netloc) as server:
        folder = sqlite_lake(spark, request.getfixturevalue("tmp_path"))
        yield Known(server, lake_of(folder, described(f"{title}, S3", server.variables)))


@pytest.fixture(params=SERVERS)
def known(request: pytest.FixtureRequest) -> Iterator[Known]:
    with started(request.param, request, SERVERS[request.param]) as found:
        yield found


@pytest.mark.parametrize(
    ("setting", "code"),
    [({"warehouse": "nowhere"}, "warehouse-missing"), ({"credential": "frazil:wrong"}, "not-authorized")],
    ids=["another warehouse", "a wrong secret"],
)
def test_a_wrong_setting_is_reported_by_a_run_and_by_check(known: Known, setting: dict[str, str], code: str) -> None:
    sink = known.without(**setting).sink("select 1 id", f"{fresh_name()}.t")
    with pytest.raises(FrazilError) as refused:
        sink.write()
    checked = [step.error.code for step in check_sink("lake", sink.spec) if step.error]
    assert ([refused.value.code], refused.value.exit_code) == (checked, 78)
    assert checked == [code]
    assert "wrong" not in str(refused.value)


def test_a_token_that_has_ended_is_replaced_within_a_run(known: Known) -> None:
    table, heard = f"{fresh_name()}.events", list[Event]()

    def revoke(event: Event) -> None:
        if isinstance(event, Committed) and event.batch == 2:
            known.server.tokens.revoke()

    pipeline = known.lake.pipeline({"connector": "generator", "rows": 40}, table, batch_size=10)
    run(pipeline, once=True, events=heard, listeners=[revoke])
    assert len(commits(heard)) == 4
    assert not [event for event in heard if isinstance(event, CommitFailed)]
    assert known.server.tokens.refused
    assert known.lake.introduced().rows("event_number", table) == sorted(NUMBERS, key=repr)


def test_a_right_that_is_taken_away_ends_a_run_and_the_next_one_goes_on(known: Known) -> None:
    table, heard = f"{fresh_name()}.events", list[Event]()

    def forbid(event: Event) -> None:
        known.server.forbids |= isinstance(event, Committed) and event.batch == 2

    pipeline = known.lake.pipeline({"connector": "generator", "rows": 40}, table, batch_size=10)
    with pytest.raises(DataError) as stopped:
        run(pipeline, once=True, events=heard, listeners=[forbid])
    assert (stopped.value.code, stopped.value.exit_code) == ("no-permission", 1)
    known.server.forbids = False
    again = run(pipeline, once=True)
    assert [commit.batch for commit in commits(heard) + commits(again)] == [1, 2, 3, 4]
    assert known.lake.introduced().rows("event_number", table) == sorted(NUMBERS, key=repr)


def test_an_address_that_only_reads_is_reported(request: pytest.FixtureRequest) -> None:
    with started("Unity Catalog", request, partial(unity, writes=False)) as found, pytest.raises(ConfigError) as refused:
        found.lake.sink("select 1 id", f"{fresh_name()}.t").write()
    assert (refused.value.code, refused.value.exit_code) == ("not-offered", 78)
    assert "POST /v1/{prefix}/namespaces" in refused.value.message


def test_files_are_reached_by_the_keys_of_the_catalog_alone(known: Known) -> None:
    known.lake.sink("select 1 id", f"{fresh_name()}.t").write()
    assert known.server.keys.used
    assert known.server.keys.strangers == 0
