"""A catalog: namespaces, and tables found and made."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from frazil.columns.schema import table_name
from frazil.commit.protocol import Swap
from frazil.errors import ConfigError
from frazil.iceberg.faults import ICEBERG
from frazil.iceberg.jvm import Jvm, active, attempt_errors, fault_of, items, java_errors
from frazil.iceberg.port import IcebergPort
from frazil.iceberg.table import IcebergTable
from frazil.iceberg.together import TableSwap, Together, together
from frazil.model.publishing import MAIN
from frazil.model.types import StructType, schema_json
from frazil.spark.requests import COUNTED_REST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("frazil")

_STEPS_OF_A_NEW_CATALOG = 3
_MADE_MEANWHILE = ("already exists", "duplicate column name")


# The catalogs whose requests are counted when they are sent.
_COUNTED = (COUNTED_REST, "org.apache.iceberg.aws.glue.GlueCatalog")

_KINDS = {
    "loadTable": "load",
    "listTables": "list",
    "buildTable": "create",
    "registerTable": "create",
    "dropTable": "drop",
    "namespaceExists": "namespace",
    "listNamespaces": "namespace",
    "createNamespace": "namespace",
    "dropNamespace": "namespace",
}


class _Calls:
    """A catalog whose calls are counted, unless its requests are."""

    def __init__(self, catalog: Any, jvm: Jvm) -> None:
        self._catalog = catalog
        self._jvm = jvm

    def __getattr__(self, name: str) -> Any:
        if name in _KINDS:
            self._jvm.asks(_KINDS[name])
        return getattr(self._catalog, name)


class Lake:
    """One catalog through one Spark session."""

    def __init__(self, spark: SparkSession, catalog_name: str, address: str) -> None:
        self.spark = spark
        self.address = address
        self._name = catalog_name
        with java_errors(address), active(spark):
            self._jvm = Jvm(spark)
            catalog = self._opened_catalog(catalog_name)
            if str(catalog.getClass().getName()) not in _COUNTED:
                self._jvm.count_calls()
            self._java_catalog = catalog
            self._catalog = _Calls(catalog, self._jvm)

    def _opened_catalog(self, name: str) -> Any:
        """The catalog. A new SQL catalog makes its tables and a column one by one, and somebody else may just have made each."""
        load = self._jvm.iceberg.spark.Spark3Util.loadIcebergCatalog
        for _ in range(_STEPS_OF_A_NEW_CATALOG):
            try:
                return load(self.spark._jsparkSession, name)
            except Exception as error:
                if not any(words in fault_of(error).text for words in _MADE_MEANWHILE):
                    raise
        return load(self.spark._jsparkSession, name)

    def load_anew(self, levels: tuple[str, ...], table: str, branch: str = MAIN) -> IcebergTable | None:
        """The table as if it were loaded for the first time: a catalog gives out new credentials of its files then."""
        with java_errors(self.address):
            self._catalog.invalidateTable(self._identifier(levels, table))
        return self.load(levels, table, branch)

    def load(self, levels: tuple[str, ...], table: str, branch: str = MAIN) -> IcebergTable | None:
        """The table as it is seen from a branch, or None when it does not exist."""
        with java_errors(self.address):
            try:
                return self._opened(levels, table, self._catalog.loadTable(self._identifier(levels, table)), branch)
            except Exception as error:
                if fault_of(error).find(f"{ICEBERG}NoSuchTableException", f"{ICEBERG}NoSuchNamespaceException"):
                    return None
                raise

    def missing_namespaces(self, levels: tuple[str, ...]) -> tuple[str, ...]:
        """Which of the nested namespaces do not exist yet, from the outermost."""
        with java_errors(self.address):
            prefixes = [levels[: depth + 1] for depth in range(len(levels))]
            return tuple(".".join(p) for p in prefixes if not self._catalog.namespaceExists(self._namespace(p)))

    def has_tables(self, levels: tuple[str, ...]) -> bool:
        """Whether any table is in the innermost namespace."""
        with java_errors(self.address):
            return not self._catalog.listTables(self._namespace(levels)).isEmpty()

    @cached_property
    def _together(self) -> Together | None:
        return together(self._jvm, self._java_catalog, self.address)

    @property
    def commits_together(self) -> bool:
        """Whether the catalog can change several tables in one step."""
        return self._together is not None

    def swap_together(self, swaps: Mapping[tuple[tuple[str, ...], str], tuple[IcebergPort, Swap]]) -> None:
        """Changes tables, by levels and name, in one step: all of them, or none."""
        assert self._together is not None, "the catalog can"
        with attempt_errors(self.address):
            following = {name: port.following(s.view, s.snapshot, s.intent, s.state) for name, (port, s) in swaps.items()}
            self._jvm.asks("commit")
            self._together([TableSwap(self._identifier(*name), one) for name, one in following.items()])
            for one in following.values():
                one.applied()

    def ensure_namespace(self, levels: tuple[str, ...]) -> None:
        """Makes the nested namespaces that are missing; one that somebody else made meanwhile is as good."""
        with java_errors(self.address):
            for depth in range(len(levels)):
                namespace = self._namespace(levels[: depth + 1])
                if self._catalog.namespaceExists(namespace):
                    continue
                try:
                    self._catalog.createNamespace(namespace)
                except Exception:
                    # Not every catalog says that it is there already: a SQL catalog lets the database complain.
                    if not self._catalog.namespaceExists(namespace):
                        raise

    def create(
        self,
        levels: tuple[str, ...],
        table: str,
        schema: StructType,
        *,
        keys: tuple[str, ...],
        partition: Mapping[str, Any],
        sort: Mapping[str, Any],
        properties: Mapping[str, str],
        location: str | None,
        branch: str = MAIN,
    ) -> IcebergTable:
        """Makes the table; when somebody else made it meanwhile, that one is returned."""
        iceberg = self._jvm.iceberg
        with java_errors(self.address):
            java_schema = self._jvm.schema_from_json(json.dumps(schema_json(schema, keys)))
            spec = iceberg.PartitionSpecParser.fromJson(java_schema, json.dumps(partition))
            builder = self._catalog.buildTable(self._identifier(levels, table), java_schema).withPartitionSpec(spec)
            order = iceberg.SortOrderParser.fromJson(java_schema, json.dumps(sort))
            builder = builder.withSortOrder(order).withProperties(dict(properties))
            if location:
                builder = builder.withLocation(location)
            self._require_own_folder(levels, table, builder)
            try:
                return self._opened(levels, table, builder.create(), branch)
            except Exception as error:
                if not fault_of(error).find(f"{ICEBERG}AlreadyExistsException"):
                    raise
            if (made_meanwhile := self.load(levels, table, branch)) is not None:
                return made_meanwhile
            # Iceberg calls every failure of the commit so. A transaction tells what it really is, or makes the table after all.
            builder.createTransaction().commitTransaction()
            return self._opened(levels, table, self._catalog.loadTable(self._identifier(levels, table)), branch)

    def _require_own_folder(self, levels: tuple[str, ...], table: str, builder: Any) -> None:
        """Refuses a table whose folder would be within that of another, or around it: cleaning up one deletes files of the other.

        That is so where a table is called like a namespace beside it, and the catalog makes folders of names.
        """
        around = [self.load(levels[:depth], levels[depth]) for depth in range(1, len(levels))]
        within = list(self._locations_in((*levels, table))) if self._puts_tables_by_name else []
        others = [(one.sql_name, one.location) for one in around if one is not None] + within
        if not others:
            return
        own = _folder(str(builder.createTransaction().table().location()))
        for name, location in others:
            if own.startswith(_folder(location)) or _folder(location).startswith(own):
                raise ConfigError(
                    "folders-nested",
                    f"The table {'.'.join((*levels, table))} would be in {own}, and {name} is in {location}: one folder would be "
                    "within the other, and a cleanup of one table would delete files of the other.",
                    fix="Choose another name or namespace, or set location.",
                )

    @property
    def _puts_tables_by_name(self) -> bool:
        """Whether the catalog has nested namespaces, and the folders of its tables are derived from names here, not by a
        service.
        """
        return str(self._catalog.getClass().getSimpleName()) in ("JdbcCatalog", "HadoopCatalog", "InMemoryCatalog")

    def _locations_in(self, levels: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """The tables of a namespace and of those within it, by name and location; none when there is no such namespace."""
        namespace = self._namespace(levels)
        if not self._catalog.namespaceExists(namespace):
            return
        for name in items(self._catalog.listTables(namespace)):
            yield str(name), str(self._catalog.loadTable(name).location())
        for inner in items(self._catalog.listNamespaces(namespace)):
            yield from self._locations_in(tuple(str(level) for level in inner.levels()))

    def sharing_folder(self, levels: tuple[str, ...], table: IcebergTable) -> list[str]:
        """The other tables of the namespace whose folder is within that of a table, around it, or the same."""
        own = _folder(table.location)
        with java_errors(self.address):
            others = {name: _folder(location) for name, location in self._locations_in(levels)}
        mine = self._identifier(levels, table.sql_name.rpartition(".")[2].strip("`"))
        del others[str(mine)]
        return sorted(name for name, location in others.items() if location.startswith(own) or own.startswith(location))

    def drop(self, levels: tuple[str, ...], table: str) -> bool:
        """Drops the table with its files; whether it was there. The files stay where the catalog lets nobody delete them."""
        with java_errors(self.address):
            name = self._identifier(levels, table)
            try:
                return bool(self._catalog.dropTable(name, True))
            except Exception as error:
                fault = fault_of(error)
                if fault.find(f"{ICEBERG}NoSuchTableException", f"{ICEBERG}NoSuchNamespaceException"):
                    return False
                # Polaris refuses to delete files unless that is allowed for the catalog, and Glue's REST endpoint always.
                refused = fault.find(f"{ICEBERG}ForbiddenException", f"{ICEBERG}BadRequestException")
                if not refused or "purge" not in fault.text.lower():
                    raise
            dropped = bool(self._catalog.dropTable(name, False))
            _log.warning("%s.%s was dropped, and its files stay: the catalog does not delete them.", ".".join(levels), table)
            return dropped

    def drop_empty_namespace(self, levels: tuple[str, ...]) -> None:
        """Drops the innermost namespace; one that somebody else still has tables in stays."""
        with java_errors(self.address):
            try:
                self._catalog.dropNamespace(self._namespace(levels))
            except Exception as error:
                if not fault_of(error).find(f"{ICEBERG}NamespaceNotEmptyException", f"{ICEBERG}NoSuchNamespaceException"):
                    raise

    def register(self, levels: tuple[str, ...], table: str, metadata: str) -> IcebergTable:
        """Makes a table known that is there in files alone, by the location of its metadata."""
        with java_errors(self.address):
            return self._opened(levels, table, self._catalog.registerTable(self._identifier(levels, table), metadata))

    def _opened(self, levels: tuple[str, ...], name: str, table: Any, branch: str = MAIN) -> IcebergTable:
        return IcebergTable(self._jvm, self.address, table, table_name(self._name, levels, name), branch)

    def _namespace(self, levels: tuple[str, ...]) -> Any:
        return self._jvm.iceberg.catalog.Namespace.of(self._jvm.strings(levels))

    def _identifier(self, levels: tuple[str, ...], table: str) -> Any:
        return self._jvm.iceberg.catalog.TableIdentifier.of(self._namespace(levels), table)


# Names of one store: of the local disk with one slash or three, or none at all, and of S3 by its older clients.
_SAME_STORE = ((re.compile("^(file:)?/+"), "file:///"), (re.compile("^s3[an]://"), "s3://"))


def _folder(location: str) -> str:
    """A location with a slash at its end, written in one of its ways."""
    for pattern, way in _SAME_STORE:
        location = pattern.sub(way, location)
    return f"{location.rstrip('/')}/"
