"""The arguments of `IcebergSinkConfig` as type checkers and editors see them. What they mean is in that class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from frazil.doors.bytewax.progress import FreshStart
from frazil.model.sink import FileFormat

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortOrder


class RequiredArguments(TypedDict):
    """What a sink of a Bytewax flow must be given."""

    catalog_uri: str
    table_name: str
    warehouse_path: str
    catalog_type: str


class SinkArguments(RequiredArguments, total=False):
    """What a sink of a Bytewax flow may be given."""

    batch_size: int
    batch_interval_seconds: float
    num_partitions: int

    file_format: FileFormat | Literal["parquet", "orc", "avro"]
    temp_dir: str | None

    arrow_schema: pa.Schema | None
    table_schema: Schema | None
    partition_spec: PartitionSpec | list[str] | list[int] | list[str | int] | None
    sort_order: SortOrder | list[str] | list[int] | list[str | int] | None
    location: str | None

    on_fresh_start: FreshStart | Literal["auto", "undo", "append"]
    extra_options: dict[str, Any]
