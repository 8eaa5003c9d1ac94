"""Appends of many rows to a store that speaks S3: frazil against Spark's own Iceberg sink there, and against the local disk.

The store is s3proxy, over a folder of the same disk. Both write to the same catalog with the same options.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lab import CATALOG, FRAZIL, NAMESPACE, Lab, Measure, interleaved, timed
from benchmarks.services import Services
from benchmarks.summary import Finding, ratio
from frazil.model.storage import S3Storage
from frazil.spark.session import give_components
from frazil.spark.stores import s3_options
from services.s3proxy import S3Store

STORED = "stored"
SPARK, DISK = "Spark's Iceberg sink", "frazil on the local disk"


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """All appends, interleaved."""
    with Services(lab.folder / "store") as services:
        _introduce(lab, services("s3"))
        lab.source()

        def by_frazil(catalog: str) -> Measure:
            return lambda: _append(lab, catalog, lambda name: lab.sink(lab.source(), name).write())

        contestants: dict[str, Measure] = {
            FRAZIL: by_frazil(STORED),
            SPARK: lambda: _append(lab, STORED, lambda name: lab.source().writeTo(name).append()),
            DISK: by_frazil(CATALOG),
        }
        runs = interleaved(contestants, lab.sizes, tell)
    return [_finding(lab, runs, SPARK, 1.0), _finding(lab, runs, DISK)]


def _introduce(lab: Lab, store: S3Store) -> None:
    """A catalog like that of the lab, whose tables are in a bucket."""
    give_components(lab.spark, ["aws"])
    s3 = S3Storage.model_validate(
        {
            "endpoint": store.endpoint,
            "path_style_access": True,
            "access_key_id": store.access_key_id,
            "secret_access_key": store.secret_access_key,
        }
    )
    prefix = f"spark.sql.catalog.{CATALOG}"
    known = {key.removeprefix(prefix): value for key, value in lab.spark.conf.getAll.items() if key.startswith(prefix)}
    files = {f".{key}": value for key, value in s3_options(s3).items()}
    own = {".uri": f"jdbc:sqlite:{lab.folder}/stored.db", ".warehouse": f"{store.create_bucket('bench')}/warehouse"}
    for name, value in (known | files | own).items():
        lab.spark.conf.set(f"spark.sql.catalog.{STORED}{name}", value)
    lab.spark.sql(f"CREATE NAMESPACE {STORED}.{NAMESPACE}")


def _append(lab: Lab, catalog: str, work: Callable[[str], object]) -> float:
    name = lab.make_table("put", lab.source(), catalog=catalog)
    seconds = timed(lambda: work(name))
    lab.drop_table(name, lab.sizes.rows)
    return seconds


def _finding(lab: Lab, runs: dict[str, list[float]], other: str, at_least: float | None = None) -> Finding:
    return Finding(
        benchmark="stores",
        case=f"S3, {other}",
        goal=f"append of {lab.sizes.rows:,} rows to S3: speed relative to {other}",
        value=ratio(runs[other], runs[FRAZIL]),
        at_least=at_least,
        against=other,
        unit="seconds",
        runs={FRAZIL: runs[FRAZIL], other: runs[other]},
        details={"rows": lab.sizes.rows, "codec": "snappy", "store": "s3proxy 4.1"},
    )
