"""`IcebergSinkConfig`: what users write, checked when it is written, and what it means to the engine."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import BaseModel, Field, ValidationError, field_validator
from pyiceberg.schema import Schema

from frazil.doors.bytewax import schema as schemas
from frazil.doors.bytewax.arguments import SinkArguments
from frazil.doors.bytewax.progress import FreshStart
from frazil.doors.bytewax.properties import CATALOG, PROPERTIES, place_of, store_of
from frazil.doors.bytewax.schema import CODE, DeclaredColumns
from frazil.errors import ConfigError
from frazil.model.arguments import argument_errors, located_at_caller, unknown
from frazil.model.base import Model
from frazil.model.catalog import CatalogType, is_nessie_own
from frazil.model.catalog_kinds import (
    BigQueryCatalog,
    GlueCatalog,
    HadoopCatalog,
    HiveCatalog,
    NessieCatalog,
    RestCatalog,
    S3TablesCatalog,
    SqlCatalog,
)
from frazil.model.coercion import EpochUnit
from frazil.model.partition import transform_problem
from frazil.model.secrets import MASK, is_secret_name, mask_uri, remember, secret_values
from frazil.model.settings import Settings
from frazil.model.sink import FileFormat, SinkSpec
from frazil.model.types import StructType

# Other names of catalogs, as PyIceberg and the services themselves have them.
_CATALOG_TYPES = {"jdbc": "sql", "in-memory": "memory", "polaris": "rest"}
_SECTIONS: dict[str, type[BaseModel]] = {
    "rest": RestCatalog, "sql": SqlCatalog, "hive": HiveCatalog, "glue": GlueCatalog, "s3tables": S3TablesCatalog,
    "nessie": NessieCatalog, "bigquery": BigQueryCatalog, "hadoop": HadoopCatalog,
}  # fmt: skip
# Catalogs that are found without an address.
_WITHOUT_ADDRESS = ("bigquery", "hadoop", "memory")

# Options of a sink that make sense here: rows are appended, the schema is static, and the rest has arguments of its own.
_SINK_OPTIONS = (
    "auto_create_table", "azure", "compression", "distribution", "format_version", "gcs", "id", "s3", "target_file_size_mb",
    "write_properties",
)  # fmt: skip
_SETTINGS = ("retry", "spark")
_CATALOG_NAME = "catalog_name"
# What a catalog's section takes from arguments of their own, or from all names that have a dot.
_NOT_OPTIONS = {"uri", "warehouse", PROPERTIES}


class RowOptions(Model):
    """Options of `extra_options` about the way from a dictionary to a row."""

    extra_columns: Literal["ignore", "refuse"] = Field("ignore", description="Fields that the schema does not have.")
    error_column: str | None = Field(None, description="Column that takes what is wrong with a row, which is then kept.")
    raw_column: str | None = Field(None, description="Column that takes such a row as JSON.")
    epoch_unit: EpochUnit = Field(EpochUnit.MILLIS, description="What numbers count that go into timestamps.")


class IcebergSinkConfig(Model, arbitrary_types_allowed=True):
    """A table as the destination of a Bytewax flow. Wrong arguments are reported here, each with its name.

    Delivery: exactly once with Bytewax's recovery. Without it a flow begins anew each time, and `on_fresh_start` says what
    becomes of the rows that it wrote before. Unit of parallelism: one of `num_partitions` parts, each of which commits by itself.
    """

    catalog_uri: str = Field(description="Address of the catalog: http://..., thrift://..., sqlite:///..., postgresql://...")
    table_name: str = Field(description="`namespace.table`.")
    warehouse_path: str = Field(description="Where new tables are put; for a REST catalog the warehouse that it knows.")
    catalog_type: str = Field(description="rest, sql, hive, glue, s3tables, nessie, bigquery, hadoop or memory.")

    batch_size: int = Field(1000, ge=1, le=100_000, description="Rows of a part that are flushed at once.")
    batch_interval_seconds: float = Field(15, ge=1, le=300, description="Longest time that a row waits for a flush.")
    num_partitions: int = Field(1, ge=1, le=100, description="Parts that Bytewax divides the rows among: part-0, part-1, ...")

    file_format: FileFormat = Field(FileFormat.PARQUET, description="Format of data files.")
    temp_dir: str | None = Field(None, description="Folder for Spark's temporary files.")

    arrow_schema: Any = Field(None, description="The columns, as an Arrow schema.")
    table_schema: Any = Field(None, description="The columns, as a PyIceberg schema.")
    partition_spec: Any = Field(None, description="PyIceberg's PartitionSpec, or a list: names, `day(ts)`, ordinals.")
    sort_order: Any = Field(None, description="PyIceberg's SortOrder, or a list: `ts desc`, names, ordinals.")
    location: str | None = Field(None, description="Where a new table is put, when not in the warehouse.")

    on_fresh_start: FreshStart = Field(
        FreshStart.AUTO, description="What becomes of earlier rows without a state, or with a stale one."
    )
    extra_options: dict[str, Any] = Field(default_factory=dict, description="Options of the catalog, the sink, and Spark.")

    @located_at_caller
    def __init__(self, **given: Unpack[SinkArguments]) -> None:
        values: dict[str, Any] = {**given}
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise argument_errors(error, IcebergSinkConfig, code=CODE) from None
        remember(secret_values(self.spec))
        self.rows  # noqa: B018 - what is wrong with them is reported here, too
        self.settings  # noqa: B018

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        secrets = set(secret_values(self.spec))
        for name, value in super().__repr_args__():
            yield name, _masked(value, secrets)

    @field_validator("table_schema")
    @classmethod
    def _iceberg_schema(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, Schema):
            hint = "; pass it as arrow_schema" if isinstance(value, pa.Schema) else ""
            raise ValueError(f"it must be a pyiceberg.schema.Schema, not {type(value).__name__}{hint}")
        return value

    @field_validator("arrow_schema")
    @classmethod
    def _arrow_schema(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, pa.Schema):
            hint = "; pass it as table_schema" if isinstance(value, Schema) else ""
            raise ValueError(f"it must be a pyarrow.Schema, not {type(value).__name__}{hint}")
        return value

    @field_validator("temp_dir")
    @classmethod
    def _writable(cls, value: str | None) -> str | None:
        if value is not None and not (Path(value).is_dir() and os.access(value, os.W_OK | os.X_OK)):
            raise ValueError(f"{value!r} is not a folder that can be written to")
        return value

    @field_validator("table_name")
    @classmethod
    def _namespace_and_table(cls, value: str) -> str:
        if "." not in value or not all(value.split(".")):
            raise ValueError(f"{value!r} is not namespace.table")
        return value

    def for_high_throughput(self) -> IcebergSinkConfig:
        """A copy for many rows: 10,000 rows or 30 seconds, 8 parts."""
        return self._with(batch_size=10_000, batch_interval_seconds=30, num_partitions=8)

    def for_low_latency(self) -> IcebergSinkConfig:
        """A copy for rows that are wanted soon: 100 rows or 5 seconds, 2 parts."""
        return self._with(batch_size=100, batch_interval_seconds=5, num_partitions=2)

    def for_petabyte_scale(self) -> IcebergSinkConfig:
        """A copy for very many rows: 50,000 rows or 60 seconds, 32 parts."""
        return self._with(batch_size=50_000, batch_interval_seconds=60, num_partitions=32)

    def _with(self, **changed: Any) -> IcebergSinkConfig:
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return IcebergSinkConfig(**(given | changed))

    @cached_property
    def declared(self) -> DeclaredColumns | None:
        """The columns that were declared; None: the table's own."""
        arrow = schemas.from_arrow(self.arrow_schema) if self.arrow_schema is not None else None
        if self.table_schema is None:
            return arrow
        declared = schemas.from_iceberg(self.table_schema)
        if arrow is not None and (difference := schemas.agree(declared.columns, arrow.columns)) is not None:
            raise ConfigError(
                CODE, f"arrow_schema: it does not agree with table_schema: {difference}.", fix="Leave one of them out."
            )
        return declared

    @cached_property
    def spec(self) -> SinkSpec:
        """The sink as the engine takes it."""
        namespace, _, table = self.table_name.rpartition(".")
        catalog, stores = self._catalog()
        own = {name: value for name, value in self.extra_options.items() if name in _SINK_OPTIONS}
        given: dict[str, Any] = own | {
            "catalog": catalog,
            "namespace": namespace,
            "table": table,
            "file_format": self.file_format,
            "location": self.location,
            "schema_evolution": "strict",
            "partition_evolution": "refuse",
            # Rows of the last flushes are taken back when Bytewax is set back, which is done by their files: none is rewritten.
            "maintenance": {"enabled": False},
        }
        for store, options in stores.items():
            named = own.get(store, {})
            given[store] = {**options, **named} if isinstance(named, Mapping) else named
        given |= self._layout()
        try:
            spec = SinkSpec.model_validate(given)
        except ValidationError as error:
            raise argument_errors(error, SinkSpec, code=CODE, named=_argument) from None
        self._require_transforms(spec)
        return spec

    @cached_property
    def rows(self) -> RowOptions:
        """How dictionaries become rows."""
        options = {name: value for name, value in self.extra_options.items() if name in RowOptions.model_fields}
        try:
            made = RowOptions.model_validate(options)
        except ValidationError as error:
            raise argument_errors(error, RowOptions, code=CODE, of="extra_options") from None
        if made.raw_column is not None and made.error_column is None:
            raise ConfigError(CODE, "extra_options.raw_column: it has no meaning without error_column.")
        if self.declared is not None:
            require_error_columns(self.declared.columns, made)
        return made

    @cached_property
    def settings(self) -> Settings:
        """How Spark is started, and how commits are tried again."""
        options = {name: value for name, value in self.extra_options.items() if name in _SETTINGS}
        try:
            settings = Settings.model_validate(options)
        except ValidationError as error:
            raise argument_errors(error, Settings, code=CODE, of="extra_options") from None
        if self.temp_dir is None:
            return settings
        conf = {**settings.spark.conf, "spark.local.dir": str(Path(self.temp_dir).resolve())}
        return settings.model_copy(update={"spark": settings.spark.model_copy(update={"conf": conf})})

    def _layout(self) -> dict[str, Any]:
        """Columns, partitioning and order of a new table, which an existing one must have, too."""
        declared = self.declared
        ids: Mapping[int, str] = declared.ids if declared is not None else {}
        made: dict[str, Any] = {}
        for argument, option, read in (
            ("partition_spec", "partition_by", schemas.partition_fields),
            ("sort_order", "sort_by", schemas.sort_fields),
        ):
            given = getattr(self, argument)
            if given is None:
                continue
            if declared is None:
                raise ConfigError(
                    CODE,
                    f"{argument}: it is for a new table, whose columns are not declared.",
                    fix="Add table_schema or arrow_schema; a table that exists is written by its own spec.",
                )
            made[option] = read(given, ids)
        if declared is not None:
            made["schema"] = [
                {"name": column.name, "type": str(column.type), "required": column.required, "doc": column.doc}
                for column in declared.columns.fields
            ]
            made["key_fields"] = declared.keys
        return made

    def _require_transforms(self, spec: SinkSpec) -> None:
        """Whether each transform can be applied to its column, before anything is started."""
        if self.declared is None:
            return
        fields = [("partition_spec", field) for field in spec.partition] + [("sort_order", one.of) for one in spec.sort_by]
        for argument, field in fields:
            column = self.declared.columns.column(field.source)
            problem = None if column is None else transform_problem(field, column.type.name)
            if problem is not None:
                raise ConfigError(CODE, f"{argument}: {problem}.", fix="Choose another transform, or change the column's type.")

    def _catalog(self) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """The catalog's description, and what the options say about each store."""
        kind = _CATALOG_TYPES.get(self.catalog_type.lower(), self.catalog_type.lower())
        known = [one.value for one in CatalogType if one is not CatalogType.SPARK]
        if kind not in known:
            found = unknown(self.catalog_type, [*known, *_CATALOG_TYPES], code=CODE)
            raise ConfigError(CODE, f"catalog_type: there is no catalog of type {self.catalog_type!r}.", fix=found.fix)
        if kind == "nessie" and not is_nessie_own(self.catalog_uri):
            kind = "rest"  # of the two protocols that Nessie speaks
        section, stores = self._sorted_options(kind)
        name = self.extra_options.get(_CATALOG_NAME)
        catalog: dict[str, Any] = {"type": kind, "warehouse": self.warehouse_path} | ({"name": name} if name is not None else {})
        if kind in _WITHOUT_ADDRESS:
            if self.catalog_uri not in ("", self.warehouse_path):
                raise ConfigError(
                    CODE, f"catalog_uri: a catalog of type {kind} has no address.", fix="Give the same as warehouse_path, or ''."
                )
            return catalog | ({kind: section} if kind in _SECTIONS else section), stores
        address = _glue(self.catalog_uri) if kind == "glue" else {"uri": self.catalog_uri or None}
        return catalog | {kind: address | section}, stores

    def _sorted_options(self, kind: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Splits `extra_options` into the catalog's and those of each store; PyIceberg's names and frazil's are both accepted."""
        model = _SECTIONS.get(kind)
        fields = model.model_fields if model is not None else {}
        own = {*_SINK_OPTIONS, *_SETTINGS, _CATALOG_NAME, *RowOptions.model_fields}
        section: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        stores: dict[str, dict[str, Any]] = {}
        # What is said of one of Amazon's services stands above what is said of all.
        for name in sorted(self.extra_options.keys() - own, key=lambda name: (not name.startswith("client."), name)):
            value, plain = self.extra_options[name], name.replace("-", "_")
            if (store := store_of(name)) is not None:
                stores.setdefault(store, {})
            if plain in fields and plain not in _NOT_OPTIONS:
                section[plain] = value
            elif (place := place_of(name, kind, code=CODE)) is not None:
                where, key = place
                found = {CATALOG: section, PROPERTIES: properties}.get(where)
                (found if found is not None else stores.setdefault(where, {}))[key] = value
            elif "." in name:
                properties[name] = value
            else:
                raise unknown(name, {*own, *fields} - _NOT_OPTIONS, code=CODE, path=f"extra_options.{name}")
        return section | ({PROPERTIES: properties} if properties else {}), stores


def _masked(value: Any, secrets: Collection[str], name: str = "") -> Any:
    """The value as it may be shown: without what is secret by its name or by what it is used for, and passwords in addresses."""
    match value:
        case _ if is_secret_name(name) or (isinstance(value, str) and value in secrets):
            return MASK
        case Mapping():
            return {key: _masked(item, secrets, str(key)) for key, item in value.items()}
        case list() | tuple():
            return [_masked(item, secrets) for item in value]
        case str():
            return mask_uri(value)
        case _:
            return value


def require_error_columns(columns: StructType, options: RowOptions) -> None:
    """Columns for what is wrong must be there, and take texts and nulls."""
    for option, name in (("error_column", options.error_column), ("raw_column", options.raw_column)):
        column = None if name is None else columns.column(name)
        if name is not None and (column is None or column.required or column.type.name != "string"):
            known = ", ".join(one.name for one in columns.fields if one.type.name == "string" and not one.required)
            raise ConfigError(
                CODE,
                f"extra_options.{option}: {name!r} is not an optional string column of the schema.",
                fix=f"Such are: {known}.",
            )


def _glue(uri: str) -> dict[str, Any]:
    """Glue is found by its region, which its address tells; another address is one of a service that speaks its protocol."""
    host = urlsplit(uri).hostname or ""
    if host.startswith("glue.") and host.count(".") >= 2:
        return {"region": host.split(".")[1]}
    return {"endpoint": uri} if uri else {}


# Where an option of the sink comes from here.
_ARGUMENTS = {
    "catalog": "catalog_type", "schema": "table_schema", "partition_by": "partition_spec", "sort_by": "sort_order",
    "location": "location", "namespace": "table_name", "table": "table_name", "file_format": "file_format",
    "key_fields": "table_schema",
}  # fmt: skip
_CATALOG_ARGUMENTS = {"uri": "catalog_uri", "warehouse": "warehouse_path", "name": f"extra_options.{_CATALOG_NAME}"}


def _argument(path: tuple[str, ...]) -> str:
    """The argument that gives an option of the model."""
    match path:
        case ("catalog", name):
            return _CATALOG_ARGUMENTS.get(name, "catalog_uri")
        case ("catalog", _, *keys):
            key = ".".join(keys)
            return _CATALOG_ARGUMENTS.get(key, f"extra_options.{key}")
        case (head, *_) if head in _ARGUMENTS:
            return _ARGUMENTS[head]
        case (head, *_) if head in _SINK_OPTIONS:
            return f"extra_options.{'.'.join(path)}"
        case _:
            return ".".join(path)
