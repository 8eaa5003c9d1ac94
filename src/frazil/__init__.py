"""frazil freezes streams into Apache Iceberg tables, exactly once.

::

    import frazil

    frazil.sink(df).to("lake.sales.orders").keys("id").partition_by("day(ts)").write()
    frazil.Pipeline(source={...}, sink={...}).run(once=True)
    frazil.run("pipeline.yaml", once=True)

Whatever goes wrong is raised as a :class:`FrazilError`, whose type says what is known and whose text says what to do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frazil.errors import (
    ConfigError,
    ConfigErrors,
    DataError,
    EnvironmentFault,
    Fenced,
    FrazilError,
    Halted,
    OutcomeUnknown,
    Retryable,
    SourceLocation,
    UsageError,
)
from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.doors.python.data_source import register, session
    from frazil.doors.python.pipeline import Pipeline
    from frazil.doors.python.sink import Sink, sink
    from frazil.files import run
    from frazil.model.events import Committed, Event

__all__ = [
    "Committed",
    "ConfigError",
    "ConfigErrors",
    "DataError",
    "EnvironmentFault",
    "Event",
    "Fenced",
    "FrazilError",
    "Halted",
    "OutcomeUnknown",
    "Pipeline",
    "Retryable",
    "Sink",
    "SourceLocation",
    "UsageError",
    "__version__",
    "register",
    "run",
    "session",
    "sink",
]

# Loaded when they are first used: the command line, too, begins by importing this package.
_LATER = {
    "Committed": "frazil.model.events",
    "Event": "frazil.model.events",
    "Pipeline": "frazil.doors.python.pipeline",
    "Sink": "frazil.doors.python.sink",
    "register": "frazil.doors.python.data_source",
    "run": "frazil.files",
    "session": "frazil.doors.python.data_source",
    "sink": "frazil.doors.python.sink",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
