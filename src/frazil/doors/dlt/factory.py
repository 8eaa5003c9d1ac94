"""The destination itself: what users put into `dlt.pipeline(destination=...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from dlt.common.destination import Destination, DestinationCapabilitiesContext
from dlt.common.destination.configuration import ParquetFormatConfiguration

from frazil.doors.dlt.arguments import DestinationArguments
from frazil.doors.dlt.configuration import IcebergRestConfiguration, hide_secrets_in_traces
from frazil.doors.dlt.known import require_known
from frazil.doors.dlt.runs import listen_to_runs
from frazil.model.arguments import located_at_caller
from frazil.model.secrets import mask_uri

if TYPE_CHECKING:
    from frazil.doors.dlt.client import IcebergRestClient


class iceberg_rest(Destination[IcebergRestConfiguration, "IcebergRestClient"]):  # noqa: N801 - the name that users import
    """Iceberg tables in a REST or SQL catalog, written by Spark.

    Arguments are the fields of `IcebergRestConfiguration`; what is left out is taken from dlt's configuration.

    Delivery: exactly once for every table of a load, each in one snapshot, however often dlt repeats the load. Unit of
    parallelism: a root table with those nested in it.
    """

    spec = IcebergRestConfiguration

    @located_at_caller
    def __init__(
        self,
        catalog_uri: str | None = None,
        namespace: str | None = None,
        warehouse: str | None = None,
        **options: Unpack[DestinationArguments],
    ) -> None:
        spec = IcebergRestConfiguration
        require_known(((name, type(self).__name__) for name in options), spec.known(), spec.own())
        super().__init__(catalog_uri=catalog_uri, namespace=namespace, warehouse=warehouse, **options)

    def configuration(self, initial_config: IcebergRestConfiguration, accept_partial: bool = False) -> IcebergRestConfiguration:
        """The settings, from arguments and from dlt's configuration."""
        if self.config_params.get("credentials") is not None:
            # dlt puts there what a pipeline's `run` was given.
            require_known([("credentials", "run")], self.spec.known(), self.spec.own())
        try:
            return super().configuration(initial_config, accept_partial)
        finally:
            hide_secrets_in_traces()

    @property
    def client_class(self) -> type[IcebergRestClient]:
        """The client that does the work."""
        from frazil.doors.dlt.client import IcebergRestClient

        return IcebergRestClient

    def __repr__(self) -> str:
        """Without the secrets, which dlt's own shows."""
        given = {name: self.config_params.get(name) for name in ("catalog_uri", "warehouse", "namespace")}
        settings = ", ".join(f"{name}={mask_uri(str(value))!r}" for name, value in given.items() if value is not None)
        return f"{type(self).__name__}({settings})"

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        caps = DestinationCapabilitiesContext.generic_capabilities(preferred_loader_file_format="parquet")
        caps.supported_loader_file_formats = ["parquet", "reference"]
        caps.supported_table_formats = ["iceberg"]
        # The first is what `write_disposition="merge"` means.
        caps.supported_merge_strategies = ["delete-insert", "upsert", "insert-only"]
        caps.supported_replace_strategies = ["truncate-and-insert", "insert-from-staging"]
        caps.escape_identifier = lambda name: "`" + name.replace("`", "``") + "`"
        caps.escape_literal = _literal
        # Names are written as they are given.
        caps.casefold_identifier = str
        # Spark does not tell names apart by case.
        caps.has_case_sensitive_identifiers = False
        caps.decimal_precision = (38, 9)
        caps.wei_precision = (38, 0)
        caps.timestamp_precision = caps.max_timestamp_precision = 6
        caps.max_identifier_length = caps.max_column_identifier_length = 255
        caps.supports_ddl_transactions = caps.supports_transactions = caps.supports_multiple_statements = False
        caps.supports_nested_types = False
        caps.enforces_nulls_on_alter = False
        caps.sqlglot_dialect = "spark"
        # Spark reads no nanoseconds.
        caps.parquet_format = ParquetFormatConfiguration(version="2.4")
        caps.recommended_file_size = 128_000_000
        return caps


def _literal(value: Any) -> Any:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'" if isinstance(value, str) else value


# The name under which a pipeline remembers its destination.
iceberg_rest.__module__ = "frazil.dlt"

listen_to_runs()
