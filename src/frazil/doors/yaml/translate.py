"""Turns the checked parts of a file into pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from frazil.doors.yaml.file import PipelineEntry, PipelineFile, SinkEntry, SourceEntry, StartTime
from frazil.errors import ConfigError
from frazil.model.dead_letters import OnError
from frazil.model.pipeline import LetterTopic, PipelineSpec, ProjectSpec, letters_refused, pipeline_problems
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaCluster, KafkaSource, PostgresCdcSource, SourceSpec
from frazil.model.transform import RowTransform
from frazil.reading.document import Document, Path
from frazil.reading.explain import suggestion


@dataclass(frozen=True)
class Parts:
    """A file whose sections are as they should be, and the sources and sinks whose `config` is."""

    file: PipelineFile
    sources: dict[str, SourceSpec]
    sinks: dict[str, SinkSpec]


@dataclass(frozen=True)
class Join:
    """A source and a sink that belong together, by name; ``topics`` are read from the broker when there is no source."""

    name: str
    sink: str
    path: Path
    source: str | None = None
    topics: tuple[str, ...] = ()
    entry: PipelineEntry | None = None


def project_of(document: Document, parts: Parts) -> ProjectSpec | None:
    """The project; None when problems were found, which are then in the document."""
    joins = _declared(document, parts) if parts.file.pipelines is not None else _implied(document, parts)
    complete = [join for join in joins if _complete(document, parts, join)]
    if document.problems:
        return None
    pipelines = tuple(_pipeline(document, parts, join) for join in complete)
    _require_own_ids(document, complete, pipelines)
    if document.problems:
        return None
    places = {".".join(map(str, path)): document.key_place(path) for path in document.keys}
    sources = {name: _with_streams(parts.file.sources[name], source) for name, source in parts.sources.items()}
    return ProjectSpec(
        file=document.name,
        sources=sources,
        sinks=parts.sinks,
        pipelines=pipelines,
        settings=parts.file.settings,
        places=places,
    )


def _declared(document: Document, parts: Parts) -> list[Join]:
    """The pipelines that the file names."""
    joins = []
    for name, entry in (parts.file.pipelines or {}).items():
        path: Path = ("pipelines", name)
        found = _is_named(document, (*path, "source"), entry.source, list(parts.file.sources), "source")
        if _is_named(document, (*path, "sink"), entry.sink, list(parts.file.sinks), "sink") and found:
            joins.append(Join(name, entry.sink, path, entry.source, entry=entry))
            _require_matching_topics(document, parts.file, entry)
    return joins


def _is_named(document: Document, path: Path, name: str, known: list[str], what: str) -> bool:
    if name in known:
        return True
    listed = f"{what.capitalize()}s in this file: {', '.join(known)}." if known else f"This file has no {what}s."
    fix = suggestion(name, known, listed)
    message = f"The pipeline `{path[1]}` names the {what} `{name}`, which is not in this file"
    document.problems.append(ConfigError(f"unknown-{what}", message, fix=fix, location=document.value_place(path)))
    return False


def _require_matching_topics(document: Document, file: PipelineFile, entry: PipelineEntry) -> None:
    """A sink that lists topics gets them from its pipeline's source, or the list would mean nothing."""
    source, sink = file.sources[entry.source], file.sinks[entry.sink]
    if not sink.topics or (source.topic is not None and _lists(sink, source.topic)):
        return
    message = f"`topics` of the sink `{entry.sink}` has no meaning: its pipeline reads from the source `{entry.source}`"
    fix = "Remove `topics`, or remove `pipelines` so that the sink reads its topics from the broker."
    location = document.key_place(("sinks", entry.sink, "topics"))
    document.problems.append(ConfigError("topics-with-pipeline", message, fix=fix, location=location))


def _lists(sink: SinkEntry, topic: str) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in sink.topics)


