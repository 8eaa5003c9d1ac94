"""From a document of a Bizon file whose source is asked for pages to a pipeline: one for all of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frazil.doors.bizon.classes import BASE, class_of, settings_of
from frazil.doors.bizon.columns import Reading, Shape, quarrels, shape
from frazil.doors.bizon.destination import TableEntry
from frazil.doors.bizon.file import PagedDocument
from frazil.doors.bizon.source import PagedEntry
from frazil.doors.bizon.tables import BizonTable, Layout, declared_tables, layout_of, tell_undeclared
from frazil.doors.bizon.translation import TranslatedDocument, Translation
from frazil.model.changes import CommitMode
from frazil.model.load import ALL_ROWS
from frazil.model.pipeline import PipelineSpec
from frazil.model.route import UnknownRoute
from frazil.model.sink import SinkSpec
from frazil.model.source import PagesSource
from frazil.reading.document import Document


def translated_pages(document: Document, file: PagedDocument) -> TranslatedDocument:
    """The pipeline of a document; what is wrong is in the document then."""
    return _Pages(document, file, file.source).found()


class _Pages(Translation):
    """One document on its way."""

    def __init__(self, document: Document, file: PagedDocument, source: PagedEntry) -> None:
        super().__init__(document, file)
        self._source = source

    def found(self) -> TranslatedDocument:
        found = TranslatedDocument(notices=self.notices)
        if self.runs:
            self._require()
        self._require_letters()
        self._tell_without_effect()
        self._require_an_end()
        config = self._settings()
        catalog = self._catalog()
        tables = self._tables()
        layouts = {table.entry.destination_id: layout_of(self, table) for table in tables}
        self._require_no_upsert(tables)
        whole = {name: layout for name, layout in layouts.items() if layout is not None}
        if config is None or not catalog or self.document.problems or len(whole) < len(tables):
            return found
        reading = Reading("utf-8", None, self._changes(), None, self.config.epoch_unit, paged=True)
        for words in quarrels({name: layout.fields for name, layout in whole.items()}, reading):
            self.problem("invalid-value", words, (*self.home("destination_table_config"), "destination_table_config"))
        made = shape({name: layout.fields for name, layout in whole.items()}, reading)
        self._tell_of_engine()
        for table in tables:
            self._tell_of_times(table, whole[table.entry.destination_id])
        sink = self._sink(tables, whole, made, catalog)
        if sink is None:
            return found
        if not self.runs:
            found.parts[self.alias] = sink
            return found
        if (pipeline := self._pipeline(tables, made, sink, config)) is not None:
            found.pipelines.append(pipeline)
        return found

    # The source.

    def _settings(self) -> Mapping[str, Any] | None:
        """The settings of the source, as its own class takes them."""
        made = class_of(self.document, self._source, self.notices)
        if made is not None:
            return settings_of(self.document, made, self._source.source_file_path, self.notices)
        # Without a class nobody knows what is wrong with them.
        return None if self.document.problems else dict(self.document.at(BASE))

    def _require_an_end(self) -> None:
        if self._source.replaces and self.file.engine.runner.type == "stream":
            message = "a run that replaces all rows has an end: runner type stream has no meaning with it"
            fix = "Write sync_mode: incremental or stream, or leave the runner's type out."
            self.problem("invalid-value", message, ("engine", "runner", "type"), fix)
        if self._source.force_ignore_checkpoint:
            words = "force_ignore_checkpoint is not needed: a run that replaces all rows begins with the first page"
            self.notices.append((("source", "force_ignore_checkpoint"), words))

    def _require_no_upsert(self, tables: Sequence[BizonTable]) -> None:
        if not self._source.replaces:
            return
        for table in tables:
            upsert = table.entry.upsert or self.config.upsert
            if upsert is not None and upsert.enabled:
                path = (*(table.path if table.entry.upsert is not None else self.home("upsert")), "upsert")
                message = "upsert has no meaning with a run that replaces all rows"
                fix = "Write sync_mode: incremental in the source; to make the table anew, `frazil reset`."
                self.problem("invalid-value", message, path, fix)

    # The tables.

    def _tables(self) -> list[BizonTable]:
        known, asked = declared_tables(self), self.config.destination_id
        if known is None:
            name = asked or f"{self._source.name}_{self._source.stream}".replace(".", "_")
            return [BizonTable(TableEntry(destination_id=name), ("source",))]
        names = [table.entry.destination_id for table in known]
        if asked is None or asked in names:
            return known
        path = (*self.base, "destination_id")
        if len(known) == 1:  # as with Bizon
            words = f"`destination_id` has no effect: records that name no table go into the only one declared, `{names[0]}`"
            self.notices.append((path, words))
            return known
        tell_undeclared(self, asked, names, path)
        return [*known, BizonTable(TableEntry(destination_id=asked), path)]

    def _sink(
        self, tables: Sequence[BizonTable], layouts: Mapping[str, Layout], made: Shape, catalog: dict[str, Any]
    ) -> SinkSpec | None:
        own = {name: layout.options | {"schema": made.columns[name]} for name, layout in layouts.items()}
        options = self._options(tables[0]) | {"catalog": catalog}
        if len(tables) == 1:
            options |= own[tables[0].entry.destination_id]
        else:
            del options["table"]
            options["id"] = f"{self.identity}/{self._source.name}.{self._source.stream}"
            options["route"] = {
                "source": True,
                "tables": own,
                "unknown": UnknownRoute.DEAD_LETTER if self._keeps_letters else UnknownRoute.REFUSE,
                # What a run replaces, it replaces also by nothing.
                "every_table": self._source.replaces,
                "parallel": self.config.max_concurrent_threads,
            }
        if self._source.replaces:
            options |= {"commit_mode": CommitMode.OVERWRITE, "overwrite_where": ALL_ROWS}
        path = tables[0].path if len(tables) == 1 else self.base
        return self.made(path, lambda: SinkSpec.model_validate(options))

    def _pipeline(
        self, tables: Sequence[BizonTable], made: Shape, sink: SinkSpec, config: Mapping[str, Any]
    ) -> PipelineSpec | None:
        names = [table.entry.destination_id for table in tables]
        source = self.made(
            ("source",),
            lambda: PagesSource.model_validate(
                made.source
                | {
                    "name": self._source.name,
                    "stream": self._source.stream,
                    "file": self._source.source_file_path,
                    "config": config,
                    "mode": "full_refresh" if self._source.replaces else self._source.sync_mode,
                    "cursor_field": self._source.cursor_field,
                    "max_pages": self._source.max_iterations,
                    "tables": names,
                    "table": names[0] if len(names) == 1 else self.config.destination_id,
                    "gather_secs": self.config.flush_seconds,
                }
            ),
        )
        if source is None:
            return None
        if len(tables) == 1:
            return self._pipeline_of(names[0], tables[0].path, source, sink, made)
        return self._pipeline_of(self.file.name, self.base, source, sink, made)
