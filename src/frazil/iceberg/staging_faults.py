"""The boundary for what stopped the executors while they wrote a batch.

What Spark raises for a reason that is not known is `batch-not-written`, an error of the data: nearly always it is an expression
or a function of the user's that failed for a value. What Python raises, and is not known either, is `internal`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from frazil.columns.alignment import RECORD_MARK
from frazil.columns.coerce import CAST_MARK, NULL_MARK, SUM_MARK
from frazil.errors import CastRefused, CatalogAway, DataError, EnvironmentFault, FrazilError, RequiredNull, Retryable, SparkDied
from frazil.iceberg.faults import JavaFault, explain

# What Spark puts before a message that an expression stops a batch with.
_RAISED = "[USER_RAISED_EXCEPTION] "

_COLUMN = re.compile(r"""column ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") """)

# What an expression of ours says when it stops a batch, by the mark that its message begins with.
_MARKS = {
    CAST_MARK: "value-not-convertible",
    SUM_MARK: "sum-too-large",
    "[frazil-alias] ": "alias-ambiguous",
    "[frazil-outside] ": "row-outside",
}


_FIXES = {
    CAST_MARK: "Correct the data, declare the column with another type, or set on_error: dead_letter to go on without such rows.",
    NULL_MARK: "Correct the data, or set on_error: dead_letter to go on without such rows.",
    RECORD_MARK: "Correct the data, or set on_error: dead_letter to go on without such records.",
}


def _said(fault: JavaFault, mark: str) -> str | None:
    """What an expression of ours said, found by its mark. A mark that Spark did not raise may be part of a printed plan."""
    before, found, text = fault.message.partition(mark)
    if not found or (before and not before.endswith(_RAISED)):
        return None
    return text.splitlines()[0].partition(" SQLSTATE: ")[0]


def _column_in(text: str) -> str:
    """The path of the column in a message of ours, which contains it as a Python string literal."""
    found = _COLUMN.search(text)
    return str(ast.literal_eval(found[1])) if found else ""


def _raised(fault: JavaFault) -> DataError | None:
    """The error that an expression of ours has raised; None when it was not one of ours."""
    for mark, code in _MARKS.items():
        if (text := _said(fault, mark)) is not None:
            kind = CastRefused if mark == CAST_MARK else DataError
            return kind(code, text, fix=_FIXES.get(mark, "Correct the data."))
    if (text := _said(fault, NULL_MARK)) is not None:
        return RequiredNull(text, _column_in(text), fix=_FIXES[NULL_MARK])
    if (message := _said(fault, RECORD_MARK)) is not None:
        code, _, text = message.partition(": ")
        return DataError(code, text, fix=_FIXES[RECORD_MARK])
    return None


# How Spark passes on the cause of a task's failure that cannot be sent as an object: within its own message.
_CAUSE = re.compile(r"^Caused by: ([\w$.]+)(?:: (.*?))?(?=\n\t|\nCaused by: |\n\n|\Z)", re.MULTILINE | re.DOTALL)


def _with_causes(fault: JavaFault) -> JavaFault:
    """The fault with the causes that its innermost one only names in its message. They are known by their own classes alone."""
    if fault.cause is not None:
        return replace(fault, cause=_with_causes(fault.cause))
    cause = None
    if fault.is_of("org.apache.spark.SparkException"):
        for name, message in reversed(_CAUSE.findall(fault.message)):
            cause = JavaFault((name,), message, cause)
    return replace(fault, cause=cause)


def explain_staging(fault: JavaFault) -> FrazilError:
    """Why the executors could not write a batch."""
    fault = _with_causes(fault)
    for part in fault.chain:
        if (raised := _raised(part)) is not None:
            return raised
    if fault.find("BadConfigurationException") and "BrotliCodec" in fault.text:
        return EnvironmentFault(
            "codec-missing",
            "The Spark session was started without the codec for brotli.",
            fix="Let frazil start Spark, or choose another compression.",
        )
    if (exhausted := _memory_exhausted(fault)) is not None:
        return exhausted
    known = explain(fault)
    if known is not None and not isinstance(known, CatalogAway):
        return known
    if known is None and fault.of_python:
        words = f"The batch could not be written, for a reason that is not known: {fault.classes[0]}: {fault.line}"
        return FrazilError("internal", words, fix="Run the command again with --debug for the trace, and report it.")
    text = f"The batch could not be written: {fault.chain[-1].line}"
    return DataError("batch-not-written", text) if known is None else Retryable("batch-not-written", text)


_MORE_MEMORY = (
    "Give Spark more memory (settings.spark.conf: spark.driver.memory; with executors of their own also spark.executor.memory), "
    "or let batches be smaller (batch_size)."
)


def _memory_exhausted(fault: JavaFault) -> FrazilError | None:
    """A heap that was too small for the batch. Separate executors report it; a Spark in one process ends without a message."""
    if fault.find("OutOfMemoryError") or "OutOfMemoryError" in fault.text:
        words = f"The batch could not be written: Spark's memory was exhausted ({_line_with('OutOfMemoryError', fault)})."
        return EnvironmentFault("out-of-memory", words, fix=_MORE_MEMORY)
    if "SparkContext was shut down" in fault.text:
        words = (
            "Spark ended while the batch was being written. As a rule its memory was exhausted: that ends a Spark in one process."
        )
        return SparkDied("spark-died", words, fix=_MORE_MEMORY)
    return None


def _line_with(mark: str, fault: JavaFault) -> str:
    """What the exception of this name says, wherever in the messages it stands."""
    lines = (line for line in fault.text.splitlines() if mark in line)
    return next((mark + line.partition(mark)[2].strip() for line in lines), mark)
