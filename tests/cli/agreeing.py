"""Pipelines that `frazil check` and `frazil run` must say the same of: the same code and exit code, without secrets or traces."""

from __future__ import annotations

import re
from pathlib import Path

from cli.commands import Frazil, Outcome
from cli.expected import CANARY
from services.s3proxy import SECRET

ROWS = 10
PIPELINE = """\
version: "1.0"
sources:
  numbers: {{connector: generator, config: {{rows: {rows}, rows_per_second: 1000}}}}
sinks:
  lake:
    connector: iceberg
    config:
      catalog: {catalog}
      namespace: {namespace}
      table: events
{more}
pipelines:
  load: {{source: numbers, sink: lake}}
settings:
  retry: {{max_retries: 0, initial_backoff_ms: 1}}
  restart: {{max_restarts: 0}}
"""


def write(folder: Path, catalog: str, more: str = "", *, namespace: str = "shop") -> None:
    """A pipeline of a few rows with a catalog, as YAML in one line; ``more`` are lines of the sink."""
    (folder / "frazil.yaml").write_text(PIPELINE.format(rows=ROWS, catalog=catalog, more=more, namespace=namespace))


def write_in_store(folder: Path, location: str, store: str) -> None:
    """The same with a catalog that is a file, and tables at a location in a store."""
    write(
        folder,
        f"{{type: sql, sql: {{uri: 'sqlite:///{folder}/catalog.db', warehouse: '{location}/warehouse'}}}}",
        f"      {store}",
    )


def must_agree(frazil: Frazil, code: str, exit_code: int) -> None:
    """Both commands end so. Check comes first: it makes nothing."""
    checked = frazil("check", "--json")
    errors = [check["error"]["code"] for check in checked.json["checks"] if not check["ok"]]
    assert (errors, checked.code) == ([code], exit_code), checked.text
    ran = frazil("run", "--once")
    assert (codes_in(ran), ran.code) == ({code}, exit_code), ran.text
    for text in (CANARY, SECRET, "\tat ", "Traceback", "Caused by"):
        assert text not in checked.text
        assert text not in ran.text


def both_succeed(frazil: Frazil, *secrets: str) -> None:
    """Check finds nothing wrong, a run writes the rows, and a look at the table finds them. None of it shows the secrets."""
    said = [frazil("check", "--json"), frazil("run", "--once", "--json"), frazil("check", "--json")]
    for outcome in said:
        assert outcome.code == 0, outcome.text
        assert [secret for secret in secrets if secret in outcome.text] == []
    assert said[1].json["pipelines"][0]["rows"] == ROWS
    (table,) = (step["message"] for step in said[2].json["checks"] if step["step"] == "table")
    assert "snapshot" in table


def codes_in(ran: Outcome) -> set[str]:
    """The codes of the errors that a run has printed."""
    return set(re.findall(r"error \[([a-z0-9-]+)\]", ran.text))
