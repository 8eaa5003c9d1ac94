"""The Python door to whole pipelines: `frazil.Pipeline(source={...}, sink={...}).run(once=True)`, without a file."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from frazil.doors.python.sink import Sink
from frazil.errors import ConfigError, ConfigErrors
from frazil.model.arguments import argument_errors, functions, located_at_caller, unknown
from frazil.model.base import Model
from frazil.model.cases import CaseResult, CaseSpec
from frazil.model.dead_letters import OnError
from frazil.model.events import Committed, Event, Listener, notify_all
from frazil.model.html import facts_html
from frazil.model.pipeline import LetterTopic, PipelineSpec, letters_refused, pipeline_problems
from frazil.model.plan import PipelinePlan
from frazil.model.secrets import remember, secret_values
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.model.source import CONNECTORS, KafkaSource
from frazil.model.transform import TRANSFORMS, RowTransform

if TYPE_CHECKING:
    from frazil.runtime.pump import Totals

CODE = "pipeline-option"
SOURCES: dict[str, type[Model]] = {kind.model_fields["connector"].default: kind for kind in CONNECTORS}
KINDS: dict[str, type[RowTransform]] = {kind.model_fields["type"].default: kind for kind in TRANSFORMS}
# Settings that say how several pipelines run beside each other.
_OF_SEVERAL = ("parallel", "on_failure")


class Pipeline:
    """One source, one sink, and what happens between, by the option names of the pipeline file.

    ``source`` and ``sink`` are dictionaries, or values of the model; a sink may also be one that `frazil.sink()` describes,
    with its listeners and retries. An entry of a file, with its settings under ``config``, is fine, too. Errors are raised
    here, with the argument's path.

    ``name`` is the pipeline's stable identity in the table's ledger, together with the sink's ``id``; the table's name when
    left out. Listeners are called with every event. In ``settings``, health, metrics and logs take effect only if they are
    named.

    Delivery: exactly once over any number of runs with this identity: each goes on where the ledger ends. A run with another one
    reads the source from its beginning. Unit of parallelism: a sink has one writer, the newest, which stops the others.
    """

    @located_at_caller
    def __init__(
        self,
        source: Mapping[str, Any] | Model,
        sink: Mapping[str, Any] | SinkSpec | Sink,
        *,
        transforms: Sequence[Mapping[str, Any] | RowTransform] = (),
        name: str | None = None,
        rate_limit: int | None = None,
        dead_letter_topic: str | Mapping[str, Any] | LetterTopic | None = None,
        tests: Sequence[Mapping[str, Any] | CaseSpec] = (),
        settings: Mapping[str, Any] | Settings | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        described = sink if isinstance(sink, Sink) else Sink()
        _require_no_frame(described)
        made_source, made_sink = _source(source), _sink(sink)
        made_sink, topic = _letters(dead_letter_topic, made_source, made_sink)
        changes = tuple(_transform(number, one) for number, one in enumerate(_listed("transforms", transforms)))
        if problems := pipeline_problems(made_source, made_sink, changes):
            raise ConfigErrors([ConfigError(CODE, f"{'.'.join(('sink', *one.at))}: {one}") for one in problems])
        given = {
            "name": name if name is not None else made_sink.full_name,
            "source_name": "source",
            "source": made_source,
            "sink_name": "python",
            "sink": made_sink,
            "transforms": changes,
            "tests": tuple(_value(CaseSpec, one, f"tests[{number}]") for number, one in enumerate(_listed("tests", tests))),
            "rate_limit": rate_limit or None,
            "dead_letter_topic": topic,
            "retry": described.retry_settings if described.retry_given else None,
        }
        self.spec: PipelineSpec = _value(PipelineSpec, given, "")
        self.settings: Settings = _value(Settings, settings or {}, "settings")
        _require_settings_of_one(self.settings)
        self.listeners: tuple[Listener, ...] = (*described.listeners, *functions("listeners", listeners, code=CODE))
        remember(secret_values(self.spec))
        remember(secret_values(self.settings))

    def run(self, *, once: bool = False, stop: threading.Event | None = None, progress: bool = False) -> Totals:
        """Runs until the source is finished, ``stop`` is set, or, with ``once``, nothing is left to read; what was written."""
        from frazil.observe.progress import Progress

        with Progress(quiet=not progress) as shown:
            return self._run([shown], stop or threading.Event(), once=once)

    def _run(self, listeners: Sequence[Listener], stop: threading.Event, *, once: bool) -> Totals:
        from frazil.observe.surroundings import surroundings
        from frazil.runtime.runner import SharedSpark, run_pipeline

        with surroundings(self.settings, [self.spec]) as around:
            spark = SharedSpark([self.spec], self.settings)
            everybody = notify_all((*self.listeners, *listeners, *around))
            return run_pipeline(self.spec, self.settings, spark, everybody, stop, once=once)

    def start(self) -> Running:
        """Runs in the background, as a notebook wants it, until its `stop()` is called."""
        return Running(self)

    def plan(self) -> PipelinePlan:
        """What a run would create, change and read. Changes nothing."""
        from frazil.runtime.plan import plan_pipeline

        return plan_pipeline(self.spec, self.settings)

    def test(self) -> list[CaseResult]:
        """The results of the pipeline's tests, which need no source, no catalog and no table."""
        from frazil.runtime.cases import run_cases

        return list(run_cases([self.spec], self.settings))

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(f'{name}={value}' for name, value in self._facts() if value is not None)})"

    def _repr_html_(self) -> str:
        return facts_html(f"Pipeline {self.spec.name}", self._facts())

    def _facts(self) -> list[tuple[str, Any]]:
        sink = self.spec.sink
        return [
            ("source", self.spec.source.connector),
            ("table", sink.full_name if sink.route is None else f"by {sink.route.decides}"),
            ("catalog", sink.catalog.address),
            ("mode", sink.commit_mode.value),
            ("keys", ", ".join(sink.key_fields) or None),
            ("partitioned by", ", ".join(map(str, sink.partition)) or None),
            ("transforms", ", ".join(str(one.type) for one in self.spec.transforms) or None),
            ("id", self.spec.sink_id),
        ]


