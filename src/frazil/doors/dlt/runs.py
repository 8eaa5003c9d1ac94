"""The runs of pipelines, which dlt announces: Spark starts in the background when one begins.

Extract and normalize, which need no Spark, take place meanwhile. A pipeline whose steps are called one by one may have others in
another process: there Spark starts when it is needed.
"""

from __future__ import annotations

from typing import Any

from dlt.common import logger
from dlt.common.configuration import inject_section
from dlt.common.configuration.specs.config_section_context import ConfigSectionContext
from dlt.pipeline import trace as traces

from frazil.doors.dlt.configuration import IcebergRestConfiguration

RUN = "run"


class RunListener:
    """One of those whom dlt tells of the steps of pipelines."""

    def __init__(self) -> None:
        self._runs: set[str] = set()

    def on_start_trace(self, trace: Any, step: str, pipeline: Any) -> None:  # noqa: ARG002 - dlt's own
        """Remembers a run. Its destination may become known with its next step only."""
        if step == RUN:
            self._runs.add(trace.transaction_id)

    def on_start_trace_step(self, trace: Any, step: str, pipeline: Any) -> None:  # noqa: ARG002 - dlt's own
        """Starts Spark for the destination of a run."""
        # dlt's own destinations have other settings.
        if trace.transaction_id in self._runs and getattr(pipeline.destination, "spec", None) is IcebergRestConfiguration:
            _start_spark(pipeline.destination, pipeline.pipeline_name)

    def on_end_trace_step(self, trace: Any, step: Any, pipeline: Any, step_info: Any, send_state: bool) -> None:
        """Nothing."""

    def on_end_trace(self, trace: Any, pipeline: Any, send_state: bool) -> None:  # noqa: ARG002 - dlt's own
        """Forgets the run. Spark goes on: the next one uses it."""
        self._runs.discard(trace.transaction_id)


def _start_spark(destination: Any, pipeline_name: str) -> None:
    from frazil.runtime import loads

    try:
        with inject_section(ConfigSectionContext(pipeline_name=pipeline_name)):
            config = destination.configuration(IcebergRestConfiguration()._bind_dataset_name("any"))
        sink, spark = config.of_dataset("any").sink("any"), config.spark_settings
    except Exception as error:  # noqa: BLE001 - what is wrong with the settings is raised where the pipeline reads them
        logger.debug(f"Spark is not started yet: {error}")
        return
    loads.start_ahead(sink, spark)


def listen_to_runs() -> None:
    """Lets dlt tell of all runs of this process, once."""
    if not any(isinstance(one, RunListener) for one in traces.TRACKING_MODULES):
        traces.TRACKING_MODULES.append(RunListener())
