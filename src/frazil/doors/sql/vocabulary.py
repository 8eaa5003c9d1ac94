"""The words of the language, for completion."""

from __future__ import annotations

from frazil.doors.sql.options import ANY_CONNECTION, FILES_SOURCE, GENERATORS, KAFKA_SOURCE, POSTGRES_SOURCE, SINK
from frazil.doors.sql.statements import Envelope, Kind, Mode, Target

_PHRASES = (
    "CREATE", "ALTER", "DROP", "SHOW", "SHOW CREATE", "DESCRIBE", "EXPLAIN SINK", "VALIDATE CONNECTION", "SELECT",
    "IF NOT EXISTS", "IF EXISTS", "CASCADE", "FROM", "INTO ICEBERG CATALOG CONNECTION", "USING AWS CONNECTION",
    "NAMESPACE", "TABLE", "KEY", "NOT ENFORCED", "MODE", "PARTITION BY", "WITH", "SET", "RESET", "AS", "TO",
    "KAFKA CONNECTION", "POSTGRES CONNECTION", "LOAD GENERATOR", "FILES", "FORMAT", "KEY FORMAT", "VALUE FORMAT",
    "JSON", "AVRO USING", "INCLUDE", "ENVELOPE", "FOR ALL TABLES", "FOR TABLES", "WHERE", "GROUP BY", "LIKE",
    "VERSION AS OF", "TIMESTAMP AS OF", "OBJECTS", "SECRET",
)  # fmt: skip

VOCABULARY: tuple[str, ...] = tuple(
    dict.fromkeys(
        word
        for phrase in (
            *_PHRASES,
            *(kind.value for kind in Kind),
            *(kind.plural for kind in Kind),
            *(one.value for enum in (Target, Mode, Envelope) for one in enum),
            *(name for table in (ANY_CONNECTION, SINK, KAFKA_SOURCE, POSTGRES_SOURCE, FILES_SOURCE) for name in table.names),
            *(name for what, table in GENERATORS.items() for name in (what, *table.names)),
        )
        for word in phrase.split()
    )
)
