"""The catalogs and stores that can be started here, configured as `docs/catalogs.md` says, and the ways of others to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable, Table

from exactly_once.ground import Ground
from frazil.doors.yaml import load_text
from frazil.iceberg import Lake as Doors
from frazil.model.catalog import CatalogType
from frazil.model.sink import SinkSpec
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import give_components, session_for
from helpers.lakes import Lake, fresh_name
from services.amazon_rest import ACCOUNT, AmazonRest, glue_rest, s3_tables
from services.aws import Aws
from services.azure import Azure
from services.gcs import Gcs
from services.hdfs import Hdfs
from services.hive import HiveMetastore
from services.mariadb import MariaDb
from services.nessie import Nessie
from services.postgres import Postgres
from services.rest_catalog import RestCatalog
from services.rest_servers import SERVERS, RestServer
from services.s3proxy import REGION, S3Store

# The fixtures of stores that speak S3.
STORES = {"S3": "s3", "versitygw": "versitygw"}
AMAZON = ("Glue", "Glue by REST", "S3 Tables")
PAGE = Path(__file__).parents[2] / "docs" / "catalogs.md"
HEAD = """\
sources:
  s: {connector: generator}
sinks:
  lake:
    connector: iceberg
    config:
      namespace: n
      table: t
"""


def blocks() -> dict[str, str]:
    """The configurations of the page, by their titles."""
    return dict(re.findall(r"```yaml\n# (.*?)\n(.*?)```", PAGE.read_text(), re.DOTALL))


def block_of(title: str) -> str:
    """The title of the configuration for a place: another server that speaks S3 needs no other."""
    return title.replace("versitygw", "S3")


def described(title: str, variables: Mapping[str, str]) -> SinkSpec:
    """The sink of one of them."""
    return read(blocks()[block_of(title)], variables)


def read(block: str, variables: Mapping[str, str]) -> SinkSpec:
    """The sink of a configuration, read as a pipeline file is."""
    text = HEAD + "".join(f"      {line}\n" for line in block.splitlines())
    return load_text(text, "catalogs.md", variables).sinks["lake"]


@dataclass(frozen=True)
class Place:
    """A catalog and a store. ``others``: the catalog for PyIceberg; None where it has no such one. ``variables``: what stands for
    the variables of its configuration.

    ``in_files``: whether the metadata of tables is in files that others can read, ``in_reach_of_duckdb``: also DuckDB, which does
    not know the emulators. ``nested``: whether namespaces have more than one level. ``compares``: whether of two commits that
    were made from one state of a table the second is refused. ``remembers``: whether all snapshots of a table are shown.
    ``maintained``: whether frazil looks after its tables. ``lists``: whether the store can list files by a prefix, without which
    none are deleted. ``atomic``: whether several tables can be committed at once. ``folder``: where new tables have to be, if the
    catalog must be given.
    """

    title: str
    lake: Lake
    others: Callable[[], Catalog] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    in_files: bool = True
    in_reach_of_duckdb: bool = True
    nested: bool = True
    compares: bool = True
    remembers: bool = True
    maintained: bool = True
    lists: bool = True
    atomic: bool = True
    folder: str | None = None

    def __str__(self) -> str:
        return self.title

    def namespace(self) -> str:
        """A name that no other test has, of several levels where there are any."""
        return f"{fresh_name()}.eu.north" if self.nested else fresh_name()

    def made_by_pyiceberg(self, namespace: str) -> Catalog:
        """The catalog for PyIceberg, with a new namespace; a metastore puts those that do not say where into its own folder."""
        assert self.others is not None
        catalog = self.others()
        hive = self.lake.catalog.get("hive")
        catalog.create_namespace(namespace, {"location": f"{hive['warehouse']}/{namespace}.db"} if hive else {})
        return catalog

    def by_pyiceberg(self, table: str) -> Table:
        """The table as PyIceberg finds it: through the catalog, or from its newest metadata where there is none for others."""
        if self.others is not None:
            return self.others().load_table(table)
        log = self.lake.spark.table(f"{self.lake.name}.{table}.metadata_log_entries").orderBy("timestamp").collect()
        return StaticTable.from_metadata(log[-1].file, dict(self.files))

    def by_duckdb(self, table: str) -> list[tuple[Any, ...]]:
        """The rows as DuckDB reads them."""
        import duckdb

        from helpers.readers import EXTENSIONS, extension_file

        metadata = self.by_pyiceberg(table).metadata_location.removeprefix("file://")
        with duckdb.connect() as connection:
            for name in EXTENSIONS:
                connection.load_extension(str(extension_file(name)))
            if self.files:
                connection.execute(
                    "create secret (type s3, provider config, key_id ?, secret ?, region ?, endpoint ?, url_style 'path', "
                    "use_ssl false)",
                    [
                        self.files["s3.access-key-id"],
                        self.files["s3.secret-access-key"],
                        self.files["s3.region"],
                        urlsplit(self.files["s3.endpoint"]).netloc,
                    ],
                )
            found = connection.execute("select * from iceberg_scan(?)", [metadata]).fetchall()
        return sorted(found, key=repr)

    def rows_by_all(self, table: str) -> list[tuple[Any, ...]]:
        """The rows as Spark reads them, after PyIceberg and DuckDB were found to read the same."""
        rows = self.lake.rows(table=table)
        if self.in_files:
            found = self.by_pyiceberg(table).scan().to_arrow().to_pylist()
            assert sorted((tuple(row.values()) for row in found), key=repr) == rows
        if self.in_files and self.in_reach_of_duckdb:
            assert self.by_duckdb(table) == rows
        return rows

    def ground(self, namespace: str) -> Ground:
        """A table of numbers for writers that meet in it, each in a session of its own."""
        if self.lake.catalog["type"] == CatalogType.MEMORY:
            pytest.skip("each session has a memory catalog of its own, where no two writers meet")
        spec = self.lake.sink(table=f"{namespace}.t").spec
        direct = self.others() if self.others else None
        return Ground(self.lake.spark, spec.catalog, direct, namespace, self.lake.given)  # type: ignore[arg-type]

    def doors(self) -> Doors:
        """The catalog as frazil itself opens it."""
        spec = self.lake.sink(table="n.t").spec
        return Doors(session_for(self.lake.spark, catalog_settings(spec)), self.lake.name, "the catalog")


@contextmanager
def place(title: str, lake: Lake, services: Callable[[str], Any]) -> Iterator[Place]:
    """One of the places, as long as the block, in the folder of a lake. ``services`` starts a service by its fixture's name."""
    with ExitStack() as stack:
        kind, _, store = title.partition(", ")
        variables, files = {"FOLDER": str(lake.folder)}, {}
        stands_in: RestServer | None = None
        if store in STORES:
            variables, files = _s3(services("aws" if kind == "Glue" else STORES[store]), variables)
        elif store == "GCS":
            gcs: Gcs = services("gcs")
            variables |= {"GCS_ENDPOINT": gcs.endpoint, "BUCKET": _new_bucket(gcs)}
            files = gcs.properties
        elif store == "HDFS":
            hdfs: Hdfs = services("hdfs")
            variables |= {"NAME_NODE": hdfs.address, "HDFS_FOLDER": fresh_name()}
        elif store == "Azure":
            azure: Azure = services("azure")
            location = urlsplit(azure.create_bucket(fresh_name().replace("_", "-")))
            variables |= {"CONTAINER": location.username or "", "ACCOUNT": azure.account}
            variables["CONNECTION_STRING"] = azure.connection_string
            files = azure.properties
        match kind:
            case "PostgreSQL":
                variables |= _postgres(services("postgres"))
            case "MariaDB":
                variables |= _mariadb(services("mariadb"))
            case "REST":
                server: RestCatalog = services({"S3": "rest_catalog_s3", "GCS": "rest_catalog_gcs"}.get(store, "rest_catalog"))
                variables["REST_URI"] = server.uri
            case kind if kind in SERVERS:
                behind: RestCatalog = services("rest_catalog_s3")
                stands_in = stack.enter_context(SERVERS[kind](behind.uri, services("s3"), urlsplit(behind.warehouse).netloc))
                variables |= stands_in.variables
                give_components(lake.spark, ("core", "aws"))
            case "Nessie" | "Nessie by its own protocol":
                nessie: Nessie = services("nessie")
                variables |= {"NESSIE_URI": nessie.uri, "NESSIE_SERVER": nessie.uri.removesuffix("/iceberg")}
            case "Hive metastore":
                hive: HiveMetastore = services("hive")
                variables["HIVE_URI"] = hive.uri
            case "Glue":
                aws: Aws = services("aws")
                variables["GLUE_ENDPOINT"] = aws.endpoint
                stack.enter_context(keys_of_amazon(lake, aws))
            case "S3 Tables":
                behind = services("rest_catalog_s3")
                buckets = stack.enter_context(s3_tables(behind.uri, services("s3"), fresh_name()))
                variables |= {"S3TABLES_URI": buckets.base, "TABLE_BUCKET": buckets.warehouse, "S3_ENDPOINT": buckets.endpoint}
                files = {**files, "s3.endpoint": buckets.endpoint}
            case "Glue by REST":
                behind = services("rest_catalog_s3")
                glue: AmazonRest = stack.enter_context(glue_rest(behind.uri, services("s3")))
                variables |= {"GLUE_REST_URI": glue.base, "ACCOUNT_ID": ACCOUNT}
        made = lake_of(lake, described(title, variables))
        yield Place(
            title,
            made,
            _by_rest(made, stands_in) if stands_in else None if store == "HDFS" else _others(kind, made, variables, files),
            files,
            variables,
            in_files=kind != "Memory" and store != "HDFS",
            in_reach_of_duckdb=store not in ("GCS", "Azure"),
            nested=kind not in ("Hive metastore", "Unity Catalog", *AMAZON),
            compares=kind != "Glue",
            remembers=kind != "Nessie",
            maintained=kind not in ("Nessie", "Nessie by its own protocol", "S3 Tables"),
            lists=store != "Azure",
            atomic=kind in ("SQLite", "PostgreSQL", "MariaDB", "REST", "Nessie", "Polaris", "Lakekeeper"),
            folder=f"s3://{variables['BUCKET']}/warehouse" if kind == "Glue by REST" else None,
        )


