"""Somebody else who appends to a table without a pause until it is asked to end: ``appending.py TABLE CATALOG PROPERTIES``.

The properties of the catalog are JSON. The number of each row is printed when it is in the table.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from itertools import count

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from exactly_once.truth import FOREIGN

SCHEMA = pa.schema([pa.field("writer", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False)])


def append(table: Callable[[], Table], number: int) -> None:
    """Adds a row; another writer's commit in between is a reason to try again."""
    row = pa.table({"writer": [FOREIGN], "id": [number]}, SCHEMA)
    while True:
        try:
            table().append(row)
        except CommitFailedException:
            continue
        return


if __name__ == "__main__":
    name, catalog_name, properties = sys.argv[1:]
    catalog = load_catalog(catalog_name, **json.loads(properties))
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    for number in count():
        if over.is_set():
            break
        append(lambda: catalog.load_table(name), number)
        print(number, flush=True)
