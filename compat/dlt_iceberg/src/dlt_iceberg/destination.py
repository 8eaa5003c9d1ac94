"""The function of this name committed file by file; here it is the same destination, which commits table by table."""

from frazil.dlt import iceberg_rest

__all__ = ["iceberg_rest"]
