"""From a document of a Bizon file that reads topics to pipelines: one for each table that topics are written to."""

from __future__ import annotations

from typing import Any

from frazil.doors.bizon.columns import Reading, shape
from frazil.doors.bizon.file import BizonDocument
from frazil.doors.bizon.kafka import BizonCluster, cluster_of
from frazil.doors.bizon.source import KafkaEntry
from frazil.doors.bizon.tables import BizonTable, layout_of, tables_of
from frazil.doors.bizon.translation import TranslatedDocument, Translation
from frazil.doors.bizon.without_effect import kafka_keys_without_effect
from frazil.model.changes import CommitMode
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaSource
from frazil.reading.document import Document


def translated(document: Document, file: BizonDocument) -> TranslatedDocument:
    """The pipelines of a document; what is wrong is in the document then."""
    return _Topics(document, file).found()


class _Topics(Translation):
    """One document on its way."""

    @property
    def _source(self) -> KafkaEntry | None:
        return self.file.source if isinstance(self.file.source, KafkaEntry) else None

    def found(self) -> TranslatedDocument:
        if self.runs:
            self._require()
        self._require_letters()
        self._tell_without_effect()
        if self._source is not None:
            self.notices += kafka_keys_without_effect(self._source)
        cluster = cluster_of(self.document, self._source) if self._source is not None else None
        if cluster is not None:
            self.notices += cluster.notices
        catalog = self._catalog()
        tables = tables_of(self)
        found = TranslatedDocument(notices=self.notices)
        if not catalog:
            return found
        self._tell_of_engine()
        for table in tables:
            self._add(found, table, catalog, cluster)
        return found

    def _add(self, found: TranslatedDocument, table: BizonTable, catalog: dict[str, Any], cluster: BizonCluster | None) -> None:
        layout = layout_of(self, table)
        if layout is None:
            return
        name = table.entry.destination_id
        made = shape({name: layout.fields}, self._reading(cluster))
        options = self._options(table) | layout.options
        if layout.fields:
            options["schema"] = made.columns[name]
        sink = self.made(table.path, lambda: SinkSpec.model_validate(options | {"catalog": catalog}))
        if sink is None:
            return
        if not self.runs or not table.topics:
            found.parts[f"{self.alias}.{name}"] = sink
        self._tell_of_times(table, layout)
        if not self.runs or cluster is None or not table.topics:
            return
        # If a key has several rows, the last message counts, whichever partition it is in.
        order = "time" if sink.commit_mode is CommitMode.UPSERT else "offset"
        asked = cluster.options | made.source | {"topics": table.topics, "order": order}
        source = self.made(("source",), lambda: KafkaSource.model_validate(asked))
        if source is None:
            return
        pipeline = self._pipeline_of(name, table.path, source, sink, made)
        if pipeline is not None:
            found.pipelines.append(pipeline)

    @property
    def _keeps_letters(self) -> bool:
        return super()._keeps_letters or self._skips_unreadable

    @property
    def _skips_unreadable(self) -> bool:
        return self._source is not None and self._source.skip_message_on_decode_error

    def _require_letters(self) -> None:
        super()._require_letters()
        if self._skips_unreadable and self.config.on_error == "stop" and "on_error" in self.config.model_fields_set:
            message = "on_error: stop contradicts skip_message_on_decode_error: true, which keeps bad records as dead letters"
            self.problem("invalid-value", message, (*self.base, "on_error"), "Take one of them out.")

    def _reading(self, cluster: BizonCluster | None) -> Reading:
        source = self._source
        return Reading(
            source.encoding if source is not None else "utf-8",
            cluster.registry if cluster is not None else None,
            self._changes(),
            source.timestamp_ms_name if source is not None else None,
            self.config.epoch_unit,
        )
