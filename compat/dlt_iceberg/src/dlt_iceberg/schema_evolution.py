"""The error of tables that cannot follow the data."""

from frazil.dlt import SchemaEvolutionError

__all__ = ["SchemaEvolutionError"]
