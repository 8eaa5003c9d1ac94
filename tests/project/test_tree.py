"""What every file of the tree must keep: no address of a registry, no path of one machine, no link that leads nowhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

from frazil.version import __version__

ROOT = Path(__file__).parents[2]

# Put together here, so that this file does not hold what it forbids.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("sonatype", "org"),
        ("sonatype", "com"),
        ("npmjs", "org"),
        ("anaconda", "org"),
        ("golang", "org"),
        ("crates", "io"),
    )
]
MACHINE_PATHS = ["/" + folder + "/" for folder in ("work", "root")]
FORBIDDEN = re.compile(
    "|".join([*(re.escape(host) for host in REGISTRIES), *(r"(?<![\w.})\]])" + re.escape(path) for path in MACHINE_PATHS)])
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)]*)?\)")


def tree() -> list[Path]:
    """The files that are tracked, or would be by the next ``git add``."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_machine_s_own_path() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tree()
        for match in FORBIDDEN.finditer(path.read_bytes().decode(errors="replace"))
    ]
    assert found == []


def test_the_search_finds_what_it_is_for() -> None:
    found = [
        f"see https://{REGISTRIES[0]}/x",
        f"url: files.{REGISTRIES[1]}",
        f"cd {MACHINE_PATHS[0]}main",
        f'"{MACHINE_PATHS[1]}x"',
    ]
    assert all(FORBIDDEN.search(text) for text in found)
    assert not FORBIDDEN.search(f"spark{MACHINE_PATHS[0]}app-1 and {{home}}{MACHINE_PATHS[1]}x")


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {link}"
        for path in tree()
        if path.suffix == ".md"
        for link in LINK.findall(path.read_text())
        if "://" not in link and not link.startswith("mailto:") and not (path.parent / unquote(link)).exists()
    ]
    assert broken == []


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*-*.md"))
    assert names
    assert [int(name.split("-")[0]) for name in names] == list(range(1, len(names) + 1))


def test_the_changelog_knows_this_version() -> None:
    assert re.search(
        rf"^## \[{re.escape(__version__)}\] - (unreleased|\d{{4}}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_the_licence_is_the_apache_licence_itself() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:6] == ["Apache", "License", "Version", "2.0,", "January", "2004"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert "Copyright [yyyy] [name of copyright owner]" in text


def test_the_lock_has_a_digest_for_every_package_and_no_address() -> None:
    for name in ("requirements.lock", "scripts/uv.txt"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        entries = re.split(r"^(?=\S)", re.sub(r"^ +#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
        assert entries
        assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