@dataclass
class Running:
    """A pipeline in the background: shows how far it is, and ends when asked."""

    pipeline: Pipeline
    committed: int = 0
    rows: int = 0
    error: BaseException | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work, name=self.pipeline.spec.name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def stop(self, timeout: float | None = None) -> None:
        """Ends it after the batch that it is at, and raises what has stopped it before, if anything has."""
        self._over.set()
        self.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for its end, and raises what has stopped it; False when the time is over before."""
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        return not self.running

    def _work(self) -> None:
        try:
            self.pipeline._run([self._note], self._over, once=False)
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits
            self.error = error

    def _note(self, event: Event) -> None:
        if isinstance(event, Committed) and not event.skipped:
            self.committed, self.rows = self.committed + 1, self.rows + event.counts.written

    def _repr_html_(self) -> str:
        state = "running" if self.running else "failed" if self.error is not None else "ended"
        facts = [("state", state), ("batches", f"{self.committed:,}"), ("rows", f"{self.rows:,}"), ("error", self.error)]
        return facts_html(f"Pipeline {self.pipeline.spec.name}", facts)


def _source(given: Any) -> Any:
    if isinstance(given, Model):
        if type(given) in SOURCES.values():
            return given
        raise ConfigError(CODE, f"source: it must be a dictionary or a source, not {type(given).__name__}.")
    options = _options(given, "source", beside=("connector", "streams"))
    connector = options.get("connector")
    if connector is None:
        raise ConfigError(CODE, "source.connector: it is required.", fix=f"One of: {', '.join(SOURCES)}.")
    if connector not in SOURCES:
        near = unknown(str(connector), SOURCES, code=CODE)
        raise ConfigError(CODE, f"source.connector: there is no connector {connector!r}.", fix=near.fix)
    return _value(SOURCES[connector], options, "source")


def _require_no_frame(sink: Sink) -> None:
    """Refuses what belongs to the data frame of a sink: in a pipeline rows come from its source."""
    given = {"a data frame": sink.frame, "a checkpoint": sink.checkpoint_location, "a trigger": sink.trigger_given or None}
    for what, value in given.items():
        if value is not None:
            raise ConfigError(
                CODE, f"sink: it has {what}, and the rows of a pipeline come from its source.", fix="Begin with frazil.sink()."
            )


def _listed(argument: str, given: Any) -> Sequence[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise ConfigError(CODE, f"{argument}: it must be a list, not {type(given).__name__}.", fix=f"Write {argument}=[...].")
    return given


def _sink(given: Any) -> SinkSpec:
    described: SinkSpec | Any = given.spec if isinstance(given, Sink) else given
    if not isinstance(described, SinkSpec):
        options = _options(given, "sink", beside=("connector",))
        if options.pop("connector", "iceberg") != "iceberg":
            raise ConfigError(CODE, "sink.connector: the only one is 'iceberg'.")
        described = _value(SinkSpec, options, "sink")
    if described.namespace is None:
        raise ConfigError(CODE, "sink.namespace: Namespace is required")
    if described.table is None and described.route is None:
        raise ConfigError(CODE, "sink.table: Table name is required")
    return described


def _options(given: Any, argument: str, beside: tuple[str, ...]) -> dict[str, Any]:
    """The options of an entry, whose settings may stand under `config`."""
    if not isinstance(given, Mapping):
        raise ConfigError(CODE, f"{argument}: it must be a dictionary, not {type(given).__name__}.")
    config = given.get("config")
    if not isinstance(config, Mapping) or not set(given) <= {"config", *beside}:
        return dict(given)
    return {name: value for name, value in given.items() if name != "config"} | dict(config)


def _require_settings_of_one(settings: Settings) -> None:
    """Refuses what says how several pipelines run beside each other."""
    if given := [name for name in _OF_SEVERAL if name in settings.model_fields_set]:
        raise ConfigErrors(
            ConfigError(
                CODE,
                f"settings.{name}: it has no meaning for one pipeline.",
                fix="Leave it out. Several pipelines stand in a file, which frazil.run() runs.",
            )
            for name in given
        )


def _transform(number: int, given: Any) -> RowTransform:
    argument = f"transforms[{number}]"
    if isinstance(given, RowTransform):
        return given
    options = _options(given, argument, beside=("type",))
    kind = options.get("type")
    if kind is None:
        raise ConfigError(CODE, f"{argument}.type: it is required.", fix=f"One of: {', '.join(KINDS)}.")
    if kind not in KINDS:
        near = unknown(str(kind), KINDS, code=CODE)
        raise ConfigError(CODE, f"{argument}.type: there is no transform {kind!r}.", fix=near.fix)
    made: RowTransform = _value(KINDS[kind], options, argument)
    return made


def _letters(given: Any, source: Any, sink: SinkSpec) -> tuple[SinkSpec, LetterTopic | None]:
    """A topic for dead letters is in the source's cluster, unless it says another; naming one asks for dead letters."""
    if given is None:
        return sink, None
    if isinstance(given, str):
        if not isinstance(source, KafkaSource):
            raise ConfigError(
                CODE,
                "dead_letter_topic: it needs a Kafka cluster, and the source has none.",
                fix='Write {"topic": ..., "cluster": {"bootstrap_servers": ...}}.',
            )
        given = {"topic": given, "cluster": source.cluster}
    topic: LetterTopic = _value(LetterTopic, given, "dead_letter_topic")
    if why := letters_refused(sink):
        raise ConfigError(CODE, f"dead_letter_topic: it {why}.")
    return sink.model_copy(update={"on_error": OnError.DEAD_LETTER}), topic


def _value(model: type[Any], given: Any, argument: str) -> Any:
    if isinstance(given, model):
        return given
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise argument_errors(error, model, code=CODE, of=argument) from None
