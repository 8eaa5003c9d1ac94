"""Structured logs on stderr: text for people, JSON lines by option, and no secret in either.

frazil logs through the standard library's logger ``frazil``, so that a program that uses it as a library sees its records
where it wants them. :func:`configure` is for frazil's own command line, and for programs whose settings ask for logs: it also
takes what other libraries log, from warnings up, and gives it the same form.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from frazil.model.events import (
    CommitFailed,
    Committed,
    Event,
    FencedOut,
    Lagged,
    Maintained,
    Paused,
    Published,
    PublishFailed,
    Requested,
    Restarting,
    Resumed,
    Settled,
    SourceFailed,
    SourceNoticed,
    Staged,
    Started,
    Stopped,
    TableMeasured,
    Waiting,
)
from frazil.model.secrets import MASK, is_secret_name, scrub
from frazil.model.settings import Settings

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger
    from structlog.typing import Processor

LOGGER = "frazil"

_FIELDS = "frazil_fields"

# The position of a source with a thousand partitions would drown the line that it stands in.
_LONGEST_POSITION = 200

Render = Callable[[Any, str, MutableMapping[str, Any]], Any]


def configure(level: str = "info", log_format: Literal["text", "json"] = "text") -> None:
    """Sends all logs to stderr. May be called again; the last call counts."""
    import structlog

    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _StderrHandler)]:
        root.removeHandler(handler)
    handler = _StderrHandler()
    handler.setFormatter(_Formatter(_renderer(log_format)))
    root.addHandler(handler)
    threshold = _threshold(level)
    root.setLevel(max(logging.WARNING, threshold))
    logging.getLogger(LOGGER).setLevel(threshold)
    structlog.configure(
        processors=_processors(),
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=lambda *names: logging.getLogger(names[0] if names else LOGGER),
    )


def _threshold(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def configure_where_asked(settings: Settings) -> tuple[LogEvents, ...]:
    """Logs as the settings of a program's pipelines name it themselves, and the listeners that events must go to for that.

    A program that has handlers of its own keeps them, and only the level is set, unless a form is named, too.
    """
    asked = settings.model_fields_set & {"log_level", "log_format"}
    if not asked:
        return ()
    if "log_format" in asked or all(isinstance(handler, _StderrHandler) for handler in logging.getLogger().handlers):
        configure(settings.log_level, settings.log_format)
    else:
        logging.getLogger(LOGGER).setLevel(_threshold(settings.log_level))
    return (LogEvents(),)


def logger(name: str = LOGGER) -> BoundLogger:
    """A structured logger, whether or not :func:`configure` was called: ``logger().info("batch_committed", rows=5)``."""
    import structlog

    wrapped: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name), processors=_processors(), wrapper_class=structlog.stdlib.BoundLogger
    )
    return wrapped


def _processors() -> list[Processor]:
    import structlog

    return [
        structlog.stdlib.filter_by_level,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _to_record,
    ]


def _to_record(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of a standard logging call: readable in any program's handlers, the fields kept for our own."""
    fields = without_secrets(event)
    name, blocks = fields.get("event", ""), [fields[key] for key in ("stack", "exception") if key in fields]
    pairs = [f"{key}={_quoted(value)}" for key, value in fields.items() if key not in ("event", "stack", "exception")]
    return ("\n".join([" ".join([str(name), *pairs]), *blocks]),), {"extra": {_FIELDS: fields}}


def _quoted(value: Any) -> str:
    """A text with blanks in quotes, so that a value can neither look like another field nor begin a line."""
    return repr(value) if isinstance(value, str) and (not value or any(mark.isspace() for mark in value)) else str(value)


def without_secrets(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with every text scrubbed, at any depth, and values whose name says secret masked."""
    return {str(key): MASK if value is not None and is_secret_name(str(key)) else _clean(value) for key, value in fields.items()}


def _clean(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return scrub(value)
        case Mapping():
            return without_secrets(value)
        case list() | tuple() | set() | frozenset():
            return [_clean(item) for item in value]
        case _:
            return scrub(str(value))


def _renderer(log_format: Literal["text", "json"]) -> Render:
    import structlog

    if log_format == "json":
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=20, sort_keys=False)


class _StderrHandler(logging.Handler):
    """Writes to whatever stderr is at the moment, so that lines go above a live display and into a test's capture."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as every handler of the standard library does: a log line must not end a run
            self.handleError(record)


class _Formatter(logging.Formatter):
    """One line for a record, whether frazil wrote it or another library."""

    def __init__(self, render: Render) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, None)
        if fields is None:
            fields = {"event": record.getMessage(), "logger": record.name}
            if record.exc_info:
                fields["exception"] = self.formatException(record.exc_info)
            if record.stack_info:
                fields["stack"] = self.formatStack(record.stack_info)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"timestamp": at, "level": record.levelname.lower(), **without_secrets(fields)}
        return str(self._render(None, record.levelname.lower(), entry))


class LogEvents:
    """Logs events under stable names, with their fields."""

    def __init__(self) -> None:
        self._logger = logger()

    def __call__(self, event: Event) -> None:
        """Logs one event."""
        level, name = named(event)
        fields = asdict(event)
        counts = fields.pop("counts", {}) | fields.pop("figures", {})
        counts |= {"unmet": dict(counts["unmet"]) or None} if "unmet" in counts else {}
        if isinstance(start := fields.get("start"), str) and len(start) > _LONGEST_POSITION:
            fields["start"] = scrub(start)[:_LONGEST_POSITION] + "..."
        self._logger.log(level, name, **{key: value for key, value in (fields | counts).items() if value is not None})


def named(event: Event) -> tuple[int, str]:  # noqa: PLR0911, PLR0912 - one for each event
    """The level and the stable name of an event in the logs."""
    match event:
        case Started():
            return logging.INFO, "pipeline_started"
        case Waiting():
            return logging.DEBUG, "pipeline_waiting"
        case Staged():
            return logging.DEBUG, "batch_staged"
        case Committed():
            level = logging.WARNING if event.counts.unmet else logging.INFO
            return level, "batch_skipped" if event.skipped else "batch_committed"
        case CommitFailed():
            return logging.WARNING if event.will_retry else logging.ERROR, "commit_failed"
        case SourceFailed():
            return logging.WARNING if event.will_retry else logging.ERROR, "source_failed"
        case SourceNoticed():
            return logging.WARNING if event.gap else logging.INFO, "source_notice"
        case Lagged():
            return logging.DEBUG, "source_lag"
        case Paused():
            return logging.WARNING, "pipeline_paused"
        case Resumed():
            return logging.INFO, "pipeline_resumed"
        case Restarting():
            return logging.WARNING, "pipeline_restarting"
        case Settled():
            return logging.INFO, "deletes_settled"
        case Maintained():
            return logging.INFO, "table_maintained"
        case TableMeasured():
            return logging.DEBUG, "table_measured"
        case Requested():
            return logging.DEBUG, "requests_counted"
        case Published():
            return logging.DEBUG, "table_published"
        case PublishFailed():
            return logging.WARNING if event.will_retry else logging.ERROR, "publish_failed"
        case FencedOut():
            return logging.ERROR, "pipeline_fenced"
        case Stopped():
            return (logging.INFO, "pipeline_stopped") if event.error is None else (logging.ERROR, "pipeline_failed")
