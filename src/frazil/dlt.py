"""The destination for dlt pipelines: `from frazil.dlt import iceberg_rest`."""

from __future__ import annotations

from frazil.errors import EnvironmentFault

try:
    import dlt as _dlt  # noqa: F401
except ModuleNotFoundError:
    raise EnvironmentFault.package("The destination of dlt", "dlt", "dlt") from None

from frazil.doors.dlt.adapter import PartitionTransform, iceberg_adapter, iceberg_partition
from frazil.doors.dlt.client import IcebergRestClient
from frazil.doors.dlt.configuration import IcebergRestConfiguration
from frazil.doors.dlt.errors import CastingError, LoadError, LoadInterrupted, SchemaEvolutionError
from frazil.doors.dlt.factory import iceberg_rest

__all__ = [
    "CastingError",
    "IcebergRestClient",
    "IcebergRestConfiguration",
    "LoadError",
    "LoadInterrupted",
    "PartitionTransform",
    "SchemaEvolutionError",
    "iceberg_adapter",
    "iceberg_partition",
    "iceberg_rest",
]
