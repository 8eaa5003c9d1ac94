"""The registry is needed by these tests alone."""

from services.registry import schema_registry

__all__ = ["schema_registry"]
