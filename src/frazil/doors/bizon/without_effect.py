"""Keys that Bizon takes and that have no effect here. They are reported when the file is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from frazil.doors.bizon.file import AnyDocument
from frazil.doors.bizon.source import KafkaEntry
from frazil.model.names import nearest
from frazil.reading.document import Document, Path

_SOURCE: Path = ("source",)

# Why a key at the top has no effect.
_TOP = {
    "alerting": "frazil sends no alerts: an alerting system reads its metrics and its log",
    "monitoring": "frazil sends nothing to Datadog: metrics are read from it, see `settings.metrics`",
    "secrets": "Google's Secret Manager is not asked for values",
}

# Why a key of a Kafka source has no effect, whatever its value.
_KAFKA = {
    "nb_bytes_schema_id": "each message tells how long the id of its schema is",
    "cursor_field": "a topic is read by its offsets",
    "skip_message_invalid_keys": "keys of messages are kept as they are, so that none is invalid",
    "max_iterations": "a run ends when all that is there was read; it has no other bound",
    "api_config": "it is for sources that are read over HTTP",
    "http": "it is for sources that are read over HTTP",
    "init_pipeline": "it is for tests of Bizon's own",
}
_HEADERS = "a cluster is not logged in to over HTTP"

# Keys of a stream that have one.
_STREAM_SOURCE = {"topic"}
_STREAM_TABLE = {"table_id"}
_COLUMNS = "columns and their order are declared in destination_table_config"

# Keys of a source that are no slip for another, though their names are near.
_NO_SLIPS = ("config",)


def drop_unknown(document: Document, known: Iterable[str]) -> list[tuple[Path, str]]:
    """Takes keys away that the source does not have, as Bizon does, and says so. One that looks misspelt is left, as an error."""
    names = set(known)
    unknown: list[tuple[Path, str]] = []
    for key in [key for key in document.at(_SOURCE) if key not in names]:
        if key in _NO_SLIPS or nearest(str(key), names) is None:
            document.drop((*_SOURCE, key))
            unknown.append(((*_SOURCE, key), f"`{key}` has no effect: the source has no key of this name"))
    return unknown


def keys_without_effect(file: AnyDocument) -> Iterator[tuple[Path, str]]:
    """Where keys stand that have no effect, and why they have none."""
    for key, why in _TOP.items():
        if getattr(file, key) is not None:
            yield (key,), f"`{key}` has no effect: {why}"
    if file.destination is not None and file.destination.buffer_size is not None:
        yield ("destination", "buffer_size"), "`buffer_size` has no effect here: it belongs into `config`"
    for number, stream in enumerate(file.streams or ()):
        path: Path = ("streams", number)
        if stream.source.topic is None:
            yield path, f"the stream `{stream.name}` has no effect: it names no topic"
        for end, value, known in (("source", stream.source, _STREAM_SOURCE), ("destination", stream.destination, _STREAM_TABLE)):
            given = {name for name in value.model_fields_set if getattr(value, name) is not None}
            for key in sorted(given - known):
                why = _COLUMNS if key in ("record_schema", "clustering_keys") else "it is for other sources and destinations"
                yield (*path, end, key), f"`{key}` has no effect: {why}"


def kafka_keys_without_effect(source: KafkaEntry) -> Iterator[tuple[Path, str]]:
    """Keys of a Kafka source that are set and have no effect, each with the reason."""
    for key, why in _KAFKA.items():
        if getattr(source, key) not in (None, False):
            yield (*_SOURCE, key), f"`{key}` has no effect: {why}"
    for key, why in source.idle.items():
        yield (*_SOURCE, key), f"`{key}` has no effect: {why}"
    auth = source.authentication
    for key in ("auth_method", "auth_header"):
        if auth is not None and getattr(auth.params, key) is not None:
            yield (*_SOURCE, "authentication", "params", key), f"`{key}` has no effect: {_HEADERS}"
