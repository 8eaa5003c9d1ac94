"""Who may look, and what leaves: the token, the name in the header Host, headers, and no secret in any page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from frazil.files import load_text
from frazil.model.events import SourceFailed
from frazil.model.secrets import remember, secret_values
from frazil.ui.live import Live
from frazil.ui.watched import watched
from services.processes import free_port, wait_until
from ui.made import watched as pipeline
from ui.scenes import Pages, served

TOKEN = "a-token-that-is-long-enough"
ORDERS = {"orders": pipeline()}


@pytest.fixture(scope="module")
def local() -> Iterator[Pages]:
    with served(ORDERS) as pages:
        yield pages


@pytest.fixture(scope="module")
def guarded() -> Iterator[Pages]:
    with served(ORDERS, listen="0.0.0.0:0", token=TOKEN) as pages:
        yield pages


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:9999", "LOCALHOST", "[::1]:80"])
def test_this_machine_may_look_by_its_own_names(local: Pages, host: str) -> None:
    assert local.get(Host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "", "[", "0.0.0.0"]
)
@pytest.mark.parametrize("path", ["/", "/pipelines/orders", "/static/frazil.css"])
def test_a_name_of_somebody_else_s_that_leads_here_is_refused(local: Pages, host: str, path: str) -> None:
    answer = local.get(path, Host=host)
    assert answer.status == 421
    assert "orders" not in answer.text
    assert "127.0.0.1" in answer.text


@pytest.mark.parametrize("path", ["/", "/pipelines/orders", "/nothing", "/?q=orders"])
def test_without_the_token_nothing_is_shown(guarded: Pages, path: str) -> None:
    tries = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer "},
             {"Cookie": f"frazil_ui={TOKEN}"}, {"Cookie": "frazil_ui_00000000=x"}]  # fmt: skip
    for headers in tries:
        answer = guarded.get(path, **headers)
        assert answer.status == 401
        assert "shop.orders" not in answer.text
        assert "FRAZIL_UI_TOKEN" in answer.text, "the page says which token is meant"


def test_a_wrong_token_is_named_as_that(guarded: Pages) -> None:
    answer = guarded.get("/?token=wrong")
    assert (answer.status, "That is not the token." in answer.text) == (401, True)
    assert "set-cookie" not in answer.headers


def test_the_token_may_come_with_each_request(guarded: Pages) -> None:
    assert "shop.orders" in guarded.get(Authorization=f"Bearer {TOKEN}").text
    assert guarded.get(Authorization=f"bearer {TOKEN}").status == 200


def test_the_token_is_given_once_and_leaves_the_address(guarded: Pages) -> None:
    answer = guarded.get(f"/pipelines/orders?q=a%20b&token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "/pipelines/orders?q=a+b")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert guarded.get(Cookie=cookie.partition(";")[0]).status == 200


def test_an_address_with_the_token_cannot_lead_to_another_host(guarded: Pages) -> None:
    assert guarded.get(f"//evil.example/x?token={TOKEN}").headers["location"] == "/evil.example/x"


def test_a_token_counts_on_this_machine_too() -> None:
    with served(ORDERS, token=TOKEN) as pages:
        assert pages.get().status == 401
        assert pages.get(Authorization=f"Bearer {TOKEN}").status == 200
        assert pages.get(Authorization=f"Bearer {TOKEN}", Host="evil.example").status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/pipelines/orders"])
def test_nothing_can_be_changed(local: Pages, method: str, path: str) -> None:
    assert local.get(path, method=method).status == 405


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", "localhost", 200),
        ("/nothing", "localhost", 404),
        ("/", "evil.example", 421),
        ("/static/frazil.css", "localhost", 200),
    ],
)
def test_every_answer_keeps_pages_to_themselves(local: Pages, path: str, host: str, status: int) -> None:
    answer = local.get(path, Host=host)
    assert answer.status == status
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert set(re.findall(r"'[\w-]+'|\bhttps?:|\*|data:", policy)) == {"'none'", "'self'"}
    assert "frame-ancestors 'none'" in policy
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_pages_are_not_kept_and_files_of_a_version_are(local: Pages) -> None:
    assert local.get().headers["cache-control"] == "no-store"
    assert "immutable" in local.get("/static/frazil.css").headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/", "/static/vendor"]
)
def test_only_files_of_pages_are_served(local: Pages, path: str) -> None:
    assert local.get(path).status == 404


class Loads(HTMLParser):
    """What a page loads, and what of it a browser would run or apply though it stands within the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.within: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.addresses += [str(given[name]) for name in ("src", "href", "action", "hx-get") if name in given]
        if tag == "style" or "style" in given or (tag == "script" and "src" not in given):
            self.within.append(tag)
        self.within += [name for name in given if name.startswith("on")]


@pytest.mark.parametrize("path", ["/", "/pipelines/orders", "/nothing"])
def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_within_itself(local: Pages, path: str) -> None:
    loads = Loads(local.get(path).text)
    assert len(loads.addresses) > 8
    assert [address for address in loads.addresses if not re.match(r"(/(?!/)|#)", address)] == []
    assert loads.within == []
    files = [address.partition("?")[0] for address in loads.addresses if address.startswith("/static/")]
    assert {local.get(file).status for file in files} == {200}


def test_names_are_text_and_no_part_of_a_page() -> None:
    odd = "<script>alert(1)</script>\"'><img src=x>"
    with served({odd: replace(pipeline(), key=odd)}) as pages:
        page = pages.get().text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page


SECRETS = ("c4nary-of-the-token", "c4nary-of-the-key", "c4nary-of-the-uri", "c4nary-of-spark", "c4nary-of-kafka")
WITH_SECRETS = f"""\
version: "1.0"
sources:
  numbers:
    connector: kafka
    config:
      bootstrap_servers: "127.0.0.1:{{port}}"
      topics: [orders]
      options: {{{{kafka.sasl.jaas.config: "x password='{SECRETS[4]}';"}}}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog:
        type: rest
        rest: {{{{uri: "http://user:{SECRETS[2]}@127.0.0.1:{{port}}/catalog", token: {SECRETS[0]}}}}}
      namespace: shop
      table: orders
      s3: {{{{access_key_id: somebody, secret_access_key: {SECRETS[1]}}}}}
pipelines:
  load: {{{{source: numbers, sink: lake}}}}
settings: {{{{spark: {{{{conf: {{{{spark.hadoop.my.password: {SECRETS[3]}}}}}}}}}}}}}
"""


def test_no_page_shows_a_secret(tmp_path: Path) -> None:
    project = load_text(WITH_SECRETS.format(port=free_port()), "frazil.yaml")
    remember(secret_values(project))
    live = Live(project.pipelines)
    live(SourceFailed("load", f"cannot log in with {SECRETS[3]} at http://a:{SECRETS[2]}@b", 1, will_retry=True))
    with served(watched([project]), live) as pages:
        wait_until(lambda: 'class="problem"' in pages.get("/pipelines/load").text, 30, "the error of the catalog")
        found = pages.get().text + pages.get("/pipelines/load").text
    assert "**********" in found
    assert "cannot log in with" in found, "what has happened is shown"
    assert [secret for secret in SECRETS if secret in found] == []


def test_the_token_itself_is_a_secret() -> None:
    live = Live([pipeline().spec])
    live(SourceFailed("orders", f"somebody wrote {TOKEN} into a message", 1, will_retry=True))
    with served(ORDERS, live, token=TOKEN) as pages:
        page = pages.get("/pipelines/orders", Authorization=f"Bearer {TOKEN}").text
    assert "somebody wrote" in page
    assert TOKEN not in page
