"""Logins to a real catalog with a real issuer: Nessie checks signature and end of each token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.commands import frazil_process
from frazil.model.events import CommitFailed
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import give_components
from helpers.children import write_project
from helpers.lakes import Lake, commits, fresh_name, run
from services.nessie import Nessie, running_nessie
from services.oidc import CLIENT, SECRET, Issuer, running_issuer
from services.s3proxy import REGION, S3Store

pytestmark = pytest.mark.slow(seconds=60)

LIFETIME = 4


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, s3: S3Store) -> Iterator[tuple[Nessie, Issuer]]:
    folder = tmp_path_factory.mktemp("guarded")
    with running_issuer(folder, LIFETIME) as issuer, running_nessie(folder, s3, bucket="guarded", issuer=issuer.url) as nessie:
        yield nessie, issuer


def sink(guarded: tuple[Nessie, Issuer], s3: S3Store, secret: str = SECRET, **more: Any) -> dict[str, Any]:
    nessie, issuer = guarded
    rest = {"uri": nessie.uri, "warehouse": "ice", "credential": f"{CLIENT}:{secret}", "oauth2_server_uri": issuer.tokens}
    keys = {"access_key_id": s3.access_key_id, "secret_access_key": s3.secret_access_key}
    store = {"endpoint": s3.endpoint, "path_style_access": True, "region": REGION, **keys}
    return {"catalog": {"type": "rest", "rest": rest | more}, "s3": store}


@pytest.mark.parametrize("options", [{}, {"renew_early": False}], ids=["as it comes", "when they have expired"])
def test_tokens_of_an_issuer_last_through_a_run(
    lake: Lake, guarded: tuple[Nessie, Issuer], s3: S3Store, options: dict[str, Any]
) -> None:
    given = sink(guarded, s3, **options)
    there = replace(lake.with_catalog(given["catalog"]), given={"s3": given["s3"]})
    give_components(lake.spark, catalog_settings(there.sink(table="n.t").spec).components)
    table, before = f"{fresh_name()}.events", guarded[1].given_out
    events = run(there.pipeline({"connector": "generator", "rows": 100}, table, batch_size=10, rate_limit=10), once=True)
    assert len(commits(events)) == 10
    assert not [event for event in events if isinstance(event, CommitFailed)]
    assert there.introduced().rows("event_number", table) == sorted([(number,) for number in range(100)], key=repr)
    assert guarded[1].given_out - before >= 3


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_wrong_secret(tmp_path: Path, guarded: tuple[Nessie, Issuer], s3: S3Store, command: str) -> None:
    config = {**sink(guarded, s3, "wr0ng-secret"), "namespace": "n", "table": "t"}
    project = {
        "sources": {"numbers": {"connector": "generator", "config": {"rows": 10}}},
        "sinks": {"lake": {"connector": "iceberg", "config": config}},
        "pipelines": {"load": {"source": "numbers", "sink": "lake"}},
    }
    file = write_project(tmp_path, project)
    done = frazil_process(command, "-c", file, cwd=tmp_path)
    assert done.code == 78, done.text
    assert "[not-authorized]" in done.text
    assert "refused the credentials" in done.text
    assert "wr0ng" not in done.text
    assert "Traceback" not in done.text
    assert "\tat " not in done.text
