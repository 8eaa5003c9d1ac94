"""The packages that only some sources, catalogs and stores need, and which of them a pipeline file needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.model.catalog import CatalogType
from frazil.model.packages import BROUGHT_BY

if TYPE_CHECKING:
    from frazil.model.pipeline import ProjectSpec
    from frazil.model.sink import SinkSpec
    from frazil.model.source import SourceSpec


@dataclass(frozen=True)
class Package:
    """An optional package: the module to look for, and what brings it. A run needs some, the others only `check` and `status`."""

    module: str
    brought_by: str
    purpose: str
    for_runs: bool = False

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported. The packages around it may be missing, too."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False


LOOKS = "check, status and inspect of"
PSYCOPG2 = Package("psycopg2", BROUGHT_BY["psycopg2"], f"{LOOKS} SQL catalogs on PostgreSQL")
THRIFT = Package("thrift", BROUGHT_BY["thrift"], f"{LOOKS} Hive catalogs")
BOTO3 = Package("boto3", BROUGHT_BY["boto3"], f"{LOOKS} Glue catalogs, and of signed REST catalogs")
PYMYSQL = Package("pymysql", BROUGHT_BY["pymysql"], f"{LOOKS} SQL catalogs on MySQL and MariaDB")
BIGQUERY = Package("google.cloud.bigquery", BROUGHT_BY["google"], f"{LOOKS} BigQuery's metastore")
GCSFS = Package("gcsfs", BROUGHT_BY["gcsfs"], f"{LOOKS} stores of Google with a key in the file")
DUCKDB = Package("duckdb", "frazil[readers]", "queries with DuckDB")
PSYCOPG = Package("psycopg", "frazil[postgres]", "changes of PostgreSQL", for_runs=True)
PROTOBUF = Package("google.protobuf", "frazil[protobuf]", "messages in Protobuf", for_runs=True)
BIZON = Package("bizon", "frazil[bizon]", "sources of Bizon's", for_runs=True)
GOOGLE_AUTH = Package("google.auth", "frazil[bigquery]", "external tables of BigQuery", for_runs=True)

OPTIONAL = (PSYCOPG2, THRIFT, BOTO3, DUCKDB)
"""What is listed of a machine when no file says what is needed."""


def needed_packages(project: ProjectSpec) -> dict[Package, str]:
    """The optional packages that a file needs, and what in it needs them first."""
    found: dict[Package, str] = {}
    for name, sink in project.sinks.items():
        for package in _of_sink(sink):
            found.setdefault(package, f"sink {name}")
    for name, source in project.sources.items():
        for package in _of_source(source):
            found.setdefault(package, f"source {name}")
    return found


def _of_sink(sink: SinkSpec) -> Iterator[Package]:
    from frazil.spark.catalogs import catalog_settings

    settings = catalog_settings(sink)
    match sink.catalog.type:
        case CatalogType.HIVE:
            yield THRIFT
        case CatalogType.GLUE:
            yield BOTO3
        case CatalogType.SQL if "postgres" in settings.components:
            yield PSYCOPG2
        case CatalogType.SQL if "mysql" in settings.components:
            yield PYMYSQL
        case CatalogType.BIGQUERY:
            yield BIGQUERY
        case _ if settings.options.get("rest.sigv4-enabled") == "true":
            yield BOTO3
    gcs = sink.gcs
    if gcs is not None and (gcs.service_account_path or gcs.service_account_key or gcs.no_auth):
        yield GCSFS
    if sink.biglake is not None:
        yield GOOGLE_AUTH


def _of_source(source: SourceSpec) -> Iterator[Package]:
    from frazil.model.format import ProtobufFormat
    from frazil.model.source import PagesSource, PostgresCdcSource

    if isinstance(source, PostgresCdcSource):
        yield PSYCOPG
    if isinstance(source, PagesSource):
        yield BIZON
    if isinstance(getattr(source, "format", None), ProtobufFormat):
        yield PROTOBUF
