"""The health of a table in words, as `frazil inspect` and the web application show it."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.model.words import amplified, several, size
from frazil.observe.table_health import TableHealth


def health_rows(health: TableHealth) -> list[tuple[str, str]]:
    """What readers and writers of a table pay: what it is, and how it is."""
    removed = f"{health.equality_deletes:,} equality deletes and {health.position_deletes:,} deleted positions"
    least = "at least " if health.metadata_bytes_are_least else ""
    skew = f", {health.partition_skew:g} times the median" if health.partitions > 1 else ""
    dead = f", {health.mostly_deleted_files:,} large and mostly deleted" if health.mostly_deleted_files else ""
    return [
        ("data files", f"{health.data_files:,}, {health.small_files:,} of them small{dead}"),
        ("delete files", f"{health.delete_files:,} with {removed}" if health.delete_files else "none"),
        ("partitions", f"{health.partitions:,}; the largest has {health.largest_partition:.0%} of the bytes{skew}"),
        ("manifests", f"{health.manifests:,}, {size(health.manifest_bytes)}"),
        ("snapshots", f"{health.snapshots:,}"),
        ("files of expired snapshots", f"{health.files_to_delete:,}, {health.would_delete_files:,} of them due to be deleted"),
        ("all metadata", f"{least}{size(health.metadata_bytes)} in {several(health.metadata_files, 'file')}"),
        ("read amplification", amplified(health.read_amplification)),
        ("frazil maintain would", ", ".join(would(health)) or "do nothing"),
        ("not known here", "; ".join(health.not_known)),
    ]


def would(health: TableHealth) -> Iterator[str]:
    """What maintenance would do, and what readers gain."""
    if health.would_settle_deletes:
        yield f"settle {several(health.would_settle_deletes, 'equality delete')}"
    if health.would_merge_files:
        merge = f"merge {several(health.would_merge_files, 'file')} into {health.would_merge_into:,}"
        yield f"{merge}, rewriting {size(health.would_rewrite_bytes)}, for {amplified(health.read_amplification_after)}"
    if health.would_rewrite_manifests:
        opened = f"{health.manifests_opened_after:g} of them instead of {health.manifests_opened:g}"
        yield f"rewrite {several(health.would_rewrite_manifests, 'manifest')}, so that a scan of one partition opens {opened}"
    if health.would_write_statistics:
        yield "count the values of all columns"
    if health.would_expire_snapshots:
        yield f"expire {several(health.would_expire_snapshots, 'snapshot')}"
    if health.would_delete_files:
        yield f"delete {several(health.would_delete_files, 'file')} of expired snapshots"
