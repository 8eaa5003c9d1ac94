"""The destination's settings, and what they mean as a sink."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from dlt.common import logger
from dlt.common.configuration import configspec
from dlt.common.configuration.exceptions import ConfigurationValueError
from dlt.common.configuration.specs.base_configuration import NotResolved
from dlt.common.configuration.utils import ResolvedValueTrace, get_resolved_traces
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.client import DestinationClientDwhConfiguration
from dlt.common.typing import TSecretStrValue
from dlt.common.utils import digest128, uniq_id
from pydantic import TypeAdapter, ValidationError

from frazil.doors.dlt.known import require_known, written_elsewhere
from frazil.doors.dlt.storage import ANY_TABLE
from frazil.model.base import InconsistencyError
from frazil.model.catalog import GATEWAY, CatalogSpec, signing_name
from frazil.model.changes import Reader
from frazil.model.secrets import MASK, mask_uri, masked, remember, secret_values
from frazil.model.settings import RetrySettings, SparkSettings
from frazil.model.sink import SinkSpec

CATALOG_NAME = "dlt_catalog"
SQL_SCHEMES = ("sqlite", "postgresql", "postgres")
SCOPE = "PRINCIPAL_ROLE:ALL"
# As many as Athena takes for the same: the tag has twice as many letters.
_TAG_BYTES = 6
# dlt has credentials for every destination; nothing here would read them.
_NO_SETTINGS = ("credentials", "own_dataset", "any_namespace")


@configspec
class IcebergRestConfiguration(DestinationClientDwhConfiguration):
    """Where the tables are, how to get there, and how they are written."""

    destination_type: Final[str] = dataclasses.field(  # type: ignore[misc]
        default="iceberg_rest", init=False, repr=False, compare=False
    )

    catalog_uri: str = None  # type: ignore[assignment]
    """Address of a REST catalog; `sqlite:///...` and `postgresql://...` are SQL catalogs."""
    namespace: str = "default"
    """Iceberg namespace of all tables; dots nest. With `{dataset_name}` in it each dataset has one of its own."""
    warehouse: str | None = None
    """A location, or a name that the catalog knows."""

    credential: TSecretStrValue | None = None
    """OAuth2 client credentials: `id:secret`."""
    oauth2_server_uri: str | None = None
    """Where tokens are fetched; the catalog itself when left out."""
    scope: str | None = SCOPE
    """OAuth2 scope, used with a credential."""
    token: TSecretStrValue | None = None
    """Bearer token."""

    sigv4_enabled: bool = False
    """Whether requests to the catalog are signed as Amazon's services want it."""
    signing_region: str | None = None
    """Region of the signature."""
    signing_name: str | None = None
    """Name of the service in the signature; taken from the catalog's address when left out."""

    s3_endpoint: str | None = None
    s3_access_key_id: TSecretStrValue | None = None
    s3_secret_access_key: TSecretStrValue | None = None
    s3_region: str | None = None

    max_retries: int = 5
    """Tries after the first, of a commit or another call to the catalog."""
    retry_backoff_base: float = 2.0
    """Growth of the wait between tries."""
    merge_batch_size: int | None = None
    """For files that were written for dlt-iceberg, where it bounds the memory of a merge. It has no effect: Spark does that."""
    strict_casting: bool = False
    """Whether conversions are refused that could lose something."""

    table_location_layout: str | None = None
    """Where new tables are put: `{namespace}`, `{dataset_name}`, `{table_name}`, `{location_tag}`; relative to the warehouse."""
    register_new_tables: bool = False
    """Whether tables that are in folders of this machine and not in the catalog are registered there."""
    hard_delete_column: str | None = "_dlt_deleted_at"
    """Column whose value marks a row that is gone, in merges of tables without a `hard_delete` hint."""
    internal_table_prefix: str = "_dlt"
    """How the names of dlt's own tables begin in the catalog."""

    format_version: int = 2
    """Version of the table format of new tables."""
    readers: list[str] = dataclasses.field(default_factory=lambda: [Reader.PYICEBERG.value])
    """Who reads the tables; decides which kinds of deletes merges leave."""
    spark_master: str | None = None
    """Where Spark runs; in this process when left out."""
    spark_conf: dict[str, Any] | None = None
    """Further options of Spark."""

    own_dataset: Annotated[str | None, NotResolved()] = dataclasses.field(default=None, init=False, repr=False, compare=False)
    """The dataset of one schema, as it is named in the destination; set by ``of_dataset``."""
    any_namespace: Annotated[str | None, NotResolved()] = dataclasses.field(default=None, init=False, repr=False, compare=False)
    """The namespace as it was given: dlt makes the clients of further schemas from the settings of the first one's."""

    def on_resolved(self) -> None:
        """Reports everything that can be wrong before anything is done."""
        require_known(written_elsewhere(self.destination_name or self.destination_type), self.known(), self.own())
        self._require_types()
        anyone = self.of_dataset("any")
        anyone.sink("any")
        if self.register_new_tables:
            anyone.searched()
        self.retry_settings()
        remember(secret_values(self.spark_settings))
        if self.token and self.credential:
            unused = "token" if self._by_credential else "credential"
            logger.warning(f"{unused}: it is not used. With oauth2_server_uri it is the credential, without it the token.")
        if self.merge_batch_size is not None:
            warn_once(
                f"merge_batch_size={self.merge_batch_size}: it has no effect. Spark bounds the memory of a merge by itself, and "
                "divides the work by the size of the rows."
            )

    @classmethod
    def own(cls) -> list[str]:
        """The names of the settings."""
        return [name for name in cls.get_resolvable_fields() if not name.startswith("_") and name not in _NO_SETTINGS]

    @classmethod
    def known(cls) -> list[str]:
        """The names of these settings, and of those that dlt has for every destination."""
        return [*cls.own(), *DestinationCapabilitiesContext.get_resolvable_fields()]

    def _require_types(self) -> None:
        """dlt reads what is in files and variables by its type, and passes arguments on as they are."""
        hints = self.get_resolvable_fields()
        for name in IcebergRestConfiguration.__annotations__:
            if name in hints:
                try:
                    setattr(self, name, TypeAdapter(hints[name]).validate_python(getattr(self, name)))
                except ValidationError as error:
                    raise _refused(error, name) from None
        if self.merge_batch_size is not None and self.merge_batch_size < 1:
            raise ConfigurationValueError(f"merge_batch_size: it must be at least 1, not {self.merge_batch_size}.")

    def of_dataset(self, name: str) -> IcebergRestConfiguration:
        """This configuration for the tables of one dataset."""
        own = self.copy()
        own.any_namespace = self.any_namespace or self.namespace
        own.namespace = _filled_in("namespace", own.any_namespace, dataset_name=name)
        own.own_dataset = name
        return own

    @property
    def is_sql(self) -> bool:
        """Whether the catalog is in a SQL database."""
        return urlsplit(self.catalog_uri).scheme.partition("+")[0] in SQL_SCHEMES

    @property
    def spark_settings(self) -> SparkSettings:
        """The Spark that does the work."""
        try:
            return SparkSettings(master=self.spark_master, app_name="frazil-dlt", conf=self.spark_conf or {})
        except ValidationError as error:
            raise _refused(error) from None

    def retry_settings(self) -> RetrySettings:
        """How a failed call is tried again."""
        given = {"max_retries": self.max_retries, "backoff_multiplier": self.retry_backoff_base}
        try:
            return RetrySettings.model_validate(given)
        except ValidationError as error:
            raise _refused(error) from None

    def physical_name(self, table: str) -> str:
        """The name that a table has in the catalog."""
        own = "_dlt_"
        return f"{self.internal_table_prefix.rstrip('_')}_{table.removeprefix(own)}" if table.startswith(own) else table

    def qualified(self, table: str) -> str:
        """The name that a table has in Spark's SQL."""
        parts = (CATALOG_NAME, *self.namespace.split("."), self.physical_name(table))
        return ".".join(f"`{part.replace('`', '``')}`" for part in parts)

    def sink(self, table: str, **options: Any) -> SinkSpec:
        """The sink of one of the tables."""
        name = self.physical_name(table)
        if not self.internal_table_prefix.strip("_"):
            raise ConfigurationValueError("internal_table_prefix: it must have at least one character that is no underscore.")
        given: dict[str, Any] = {
            "catalog": self._catalog(),
            "namespace": self.namespace,
            "table": name,
            "format_version": self.format_version,
            "readers": tuple(self.readers),
            "strict_casting": self.strict_casting,
            "schema_evolution": "type_widen",
        }
        if self._s3() or self.sigv4_enabled:
            given["s3"] = self._s3()
        if location := self._location(name):
            given["location"] = location
        try:
            sink = SinkSpec.model_validate(given | options)
        except ValidationError as error:
            raise _refused(error) from None
        remember(secret_values(sink))
        return sink

    def searched(self) -> str:
        """Where tables may be that the catalog does not know: a location that ``ANY_TABLE`` stands in."""
        where = "register_new_tables: only folders of this machine can be looked through"
        location = self._location(ANY_TABLE)
        if location is None:
            if not self.warehouse or not (self.is_sql or _is_location(self.warehouse)):
                raise ConfigurationValueError(
                    f"{where}, and warehouse, {self.warehouse!r}, does not tell in which the catalog puts tables: "
                    "set table_location_layout."
                )
            # Where catalogs put tables that nobody tells them a place for.
            location = "/".join((self.warehouse.rstrip("/"), *self.namespace.split("."), ANY_TABLE))
        if urlsplit(location).scheme not in ("", "file"):
            raise ConfigurationValueError(f"{where}, not {location.partition(ANY_TABLE)[0]!r}.")
        return location

    def data_location(self) -> str:
        """What tells the data of this destination from that of another."""
        return f"{mask_uri(self.catalog_uri)}|{self.warehouse or ''}|{self.namespace}"

    def fingerprint(self) -> str:
        """A digest of :meth:`data_location`."""
        return digest128(self.data_location())

    def __str__(self) -> str:
        return f"{mask_uri(self.catalog_uri)}/{self.namespace}" if self.catalog_uri else ""

    @property
    def _by_credential(self) -> bool:
        """Which of two ways to say who one is counts: a credential is for a token service, a token is one already."""
        return bool(self.credential and (self.oauth2_server_uri or not self.token))

    def _catalog(self) -> CatalogSpec:
        if not self.catalog_uri:
            raise ConfigurationValueError("catalog_uri: the address of the catalog is missing.")
        if self.scope not in (SCOPE, None) and not self.credential:
            raise ConfigurationValueError("scope: it has no meaning without a credential.")
        if self.signing_name not in (GATEWAY, None) and not self.sigv4_enabled:
            raise ConfigurationValueError("signing_name: it has no meaning without sigv4_enabled=True.")
        if self.is_sql:
            self._require_unused("credential", "token", "oauth2_server_uri", "sigv4_enabled", "signing_region")
            if not self.warehouse:
                raise ConfigurationValueError("warehouse: a SQL catalog needs to know where new tables are put.")
            uri = self.catalog_uri.replace("postgres://", "postgresql://", 1)
            return CatalogSpec.model_validate(
                {"type": "sql", "name": CATALOG_NAME, "sql": {"uri": uri, "warehouse": self.warehouse}}
            )
        if urlsplit(self.catalog_uri).scheme not in ("http", "https"):
            raise ConfigurationValueError(
                f"catalog_uri: {mask_uri(self.catalog_uri)!r} is no address of a catalog: write http://..., https://..., "
                "sqlite:///... or postgresql://..."
            )
        if self.signing_region and not self.sigv4_enabled:
            raise ConfigurationValueError("signing_region: it has no meaning without sigv4_enabled=True.")
        if self.oauth2_server_uri and not self.credential:
            raise ConfigurationValueError("oauth2_server_uri: it has no meaning without a credential.")
        rest: dict[str, Any] = {
            "uri": self.catalog_uri,
            "warehouse": self.warehouse,
            "credential": self.credential if self._by_credential else None,
            "token": None if self._by_credential else self.token,
            "oauth2_server_uri": self.oauth2_server_uri,
            "scope": self.scope if self._by_credential else None,
        }
        if self.sigv4_enabled:
            name = self.signing_name or signing_name(self.catalog_uri)
            signing = {"rest.sigv4-enabled": "true", "rest.signing-name": name}
            rest["properties"] = signing | ({"rest.signing-region": self.signing_region} if self.signing_region else {})
        present = {name: value for name, value in rest.items() if value is not None}
        return CatalogSpec.model_validate({"type": "rest", "name": CATALOG_NAME, "rest": present})

    def _s3(self) -> dict[str, Any]:
        """The store's settings. A signed catalog is one of Amazon's, whose tables are in S3."""
        if bool(self.s3_access_key_id) != bool(self.s3_secret_access_key):
            there, absent = ("s3_access_key_id", "s3_secret_access_key")[:: 1 if self.s3_access_key_id else -1]
            raise ConfigurationValueError(f"{there}: it has no meaning without {absent}.")
        given = {
            "endpoint": self.s3_endpoint,
            "access_key_id": self.s3_access_key_id,
            "secret_access_key": self.s3_secret_access_key,
            "region": self.s3_region or (self.signing_region if self.sigv4_enabled else None),
        }
        present = {name: value for name, value in given.items() if value is not None}
        # A store of one's own has no host names for buckets.
        return present | {"path_style_access": True} if self.s3_endpoint else present

    def _location(self, table: str) -> str | None:
        if self.table_location_layout is None:
            return None
        path = _filled_in(
            "table_location_layout",
            self.table_location_layout,
            namespace=self.namespace,
            dataset_name=self.own_dataset or self.dataset_name or self.namespace,
            table_name=table,
            location_tag=uniq_id(_TAG_BYTES),
        )
        if "{table_name}" not in self.table_location_layout:
            raise ConfigurationValueError("table_location_layout: without {table_name} all tables would be in one place.")
        if "{location_tag}" in self.table_location_layout and self.register_new_tables:
            raise ConfigurationValueError("register_new_tables: with a {location_tag} no folder tells the name of its table.")
        if urlsplit(path).scheme or path.startswith("/"):
            return path
        if not self.warehouse or not (self.is_sql or _is_location(self.warehouse)):
            raise ConfigurationValueError(
                "table_location_layout: a relative one needs a warehouse that it is relative to: a location, not a name."
            )
        return f"{self.warehouse.rstrip('/')}/{path}"

    def _require_unused(self, *names: str) -> None:
        for name in names:
            if getattr(self, name):
                raise ConfigurationValueError(f"{name}: it has no meaning for a SQL catalog, and would be ignored.")


