"""Pages of the documentation that must keep up with the code, and with each other."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from frazil import errors
from frazil.iceberg import staging_faults
from frazil.sources import unreadable

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

sys.path.insert(0, str(ROOT / "scripts"))
import docs_site  # noqa: E402 - a hook of MkDocs, and no package
import error_codes  # noqa: E402

WIDEST = 150
SENTENCES_OF_A_CELL = 2


def test_the_page_of_error_codes_is_that_of_the_code() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "error_codes.py", "--check"], check=False)
    assert done.returncode == 0, "write it anew: make docs"


def test_every_code_is_explained() -> None:
    sections = (DOCS / "errors.md").read_text().split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections if "\n- " not in section] == []


# Where codes are put together with their messages at run time, and which ones. Rows bring theirs with them.
MADE_ELSEWHERE = {
    "cli/check.checks": {"unknown-source", "unknown-sink"},
    "doors/bizon/catalog._catalog_problem": {"missing-key", "invalid-value"},
    "doors/yaml/translate._is_named": {"unknown-source", "unknown-sink"},
    "iceberg/staging_faults._raised": {*staging_faults._MARKS.values(), "required-null"},
    "model/arguments._errors_of": set[str](),
    "observe/check._check_names": {"namespace-required", "table-required"},
    "runtime/cases._outcome": set[str](),
    "sources/files._file_error": {unreadable.CODE},
    "write/router._refusal": set[str](),
}


def test_codes_that_are_made_at_run_time_are_on_the_page_of_codes() -> None:
    assert error_codes.made_elsewhere() == set(MADE_ELSEWHERE)
    assert set().union(*MADE_ELSEWHERE.values()) - {entry.code for entry in error_codes.entries()} == set()


def test_it_is_said_of_every_code_about_data_whether_a_record_can_cause_it() -> None:
    page = (DOCS / "dead-letters.md").read_text()
    said = page.partition("## One record does not stop a pipeline")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z0-9-]+(?:-\*)?)`", said)
    about_data = ("bad record", *(name for name, made in vars(errors).items() if is_about_data(made)))
    codes = {entry.code for entry in error_codes.entries() if entry.kind in about_data}
    unsaid = {code for code in codes if not any(fnmatchcase(code, name) for name in named)}
    assert unsaid == set()


def is_about_data(made: object) -> bool:
    return isinstance(made, type) and issubclass(made, errors.DataError | errors.Halted)


def test_the_index_lists_every_page_once_and_no_other() -> None:
    listed = list(pages_of(docs_site.navigation()))
    outside = {*docs_site.OUTSIDE.values(), docs_site.EXAMPLES} - {"license.txt"}
    assert sorted(listed) == sorted({page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"} | outside)


def test_the_decisions_are_listed() -> None:
    listed = re.findall(r"\((\d{4}-.*?\.md)\)", (DOCS / "decisions" / "README.md").read_text())
    assert listed == [page.name for page in sorted((DOCS / "decisions").glob("*-*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_reads_well(page: Path) -> None:
    """Lines that fit a screen, tables whose cells are short, and lists that are lists on the site, too."""
    lines = page.read_text().splitlines()
    assert [f"{at}: {line}" for at, line in enumerate(lines, 1) if len(line) > WIDEST] == []
    prose = list(prose_of(lines))
    crowded = [
        f"{at}: {cell}"
        for at, line in prose
        if line.startswith("|")
        for cell in re.split(r"(?<!\\)\|", line)
        if sentences(cell) > SENTENCES_OF_A_CELL
    ]
    assert crowded == []
    glued = [f"{at}: {line}" for (_, before), (at, line) in pairwise(prose) if starts_list(before, line)]
    assert glued == [], "a list begins after an empty line"


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("kafka.md", "[a](../README.md) [b](sources.md#kafka)", "[a](overview.md) [b](sources.md#kafka)"),
        ("kafka.md", "[a](decisions/) [b](../examples)", "[a](decisions/README.md) [b](examples.md)"),
        ("kafka.md", "[a](../examples/bizon/ice_charts.py)", "[a](examples.md#bizonice_chartspy)"),
        (
            "overview.md",
            "[a](docs/kafka.md) ![b](docs/img/c.svg) [d](CHANGELOG.md)",
            "[a](kafka.md) ![b](img/c.svg) [d](changelog.md)",
        ),
        ("decisions/README.md", "[a](0001-x.md) [b](../kafka.md) [c](#d)", "[a](0001-x.md) [b](../kafka.md) [c](#d)"),
        ("kafka.md", "[a](https://example.org/README.md)", "[a](https://example.org/README.md)"),
    ],
)
def test_links_are_those_of_the_repository_and_work_on_the_site(page: str, written: str, shown: str) -> None:
    assert docs_site.links_of_the_site(written, page) == shown


def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    """Broken links, links to missing headings, and pages outside of the navigation are warnings, which stop the build."""
    # Without --quiet, with which warnings stop nothing.
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", ROOT / "mkdocs.yml", "--site-dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "search" / "search_index.js").is_file()
    loaded = {
        address
        for page in tmp_path.rglob("*.html")
        for address in re.findall(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?([^\s\">]+)", page.read_text())
    }
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []
    assert 'src="assets/javascripts/mermaid.js"' in (tmp_path / "overview.html").read_text()


def pages_of(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for page in entry.values() if isinstance(entry, dict) else [entry]:
            yield from pages_of(page) if isinstance(page, list) else [page]


def prose_of(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines outside of blocks of code, with their numbers."""
    in_code = False
    for at, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield at, line


def sentences(cell: str) -> int:
    return len([part for part in re.split(r"[.!?](?:\s|$)", re.sub(r"`[^`]*`", "code", cell)) if part.strip()])


def starts_list(before: str, line: str) -> bool:
    item = re.compile(r"([-*+]|\d+\.) ")
    return bool(item.match(line)) and bool(before.strip()) and not item.match(before.lstrip()) and not before.startswith(" ")
