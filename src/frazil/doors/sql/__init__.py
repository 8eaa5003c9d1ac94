"""The SQL door: objects are created by statements, kept in a catalog of definitions, and run as pipelines.

Delivery: exactly once, as of a pipeline file. The catalog of definitions knows no position: a sink that is dropped and created
again under its name goes on where its table ends. Unit of parallelism: a sink, which runs in a thread of its own.
"""

from frazil.doors.sql.answer import Answer
from frazil.doors.sql.definitions import DEFAULT_FILE, Definitions
from frazil.doors.sql.parse import parse
from frazil.doors.sql.render import render
from frazil.doors.sql.run import run, sinks_to_run
from frazil.doors.sql.session import MOST_ROWS, Session

__all__ = ["DEFAULT_FILE", "MOST_ROWS", "Answer", "Definitions", "Session", "parse", "render", "run", "sinks_to_run"]
