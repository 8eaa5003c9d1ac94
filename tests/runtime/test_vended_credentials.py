"""Access to the store that comes from the catalog alone: credentials that expire, and requests that the catalog signs."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import functions

import frazil
from frazil.errors import CredentialsRefused
from frazil.model.events import CommitFailed
from frazil.observe.check import check_sink
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import give_components
from helpers.lakes import Lake, commits, fresh_name, run
from services.between import Asked, Made
from services.logins import CLIENT, SECRET, guarded, token_service
from services.rest_catalog import RestCatalog
from services.s3proxy import S3Store
from services.vending import Vending, signing, vending

BUCKET = "rest-catalog"


def without_keys(lake: Lake, uri: str, way: str = "vended-credentials", **more: Any) -> Lake:
    """A lake whose sinks know of the store what the catalog tells them."""
    files = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
    there = lake.with_catalog({"type": "rest", "rest": {"uri": uri, "access_delegation": way, **more}, "properties": files})
    give_components(lake.spark, catalog_settings(there.sink(table="n.t").spec).components)
    return there


def numbers(count: int) -> list[tuple[int]]:
    return sorted([(number,) for number in range(count)], key=repr)


def require_renewed(catalog: Vending, times: int) -> None:
    assert len(catalog.used) >= times
    assert catalog.strangers == 0


@pytest.mark.slow(seconds=40)
def test_credentials_of_two_seconds_last_through_a_run(lake: Lake, rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    table = f"{fresh_name()}.events"
    with vending(rest_catalog_s3.uri, s3, BUCKET, lifetime=2) as catalog:
        there = without_keys(lake, catalog.uri)
        events = run(there.pipeline({"connector": "generator", "rows": 70}, table, batch_size=10, rate_limit=20), once=True)
        assert there.introduced().rows("event_number", table) == numbers(70)
    assert len(commits(events)) == 7
    assert not [event for event in events if isinstance(event, CommitFailed)]
    require_renewed(catalog, 3)


@pytest.mark.slow(seconds=20)
def test_a_batch_may_take_longer_than_its_credentials_last(lake: Lake, rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    table = f"{fresh_name()}.events"

    @functions.udf("bigint", useArrow=False)
    def slowly(number: int) -> int:
        time.sleep(1.5)
        return number

    rows = lake.spark.range(4).repartition(4).select(slowly("id").alias("id"))
    with vending(rest_catalog_s3.uri, s3, BUCKET, lifetime=2) as catalog:
        there = without_keys(lake, catalog.uri)
        there.sink("select cast(0 as bigint) id where false", table).write()
        frazil.sink(rows).catalog(**there.catalog).to(f"{there.name}.{table}").write()
        assert there.introduced().rows("id", table) == numbers(4)
    require_renewed(catalog, 2)


@pytest.mark.slow(seconds=30)
def test_a_catalog_that_gives_out_newer_ones_with_the_table_alone(lake: Lake, rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    """Without an address for newer credentials they end with the table that they came with, which is opened anew."""
    table = f"{fresh_name()}.events"
    with vending(rest_catalog_s3.uri, s3, BUCKET, lifetime=4, refreshes=False) as catalog:
        there = without_keys(lake, catalog.uri)
        events = run(there.pipeline({"connector": "generator", "rows": 100}, table, batch_size=10, rate_limit=10), once=True)
        assert there.introduced().rows("event_number", table) == numbers(100)
    assert len(commits(events)) == 10
    assert [event.will_retry for event in events if isinstance(event, CommitFailed)]
    assert catalog.expired
    require_renewed(catalog, 3)


def test_credentials_are_asked_for_with_a_new_token_when_the_old_one_was_revoked(
    lake: Lake, rest_catalog_s3: RestCatalog, s3: S3Store
) -> None:
    """The client that asks for them is another one than the catalog's, and has a token of its own."""
    table, asked_for = f"{fresh_name()}.events", iter(range(1, 10_000))

    with token_service() as tokens, vending(rest_catalog_s3.uri, s3, BUCKET, lifetime=2) as catalog:

        def revoke_once(asked: Asked) -> Made | None:
            if asked.target.endswith("/credentials") and next(asked_for) == 3:
                tokens.revoke()
            return None

        login = {"credential": f"{CLIENT}:{SECRET}", "oauth2_server_uri": tokens.uri}
        with guarded(catalog.uri, tokens, revoke_once) as uri:
            there = without_keys(lake, uri, **login)
            events = run(there.pipeline({"connector": "generator", "rows": 40}, table, batch_size=10), once=True)
            assert there.introduced().rows("event_number", table) == numbers(40)
    assert len(commits(events)) == 4
    assert catalog.refreshed > 3
    assert tokens.refused


def test_requests_that_the_catalog_signs(lake: Lake, rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    table = f"{fresh_name()}.events"
    with signing(rest_catalog_s3.uri, s3) as catalog:
        there = without_keys(lake, catalog.uri, "remote-signing")
        events = run(there.pipeline({"connector": "generator", "rows": 30}, table, batch_size=10), once=True)
        assert there.introduced().rows("event_number", table) == numbers(30)
    assert len(commits(events)) == 3
    assert {"GET", "PUT"} <= set(catalog.signed)


def test_credentials_that_the_store_refuses(lake: Lake, rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    table = f"{fresh_name()}.events"
    with vending(rest_catalog_s3.uri, s3, BUCKET, lifetime=-1, refreshes=False) as catalog:
        pipeline = without_keys(lake, catalog.uri).pipeline({"connector": "generator", "rows": 10}, table)
        with pytest.raises(CredentialsRefused) as ran:
            run(pipeline, once=True)
        (checked,) = [done.error for done in check_sink("lake", pipeline.sink) if done.error]
    for error in (ran.value, checked):
        assert (error.code, error.exit_code) == ("s3-keys-refused", 78)
        assert not [token for token in (*catalog.ends, s3.secret_access_key) if token in str(error)]
