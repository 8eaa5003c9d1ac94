"""What goes wrong when a sink runs, or a connection is validated: which statement that is about, and the cure in its words.

The engine's own cures name keys of a pipeline file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from frazil.doors.sql.given import Given, World
from frazil.doors.sql.grammar import Target
from frazil.doors.sql.render import name
from frazil.doors.sql.statements import (
    Create,
    CreateConnection,
    CreateSink,
    CreateSource,
    FromFiles,
    FromKafka,
    FromPostgres,
    Options,
    Reference,
)
from frazil.model.pipeline import Advice

# By the code of an error, or the word that it begins with: the option of the statement, and the cure.
_Cures = Mapping[str, tuple[str, str]]

_BEGIN_ANEW = (
    "Create the sink under another name: it then begins at the start of its source. "
    "With another TABLE, where rows must not come twice."
)
_CERTIFICATES = "Check SSL CERTIFICATE AUTHORITY, SSL CERTIFICATE and SSL KEY: PEM files, the key in PKCS 8 and not encrypted"

_CONNECTIONS: Mapping[Target, _Cures] = {
    Target.KAFKA: {
        "source-unreachable": (
            "BROKERS",
            "Check BROKERS, that the cluster runs, and that this port expects what SECURITY PROTOCOL and SASL MECHANISMS say.",
        ),
        "source-not-readable": (
            "SASL USERNAME",
            "Check SASL USERNAME, SASL PASSWORD and SASL MECHANISMS. The user needs DESCRIBE and READ of the topic, and READ of "
            "the GROUP ID where one is given.",
        ),
        "source-tls": (
            "SSL CERTIFICATE AUTHORITY",
            f"{_CERTIFICATES}; the name in the server's certificate; and that this port expects TLS.",
        ),
        "source-option": ("SECURITY PROTOCOL", "Check the SASL and SSL options of the connection."),
    },
    Target.POSTGRES: {
        "source-unreachable": ("HOST", "Check HOST and PORT, and that the server runs."),
        "database": ("", ""),
        "database-missing": ("DATABASE", "Correct DATABASE."),
        "database-login": ("USER", "Correct USER and PASSWORD."),
        "database-tls": ("SSL MODE", "Check SSL MODE and SSL CERTIFICATE AUTHORITY."),
    },
    Target.REGISTRY: {
        "registry": ("", ""),
        "registry-refused": ("USER", "Check USERNAME and PASSWORD."),
        "registry-unreachable": ("URI", "Check URL, http or https, and that the registry runs."),
        "registry-tls": ("SSL CERTIFICATE AUTHORITY", f"{_CERTIFICATES}."),
        "registry-certificate": ("SSL CERTIFICATE AUTHORITY", f"{_CERTIFICATES}."),
    },
    Target.ICEBERG: {
        "catalog": ("", ""),
        "not-authorized": ("USER", "Check USER and PASSWORD, CREDENTIAL or TOKEN."),
        "refused-by-catalog": ("URI", "Check URI."),
        "not-offered": ("URI", "Check the path of URI: some services have one that only reads, and another one that writes."),
        **dict.fromkeys(("host-not-found", "connection", "tls", "no-compare-and-swap"), ("", "")),
        "warehouse-missing": (
            "WAREHOUSE",
            "Correct WAREHOUSE: most catalogs want a name there, not a bucket.",
        ),
        "no-such-bucket": ("WAREHOUSE", "Create it, or correct WAREHOUSE."),
        "s3-keys-refused": (
            "AWS CONNECTION",
            "Check the keys of the AWS CONNECTION, and SESSION TOKEN.",
        ),
        "wrong-region": ("AWS CONNECTION", "Set REGION of the AWS CONNECTION to the region of the bucket."),
        "storage-failed": ("WAREHOUSE", ""),
        "warehouse-not-writable": ("WAREHOUSE", ""),
        "s3-access-denied": (
            "AWS CONNECTION",
            "Check the keys of the AWS CONNECTION, and the permissions s3:GetObject, s3:PutObject, s3:DeleteObject. A store of "
            "your own is reached by its ENDPOINT.",
        ),
    },
}

_KAFKA_SOURCE: _Cures = {
    "source-missing": ("TOPIC", ""),
    "source-changed": ("GROUP ID", f"Put the old GROUP ID back. Otherwise: {_BEGIN_ANEW}"),
}
_POSTGRES_SOURCE: _Cures = {
    **dict.fromkeys(
        ("other-database", "slot-moved", "slot-lost", "slot-gone", "log-behind", "column-replaced", "source-truncated"),
        ("", _BEGIN_ANEW),
    ),
    "publication": ("PUBLICATION", ""),
    "not-published": ("PUBLICATION", ""),
    "table-renamed": ("", f"Give the table its name back. Otherwise: {_BEGIN_ANEW}"),
    "slot-in-use": ("SLOT", "Each sink needs a slot of its own: stop the other one, or leave SLOT out of the source."),
    "slot-of-another-kind": ("SLOT", "Name another SLOT, or leave it out: the sink then makes its own."),
    "snapshot-waits": ("", "End it."),
    "spool-path-missing": ("", "Let Spark run on this machine: leave spark.master out of the file of --settings."),
}
_FILES_SOURCE: _Cures = {
    "source-missing": ("PATH", "Create it, or correct PATH; on a cluster every worker must see it."),
    "source-not-a-folder": ("PATH", "Name the folder that holds the files."),
    "file-unreadable": ("FORMAT", "Move it out of the folder, or correct FORMAT, HEADER and the columns of the source."),
    "file-schemas-conflict": ("", "Declare the columns of the source, or put the files into folders of their own."),
}

ORDER_BY_MESSAGES = (
    "Order by what each message has: write INCLUDE TIMESTAMP, OFFSET in the source, and LATEST BY = (timestamp, offset). Or "
    "leave LATEST BY out: the times of the messages then count."
)
_SINK: _Cures = {
    **dict.fromkeys(("rolled-back", "batch-differs"), (
        "", "Decide what the table should hold: set the branch back to that snapshot, or create the sink under another name to "
        "begin anew.",
    )),
    **dict.fromkeys(("source-changed", "position-unknown"), ("", _BEGIN_ANEW)),
    **dict.fromkeys(("column-reserved", "columns-differ-by-case"), ("", "Name it otherwise in a view: SELECT a AS b FROM ...")),
    "schema-mismatch": ("", "Cast the column in a view: SELECT cast(a AS int) AS a FROM ..., or change the table."),
    "required-missing": ("", "Supply the column, or change the table: ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL."),
    "transform-changes": ("DIFF COLUMN", "Leave DIFF COLUMN out, or filter when you read the table."),
    "column-missing": ("LATEST BY", "LATEST BY names columns of what the sink reads."),
    "order-not-kept": ("LATEST BY", "LATEST BY names columns that the table keeps."),
    "order-missing": ("LATEST BY", "Name columns in LATEST BY that deletes have, too."),
    "order-of-row": ("LATEST BY", ORDER_BY_MESSAGES),
    "late-unchanged": ("LATE", "Let the database log whole rows (REPLICA IDENTITY FULL), or leave LATE out."),
    "dead-letter-table": ("DEAD LETTER TABLE", "Name another DEAD LETTER TABLE."),
    "too-many-dead-letters": (
        "MAX DEAD LETTERS", "Look at what the source sends, or raise MAX DEAD LETTERS or MAX DEAD LETTER RATE.",
    ),
}  # fmt: skip
_KEY: Mapping[str, str] = {
    "duplicate-keys": "Name columns in LATEST BY that tell which is the last, or add a column to KEY.",
    "key-null": "Correct the data, or leave the rows out with the WHERE of a view.",
    "key-missing": "Name the columns that identify a row: KEY (column, ...).",
    "key-differs": "Name columns in KEY that are made from the source's key alone, or leave KEY out. Debezium with `before`, and "
    "PostgreSQL where the table's replica identity is full, can be followed by any KEY.",
    "key-lost": "Keep these columns in the view, under whatever names, or name what identifies a row: KEY (column, ...).",
}
_PARTITION: Mapping[str, str] = {
    "partition": "",
    "partitioning-differs": "Leave PARTITION BY out to write by the table's own spec, or change that: "
    "ALTER TABLE ... ADD | DROP PARTITION FIELD ...",
}
# Codes of records that cannot be read, and of values that cannot be written.
_RECORDS = (
    "value-not-convertible", "required-null", "bad-record", "message-invalid", "message-empty", "text-encoding", "json",
    "csv-malformed", "csv-type", "protobuf-frame", "protobuf-malformed", "debezium-envelope", "debezium-truncate", "avro-empty",
    "avro-magic", "avro-malformed", "avro-schema", "avro-truncated", "avro-unknown-schema", "avro-value",
    "before-missing",
)  # fmt: skip


def connection_advice(world: World, connection: CreateConnection) -> dict[str, Advice]:
    """What to say of errors that a connection brings, by their codes."""
    return _advice(world, connection, connection.options, _CONNECTIONS.get(connection.to, {}))


def sink_advice(world: World, sink: CreateSink, source: str) -> dict[str, Advice]:
    """What to say of errors that show when a sink runs, by their codes; ``source`` is the name of what it reads in the end."""
    advice = _advice(world, sink, sink.options, _SINK)
    advice |= _all_at(sink, sink.key[0].at if sink.key else sink.name.at, _KEY)
    advice |= _all_at(sink, sink.partition[0].column.at if sink.partition else sink.name.at, _PARTITION)
    letters = f"ALTER SINK {name(sink.name.text)} SET (ON ERROR = 'dead_letter')"
    advice |= _all_at(sink, sink.name.at, dict.fromkeys(_RECORDS, f"Correct the data, or go on without such records: {letters}."))
    advice |= _all_at(sink, sink.name.at, {"no-dead-letters": f"They are kept from now on with {letters}."})
    advice |= connection_advice(world, world.connection(sink, sink.connection, Target.ICEBERG))
    read = world.objects[source]
    assert isinstance(read, CreateSource), "rows come from sources alone"
    return advice | _source_advice(world, sink, read)


def _source_advice(world: World, sink: CreateSink, source: CreateSource) -> dict[str, Advice]:
    advice = _all_at(source, source.name.at, {"source": ""})
    match source.reads:
        case FromKafka() as reads:
            used = [world.connection(source, reads.connection, Target.KAFKA)]
            for one in (reads.format, reads.key_format):
                if one is not None and isinstance(one.using, Reference):
                    used.append(world.connection(source, one.using.name, Target.REGISTRY))
            cures = {**_KAFKA_SOURCE, **_rewinds(world, sink)}
            return advice | _of_all(world, used) | _advice(world, source, reads.options, cures)
        case FromPostgres() as reads:
            used = [world.connection(source, reads.connection, Target.POSTGRES)]
            return advice | _of_all(world, used) | _advice(world, source, reads.options, _POSTGRES_SOURCE)
        case FromFiles() as reads:
            return advice | _advice(world, source, reads.options, _FILES_SOURCE)
        case _:
            return advice


def _rewinds(world: World, sink: CreateSink) -> _Cures:
    """What helps when the place where a sink was is not there any more."""
    rewind = shlex.join(["frazil", "rewind", "-c", world.file, sink.name.text])
    nearest = f"{rewind} --to-offset nearest."
    return {
        "kafka": ("TOPIC", ""),
        "kafka-topic-gone": ("TOPIC", f"If that is meant, go on where it can: {nearest}"),
        "kafka-cluster-changed": (
            "TOPIC",
            f"Correct BROKERS. If the cluster has moved, choose a place in the new one: {rewind} --to-time TIME.",
        ),
        "kafka-topic-recreated": (
            "TOPIC",
            f"Read the new one from its beginning: {nearest} Or from now on: {rewind} --to-latest.",
        ),
        "kafka-partitions-fewer": (
            "TOPIC",
            f"Go on with the others where they are: {nearest} Or choose a time: {rewind} --to-time TIME.",
        ),
        "kafka-messages-expired": (
            "TOPIC",
            f"Go on with what is left: {nearest} Let the topic keep messages for longer than a sink may stand still.",
        ),
        "kafka-messages-taken-back": (
            "TOPIC",
            f"The next messages get offsets that were read already. Go on after the last one: {nearest}",
        ),
    }


def _of_all(world: World, connections: Iterable[CreateConnection]) -> dict[str, Advice]:
    return {code: advice for one in connections for code, advice in connection_advice(world, one).items()}


def _advice(world: World, statement: Create, options: Options, cures: _Cures) -> dict[str, Advice]:
    """Each cure at its option, or at the name of the statement."""
    given, script = Given(world, statement, options), statement.origin.script
    return {code: Advice(place=script.location(given.place(option)), fix=fix) for code, (option, fix) in cures.items()}


def _all_at(statement: Create, at: int, cures: Mapping[str, str]) -> dict[str, Advice]:
    place = statement.origin.script.location(at)
    return {code: Advice(place=place, fix=fix) for code, fix in cures.items()}
