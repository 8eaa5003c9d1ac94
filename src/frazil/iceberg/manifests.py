"""Rewrites manifests so that the files of a partition are listed in few of them. Data files stay as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import FrazilError
from frazil.iceberg.changes import Base, Fits, Restage, StagedFiles
from frazil.iceberg.jvm import Jvm, items
from frazil.model.manifests import Clustering, Manifest, cluster, worth_reading

_TARGET = "commit.manifest.target-size-bytes"
_DEFAULT_TARGET = 8 * 1024 * 1024


@dataclass(frozen=True)
class ClusteredManifests:
    """Manifests in place of others, for the same files. It fits whatever files came since: these keep their manifests."""

    jvm: Jvm
    clusterings: tuple[Clustering, ...]
    staged: StagedFiles = field(default_factory=StagedFiles)
    fits = Fits.COLUMNS

    def on(self, transaction: Any, base: Base) -> Any:  # noqa: ARG002 - manifests are named, whatever came after them
        """Iceberg's rewrite of manifests, which reads and writes them in this process."""
        groups = {partition: number for one in self.clusterings for partition, number in one.groups.items()}
        paths = [path for one in self.clusterings for path in one.paths]
        group_of = self.jvm.partition_text().andThen(self.jvm.looked_up(json.dumps(groups), 0))
        is_one = self.jvm.is_among("ManifestFile.path", paths)
        return transaction.rewriteManifests().clusterBy(group_of).rewriteIf(is_one)

    def overtaken(self, why: str) -> FrazilError:
        """It is left for another time."""
        return Restage("rewrite-overtaken", why)


def manifests_worth_reading(jvm: Jvm, table: Any) -> dict[str, Any]:
    """The manifests that may be worth rewriting, by their paths: what the list of manifests says."""
    metadata = table.operations().current()
    head = metadata.currentSnapshot()
    divided = {int(spec.specId()) for spec in items(metadata.specs()) if not spec.isUnpartitioned()}
    if head is None or not divided:
        return {}
    manifests = head.dataManifests(table.io())
    paths, sizes = jvm.each(manifests, "ManifestFile.path"), jvm.each(manifests, "ManifestFile.length")
    by_spec: dict[int, dict[str, int]] = {}
    for path, size, spec in zip(paths, sizes, jvm.each(manifests, "ManifestFile.partitionSpecId"), strict=True):
        if spec in divided:
            by_spec.setdefault(spec, {})[path] = size
    target = _target_of(table)
    worth = {path for found in by_spec.values() for path in worth_reading(found, target)}
    return {path: manifests.get(place) for place, path in enumerate(paths) if path in worth}


def clusterings_of(jvm: Jvm, table: Any, manifests: Sequence[Any]) -> tuple[Clustering, ...]:
    """How manifests are rewritten where scans gain by it; they are read for that."""
    target = _target_of(table)
    by_spec: dict[int, list[Manifest]] = {}
    for manifest in manifests:
        by_spec.setdefault(int(manifest.partitionSpecId()), []).append(_read(jvm, table, manifest))
    plans = [cluster(found, target) for found in by_spec.values()]
    return tuple(plan for plan in plans if plan is not None)


def _target_of(table: Any) -> int:
    return int(table.properties().get(_TARGET) or _DEFAULT_TARGET)


def _read(jvm: Jvm, table: Any, manifest: Any) -> Manifest:
    specs, columns = table.operations().current().specsById(), jvm.text_list(["partition"])
    reader = jvm.iceberg.ManifestFiles.read(manifest, table.io(), specs).select(columns)
    try:
        return Manifest(str(manifest.path()), int(manifest.length()), jvm.counted(reader, jvm.partition_text()))
    finally:
        reader.close()
