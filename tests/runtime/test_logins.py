"""Logins of a REST catalog while a pipeline runs: tokens that expire, that are revoked, and a token service that fails."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from catalogs.places import PAGE, read
from frazil.errors import ConfigError
from frazil.model.events import CommitFailed, Event
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import RetrySettings, Settings
from helpers.lakes import Lake, commits, fresh_name, run
from services.between import Asked, Made
from services.logins import CLIENT, SECRET, TokenService, guarded, is_commit, token_service
from services.rest_catalog import RestCatalog

CREDENTIAL = "client_credentials"


def logged_in(uri: str, tokens: TokenService | None = None, **more: Any) -> dict[str, Any]:
    login = {} if tokens is None else {"credential": f"{CLIENT}:{SECRET}", "oauth2_server_uri": tokens.uri}
    return {"type": "rest", "name": fresh_name(), "rest": {"uri": uri} | login | more}


def numbers(lake: Lake, table: str, batches: int, **more: Any) -> PipelineSpec:
    """A pipeline of so many batches of ten rows."""
    return lake.pipeline({"connector": "generator", "rows": batches * 10}, table, batch_size=10, **more)


def require_once_each(lake: Lake, rest_catalog: RestCatalog, table: str, rows: int) -> None:
    """Each row is in the table once; it is read without the guard."""
    reader = lake.with_catalog({"type": "rest", "rest": {"uri": rest_catalog.uri}}).introduced()
    assert reader.rows("event_number", table) == sorted([(number,) for number in range(rows)], key=repr)


@pytest.fixture
def table() -> str:
    return f"{fresh_name()}.events"


@pytest.mark.parametrize(
    ("options", "service"),
    [
        ({}, {"exchanges": True}),
        ({}, {"exchanges": False}),
        ({"renew_by_exchange": False}, {"exchanges": False}),
        ({"renew_early": False}, {}),
    ],
    ids=["exchanged", "exchange unknown to the service", "by the credential", "after they have expired"],
)
def test_tokens_of_a_second_or_two_last_through_a_run(
    lake: Lake, rest_catalog: RestCatalog, table: str, options: dict[str, Any], service: dict[str, Any]
) -> None:
    with token_service(lifetime=2, **service) as tokens, guarded(rest_catalog.uri, tokens) as uri:
        events = run(numbers(lake.with_catalog(logged_in(uri, tokens, **options)), table, 7, rate_limit=20), once=True)
        renewed = tokens.grants[1:]
    assert len(commits(events)) == 7
    assert not [event for event in events if isinstance(event, CommitFailed)]
    require_once_each(lake, rest_catalog, table, 70)
    assert len(renewed) >= 2
    if options.get("renew_by_exchange", True) and service.get("exchanges"):
        assert CREDENTIAL not in renewed
    if "renew_early" in options:
        assert tokens.refused, "nothing was renewed before it had expired"


def test_the_login_of_the_page_is_run_as_it_stands(lake: Lake, rest_catalog: RestCatalog, table: str) -> None:
    (block,) = re.findall(r"## Logins that last.*?```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with token_service(lifetime=1) as tokens, guarded(rest_catalog.uri, tokens) as uri:
        variables = {"REST_URI": uri, "CLIENT_ID": CLIENT, "CLIENT_SECRET": SECRET, "TOKEN_URI": tokens.uri}
        sink = read(block, variables)
        run(numbers(lake.with_catalog(sink.catalog.model_dump(exclude_unset=True)), table, 3), once=True)
    require_once_each(lake, rest_catalog, table, 30)


def at_commit(number: int, do: Any) -> Any:
    """Does something when a commit arrives at the catalog, before it is looked at: at the n-th, counted from 1."""
    seen = iter(range(1, 1_000))

    def meanwhile(asked: Asked) -> Made | None:
        if is_commit(asked) and next(seen) == number:
            do()
        return None

    return meanwhile


@pytest.mark.every_case
@pytest.mark.parametrize("status", [401, 419])
def test_a_revoked_token_is_replaced_and_the_same_batch_goes_on(
    lake: Lake, rest_catalog: RestCatalog, table: str, status: int
) -> None:
    with (
        token_service() as tokens,
        guarded(rest_catalog.uri, tokens, at_commit(3, tokens.revoke), status) as uri,
    ):
        events = run(numbers(lake.with_catalog(logged_in(uri, tokens)), table, 4), once=True)
    assert [commit.batch for commit in commits(events)] == [1, 2, 3, 4]
    assert not [event for event in events if isinstance(event, CommitFailed)]
    assert tokens.grants == [CREDENTIAL] * 2
    assert len(tokens.refused) == 1
    require_once_each(lake, rest_catalog, table, 40)


def test_a_fixed_token_that_is_revoked_ends_the_run_and_the_next_one_goes_on(
    lake: Lake, rest_catalog: RestCatalog, table: str
) -> None:
    heard: list[Event] = []
    with token_service() as tokens, guarded(rest_catalog.uri, tokens, at_commit(3, tokens.revoke)) as uri:
        first = lake.with_catalog(logged_in(uri, token=tokens.new_token("by hand")))
        with pytest.raises(ConfigError) as ended:
            run(numbers(first, table, 4), once=True, events=heard)
        again = lake.with_catalog(logged_in(uri, token=tokens.new_token("by hand")))
        events = run(numbers(again, table, 4), once=True)
    assert (ended.value.code, ended.value.exit_code) == ("not-authorized", 78)
    assert "refused the credentials" in ended.value.message
    assert "t0ken-" not in str(ended.value)
    assert len(commits(heard)) + len(commits(events)) == 4
    require_once_each(lake, rest_catalog, table, 40)


def test_a_token_service_that_fails_for_a_while_is_asked_again(lake: Lake, rest_catalog: RestCatalog, table: str) -> None:
    """Iceberg's client gives up renewing after a failure, and would be refused from then on."""
    with token_service(lifetime=2) as tokens:
        begun, back = threading.Event(), threading.Event()

        def fail() -> None:
            tokens.down = True
            tokens.revoke()
            begun.set()

        with guarded(rest_catalog.uri, tokens, at_commit(3, fail)) as uri:
            pipeline = numbers(lake.with_catalog(logged_in(uri, tokens)), table, 5)

            def mend(event: Event) -> None:
                if isinstance(event, CommitFailed) and event.attempt >= 2:
                    tokens.down = False
                    back.set()

            patient = Settings(retry=RetrySettings(max_retries=10, initial_backoff_ms=10))
            events = run(pipeline, once=True, settings=patient, listeners=[mend])
    assert begun.is_set()
    assert back.is_set()
    assert len(commits(events)) == 5
    require_once_each(lake, rest_catalog, table, 50)
