"""Whether a REST catalog compares and swaps: it gets a commit that cannot be right, and must refuse it.

The commit requires that the table's branch is at a snapshot where it is not. That is how every writer finds out that another
one was faster, so that a catalog which does not look loses commits. It is sent for a table that is there:

- A right catalog looks at what is required first, answers 409, and nothing has changed. Nothing is made for the check either,
  and there is nothing to drop again if the check is cut off.
- A wrong one accepts it. Even then the table's content is as before: the commit takes away a property that the table does not
  have.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from frazil.errors import DataError
from frazil.model import connections
from frazil.model.connections import Place
from frazil.model.sink import SinkSpec
from frazil.observe.faults import translated, unreachable
from frazil.observe.greeting import first_line
from frazil.observe.lake import head_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

_PROPERTY = "frazil.check"


def probe_stale_commit(sink: SinkSpec, table: Table) -> str:
    """Sends a stale commit to the sink's table, and says how it was refused. Raises when it was not, or may not be sent."""
    from pyiceberg import exceptions as iceberg
    from pyiceberg.table.update import AssertRefSnapshotId, RemovePropertiesUpdate

    head = head_of(table, sink.written_branch)
    another = _another(None if head is None else head.snapshot_id)
    required = {"type": "assert-ref-snapshot-id", "ref": sink.written_branch, "snapshot-id": another}
    elsewhere = AssertRefSnapshotId.model_validate(required)
    harmless = RemovePropertiesUpdate(removals=[f"{_PROPERTY}.{uuid.uuid4()}"])
    with translated(sink.catalog):
        try:
            table.catalog.commit_table(table, (elsewhere,), (harmless,))
        except iceberg.CommitFailedException:
            return f"the catalog refuses a stale commit to {sink.full_name}"
        except iceberg.ForbiddenError as error:
            raise DataError(
                "no-permission",
                f"{Place.catalog(sink.catalog.address).failed}: this user may read {sink.full_name} and not commit to it "
                f"({first_line(error)})",
                fix="Grant the right to write to the table in the catalog.",
            ) from error
        except iceberg.CommitStateUnknownException as error:
            raise unreachable(sink.catalog, first_line(error)) from error
        except (iceberg.BadRequestError, NotImplementedError) as error:
            return (
                f"the catalog refuses a stale commit to {sink.full_name}, and does not say that it is stale: {first_line(error)}"
            )
    raise connections.no_compare_and_swap(Place.catalog(sink.catalog.address), sink.full_name)


def _another(snapshot: int | None) -> int:
    """The id of a snapshot that the branch is not at."""
    return 1 if snapshot != 1 else 2
