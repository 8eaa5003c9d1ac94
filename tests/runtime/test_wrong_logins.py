"""Logins that are wrong from the beginning: `check` and a run say so, with an exit code, and show no secret."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from frazil.errors import FrazilError
from frazil.observe.check import check_sink
from helpers.lakes import Lake, fresh_name, run
from services.between import Made
from services.logins import CLIENT, JSON, SECRET, guarded, token_service
from services.rest_catalog import RestCatalog

WRONG = "wr0ng-c4nary"
REFUSED, AWAY = ("not-authorized", 78), ("catalog-unreachable", 75)


@dataclass(frozen=True)
class Wrong:
    """A login, what the token service answers to it in place of its own answer, and what is said of it: the code, the exit code
    and words."""

    expected: tuple[str, int]
    words: str
    login: dict[str, str] = field(default_factory=lambda: {"credential": f"{CLIENT}:{SECRET}"})
    answer: Made | None = None
    status: int = 401


def said(status: int, **content: Any) -> Made:
    return Made(status, json.dumps(content).encode(), JSON)


CASES = {
    "secret": Wrong(REFUSED, "invalid_client", {"credential": f"{CLIENT}:{WRONG}"}),
    "client": Wrong(REFUSED, "invalid_client", {"credential": f"somebody:{SECRET}"}),
    "token": Wrong(REFUSED, "The token is not valid", {"token": WRONG}),
    "token, said by 419": Wrong(REFUSED, "The token is not valid", {"token": WRONG}, status=419),
    "scope": Wrong(REFUSED, "invalid_scope", answer=said(400, error="invalid_scope", error_description="no such scope")),
    "grant": Wrong(REFUSED, "unauthorized_client", answer=said(400, error="unauthorized_client")),
    "address of tokens": Wrong(REFUSED, "Not Found", answer=Made(404, b"<html>Not Found</html>", {"Content-Type": "text/html"})),
    "tokens are away": Wrong(AWAY, "Failed to connect to catalog", answer=Made(503)),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_login(lake: Lake, rest_catalog: RestCatalog, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, namespace = CASES[name], fresh_name()
    with token_service() as tokens, guarded(rest_catalog.uri, tokens, status=wrong.status) as uri:
        if wrong.answer is not None:
            monkeypatch.setattr(tokens, "answer", lambda _: wrong.answer)
        where = {"oauth2_server_uri": tokens.uri} if "credential" in wrong.login else {}
        there = lake.with_catalog({"type": "rest", "rest": {"uri": uri, **wrong.login, **where}})
        pipeline = there.pipeline({"connector": "generator", "rows": 10}, f"{namespace}.t")
        (checked,) = [done.error for done in check_sink("lake", pipeline.sink) if done.error]
        with pytest.raises(FrazilError) as ran:
            run(pipeline, once=True)
    for error in (checked, ran.value):
        assert (error.code, error.exit_code) == wrong.expected, str(error)
        assert wrong.words in error.message
        assert error.fix
        assert not [secret for secret in (WRONG, SECRET) if secret in str(error)]
    direct = lake.with_catalog({"type": "rest", "rest": {"uri": rest_catalog.uri}}).introduced()
    assert not direct.spark.sql(f"show namespaces in {direct.name} like '{namespace}'").collect(), "nothing was made"
