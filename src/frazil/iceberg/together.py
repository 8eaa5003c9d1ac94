"""Several tables of one catalog changed in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.iceberg.jvm import Jvm
from frazil.iceberg.port import NextMetadata


@dataclass(frozen=True)
class TableSwap:
    """One of the tables, by its identifier, and the metadata that it is to have."""

    name: Any
    following: NextMetadata


Together = Callable[[Sequence[TableSwap]], None]
"""Changes all tables if none of them was changed since, or none; without any retry of its own."""


def together(jvm: Jvm, catalog: Any) -> Together | None:
    """How a catalog does that; None if it cannot."""
    if jvm.is_a(catalog, "jdbc.JdbcCatalog"):
        return lambda swaps: _in_a_database(jvm, catalog, swaps)
    if jvm.is_a(catalog, "rest.RESTCatalog") and _offers_transactions(jvm, catalog):
        return lambda swaps: _by_rest(jvm, catalog, swaps)
    return None


def _in_a_database(jvm: Jvm, catalog: Any, swaps: Sequence[TableSwap]) -> None:
    transaction = jvm.root.frazil.SqlTransaction(catalog)
    for swap in swaps:
        transaction.add(swap.name, swap.following.operations, swap.following.base, swap.following.after)
    transaction.commit()


def _by_rest(jvm: Jvm, catalog: Any, swaps: Sequence[TableSwap]) -> None:
    create = jvm.iceberg.catalog.TableCommit.create
    commits = jvm.root.java.util.ArrayList()
    for swap in swaps:
        commits.add(create(swap.name, swap.following.base, swap.following.after))
    catalog.commitTransaction(commits)


def _offers_transactions(jvm: Jvm, catalog: Any) -> bool:
    """Whether the server lists the endpoint; one that lists none is taken to have it, as the REST specification says."""
    session = jvm.field(catalog, "rest.RESTCatalog", "sessionCatalog")
    endpoints = jvm.field(session, "rest.RESTSessionCatalog", "endpoints")
    return bool(endpoints.contains(jvm.iceberg.rest.Endpoint.V1_COMMIT_TRANSACTION))
