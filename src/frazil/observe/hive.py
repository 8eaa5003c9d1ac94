"""PyIceberg's catalog of a Hive metastore, which also says which version the metastore has."""

from __future__ import annotations

from pyiceberg.catalog.hive import HiveCatalog
from thrift.Thrift import TApplicationException  # type: ignore[import-untyped]


class HiveReader(HiveCatalog):
    """Asks for the version by the protocol that all services of this kind have."""

    @property
    def server(self) -> str:
        """The server and its version; nothing where it does not tell that."""
        try:
            with self._client as client:
                return f"Hive metastore {client.getVersion()}"
        except TApplicationException:
            return ""