def _implied(document: Document, parts: Parts) -> list[Join]:
    """Without a `pipelines` section topics join sources and sinks, or there is only one way to join them."""
    file = parts.file
    by_topic = [join for name, sink in file.sinks.items() if sink.topics for join in _by_topics(document, file, name, sink)]
    if by_topic or document.problems or any(sink.topics for sink in file.sinks.values()):
        return by_topic
    sources = [name for name, source in file.sources.items() if source.enabled]
    sinks = [name for name, sink in file.sinks.items() if sink.enabled]
    if len(sources) == 1 and len(sinks) == 1:
        return [Join(sinks[0], sinks[0], ("sinks", sinks[0]), sources[0])]
    if sources and sinks:
        message = "The file does not say which source feeds which sink"
        fix = f"Add a section: pipelines: {{{sinks[0]}: {{source: {sources[0]}, sink: {sinks[0]}}}}}."
        location = document.key_place(("sources",))
        document.problems.append(ConfigError("no-pipeline", message, fix=fix, location=location))
    return []


def _by_topics(document: Document, file: PipelineFile, name: str, sink: SinkEntry) -> Iterator[Join]:
    """A source that publishes to a listed topic feeds the sink directly; the other topics come from the broker."""
    path: Path = ("sinks", name)
    feeding = {
        source: entry.topic for source, entry in file.sources.items() if entry.topic is not None and _lists(sink, entry.topic)
    }
    for source in feeding:
        yield Join(f"{source}-to-{name}", name, path, source)
    rest = tuple(each for each in sink.topics if not any(fnmatchcase(topic, each) for topic in feeding.values()))
    if rest and file.broker is None:
        message = f"The sink `{name}` reads the topics {', '.join(rest)}, and nothing in this file brings them"
        fix = "Add `broker` with `bootstrap_servers`, or a source with that `topic`."
        location = document.key_place((*path, "topics"))
        document.problems.append(ConfigError("no-broker", message, fix=fix, location=location))
    elif rest:
        yield Join(name, name, path, topics=rest)


def _complete(document: Document, parts: Parts, join: Join) -> bool:
    """Whether the sink says where to write; fragments of files need not."""
    sink = parts.sinks.get(join.sink)
    if sink is None or (join.source is not None and join.source not in parts.sources):
        return False
    lacking = []
    if sink.namespace is None:
        lacking.append(("namespace", "Namespace is required"))
    if sink.table is None and sink.route is None:
        lacking.append(("table", "Table name is required"))
    location = document.key_place(("sinks", join.sink))
    for key, message in lacking:
        fix = f"Add `{key}` to the config of the sink `{join.sink}`."
        document.report_once(ConfigError("missing-key", message, fix=fix, location=location))
    if join.source is not None:
        _require_one_dead_letter_topic(document, parts.file, join.source, join.sink)
    return not lacking


def _require_one_dead_letter_topic(document: Document, file: PipelineFile, source: str, sink: str) -> None:
    first, second = file.sources[source].dead_letter_topic, file.sinks[sink].dead_letter_topic
    if first is not None and second is not None and first != second:
        message = f"The source `{source}` and the sink `{sink}` name different dead letter topics, and a pipeline has one"
        location = document.key_place(("sinks", sink, "dead_letter_topic"))
        document.problems.append(ConfigError("two-dead-letter-topics", message, fix="Keep one.", location=location))


def _pipeline(document: Document, parts: Parts, join: Join) -> PipelineSpec:
    sink_entry = parts.file.sinks[join.sink]
    source_entry = parts.file.sources[join.source] if join.source is not None else None
    if join.source is not None and source_entry is not None:
        source_name, source = join.source, _with_streams(source_entry, parts.sources[join.source])
    else:
        source_name, source = "broker", _from_broker(parts.file, sink_entry, join.topics)
    written: list[tuple[Path, SourceEntry | PipelineEntry | SinkEntry | None]] = [
        (("sources", source_name), source_entry),
        (join.path, join.entry),
        (("sinks", join.sink), sink_entry),
    ]
    entries = [entry for _, entry in written if entry is not None]
    limits = [entry.rate_limit for entry in entries if entry.rate_limit]
    sink, topic = _with_letters(document, parts, join, source)
    transforms = tuple(t for path, entry in written if entry is not None for t in _transforms(document, path, entry))
    for problem in pipeline_problems(source, sink, transforms):
        location = document.key_place(("sinks", join.sink, "config", *problem.at))
        document.report_once(ConfigError("invalid-value", str(problem), location=location))
    return PipelineSpec(
        name=join.name,
        source_name=source_name,
        source=source,
        sink_name=join.sink,
        sink=sink,
        transforms=transforms,
        tests=join.entry.tests if join.entry is not None else (),
        enabled=all(entry.enabled for entry in entries),
        rate_limit=min(limits) if limits else None,
        dead_letter_topic=topic,
    )


