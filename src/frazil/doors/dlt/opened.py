"""The tables as PyIceberg's, for what dlt and its users do with these. They are only looked at: dlt writes through the loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlt.common.destination.client import SupportsOpenTables
from dlt.common.destination.exceptions import DestinationUndefinedEntity

from frazil.doors.dlt.configuration import CATALOG_NAME, IcebergRestConfiguration
from frazil.doors.dlt.errors import dlt_errors
from frazil.errors import ConfigError
from frazil.observe.catalogs import open_catalog

if TYPE_CHECKING:
    from dlt.common.schema.typing import TTableFormat
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


class OpenTables(SupportsOpenTables):
    """The part of a client that opens tables."""

    config: IcebergRestConfiguration

    def get_open_table_catalog(self, table_format: TTableFormat, catalog_name: str | None = None) -> Catalog:
        """The catalog. It has one name, in all processes that share it."""
        _require_iceberg(table_format)
        if catalog_name not in (None, CATALOG_NAME):
            raise ConfigError("catalog-name", f"The catalog is called {CATALOG_NAME!r}, not {catalog_name!r}.")
        with dlt_errors("catalog"):
            catalog = open_catalog(self.config.sink("any"))
        if catalog is None:
            raise DestinationUndefinedEntity(CATALOG_NAME)
        return catalog

    def get_open_table_location(self, table_format: TTableFormat, table_name: str) -> str:
        """Where a table is."""
        return str(self.load_open_table(table_format, table_name).location())

    def load_open_table(self, table_format: TTableFormat, table_name: str, **kwargs: Any) -> Table:  # noqa: ARG002 - dlt's own
        """A table."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        name = (*self.config.namespace.split("."), self.config.physical_name(table_name))
        try:
            return self.get_open_table_catalog(table_format).load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise DestinationUndefinedEntity(table_name) from None

    def is_open_table(self, table_format: TTableFormat, table_name: str) -> bool:  # noqa: ARG002 - all are
        """Whether a table is of a format: all are Iceberg's."""
        return table_format == "iceberg"


def _require_iceberg(table_format: TTableFormat) -> None:
    if table_format != "iceberg":
        raise ConfigError("table-format", f"All tables are of the format 'iceberg', none is of {table_format!r}.")
