"""The jobs of a load: one for each file, which has nothing to do, and one for each chain of tables, which commits them.

The commit finds its files in the load package on disk, in the folder of completed jobs, so that a load that was cut off anywhere
finds all of them again. There is one commit job for a chain, not one for each table: it is made in one step, or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from dlt.common.destination.client import HasFollowupJobs, RunnableLoadJob
from dlt.common.destination.exceptions import DestinationTransientException
from dlt.common.storages.load_package import PackageStorage, ParsedLoadJobFileName

from frazil.doors.dlt.hints import name_of

PARQUET = "parquet"


class Committer(Protocol):
    """What a commit job needs of the client of its load."""

    def chain_of(self, table_name: str) -> list[Any]:
        """A root table and all that are nested in it."""

    def commit(self, load_id: str, chain: list[Any], files: dict[str, list[Path]]) -> None:
        """Commits the files of a chain, each table in one snapshot."""


class FileJob(RunnableLoadJob, HasFollowupJobs):
    """A file of a table. It is loaded by the commit of its chain."""

    def run(self) -> None:
        """Nothing: a file that is there is all that the commit needs."""


class CommitJob(RunnableLoadJob):
    """Commits all tables of a chain, each in one snapshot."""

    def run(self) -> None:
        """Commits what the package holds for the chain."""
        client: Committer = self._job_client  # type: ignore[assignment]
        package = Path(self._file_path).parents[1]
        chain = client.chain_of(name_of(self._load_table))
        client.commit(self._load_id, chain, completed_files(package, [name_of(table) for table in chain]))


def completed_files(package: Path, tables: list[str]) -> dict[str, list[Path]]:
    """The files of each table in a load package. All of them must have been completed before."""
    found: dict[str, list[Path]] = {name: [] for name in tables}
    for state in (PackageStorage.NEW_JOBS_FOLDER, PackageStorage.STARTED_JOBS_FOLDER, PackageStorage.COMPLETED_JOBS_FOLDER):
        for path in sorted((package / state).glob(f"*.{PARQUET}")):
            table = ParsedLoadJobFileName.parse(path.name).table_name
            if table not in found:
                continue
            if state != PackageStorage.COMPLETED_JOBS_FOLDER:
                raise DestinationTransientException(f"The file {path.name} of the table {table!r} is still on its way.")
            found[table].append(path)
    return found
