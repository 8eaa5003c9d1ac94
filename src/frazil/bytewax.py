"""A sink for Bytewax flows: ``op.output("lake", rows, IcebergSink(IcebergSinkConfig(...)))``."""

from frazil.doors.bytewax import (
    IcebergSink,
    IcebergSinkConfig,
    IcebergSinkPartition,
    error_row,
    from_epoch_ms,
    to_json,
    uplink_row,
    with_errors,
)

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
