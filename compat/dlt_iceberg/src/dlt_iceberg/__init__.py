"""frazil's destination for dlt under the names of the package dlt-iceberg."""

from dlt_iceberg.destination_client import iceberg_rest_class_based
from frazil.dlt import (
    CastingError,
    IcebergRestClient,
    IcebergRestConfiguration,
    PartitionTransform,
    SchemaEvolutionError,
    iceberg_adapter,
    iceberg_partition,
    iceberg_rest,
)

iceberg_rest_function_based = iceberg_rest

__all__ = [
    "CastingError",
    "IcebergRestClient",
    "IcebergRestConfiguration",
    "PartitionTransform",
    "SchemaEvolutionError",
    "iceberg_adapter",
    "iceberg_partition",
    "iceberg_rest",
    "iceberg_rest_class_based",
    "iceberg_rest_function_based",
]
