"""The pages in a real browser: what they look like, and that they work by keyboard, on a phone, and without anybody's help.

Pictures are kept where ``FRAZIL_UI_PICTURES`` names a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from frazil.model.commit import RowCounts
from frazil.model.events import CommitFailed, Committed, FencedOut, Lagged, Maintained, Started, Stopped, Waiting
from frazil.ui.live import Live
from services.chromium import Browser
from services.processes import free_port
from ui.scenes import Batch, Made, Pages, commit, fill, letters, pipelines, served, table

pytestmark = pytest.mark.slow(seconds=20)

DESKTOP, PHONE = (1280, 900), (360, 740)
TAB, ENTER = "\ue004", "\ue007"
SHOP = {"orders": "orders", "clicks": "clicks", "payments": "payments", "stock": "stock"}
REASONS = [
    ("json-type", "column price is decimal(10, 2), and the record has \"cheap\"", b'{"id": 81723, "price": "cheap"}'),
    ("json-malformed", "the message is no JSON: it ends after 31 characters", b'{"id": 81724, "price": 12.5, "c'),
    ("value-not-convertible", "column sent_at is timestamptz, and the value yesterday cannot be converted", b'{"id": 81725}'),
] * 3  # fmt: skip
FAR = """\
  invoices:
    connector: iceberg
    config:
      catalog: {{type: rest, name: far, rest: {{uri: "http://127.0.0.1:{port}"}}}}
      namespace: shop
      table: invoices