def _with_letters(document: Document, parts: Parts, join: Join, source: SourceSpec) -> tuple[SinkSpec, LetterTopic | None]:
    """A topic for dead letters is in the source's cluster, or in that of the file; naming one asks for dead letters."""
    sink = parts.sinks[join.sink]
    named = {("sinks", join.sink): parts.file.sinks[join.sink].dead_letter_topic}
    if join.source is not None:
        named[("sources", join.source)] = parts.file.sources[join.source].dead_letter_topic
    for path, topic in named.items():
        if topic is None:
            continue
        place = document.key_place((*path, "dead_letter_topic"))
        cluster = source.cluster if isinstance(source, KafkaSource) else _cluster(parts.file)
        if cluster is None:
            message, fix = "dead_letter_topic needs a Kafka cluster", "Add `broker` with `bootstrap_servers`."
            document.problems.append(ConfigError("no-broker", message, fix=fix, location=place))
            return sink, None
        if why := letters_refused(sink):
            document.problems.append(ConfigError("invalid-value", f"dead_letter_topic {why}", location=place))
            return sink, None
        return sink.model_copy(update={"on_error": OnError.DEAD_LETTER}), LetterTopic(topic=topic, cluster=cluster)
    return sink, None


def _cluster(file: PipelineFile) -> KafkaCluster | None:
    if file.broker is None:
        return None
    broker = file.broker
    return KafkaCluster(bootstrap_servers=",".join(broker.bootstrap_servers), tls=broker.tls, security=broker.security)


def _transforms(document: Document, path: Path, entry: SourceEntry | PipelineEntry | SinkEntry) -> Iterator[RowTransform]:
    """The changes of an entry, each with the places of its parts, for errors that show when there is data."""
    for number, transform in enumerate(entry.transforms):
        ways = document.places_below((*path, "transforms", number))
        # The settings may stand under `config`, of which the change itself knows nothing.
        yield transform.placed(
            {(way[1:] if way[:1] == ("config",) else way): place for way, place in ways.items()} | {(): ways[()]}
        )


def _with_streams(entry: SourceEntry, source: SourceSpec) -> SourceSpec:
    """Streams stand beside `config` and belong to it."""
    if entry.streams and isinstance(source, PostgresCdcSource):
        return source.model_copy(update={"streams": (*source.streams, *entry.streams)})
    return source


def _from_broker(file: PipelineFile, sink: SinkEntry, topics: tuple[str, ...]) -> KafkaSource:
    start, cluster = sink.start_offset, _cluster(file)
    return KafkaSource(
        bootstrap_servers=cluster.bootstrap_servers if cluster is not None else "",
        tls=cluster.tls if cluster is not None else None,
        security=cluster.security if cluster is not None else None,
        topics=topics,
        consumer_group=sink.consumer_group,
        start_offset="timestamp" if isinstance(start, StartTime) else start or "latest",
        start_timestamp=start.timestamp if isinstance(start, StartTime) else None,
    )


def _require_own_ids(document: Document, joins: list[Join], pipelines: tuple[PipelineSpec, ...]) -> None:
    """Two pipelines under one identity in one table's ledger would fence each other out."""
    seen: dict[tuple[str, str, str], str] = {}
    for join, pipeline in zip(joins, pipelines, strict=True):
        ledger = (pipeline.sink.catalog.model_dump_json(), pipeline.sink.full_name, pipeline.sink_id)
        if ledger in seen:
            message = f"The pipelines `{seen[ledger]}` and `{pipeline.name}` write to one table under the same `id`"
            fix = "Give each its own sink, with another `id` or none."
            problem = ConfigError("shared-sink-id", message, fix=fix, location=document.key_place(join.path))
            document.problems.append(problem)
        seen.setdefault(ledger, pipeline.name)
