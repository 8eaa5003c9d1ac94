"""The registry is needed by the tests of sources alone."""

from services.registry import schema_registry

__all__ = ["schema_registry"]