"""


# Texts whose contrast with what is behind them is below what WCAG AA asks for.
TOO_FAINT = """
const parts = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const colour = parts(getComputedStyle(one).backgroundColor);
    if (colour.length < 4 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const one = walk.currentNode.parentElement, style = getComputedStyle(one);
  if (!walk.currentNode.data.trim() || !one.checkVisibility({visibilityProperty: true})) continue;
  const [a, b] = [light(parts(style.color)), light(behind(one))].sort((x, y) => y - x);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
  if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) found.push(walk.currentNode.data.trim() + " " + style.color);
}
return found;
"""


def wave(count: int, rows: int) -> list[Batch]:
    """Batches that are now larger and now smaller, a few with dead letters."""
    return [Batch(rows + rows * (number * number * 7 % 31) // 40, letters=3 * (number % 13 == 5)) for number in range(count)]


def committed(name: str, snapshots: list[int], first: int, rows: int) -> Iterator[Committed]:
    for number, snapshot in enumerate(snapshots, first):
        counts, seconds = RowCounts(rows, rows), 0.32 + number * number * 11 % 17 * 0.05
        yield Committed(name, f"shop.{name}", number, snapshot, counts, 4, rows * 62, seconds, 1, 1)


@contextmanager
def empty(folder: Path) -> Iterator[Pages]:
    with served(pipelines(folder, {})) as pages:
        yield pages


@contextmanager
def busy(folder: Path) -> Iterator[Pages]:
    """A process that runs four pipelines."""
    found = pipelines(folder, SHOP)
    live = Live(one.spec for one in found.values())
    for number, name in enumerate(found):
        into = table(folder, name)
        fill(into, f"{name}/{name}", wave(40 if name == "orders" else 8, 400 + 300 * number), ago=number + 2)
        ids = [
            one.snapshot_id for one in into.refresh().metadata.snapshots if one.summary and one.summary["frazil.kind"] == "data"
        ]
        live(Started(name, f"shop.{name}", 1, None, continuous=True))
        for event in committed(name, ids, 1, 400):
            live(event)
        live(Maintained(name, f"shop.{name}", "merge_files", 16, 1_000_000, 1.4))
        live(Lagged(name, rows=(0, 128, 2_410, 17)[number]))
    letters(folder, "orders", "orders/orders", REASONS)
    with served(found, live) as pages:
        yield pages


@contextmanager
def failing(folder: Path) -> Iterator[Pages]:
    """A process whose catalog is away for one pipeline, and refuses another."""
    found = pipelines(folder, {"orders": "orders", "clicks": "clicks"}, more=FAR.format(port=free_port()))
    fill(table(folder, "orders"), "orders/orders", wave(12, 500), ago=40)
    fill(table(folder, "clicks"), "clicks/clicks", wave(12, 500), ago=3)
    live = Live(one.spec for one in found.values())
    for name in found:
        live(Started(name, f"shop.{name}", 2, None, continuous=True))
    for attempt in range(1, 4):
        live(CommitFailed("orders", "unreachable", "the catalog did not answer within 10 seconds", attempt, will_retry=True))
    live(Stopped("invoices", 0, 0, "Failed to connect to catalog at http://127.0.0.1: connection refused"))
    live(Waiting("clicks", 25))
    with served(found, live) as pages:
        yield pages


@contextmanager
def fenced(folder: Path) -> Iterator[Pages]:
    """A process that another instance has taken the sink from."""
    found = pipelines(folder, {"orders": "orders"})
    into = table(folder, "orders")
    first = [Made("orders/orders", number, 170 - number * 10, batch) for number, batch in enumerate(wave(10, 500), 1)]
    second = [Made("orders/orders", number, 145 - number * 10, Batch(400), 2, "9c1f2a77") for number in range(11, 15)]
    claims = Made("orders/orders", 0, 175), Made("orders/orders", 10, 45, None, 2, "9c1f2a77")
    commit(into, claims[0], *first, claims[1], *second)
    live = Live(one.spec for one in found.values())
    live(Started("orders", "shop.orders", 1, None, continuous=True))
    words = "Another instance (9c1f2a77, epoch 2) owns the sink orders/orders since 2026-11-15T10:00:00Z; this one had epoch 1."
    live(FencedOut("orders", words))
    live(Stopped("orders", 10, 5000, words))
    with served(found, live) as pages:
        yield pages


@contextmanager
def hundred(folder: Path) -> Iterator[Pages]:
    """The tables of a hundred pipelines, of which nobody here runs one: some committed lately, some long ago, some never."""
    names = {f"{region}-{what}": f"t{number % 4}" for number, (region, what) in enumerate(
        (region, what) for region in ("berlin", "lagos", "lima", "oslo", "osaka", "perth", "quito", "sofia", "tunis", "turin")
        for what in ("clicks", "invoices", "orders", "parcels", "payments", "prices", "returns", "stock", "users", "visits")
    )}  # fmt: skip
    found = pipelines(folder, names)
    for number in range(4):
        of_table = list(names)[number::4]
        made = [
            Made(f"{name}/{name}", 1, 5.0 if place % 7 else 90_000.0, Batch(10 + place))
            for place, name in enumerate(of_table)
            if place % 10
        ]
        commit(table(folder, f"t{number}"), *sorted(made, key=lambda one: -one.ago))
    with served(found) as pages:
        yield pages


SCENES: Mapping[str, tuple[Callable[[Path], object], str, str]] = {
    "empty": (empty, "/", "There are no pipelines to show."),
    "busy": (busy, "/", "4 working"),
    "busy-pipeline": (busy, "/pipelines/orders", "json-malformed"),
    "failing": (failing, "/", "the catalog did not answer within 10 seconds"),
    "failing-pipeline": (failing, "/pipelines/invoices", "Failed to connect to catalog"),
    "fenced": (fenced, "/pipelines/orders", "owns the sink"),
    "hundred": (hundred, "/", "100 pipelines"),
}


@contextmanager
def scene(name: str, folder: Path) -> Iterator[tuple[Pages, str]]:
    made, path, _ = SCENES[name]
    with made(folder) as pages:  # type: ignore[attr-defined]
        yield pages, f"http://127.0.0.1:{pages.port}{path}"


def keep(browser: Browser, name: str, scratch: Path) -> None:
    """Takes a picture, into the folder that the environment names."""
    folder = Path(os.environ.get("FRAZIL_UI_PICTURES") or scratch)
    folder.mkdir(parents=True, exist_ok=True)
    browser.picture(folder / f"{name}.png")
    assert (folder / f"{name}.png").stat().st_size > 5_000


@pytest.mark.parametrize("name", SCENES)
def test_each_state_can_be_read_in_both_themes_on_a_desk_and_on_a_phone(browser: Browser, tmp_path: Path, name: str) -> None:
    with scene(name, tmp_path) as (pages, url):
        browser.console(), browser.requests()
        for size, (width, height) in {"desk": DESKTOP, "phone": PHONE}.items():
            browser.shape(width, height, phone=size == "phone")
            for theme in ("light", "dark"):
                browser.prefer(theme)
                browser.open(url)
                browser.wait("document.getElementById('live')?.dataset.pending !== 'true'", "all tables")
                assert SCENES[name][2] in browser.text("main")
                assert browser.js("return document.documentElement.scrollWidth") <= width, "nobody scrolls sideways"
                keep(browser, f"{name}-{size}-{theme}", tmp_path)
                assert browser.js(TOO_FAINT) == []
                # A page that is left while it asks for a newer one complains.
                browser.js("document.getElementById('pause')?.click()")
                browser.wait("!document.querySelector('.htmx-request')", "the end of requests")
        assert browser.console() == []
        asked = [address for address in browser.requests() if not address.startswith("data:")]
        assert len(asked) > 8
        assert [address for address in asked if not address.startswith(f"http://127.0.0.1:{pages.port}/")] == []


def test_it_works_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    with scene("busy", tmp_path) as (_, url):
        browser.shape(*DESKTOP)
        browser.open(url)
        browser.keys(TAB)
        assert browser.js("return document.activeElement.textContent") == "Skip to content"
        browser.keys(ENTER)
        browser.wait("location.hash === '#main'", "the jump to the content")
        browser.js("document.getElementById('q').focus()")
        browser.keys("ord")
        browser.wait("document.querySelectorAll('.pipelines a').length === 1", "the list of what was found")
        assert browser.js("return document.activeElement.id") == "q"
        assert browser.js("return location.search") == "?q=ord"
        browser.js("document.querySelector('.pipelines a').focus()")
        assert browser.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        browser.keys(ENTER)
        browser.wait("document.querySelector('h1')?.textContent === 'orders'", "the page of the pipeline")
        names = browser.js(
            "return [...document.querySelectorAll('a, button, summary, input, [role=region], [role=img]')]"
            ".filter(e => !(e.ariaLabel || e.textContent.trim() || e.getAttribute('aria-labelledby') || e.labels?.length))"
            ".map(e => e.outerHTML)"
        )
        assert names == [], "everything that takes the focus has a name"


def test_the_theme_is_the_machine_s_until_somebody_chooses_another(browser: Browser, tmp_path: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    with scene("empty", tmp_path) as (_, url):
        browser.shape(*DESKTOP)
        shades = {}
        for theme in ("light", "dark"):
            browser.prefer(theme)
            browser.open(url)
            shades[theme] = browser.js(f"return {colour}")
        assert shades["light"] != shades["dark"]
        browser.click("#theme")
        assert browser.text("#theme") == "Theme: light"
        assert browser.js(f"return {colour}") == shades["light"]
        browser.open(url)
        assert browser.js(f"return {colour}") == shades["light"], "the choice is kept"
        browser.click("#theme")
        browser.click("#theme")
        assert browser.text("#theme") == "Theme: system"
        assert browser.js(f"return {colour}") == shades["dark"]


def test_charts_are_drawn_and_say_what_is_under_the_pointer(browser: Browser, tmp_path: Path) -> None:
    with scene("busy-pipeline", tmp_path) as (_, url):
        browser.shape(*DESKTOP)
        browser.open(url)
        browser.wait("document.querySelectorAll('.plot canvas').length === 3", "three charts")
        lately = browser.text("figcaption output")
        assert lately.endswith(" rows/s")
        painted = "[...document.querySelector('.plot canvas').getContext('2d').getImageData(0, 0, 400, 100).data].some(v => v)"
        assert browser.js(f"return {painted}")
        browser.js(
            "const over = document.querySelector('.plot .u-over'), box = over.getBoundingClientRect();"
            "over.dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + 5, clientY: box.top + 20, bubbles: true}))"
        )
        browser.wait(f"document.querySelector('figcaption output').textContent !== {lately!r}", "the value under the pointer")


def test_a_page_follows_what_happens_and_moves_nothing_that_somebody_uses(browser: Browser, tmp_path: Path) -> None:
    found = pipelines(tmp_path, {"orders": "orders"})
    into = table(tmp_path, "orders")
    fill(into, "orders/orders", wave(3, 500))
    letters(tmp_path, "orders", "orders/orders", REASONS)
    live = Live(one.spec for one in found.values())
    with served(found, live) as pages:
        browser.shape(*DESKTOP)
        browser.open(f"{pages.url}pipelines/orders")
        browser.click("#letter-1 summary")
        browser.js("document.querySelector('#configuration summary').focus()")
        live(Started("orders", "shop.orders", 1, None, continuous=True))
        browser.wait("document.querySelector('.state').textContent === 'running'", "the new state")
        assert browser.js("return document.getElementById('letter-1').open"), "what was opened stays open"
        assert "updated" in browser.text("footer")
        browser.click("#pause")
        assert browser.js("return document.getElementById('pause').getAttribute('aria-pressed')") == "true"
        live(FencedOut("orders", "another took over"))
        browser.click("#pause")
        browser.wait("document.querySelector('.state').textContent === 'fenced'", "the state after the pause")
    browser.wait("!document.getElementById('away').hidden", "the word that nobody answers")
    assert "does not answer" in browser.text("#away")


def test_the_token_is_asked_for_once(browser: Browser, tmp_path: Path) -> None:
    token = "a-token-that-is-long-enough"
    with served(pipelines(tmp_path, {"orders": "orders"}), token=token) as pages:
        browser.shape(*PHONE, phone=True)
        browser.open(f"{pages.url}pipelines/orders")
        assert "This page needs a token" in browser.text("main")
        browser.js("document.getElementById('token').focus()")
        browser.keys(token + ENTER)
        browser.wait("document.querySelector('h1').textContent === 'orders'", "the page")
        assert token not in browser.js("return location.href")
        assert browser.js("return document.cookie") == "", "no script sees the cookie"
        browser.open(pages.url)
        assert "orders" in browser.text("main")