def lake_of(lake: Lake, sink: SinkSpec, **s3: Any) -> Lake:
    """A lake with the catalog and the store of a sink; ``s3`` are more settings of the latter."""
    stores = {name: getattr(sink, name) for name in ("s3", "gcs", "azure")}
    given = {name: store.model_dump(exclude_unset=True) for name, store in stores.items() if store is not None}
    if s3:
        given["s3"] |= s3
    made = replace(lake.with_catalog(sink.catalog.model_dump(exclude_unset=True)), given=given)
    give_components(lake.spark, catalog_settings(made.sink(table="n.t").spec).components)
    return made


def _s3(store: S3Store | Aws, variables: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    keys = {
        "S3_ENDPOINT": store.endpoint,
        "S3_ACCESS_KEY_ID": store.access_key_id,
        "S3_SECRET_ACCESS_KEY": store.secret_access_key,
        "BUCKET": _new_bucket(store),
    }
    return variables | keys, store.properties


def _new_bucket(store: S3Store | Aws | Gcs) -> str:
    return urlsplit(store.create_bucket(fresh_name().replace("_", "-"))).netloc


def _postgres(server: Postgres) -> dict[str, str]:
    address = server.create_database(fresh_name())
    return {"POSTGRES_URI": address, "POSTGRES_USER": server.user, "POSTGRES_PASSWORD": server.password}


def _mariadb(server: MariaDb) -> dict[str, str]:
    address = server.create_database(fresh_name())
    return {"MARIADB_URI": address, "MARIADB_USER": server.user, "MARIADB_PASSWORD": server.password}


@contextmanager
def keys_of_amazon(lake: Lake, aws: Aws) -> Iterator[None]:
    """Keys where Amazon's default chain looks first, in Java, which runs already, and in Python."""
    system: Any = lake.spark._jvm
    system = system.java.lang.System
    keys = {"aws.accessKeyId": aws.access_key_id, "aws.secretAccessKey": aws.secret_access_key}
    for key, value in keys.items():
        system.setProperty(key, value)
    with pytest.MonkeyPatch.context() as environment:
        for key, value in aws.environment.items():
            environment.setenv(key, value)
        yield
    for key in keys:
        system.clearProperty(key)


def _others(kind: str, lake: Lake, variables: Mapping[str, str], files: Mapping[str, str]) -> Callable[[], Catalog] | None:
    """How PyIceberg opens the catalog, in its own words."""
    if "CONTAINER" in variables:
        warehouse = f"abfss://{variables['CONTAINER']}@{variables['ACCOUNT']}.dfs.core.windows.net/warehouse"
    elif "BUCKET" in variables:
        warehouse = f"{'gs' if 'GCS_ENDPOINT' in variables else 's3'}://{variables['BUCKET']}/warehouse"
    else:
        warehouse = f"file://{lake.folder}/warehouse"
    properties: dict[str, Any]
    match kind:
        case "SQLite":
            properties = {"type": "sql", "uri": f"sqlite:///{lake.folder}/catalog.db", "warehouse": warehouse}
        case "PostgreSQL":
            login = f"{variables['POSTGRES_USER']}:{variables['POSTGRES_PASSWORD']}@"
            uri = variables["POSTGRES_URI"].replace("postgresql://", f"postgresql+psycopg2://{login}")
            properties = {"type": "sql", "uri": uri, "warehouse": warehouse}
        case "MariaDB":
            login = f"{variables['MARIADB_USER']}:{variables['MARIADB_PASSWORD']}@"
            uri = variables["MARIADB_URI"].replace("mariadb://", f"mysql+pymysql://{login}")
            properties = {"type": "sql", "uri": uri, "warehouse": warehouse}
        case "REST":
            properties = {"type": "rest", "uri": variables["REST_URI"]}
        case "Nessie":
            properties = {"type": "rest", "uri": variables["NESSIE_URI"]}
        case "Hive metastore":
            properties = {"type": "hive", "uri": variables["HIVE_URI"], "warehouse": warehouse}
        case "Glue":
            properties = {"type": "glue", "glue.endpoint": variables["GLUE_ENDPOINT"], "warehouse": warehouse}
            properties |= {"glue.region": "us-east-1"}
        case "Glue by REST":
            properties = {"type": "rest", "uri": variables["GLUE_REST_URI"], "warehouse": ACCOUNT} | _signed("glue", files)
        case "S3 Tables":
            arn = variables["TABLE_BUCKET"]
            properties = {"type": "rest", "uri": variables["S3TABLES_URI"], "warehouse": arn} | _signed("s3tables", files)
        case _:
            return None
    return lambda: load_catalog(lake.name, **properties, **files)


def _by_rest(lake: Lake, server: RestServer) -> Callable[[], Catalog]:
    """How PyIceberg opens a catalog that brings the keys of its store."""
    return lambda: load_catalog(lake.name, **server.pyiceberg)


def _signed(service: str, files: Mapping[str, str]) -> dict[str, str]:
    return {
        "rest.sigv4-enabled": "true",
        "rest.signing-name": service,
        "rest.signing-region": REGION,
        "client.access-key-id": files["s3.access-key-id"],
        "client.secret-access-key": files["s3.secret-access-key"],
    }
