"""The client, and the destination under its older name."""

from frazil.dlt import IcebergRestClient, IcebergRestConfiguration, iceberg_rest

iceberg_rest_class_based = iceberg_rest

__all__ = ["IcebergRestClient", "IcebergRestConfiguration", "iceberg_rest_class_based"]
