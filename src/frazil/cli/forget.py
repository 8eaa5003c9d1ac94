"""`frazil forget`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.call import Call
from frazil.cli.output import error_document, facts
from frazil.cli.places import targets
from frazil.errors import ConfigError, EnvironmentFault, FrazilError, UsageError
from frazil.model.words import iso, several
from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.model.events import Event
    from frazil.model.forget import Extent, Proof


def forget(
    call: Call,
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE.TABLE|PIPELINE", help="The table, or the pipeline that writes to it.", show_default=False
        ),
    ],
    *,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="The rows for which this condition holds.", show_default=False)
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The rows with these values: CSV, JSON lines or Parquet, with columns of the table.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show where such rows are.")] = False,
    proof: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the proof is written; a new file in this folder when left out.", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without a question.")] = False,
    orphan_age_hours: Annotated[
        int, typer.Option(min=24, help="How old a file must be that no metadata names before it is deleted.")
    ] = 72,
) -> None:
    """Erase rows for good: from the table, its history and its folder, also while a pipeline writes; and prove it."""
    if (where is None) == (keys is None):
        raise UsageError(
            "usage", "Say which rows: with one of --where and --keys.", fix='frazil forget shop.orders --where "id = 7"'
        )
    if where is not None and not where.strip():
        raise UsageError("usage", "--where is empty.", fix="To empty a table, use frazil reset, or --where true.")
    asks = not (yes or dry_run)
    if asks and (call.output.json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        raise UsageError(
            "confirmation-missing", "What is erased is gone, and nobody can be asked here.", fix="Add --yes, or --dry-run."
        )
    file = proof or Path(f"forgotten-{target}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json")
    project = call.project()
    (asked,) = targets(project, target)
    if asked.places[0].route is not None:
        tables = "its tables by their names, one after the other"
        raise UsageError("several-tables", f"{target} writes to several tables.", fix=f"Name {tables}: NAMESPACE.TABLE.")
    from frazil.runtime.forget import Order
    from frazil.runtime.forget import forget as erase

    def agree(name: str, found: Extent) -> bool:
        if not asks:
            return True
        _show(call, name, found)
        return typer.confirm("Erase them? Readers of older snapshots lose their files at once", err=True)

    with nullcontext() if dry_run else _made_before(file):
        done = erase(
            asked.places,
            project.settings,
            Order(where, keys, orphan_age_hours),
            agree=None if dry_run else agree,
            listen=lambda event: _say(call, event),
            say=lambda text: call.output.say(text, "dim"),
        )
        document = None if done.proof is None else done.proof.to_json(__version__)
        lost = None if document is None else _written(file, document)
    answer = {"table": done.table, "dry_run": dry_run, "found": asdict(done.found), "proof_file": None, "proof": None}
    if done.proof is None:
        if call.output.json:
            call.output.document(answer)
        elif dry_run:
            _show(call, done.table, done.found)
        else:
            call.output.say("Nothing was changed.")
        return
    if call.output.json:
        wrong = {} if lost is None else error_document(lost)
        call.output.document(wrong | answer | {"proof_file": None if lost else str(file), "proof": document})
    elif lost is None:
        _show_proof(call, done.proof, file)
    else:
        call.output.document(document)
        raise lost
    if lost is not None or not done.proof.proven:
        raise typer.Exit(1)


@contextmanager
def _made_before(file: Path) -> Iterator[None]:
    """Makes the file before anything is erased: what cannot be done again must not be left without its proof.

    One that is empty at the end is deleted, unless it was there before.
    """
    try:
        is_new = not file.exists()
        file.open("a").close()
    except OSError as error:
        raise ConfigError(
            "proof-not-writable",
            f"A proof cannot be written to {file}: {error.strerror}. Nothing was erased.",
            fix="Name a file that this user may write, in a folder that is there.",
        ) from error
    try:
        yield
    finally:
        if is_new and file.stat().st_size == 0:
            file.unlink()


def _written(file: Path, proof: dict[str, Any]) -> FrazilError | None:
    """Writes the proof. If that fails after all, as on a full disk, the error is returned: the proof has to be printed then."""
    try:
        file.write_text(json.dumps(proof, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        return EnvironmentFault(
            "proof-not-written",
            f"The rows are erased, but the proof could not be written to {file}: {error.strerror}. It was printed instead.",
            fix="Keep what was printed on stdout.",
        )
    return None


def _say(call: Call, event: Event) -> None:
    from frazil.model.events import CommitFailed

    if isinstance(event, CommitFailed):
        call.output.say(f"{event.pipeline}: {event.message}", "dim")


def _show(call: Call, name: str, found: Extent) -> None:
    files = f"{found.copies:,} times in {several(found.files, 'file')}, deleted ones included"
    pairs = [
        ("table", name),
        ("rows that match", f"{found.rows:,}"),
        ("physically", files),
        ("in snapshots", f"{found.snapshots:,}"),
        ("in orphan files", f"{found.orphans:,}" if found.orphans else None),
        ("equality deletes", f"{several(found.undecided_files, 'file')} would be settled" if found.undecided_files else None),
        ("history", f"{several(found.history, 'snapshot')} would expire" if found.history else None),
    ]
    call.output.show(facts(pairs))


def _show_proof(call: Call, proof: Proof, file: Path) -> None:
    pairs = [
        ("table", proof.table),
        ("rows deleted", f"{proof.rows_deleted:,}"),
        ("files deleted", f"{len(proof.deleted):,}"),
        ("files looked at", f"{len(proof.scanned):,} with {sum(one.rows for one in proof.scanned):,} rows: none matches"),
        ("left", f"{several(len(proof.left), 'file')} of which it is not proven" if proof.left else None),
        ("proof", str(file)),
    ]
    call.output.show(facts(pairs))
    for one in proof.left:
        when = "" if one.again_ms is None else f"; run the command again after {iso(one.again_ms)}"
        call.output.say(f"{one.path}: {one.why}{when}", "yellow")
    for text in proof.not_covered:
        call.output.say(f"not covered: {text}", "dim")
