"""Loads a Bizon file: every document of it is read, checked and translated."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from frazil.doors.bizon.classes import is_paged
from frazil.doors.bizon.destination import WORKERS
from frazil.doors.bizon.dialect import DIALECT
from frazil.doors.bizon.file import QUIET, AnyDocument, BizonDocument, PagedDocument
from frazil.doors.bizon.paged import translated_pages
from frazil.doors.bizon.source import KafkaEntry
from frazil.doors.bizon.translate import translated
from frazil.doors.bizon.translation import TranslatedDocument
from frazil.doors.bizon.without_effect import drop_unknown
from frazil.errors import ConfigError, ConfigErrors
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.secrets import remember, secret_values
from frazil.model.settings import Settings
from frazil.reading.document import Document, Path, read_all
from frazil.reading.explain import checked
from frazil.reading.file import config_errors

# Keys at the top that only a Bizon file has, and those that only a file of frazil's own has.
_BIZON = (
    "bigquery_iceberg",
    "destination",
    "destination_table_config",
    "time_partitioning",
    "iceberg_namespace",
    "iceberg_schema",
)
_OWN = ("sources", "sinks", "pipelines", "broker")
_TOP_KEY = re.compile(r"""^(["']?)(\w+)\1\s*:""", re.MULTILINE)


def is_bizon(text: str) -> bool:
    """Whether a text is a Bizon file, by its keys at the top."""
    keys = {match[2] for match in _TOP_KEY.finditer(text)}
    return bool(keys.intersection(_BIZON)) and not keys.intersection(_OWN)


def load_text(
    text: str, name: str = "<text>", env: Mapping[str, str] | None = None, *, custom_source: str | None = None
) -> ProjectSpec:
    """Loads a Bizon file from its text; ``name`` stands for it in messages.

    ``custom_source`` is a Python file with the source, in place of what the text says of that.
    """
    try:
        documents = read_all(text, name, os.environ if env is None else env, DIALECT)
        for document in documents:
            remember(document.secrets)
            if custom_source is not None and isinstance(document.value, dict) and isinstance(document.value.get("source"), dict):
                document.put(("source", "source_file_path"), custom_source)
        project = _project(name, documents)
    except ConfigErrors:
        raise
    except ConfigError as error:
        raise config_errors([error]) from None
    except RecursionError:
        raise config_errors([ConfigError("bad-yaml", f"{name} is nested too deeply")]) from None
    remember(secret_values(project))
    return project


def _project(name: str, documents: Sequence[Document]) -> ProjectSpec:
    dropped: list[list[tuple[Path, str]]] = [[] for _ in documents]
    read = [(document, _checked(document, unknown), unknown) for document, unknown in zip(documents, dropped, strict=True)]
    files = [(document, file) for document, file, _ in read if file is not None]
    found = [(document, file, _translated(document, file, unknown)) for document, file, unknown in read if file is not None]
    _require_own_names([(document, file) for document, file, one in found if one.pipelines])
    _require_one(files, ("settings",), [file.settings for _, file in files])
    _require_one(files, ("engine", "runner", "log_level"), [file.engine.runner.log_level for _, file in files])
    problems = [problem for document in documents for problem in document.problems]
    if problems:
        raise config_errors(problems)
    if not found:
        raise config_errors([ConfigError("empty-config", f"{name} has nothing in it")])
    taken = Counter(pipeline.name for _, _, one in found for pipeline in one.pipelines)
    pipelines = [
        _named(pipeline, file.name or "", is_shared=taken[pipeline.name] > 1)
        for _, file, one in found
        for pipeline in one.pipelines
    ]
    return ProjectSpec(
        file=name,
        sources={pipeline.source_name: pipeline.source for pipeline in pipelines},
        sinks={name: sink for _, _, one in found for name, sink in one.parts.items()}
        | {pipeline.sink_name: pipeline.sink for pipeline in pipelines},
        pipelines=tuple(pipelines),
        settings=_settings([file for _, file, _ in found]),
        notices=tuple(notice for document, _, one in found for notice in _notices(document, one)),
    )


def _translated(document: Document, file: BizonDocument | PagedDocument, unknown: list[tuple[Path, str]]) -> TranslatedDocument:
    found = translated_pages(document, file) if isinstance(file, PagedDocument) else translated(document, file)
    found.notices[:0] = unknown
    return found


def _checked(document: Document, notices: list[tuple[Path, str]]) -> BizonDocument | PagedDocument | None:
    if document.value is None:
        return None
    if not isinstance(document.value, dict):
        shown = "a list" if isinstance(document.value, list) else "text"
        message = f"A Bizon file holds sections such as `source` and `destination`, and {shown} stands here"
        document.problems.append(ConfigError("wrong-type", message, location=document.value_place(())))
        return None
    for key in [key for key in document.value if key.startswith("x-")]:
        document.drop((key,))
    _refuse_python(document)
    source = document.value.get("source")
    if is_paged(source):
        return checked(PagedDocument, document, ())
    if isinstance(source, dict):
        notices += drop_unknown(document, KafkaEntry.model_fields)
        notices += _take_topics_of_streams(document)
    return checked(BizonDocument, document, ())


def _take_topics_of_streams(document: Document) -> list[tuple[Path, str]]:
    """Takes topics and tables from `streams` where the source names none, as Bizon does; what a person should know."""
    streams = document.value.get("streams")
    if not isinstance(streams, list):
        return []
    if document.at(("source",)).get("topics"):
        return [(("streams",), "`streams` has no effect: the source names its topics")]
    ends = [(one.get("source"), one.get("destination")) for one in streams if isinstance(one, dict)]
    topics = [
        {"name": source["topic"], "destination_id": destination["table_id"]}
        for source, destination in ends
        if isinstance(source, dict) and isinstance(destination, dict) and "topic" in source and "table_id" in destination
    ]
    if topics:
        document.put(("source", "topics"), topics)
    return []


def _refuse_python(document: Document) -> None:
    """Python that stands in a file is never run."""
    given = document.value.get("transforms")
    items = enumerate(given if isinstance(given, list) else ())
    found: list[Path] = [("transforms", n, "python") for n, item in items if isinstance(item, dict) and "python" in item]
    for path in found:
        message = "frazil does not run Python that stands in a file"
        fix = (
            "Write changes of rows instead, in Spark SQL where they compute: "
            '{type: add_field, field: total, expression: "price * amount"}, {type: select, expressions: ["after.*"]}, '
            "and others: docs/transforms.md."
        )
        document.problems.append(ConfigError("python-refused", message, fix=fix, location=document.key_place(path)))
    if found:
        document.drop(("transforms",))


def _require_own_names(files: Sequence[tuple[Document, AnyDocument]]) -> None:
    """By its name a pipeline is known in the ledgers of its tables."""
    seen: set[str | None] = set()
    for document, file in files:
        if file.name in seen:
            message = f"Another document of this file has the name `{file.name}`, too"
            place = document.value_place(("name",))
            document.problems.append(ConfigError("shared-sink-id", message, fix="Give each its own.", location=place))
        seen.add(file.name)


def _require_one(files: Sequence[tuple[Document, AnyDocument]], path: Path, given: Sequence[object]) -> None:
    """One run has one set of settings, whichever document says them."""
    first = next((value for value in given if value is not None), None)
    for (document, _), value in zip(files, given, strict=True):
        if value is not None and value != first:
            message = f"Another document of this file has other values of `{'.'.join(map(str, path))}`, and a run has one"
            place = document.key_place(path)
            document.problems.append(ConfigError("invalid-value", message, fix="Keep one of them.", location=place))


def _named(pipeline: PipelineSpec, document: str, *, is_shared: bool) -> PipelineSpec:
    """A pipeline is called like its table; where several documents have that table, with the document's name before it."""
    name = f"{document}.{pipeline.name}" if is_shared else pipeline.name
    ends = {end: f"{getattr(pipeline, end)}.{name}" for end in ("source_name", "sink_name")}
    return pipeline.model_copy(update={"name": name, **ends})


def _settings(files: Sequence[AnyDocument]) -> Settings:
    """One run has one set of settings: those of the first document that has any."""
    settings = next((file.settings for file in files if file.settings is not None), QUIET)
    level = next((file.engine.runner.log_level for file in files if file.engine.runner.log_level is not None), None)
    update: dict[str, object] = {} if level is None else {"log_level": level}
    if settings.parallel is None:
        configs = [file.config for file in files if file.config is not None]
        update["parallel"] = max((config.max_concurrent_threads for config in configs), default=WORKERS)
    return settings.model_copy(update=update)


def _notices(document: Document, found: TranslatedDocument) -> list[str]:
    notes = [(_place(document, path), words) for path, words in found.notices]
    notes += [
        (str(document.place(span)), f"the key `{key}` is written again; the last one counts") for key, span in document.repeated
    ]
    return [f"{place}: {words}" for place, words in notes]


def _place(document: Document, path: Path) -> str:
    is_item = bool(path) and isinstance(path[-1], int)  # an item has no key
    return str(document.value_place(path) if is_item else document.key_place(path))
