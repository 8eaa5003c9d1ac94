"""The words and options of the language, as plain tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of objects that statements define."""

    SECRET = "SECRET"
    CONNECTION = "CONNECTION"
    SOURCE = "SOURCE"
    VIEW = "VIEW"
    MATERIALIZED_VIEW = "MATERIALIZED VIEW"
    SINK = "SINK"

    @property
    def plural(self) -> str:
        """As SHOW takes it."""
        return f"{self.value}S"


class Target(StrEnum):
    """What a connection leads to."""

    ICEBERG = "ICEBERG CATALOG"
    AWS = "AWS"
    GCS = "GCS"
    AZURE = "AZURE"
    KAFKA = "KAFKA"
    POSTGRES = "POSTGRES"
    REGISTRY = "CONFLUENT SCHEMA REGISTRY"


class Mode(StrEnum):
    """How a sink takes changes."""

    UPSERT = "UPSERT"
    APPEND = "APPEND"


class Envelope(StrEnum):
    """What the messages of a topic do to rows."""

    NONE = "NONE"
    UPSERT = "UPSERT"
    DEBEZIUM = "DEBEZIUM"


class Takes(StrEnum):
    """What an option takes."""

    TEXT = "a text"
    TEXTS = "one or several texts"
    NUMBER = "a number"
    SECRET = "a secret"
    CONNECTION = "the name of a connection"


@dataclass(frozen=True)
class Known:
    """An option that there is, under all its names, the canonical one first."""

    names: tuple[str, ...]
    takes: Takes = Takes.TEXT

    @property
    def name(self) -> str:
        """The canonical name."""
        return self.names[0]


class Table:
    """The options of one kind of object."""

    def __init__(self, what: str, *known: Known) -> None:
        self.what = what
        self.known = known
        self._by_name = {name: one for one in known for name in one.names}

    def __getitem__(self, name: str) -> Known:
        return self._by_name[name]

    @property
    def names(self) -> list[str]:
        """All names, canonical or not."""
        return list(self._by_name)


def _texts(*names: str) -> Iterable[Known]:
    return (Known((name,)) for name in names)


def _secrets(*names: str) -> Iterable[Known]:
    return (Known((name,), Takes.SECRET) for name in names)


CONNECTIONS: dict[Target, Table] = {
    Target.ICEBERG: Table(
        "an Iceberg catalog connection",
        Known(("TYPE", "CATALOG TYPE")),
        Known(("URI", "URL")),
        *_texts("USER", "SCOPE", "WAREHOUSE", "NAME", "OAUTH2 SERVER URI", "ACCESS DELEGATION", "REF", "PROJECT"),
        *_texts("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY"),
        *_secrets("PASSWORD", "CREDENTIAL", "TOKEN"),
        *(Known((f"{store} CONNECTION",), Takes.CONNECTION) for store in ("AWS", "GCS", "AZURE")),
    ),
    Target.AWS: Table(
        "an AWS connection",
        *_secrets("ACCESS KEY ID", "SECRET ACCESS KEY", "SESSION TOKEN"),
        *_texts("REGION", "ENDPOINT", "PROFILE", "ASSUME ROLE ARN", "ASSUME ROLE SESSION NAME", "EXTERNAL ID"),
        *_texts("SSE TYPE", "KMS KEY"),
    ),
    Target.GCS: Table(
        "a Google Cloud Storage connection",
        *_texts("PROJECT", "SERVICE ACCOUNT FILE", "ENDPOINT"),
        *_secrets("SERVICE ACCOUNT KEY", "ACCESS TOKEN"),
    ),
    Target.AZURE: Table(
        "an Azure connection",
        *_texts("ACCOUNT", "CLIENT ID", "TENANT ID"),
        *_secrets("ACCESS KEY", "SAS TOKEN", "ACCESS TOKEN", "CLIENT SECRET"),
    ),
    Target.KAFKA: Table(
        "a Kafka connection",
        Known(("BROKERS", "BROKER"), Takes.TEXTS),
        *_texts("SECURITY PROTOCOL"),
        Known(("SASL MECHANISMS", "SASL MECHANISM")),
        Known(("SASL USERNAME",), Takes.SECRET),
        Known(("SASL PASSWORD",), Takes.SECRET),
        *_texts("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY"),
    ),
    Target.POSTGRES: Table(
        "a PostgreSQL connection",
        *_texts("HOST", "DATABASE", "USER", "SSL MODE", "SSL CERTIFICATE AUTHORITY"),
        Known(("PORT",), Takes.NUMBER),
        *_secrets("PASSWORD"),
    ),
    Target.REGISTRY: Table(
        "a schema registry connection",
        Known(("URI", "URL")),
        Known(("USER", "USERNAME")),
        *_secrets("PASSWORD"),
        *_texts("SSL CERTIFICATE AUTHORITY", "SSL CERTIFICATE", "SSL KEY"),
    ),
}

ANY_CONNECTION = Table("a connection", *(known for table in CONNECTIONS.values() for known in table.known))

KAFKA_SOURCE = Table("a Kafka source", *_texts("TOPIC", "START OFFSET", "START TIMESTAMP", "GROUP ID"))
POSTGRES_SOURCE = Table("a PostgreSQL source", *_texts("PUBLICATION", "SLOT"))
FILES_SOURCE = Table("a source of files", *_texts("PATH", "FORMAT", "PATTERN", "RECURSIVE", "HEADER"))
GENERATORS: dict[str, Table] = {
    "COUNTER": Table("the load generator COUNTER", *_texts("TICK INTERVAL"), Known(("UP TO",), Takes.NUMBER)),
    "SHOP": Table(
        "the load generator SHOP",
        *(Known((name,), Takes.NUMBER) for name in ("ROWS", "ROWS PER SECOND", "SEED")),
    ),
}
# Two names of one option of a sink. Each is kept as it was written, because messages that users know name one or the other.
PERIOD = ("MAXIMUM PERIOD", "COMMIT INTERVAL")
# The columns of a history, in the order in which the model has them.
HISTORY_COLUMNS = ("VALID FROM COLUMN", "VALID TO COLUMN", "CURRENT COLUMN", "OPERATION COLUMN")
SINK = Table(
    "a sink",
    *_texts("FORMAT", "COMPRESSION", "MINIMUM SIZE", *PERIOD, "TARGET FILE SIZE"),
    Known(("FORMAT VERSION",), Takes.NUMBER),
    Known(("LATEST BY",), Takes.TEXTS),
    *_texts("LATE", "TOMBSTONE RETENTION", "HISTORY", *HISTORY_COLUMNS),
    *_texts("DIFF COLUMN", "TIMESTAMP COLUMN", "ON ERROR", "DEAD LETTER TABLE"),
    Known(("MAX DEAD LETTERS",), Takes.NUMBER),
    Known(("MAX DEAD LETTER RATE",), Takes.NUMBER),
)


def all_names(name: str) -> tuple[str, ...]:
    """The names under which an option may be kept that is given under this one."""
    return PERIOD if name in PERIOD else (name,)


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
