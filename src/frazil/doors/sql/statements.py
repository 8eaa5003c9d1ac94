"""Statements as frozen values. Two are equal when they say the same, wherever they stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from frazil.doors.sql.grammar import Envelope, Kind, Mode, Target
from frazil.doors.sql.tokens import Script
from frazil.errors import ConfigError


@dataclass(frozen=True)
class Word:
    """A name or a value, and where it stands."""

    text: str
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Reference:
    """A value that is the name of an object: of a secret, or of a connection."""

    name: Word
    secret: bool = False


@dataclass(frozen=True)
class Option:
    """One option by its canonical name. A value is a text, several texts, or a reference."""

    name: Word
    value: Word | tuple[Word, ...] | Reference


Options = tuple[Option, ...]


@dataclass(frozen=True)
class Origin:
    """Where a statement stands."""

    script: Script = field(default_factory=lambda: Script(""))
    start: int = 0
    end: int = 0


@dataclass(frozen=True, kw_only=True)
class Statement(ABC):
    """Any statement."""

    origin: Origin = field(default_factory=Origin, compare=False, repr=False)

    @property
    @abstractmethod
    def title(self) -> str:
        """What to call the statement in messages."""

    def wrong(self, code: str, at: int, message: str, *, fix: str = "") -> ConfigError:
        """An error at one of the statement's tokens."""
        return self.origin.script.wrong(code, at, message, statement=self.title, fix=fix)


@dataclass(frozen=True, kw_only=True)
class Create(Statement):
    """A statement that defines an object."""

    name: Word
    if_not_exists: bool = False

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What it defines."""

    @property
    def title(self) -> str:
        """`CREATE SINK orders`."""
        return f"CREATE {self.kind} {self.name.text}"


@dataclass(frozen=True, kw_only=True)
class CreateSecret(Create):
    """`CREATE SECRET s AS '...'`."""

    value: str = field(repr=False)

    @property
    def kind(self) -> Kind:
        """A secret."""
        return Kind.SECRET


@dataclass(frozen=True, kw_only=True)
class CreateConnection(Create):
    """`CREATE CONNECTION c TO ... (...)`."""

    to: Target
    options: Options = ()

    @property
    def kind(self) -> Kind:
        """A connection."""
        return Kind.CONNECTION


@dataclass(frozen=True)
class ColumnDef:
    """A declared column, its type in frazil's own words."""

    name: Word
    type: Word
    required: bool = False


@dataclass(frozen=True)
class Format:
    """`JSON`, `AVRO USING ...`, `TEXT`, `BYTES`, `CSV`, `PROTOBUF MESSAGE ...`.

    ``using``: a registry's connection, an Avro schema, or a file of descriptors. ``detail``: the message, or a separator.
    """

    type: Word
    using: Reference | Word | None = None
    detail: Word | None = None


@dataclass(frozen=True)
class Include:
    """`INCLUDE OFFSET AS place`: something of a message beside its value."""

    what: Word
    alias: Word | None = None


@dataclass(frozen=True)
class FromKafka:
    """A topic, and how its messages are read."""

    connection: Word
    options: Options
    format: Format
    key_format: Format | None = None
    include: tuple[Include, ...] = ()
    envelope: Envelope = Envelope.NONE


@dataclass(frozen=True)
class PostgresTable:
    """One table that a publication tells of, under the name by which sinks know it."""

    table: Word
    schema: Word | None = None
    alias: Word | None = None

    @property
    def name(self) -> Word:
        """The name that sinks and views use."""
        return self.alias or self.table


@dataclass(frozen=True)
class FromPostgres:
    """Tables of a database. None: all of the publication."""

    connection: Word
    options: Options
    tables: tuple[PostgresTable, ...] | None = None


@dataclass(frozen=True)
class FromGenerator:
    """Made-up rows."""

    generator: Word
    options: Options = ()


@dataclass(frozen=True)
class FromFiles:
    """A folder."""

    options: Options


