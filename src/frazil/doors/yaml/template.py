"""The pipeline file that `frazil init` writes: it works as it is, and says what else can be said."""

from __future__ import annotations

import re

SCHEMA_FILE = "frazil.schema.json"

_TEMPLATE = """\
# yaml-language-server: $schema=./{schema}
#
# A frazil pipeline. It runs as it stands:  frazil run --once
# An editor that speaks YAML completes the keys and marks mistakes, with the schema named in the first line.
# Values may hold variables: ${{VAR}}, ${{VAR:-default}}, ${{VAR:?message}}; a dollar sign is $$.

version: "1.0"

sources:
  events:
    # Made-up shop events. Other connectors: files, table, query.
    connector: generator
    config:
      rows_per_second: 1000
      rows: 20000            # remove this line for an endless stream

    # A folder of files instead:
    # connector: files
    # config:
    #   path: ./incoming
    #   format: json         # json | csv | parquet | avro

sinks:
  lake:
    connector: iceberg
    config:
      catalog:
        # SQLite and a folder: nothing to install. Other types: rest, hive, glue, hadoop.
        type: sql
        sql:
          uri: sqlite:///./lake/catalog.db
          warehouse: ./lake/warehouse

        # A REST catalog instead:
        # type: rest
        # rest:
        #   uri: ${{CATALOG_URI}}
        #   warehouse: s3://bucket/warehouse
        #   credential: ${{CATALOG_CREDENTIAL}}

      namespace: demo
      table: events

      # A commit is made as soon as so many rows are there, or after so many seconds.
      batch_size: 10000
      flush_interval_secs: 10

      # Files.
      target_file_size_mb: 128
      compression: snappy    # none | snappy | gzip | lz4 | zstd | brotli

      # How a new table is partitioned: day(ts), bucket(16, id), truncate(4, name), or a plain column.
      # partition_by:
      #   - day(event_time)

      # What may change when the data does: strict | add_columns
      schema_evolution: add_columns

pipelines:
  {name}:
    source: events
    sink: lake

    # Rows on their way:
    # transforms:
    #   - {{type: rename_field, from: user, to: user_name}}
    #   - {{type: filter, field: country, equals: NO}}

settings:
  log_level: info
  # metrics: {{port: 9091}}
  # health: {{port: 8080}}
  # spark: {{master: "local[*]"}}
"""


def template(name: str) -> str:
    """A working pipeline file with this name for its pipeline; characters that a name cannot have become underscores."""
    safe = re.sub(r"[^\w.\-]+", "_", name).strip("_.-")[:100] or "events"
    return _TEMPLATE.format(name=safe, schema=SCHEMA_FILE)