@cache
def warn_once(text: str) -> None:
    """dlt reads the settings anew for each client that it makes."""
    logger.warning(text)


def hide_secrets_in_traces() -> None:
    """Keeps passwords out of what dlt shows and stores of a run: addresses and Spark's options may have some in them.

    They are no secrets to dlt as a whole: it would refuse to find them in `config.toml`.
    """
    traces = get_resolved_traces()
    for log in (traces.resolved_traces, traces.all_traces):
        log[:] = [_without_secrets(trace) if isinstance(trace.config, IcebergRestConfiguration) else trace for trace in log]


def _without_secrets(trace: ResolvedValueTrace) -> ResolvedValueTrace:
    # In a variable options are one text, which does not tell what in it is secret.
    is_text_of_options = trace.key == "spark_conf" and isinstance(trace.value, str)
    value = MASK if is_text_of_options else masked(trace.value, trace.key)
    return trace._replace(value=value, default_value=masked(trace.default_value, trace.key))


def _is_location(warehouse: str) -> bool:
    """Whether it is a place, not a name that the catalog knows."""
    return bool(urlsplit(warehouse).scheme) or warehouse.startswith("/")


def _filled_in(option: str, template: str, **parts: str) -> str:
    try:
        return template.format(**parts)
    except (KeyError, IndexError, ValueError) as error:
        known = " and ".join(f"{{{name}}}" for name in parts)
        raise ConfigurationValueError(f"{option}: {template!r} cannot be filled in ({error}); it may hold {known}.") from None


# What the settings are called in the model, where that differs from their own names.
_NAMES = {
    "backoff_multiplier": "retry_backoff_base", "partition_by": "x-partition", "write_properties": "table_properties",
    "conf": "spark_conf", "master": "spark_master",
}  # fmt: skip


def _refused(error: ValidationError, name: str | None = None) -> ConfigurationValueError:
    """What pydantic found first, under the name of the setting: the one given, or that of the place in the model."""
    first = error.errors(include_url=False, include_input=False)[0]
    # An error about options that do not fit together has the place in itself.
    cause = first.get("ctx", {}).get("error")
    at = cause.problems[0].at[:1] if isinstance(cause, InconsistencyError) else ()
    place = name or str((first["loc"] or at or ("destination",))[0])
    return ConfigurationValueError(f"{_NAMES.get(place, place)}: {first['msg'].removeprefix('Value error, ')}")
