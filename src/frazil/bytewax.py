"""A sink for Bytewax flows: ``op.output("lake", rows, IcebergSink(IcebergSinkConfig(...)))``."""

from frazil.errors import EnvironmentFault

try:
    import bytewax as _bytewax  # noqa: F401 - only to say what is missing
except ImportError:
    raise EnvironmentFault.package("The sink of Bytewax", "bytewax", "bytewax") from None

from frazil.doors.bytewax.config import IcebergSinkConfig
from frazil.doors.bytewax.helpers import error_row, from_epoch_ms, to_json, uplink_row, with_errors
from frazil.doors.bytewax.sink import IcebergSink, IcebergSinkPartition

__all__ = [
    "IcebergSink",
    "IcebergSinkConfig",
    "IcebergSinkPartition",
    "error_row",
    "from_epoch_ms",
    "to_json",
    "uplink_row",
    "with_errors",
]
