"""The application over real tables: what a visitor reads of them, and what he reads when they cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.tables import sqlite_catalog
from frazil.model.settings import Settings
from frazil.ui.live import Live
from frazil.ui.watched import Watched
from helpers.lakes import Lake, run
from services.processes import free_port, wait_until
from ui.scenes import Batch, Pages, fill, letters, pipelines, served, table

FAR = """\
  far:
    connector: iceberg
    config:
      catalog: {{type: rest, name: far, rest: {{uri: "http://127.0.0.1:{port}"}}}}
      namespace: shop
      table: far
"""


def text_of(pages: Pages, path: str, *wanted: str) -> str:
    """The page, as soon as it has these texts."""

    def found() -> str:
        answer = pages.get(path)
        assert answer.status == 200
        return answer.text if all(text in answer.text for text in wanted) else ""

    return wait_until(found, 20, f"{wanted} on {path}")


def figure(page: str, label: str) -> str:
    """The value of a figure of a pipeline's page."""
    return page.partition(f"<dt>{label}</dt><dd>")[2].partition("</span>")[0].rpartition(">")[2]


def test_a_table_that_a_pipeline_really_wrote(lake: Lake) -> None:
    """One process runs the pipeline and knows all; another one, which came later, knows what is in the table."""
    spec = lake.pipeline({"connector": "generator", "rows": 200}, batch_size=100, flush_interval_secs=1)
    live = Live([spec])
    run(spec, once=True, listeners=[live])
    shown = {"p": Watched("p", "frazil.yaml", spec, Settings())}
    snapshots = [str(row.snapshot_id) for row in lake.data_snapshots()]
    with served(shown, live) as pages:
        running = text_of(pages, "/pipelines/p", *snapshots, "read amplification")
    with served(shown) as pages:
        alone = text_of(pages, "/pipelines/p", *snapshots, "read amplification")
        assert "committing" in text_of(pages, "/", "db.t")
    assert (figure(running, "Rows in the table"), figure(alone, "Rows in the table")) == ("200", "200")
    assert (figure(running, "Fenced"), figure(alone, "Fenced")) == ("0", "not known")
    assert figure(running, "Time of a commit").endswith("s")
    assert figure(alone, "Time of a commit") == "not known"
    assert "finished" in running
    assert "connector: generator" in alone, "the configuration"


def test_a_table_that_cannot_be_read_says_why_and_keeps_no_other_from_being_seen(tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders", "gone": "gone"}, more=FAR.format(port=free_port()))
    fill(table(tmp_path, "orders"), "orders/orders", [Batch(10), Batch(20)])
    with served(found) as pages:
        overview = text_of(pages, "/", "Failed to connect to catalog", "committing", "no table")
        assert "1 need attention" in overview.replace("<b>", "").replace("</b>", "")
        page = text_of(pages, "/pipelines/far", "Failed to connect to catalog", "<code>connection-refused</code>")
        assert "not known" in page
        assert figure(text_of(pages, "/pipelines/orders", "committing"), "Rows in the table") == "30"
        assert "There is no table yet." in text_of(pages, "/pipelines/gone", "no table")


def test_history_is_there_after_a_restart(tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders"})
    fill(table(tmp_path, "orders"), "orders/orders", [Batch(10), Batch(20), Batch(30, letters=4)])
    pictures = []
    for _ in range(2):
        with served(found) as pages:
            page = text_of(pages, "/pipelines/orders", "Rows per second")
            pictures.append(page.partition('data-points="')[2].partition('"')[0])
    assert pictures[0] == pictures[1] != ""
    assert "3 commits that the snapshots still tell" in page
    assert figure(page, "Dead letters") == "4"


def test_dead_letters_are_shown_with_their_reasons(tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders"})
    fill(table(tmp_path, "orders"), "orders/orders", [Batch(10, letters=3)])
    reasons = [("json-type", "price is no number", b'{"price": "cheap"}')] * 2 + [("json-malformed", "it ends early", b"\xff{")]
    letters(tmp_path, "orders", "orders/orders", reasons)
    with served(found) as pages:
        page = text_of(pages, "/pipelines/orders", "json-malformed")
    assert "<code>json-type</code> 2 of the newest 3" in page
    assert "{&#34;price&#34;: &#34;cheap&#34;}" in page
    assert "frazil replay frazil.yaml orders" in page


def test_letters_of_another_pipeline_are_its_own(tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders"})
    fill(table(tmp_path, "orders"), "orders/orders", [Batch(10)])
    letters(tmp_path, "orders", "another/sink", [("json-type", "price is no number", b"{}")])
    with served(found) as pages:
        assert "json-type" not in text_of(pages, "/pipelines/orders", "There are none of this pipeline.")


def test_a_new_commit_is_seen_within_seconds(tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders"})
    into = table(tmp_path, "orders")
    fill(into, "orders/orders", [Batch(10)])
    with served(found) as pages:
        assert figure(text_of(pages, "/pipelines/orders", "committing"), "Rows in the table") == "10"
        fill(into, "orders/orders", [Batch(32)])
        wait_until(lambda: figure(pages.get("/pipelines/orders").text, "Rows in the table") == "42", 20, "the new rows")


def test_to_look_changes_nothing_and_leaves_no_connection(tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders"})
    fill(table(tmp_path, "orders"), "orders/orders", [Batch(10)])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with served(found) as pages:
        text_of(pages, "/", "committing")
        text_of(pages, "/pipelines/orders", "read amplification")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    sqlite_catalog(tmp_path).drop_table("shop.orders")


def test_a_catalog_that_is_made_only_later(tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders"})
    with served(found) as pages:
        text_of(pages, "/", "no table")
        fill(table(tmp_path, "orders"), "orders/orders", [Batch(10)])
        text_of(pages, "/", "committing")


def test_pages_that_there_are_not() -> None:
    with served() as pages:
        assert "There are no pipelines to show." in pages.get().text
        missing = pages.get("/pipelines/nobody")
        assert (missing.status, "There is no pipeline nobody here." in missing.text) == (404, True)
        assert pages.get("/nothing").status == 404


@pytest.mark.parametrize(("query", "shown"), [("?q=ord", ["orders"]), ("?state=off", ["clicks", "orders"]), ("?q=zzz", [])])
def test_the_list_can_be_searched_without_scripts(tmp_path: Path, query: str, shown: list[str]) -> None:
    with served(pipelines(tmp_path, {"orders": "orders", "clicks": "clicks"})) as pages:
        text_of(pages, "/", "no table")
        page = pages.get(f"/{query}").text
    assert [name for name in ("clicks", "orders") if f'href="/pipelines/{name}"' in page] == shown
    assert ("No pipeline matches." in page) is (shown == [])
