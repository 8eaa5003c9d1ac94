"""Several tables of one catalog changed in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.iceberg.faults import ICEBERG
from frazil.iceberg.jvm import Jvm, fault_of
from frazil.iceberg.port import NextMetadata
from frazil.model.connections import no_transactions


@dataclass(frozen=True)
class TableSwap:
    """One of the tables, by its identifier, and the metadata that it is to have."""

    name: Any
    following: NextMetadata


Together = Callable[[Sequence[TableSwap]], None]
"""Changes all tables if none of them was changed since, or none; without any retry of its own."""


def together(jvm: Jvm, catalog: Any, address: str) -> Together | None:
    """How a catalog does that; None if it cannot."""
    if jvm.is_a(catalog, "jdbc.JdbcCatalog"):
        return lambda swaps: _in_a_database(jvm, catalog, swaps)
    if jvm.is_a(catalog, "rest.RESTCatalog") and _offers_transactions(jvm, catalog):
        return lambda swaps: _by_rest(jvm, catalog, swaps, address)
    return None


def _in_a_database(jvm: Jvm, catalog: Any, swaps: Sequence[TableSwap]) -> None:
    transaction = jvm.root.frazil.SqlTransaction(catalog)
    for swap in swaps:
        transaction.add(swap.name, swap.following.operations, swap.following.base, swap.following.after)
    transaction.commit()


def _by_rest(jvm: Jvm, catalog: Any, swaps: Sequence[TableSwap], address: str) -> None:
    create = jvm.iceberg.catalog.TableCommit.create
    commits = jvm.root.java.util.ArrayList()
    for swap in swaps:
        commits.add(create(swap.name, swap.following.base, swap.following.after))
    try:
        catalog.commitTransaction(commits)
    except Exception as error:
        # A server that does not know the endpoint says so as if it did not know the tables.
        missing = fault_of(error).find(f"{ICEBERG}NoSuchTableException")
        if missing is None or not all(catalog.tableExists(swap.name) for swap in swaps):
            raise
        raise no_transactions(address) from error


def _offers_transactions(jvm: Jvm, catalog: Any) -> bool:
    """Whether the server lists the endpoint; one that lists none is taken to have it, as the REST specification says."""
    session = jvm.field(catalog, "rest.RESTCatalog", "sessionCatalog")
    endpoints = jvm.field(session, "rest.RESTSessionCatalog", "endpoints")
    return bool(endpoints.contains(jvm.iceberg.rest.Endpoint.V1_COMMIT_TRANSACTION))