@dataclass(frozen=True, kw_only=True)
class CreateSource(Create):
    """`CREATE SOURCE s [(columns)] FROM ...`."""

    reads: FromKafka | FromPostgres | FromGenerator | FromFiles
    columns: tuple[ColumnDef, ...] = ()

    @property
    def kind(self) -> Kind:
        """A source."""
        return Kind.SOURCE


@dataclass(frozen=True, kw_only=True)
class CreateView(Create):
    """`CREATE [MATERIALIZED] VIEW v AS SELECT ...`."""

    query: Word
    materialized: bool = False

    @property
    def kind(self) -> Kind:
        """A view, or a materialized one."""
        return Kind.MATERIALIZED_VIEW if self.materialized else Kind.VIEW


@dataclass(frozen=True)
class PartitionDef:
    """`day(ts)`, `bucket(16, id)`, or a column alone."""

    column: Word
    transform: Word | None = None
    width: int | None = None


@dataclass(frozen=True, kw_only=True)
class CreateSink(Create):
    """`CREATE SINK s FROM item TO ICEBERG CATALOG c ...`."""

    item: tuple[Word, ...]
    connection: Word
    aws: Word | None = None
    namespace: Word
    table: Word
    key: tuple[Word, ...] = ()
    not_enforced: bool = False
    mode: Mode | None = None
    mode_at: int = field(default=0, compare=False, repr=False)
    partition: tuple[PartitionDef, ...] = ()
    options: Options = ()

    @property
    def kind(self) -> Kind:
        """A sink."""
        return Kind.SINK


@dataclass(frozen=True, kw_only=True)
class Alter(Statement):
    """`ALTER SINK|CONNECTION x SET (...)` and `RESET (...)`, `ALTER SECRET s AS '...'`."""

    kind: Kind
    name: Word
    given: Options = ()
    reset: tuple[Word, ...] = ()
    value: str | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """`ALTER SINK orders`."""
        return f"ALTER {self.kind} {self.name.text}"


@dataclass(frozen=True, kw_only=True)
class Drop(Statement):
    """`DROP SINK [IF EXISTS] s [CASCADE]`."""

    kind: Kind
    name: Word
    if_exists: bool = False
    cascade: bool = False

    @property
    def title(self) -> str:
        """`DROP SINK orders`."""
        return f"DROP {self.kind} {self.name.text}"


@dataclass(frozen=True, kw_only=True)
class Show(Statement):
    """`SHOW SINKS [LIKE '...']`; without a kind all objects."""

    kind: Kind | None = None
    like: str | None = None

    @property
    def title(self) -> str:
        """`SHOW SINKS`."""
        return f"SHOW {self.kind.plural if self.kind else 'OBJECTS'}"


@dataclass(frozen=True, kw_only=True)
class ShowCreate(Statement):
    """`SHOW CREATE SINK s`."""

    kind: Kind
    name: Word

    @property
    def title(self) -> str:
        """`SHOW CREATE SINK orders`."""
        return f"SHOW CREATE {self.kind} {self.name.text}"


@dataclass(frozen=True, kw_only=True)
class Describe(Statement):
    """`DESCRIBE x`."""

    name: Word

    @property
    def title(self) -> str:
        """`DESCRIBE orders`."""
        return f"DESCRIBE {self.name.text}"


@dataclass(frozen=True, kw_only=True)
class ExplainSink(Statement):
    """`EXPLAIN SINK s`."""

    name: Word

    @property
    def title(self) -> str:
        """`EXPLAIN SINK orders`."""
        return f"EXPLAIN SINK {self.name.text}"


@dataclass(frozen=True, kw_only=True)
class Validate(Statement):
    """`VALIDATE CONNECTION c`."""

    name: Word

    @property
    def title(self) -> str:
        """`VALIDATE CONNECTION lake`."""
        return f"VALIDATE CONNECTION {self.name.text}"


@dataclass(frozen=True, kw_only=True)
class Query(Statement):
    """`SELECT ...`, for Spark as it stands."""

    query: Word

    @property
    def title(self) -> str:
        """`SELECT`."""
        return "SELECT"
