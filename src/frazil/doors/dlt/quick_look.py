"""dlt's own tables, read by PyIceberg: a pipeline that begins asks for its state, and need not wait for Spark to start."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from dlt.common.destination.exceptions import DestinationUndefinedEntity

from frazil.doors.dlt.configuration import IcebergRestConfiguration
from frazil.observe.catalogs import open_catalog

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

Row = dict[str, Any]


@contextmanager
def quick_look(config: IcebergRestConfiguration) -> Iterator[QuickLook]:
    """A look at the tables of a destination, as long as the block."""
    catalog = open_catalog(config.sink("any"))
    if catalog is None:
        yield QuickLook(config, None)
        return
    with closing(catalog):
        yield QuickLook(config, catalog)


class QuickLook:
    """Finds single rows. A table that is not there is :class:`DestinationUndefinedEntity`, as dlt expects it."""

    def __init__(self, config: IcebergRestConfiguration, catalog: Catalog | None) -> None:
        self._config = config
        self._catalog = catalog

    def values(self, table: str, column: str, equal: Mapping[str, Any]) -> list[Any]:
        """The values of one column, in rows that have these values in others."""
        rows = self._opened(table).scan(row_filter=_all_of(equal), selected_fields=(column,)).to_arrow()
        return list(rows[column].to_pylist())

    def newest(
        self, table: str, by: str, name: str, equal: Mapping[str, Any], among: Collection[Any] | None = None
    ) -> Row | None:
        """The row with the greatest value in the column ``by`` among those that have these values.

        ``name`` is a column that tells rows apart; with ``among`` only rows count that have one of these values in it. Few
        columns are read of all rows, and all of one: a schema can be large.
        """
        opened = self._opened(table)
        found = opened.scan(row_filter=_all_of(equal), selected_fields=tuple({by, name})).to_arrow().to_pylist()
        rows = [row for row in found if among is None or row[name] in among]
        if not rows:
            return None
        newest = max(rows, key=lambda row: row[by])[name]
        return dict(opened.scan(row_filter=_all_of({**equal, name: newest})).to_arrow().to_pylist()[0])

    def _opened(self, table: str) -> Table:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self._catalog is None:
            raise DestinationUndefinedEntity(table)
        try:
            return self._catalog.load_table((*self._config.namespace.split("."), self._config.physical_name(table)))
        except (NoSuchTableError, NoSuchNamespaceError):
            raise DestinationUndefinedEntity(table) from None


def _all_of(equal: Mapping[str, Any]) -> BooleanExpression:
    from pyiceberg import expressions

    # What it takes is decided by `__new__`, which its type hints do not show.
    make: Any = expressions
    every: BooleanExpression = make.AlwaysTrue()
    for name, value in equal.items():
        every = make.And(every, make.EqualTo(name, value))
    return every
