"""A process that loads one Parquet file with dlt and ends: ``python load_process.py frazil|dlt FILE FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(kind: str, file: str, folder: str) -> None:
    os.environ |= {"DLT_DATA_DIR": f"{folder}/data", "RUNTIME__DLTHUB_TELEMETRY": "false"}
    import dlt
    import pyarrow.parquet

    from frazil.dlt import iceberg_rest

    if kind == "frazil":
        destination = iceberg_rest(catalog_uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/lake", namespace="whole")
    else:
        destination = dlt.destinations.filesystem(bucket_url=Path(folder, "lake").absolute().as_uri())

    @dlt.resource(table_format="iceberg")
    def rows():  # type: ignore[no-untyped-def]
        yield pyarrow.parquet.read_table(file)

    pipeline = dlt.pipeline("whole", destination=destination, dataset_name="whole", pipelines_dir=f"{folder}/pipelines")
    pipeline.run(rows()).raise_on_failed_jobs()


if __name__ == "__main__":
    main(*sys.argv[1:])
