"""Iceberg's Java library driven from Python: the only package that touches py4j.

Tables are loaded and made through the catalog that a Spark session knows (``lake``); executors write files with Iceberg's own
writers without committing them (*staging*, ``table``); what a commit changes is a value (``changes``); and snapshots are built
and swapped in one compare-and-swap each (``port``), without the retry of Iceberg's own commits, which rolls back or deletes
what it cannot know the outcome of.
"""

from frazil.iceberg.care import TableCare
from frazil.iceberg.changes import (
    Append,
    Base,
    Change,
    Delta,
    Fits,
    ManifestsWithoutRemoved,
    Operation,
    PositionDelta,
    Removal,
    Replace,
    Restage,
    RowChanges,
    RowsRemoved,
    StagedFiles,
    done_again,
    replaced_unseen,
)
from frazil.iceberg.compaction import SmallFiles
from frazil.iceberg.dead import DeadRows, DeletedKeys, Digest, scopes_of
from frazil.iceberg.debt import Deletes, FileFacts, LiveFile, Rewrite, bitmap_of
from frazil.iceberg.disposal import FilesToDelete, Lists
from frazil.iceberg.expiry import Expired
from frazil.iceberg.history import TAKEN_BACK_TO, Added
from frazil.iceberg.jvm import active, fault_of
from frazil.iceberg.key_index import IndexFailed, KeyIndex
from frazil.iceberg.lake import Lake
from frazil.iceberg.port import IcebergPort
from frazil.iceberg.table import IcebergTable
from frazil.iceberg.working_copy import WorkingCopy
from frazil.iceberg.zorder import ZOrder, require_z_order
from frazil.model.doomed import Doomed

__all__ = [
    "TAKEN_BACK_TO",
    "Added",
    "Append",
    "Base",
    "Change",
    "DeadRows",
    "DeletedKeys",
    "Deletes",
    "Delta",
    "Digest",
    "Doomed",
    "Expired",
    "FileFacts",
    "FilesToDelete",
    "Fits",
    "IcebergPort",
    "IcebergTable",
    "IndexFailed",
    "KeyIndex",
    "Lake",
    "Lists",
    "LiveFile",
    "ManifestsWithoutRemoved",
    "Operation",
    "PositionDelta",
    "Removal",
    "Replace",
    "Restage",
    "Rewrite",
    "RowChanges",
    "RowsRemoved",
    "SmallFiles",
    "StagedFiles",
    "TableCare",
    "WorkingCopy",
    "ZOrder",
    "active",
    "bitmap_of",
    "done_again",
    "fault_of",
    "replaced_unseen",
    "require_z_order",
    "scopes_of",
]
