"""Hooks of MkDocs for the site of the documentation (mkdocs.yml); ``make docs`` builds it.

- The navigation is what ``docs/index.md`` lists: a section for each heading, in the same order.
- Pages outside of ``docs/`` (the README, the changelog, ...) and the files of ``examples/`` become pages of the site. Links are
  written as paths in the repository, and changed here to what the same page is called on the site.
- Diagrams are drawn by mermaid's own script, which comes out of a package: the theme would load it from the network.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = "examples.md"
MERMAID = "assets/javascripts/mermaid.js"

# Files of the repository outside of docs/, and what they are called on the site.
OUTSIDE = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "license.txt",
}
# Pages with a line on everything: what is searched for is explained elsewhere.
SEARCHED_LAST = ("changelog.md", "contributing.md", "decisions/", "errors.md")
_INSIDE = {name: path for path, name in OUTSIDE.items()}
_HEADING = re.compile(r"## (.+)")
_ENTRY = re.compile(r"- \[(.+?)\]\((.+?)\)")
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Takes the navigation from docs/index.md."""
    config.nav = [{"Home": "index.md"}, *navigation()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is not under docs/."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text()))
    files.append(File.generated(config, EXAMPLES, content=examples()))
    script = distribution("mermaidx").locate_file("mermaidx/assets/mermaid.js")
    files.append(File.generated(config, MERMAID, abs_src_path=str(script)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Changes the links of a page to the names that pages have on the site, and says which pages a search shows last."""
    if page.file.src_uri.startswith(SEARCHED_LAST):
        page.meta["search"] = {"boost": 0.1}
    return links_of_the_site(markdown, page.file.src_uri)


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """Adds mermaid's script to pages that have a diagram."""
    if 'class="mermaid"' not in html:
        return html
    return f'{html}\n<script src="{get_relative_url(MERMAID, page.url)}"></script>'


def navigation(index: Path = DOCS / "index.md") -> list[dict[str, list[Any]]]:
    """A section for each heading of docs/index.md, with the pages that its list names."""
    sections: list[dict[str, list[Any]]] = []
    pages: list[Any] = []
    for line in index.read_text().splitlines():
        if heading := _HEADING.fullmatch(line):
            pages = []
            sections.append({heading[1]: pages})
        elif entry := _ENTRY.match(line):
            title, page = entry[1], name_on_site(posixpath.normpath(f"docs/{entry[2]}"))
            pages.append({title: [page, *_decisions()] if page.startswith("decisions/") else page})
    return sections


def _decisions() -> list[str]:
    return [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("[0-9]*.md"))]


def examples() -> str:
    """A page with the files of examples/."""
    parts = ["# Examples\n\nFiles to start from, as they are in the folder `examples`.\n"]
    for path in _example_files():
        language = {".py": "python", ".yaml": "yaml"}[path.suffix]
        parts.append(f"\n## {_title(path)}\n\n```{language}\n{path.read_text().rstrip()}\n```\n")
    return "".join(parts)


def _example_files() -> Iterator[Path]:
    return (path for path in sorted((ROOT / "examples").rglob("*")) if path.suffix in (".py", ".yaml"))


def _title(path: Path) -> str:
    return path.relative_to(ROOT / "examples").as_posix()


def links_of_the_site(markdown: str, page: str) -> str:
    """A page's text, with its links changed from paths in the repository to those of the site."""
    folder = posixpath.dirname(_INSIDE.get(page, f"docs/{page}"))

    def changed(link: re.Match[str]) -> str:
        target = name_on_site(posixpath.normpath(posixpath.join(folder, link[1])))
        return posixpath.relpath(target, posixpath.dirname(page) or ".") + (link[2] or "")

    return _LINK.sub(changed, markdown)


def name_on_site(path: str) -> str:
    """What a file or folder of the repository is called on the site."""
    if path == "examples" or path.startswith("examples/"):
        anchor = re.sub(r"[^\w-]", "", path.removeprefix("examples").removeprefix("/").lower())
        return f"{EXAMPLES}#{anchor}" if (ROOT / path).is_file() else EXAMPLES
    if path == "docs/decisions":
        return "decisions/README.md"
    return OUTSIDE.get(path) or path.removeprefix("docs/")
