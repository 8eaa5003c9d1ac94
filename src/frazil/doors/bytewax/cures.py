"""What to do about an error of the engine, by the names that things have here: its own cures are those of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from frazil.errors import FrazilError

_TABLE_CHANGED = "The schema is static: change the table back, or start the flow again with the schema that the table has now."
_AGAIN = "Start the flow again, with its recovery store: what the table has more than that knows of is taken back first."

_CURES = {
    "partitioning-differs": "Leave partition_spec out to write by the table's own spec, or change that: "
    "ALTER TABLE ... ADD | DROP PARTITION FIELD ...",
    "order-differs": "Leave sort_order out to write in the table's own order, or change that: "
    "ALTER TABLE ... WRITE ORDERED BY ...",
    "table-missing": "Create the table, or have it made: give table_schema or arrow_schema, and do not set "
    "auto_create_table=False in extra_options.",
    "namespace-missing": "Create it.",
    "s3-access-denied": "Check the keys, and the permissions s3:GetObject, s3:PutObject, s3:DeleteObject. For MinIO set "
    "extra_options={'s3.path-style-access': 'true'}.",
    "s3-keys-refused": "Check s3.access-key-id, s3.secret-access-key and, for temporary keys, s3.session-token in extra_options.",
    "wrong-region": "Set client.region in extra_options to the region of the bucket.",
    "path-style-needed": "Set extra_options={'s3.path-style-access': 'true'}.",
    "warehouse-missing": "Correct warehouse_path: most REST catalogs want a name that they know there, not a bucket.",
    "required-missing": _TABLE_CHANGED,
    "required-null": _TABLE_CHANGED,
    "schema-strict": _TABLE_CHANGED,
    "value-not-convertible": _TABLE_CHANGED,
    "gap-or-overlap": _AGAIN,
    "outcome-unknown": _AGAIN,
    "table-replaced": "Start the flow again, with an empty recovery store, if the new table is the one to write to.",
}


@contextmanager
def own_cures() -> Iterator[None]:
    """Errors of the engine that leave the block have the cures of this door."""
    try:
        yield
    except FrazilError as error:
        error.fix = _CURES.get(error.code, error.fix)
        raise
