"""Settings of a run that belong to no single pipeline."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from frazil.model.base import Model, Texts


class RetrySettings(Model):
    """How a failed call to a catalog or store is tried again."""

    max_retries: int = Field(
        10,
        ge=0,
        le=1000,
        description="Tries after the first. With nothing of `retry` set, a catalog that does not answer at the start is "
        "tried four times more.",
    )
    initial_backoff_ms: int = Field(100, ge=1, description="Wait before the second try.")
    max_backoff_ms: int = Field(30_000, ge=1, description="Longest wait.")
    backoff_multiplier: float = Field(2.0, ge=1, allow_inf_nan=False, description="Growth of the wait.")


class RestartSettings(Model):
    """How a pipeline is started again that ran and failed for a reason that may pass: something did not answer for too long."""

    max_restarts: int = Field(10, ge=0, description="Restarts in a row without a batch in between; 0 for none.")
    initial_backoff_secs: float = Field(5, gt=0, allow_inf_nan=False, description="Longest wait before the first restart.")
    max_backoff_secs: float = Field(
        300,
        gt=0,
        allow_inf_nan=False,
        description="Longest wait of all: the bound doubles with each restart, and half of a wait is random.",
    )


class HealthSettings(Model):
    """Where `/health`, `/ready` and `/live` answer."""

    enabled: bool = Field(True, description="Whether they answer.")
    host: str = Field("127.0.0.1", description="Interface; only this machine by default.")
    port: int = Field(8080, ge=0, le=65535, description="Port; 0 takes a free one.")
    path: str = Field("/health", pattern="^/", description="Path of the health answer.")


class MetricsSettings(Model):
    """Where `/metrics` answers."""

    enabled: bool = Field(True, description="Whether it answers.")
    host: str = Field("127.0.0.1", description="Interface; only this machine by default.")
    port: int = Field(9091, ge=0, le=65535, description="Port; 0 takes a free one.")


class TracingSettings(Model):
    """Traces of batches, by OpenTelemetry."""

    enabled: bool = Field(
        False,
        description="Whether batches are traced. Where traces go is said by OpenTelemetry's own variables, such as "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`.",
    )


class LineageSettings(Model):
    """Runs as events of OpenLineage."""

    enabled: bool = Field(
        False,
        description="Whether runs are reported. Where to is said by OpenLineage's own settings: `OPENLINEAGE_URL`, or a file "
        "`openlineage.yml`.",
    )
    namespace: str = Field("frazil", min_length=1, description="Namespace of the pipelines there.")


class SparkSettings(Model):
    """The Spark that does the work."""

    master: str | None = Field(
        None, description="`local[*]` by default, `spark://host:7077`, `local-cluster[2,1,1024]`, `yarn`, ..."
    )
    app_name: str = Field("frazil", description="Name of the application in Spark.")
    conf: Texts = Field(default_factory=dict, description="Any Spark option.")


# Levels that others have, and what they mean here.
_LEVELS = {"trace": "debug", "critical": "error"}


def _with_levels_of_others(schema: dict[str, Any]) -> None:
    schema["enum"] += _LEVELS


class Settings(Model):
    """Settings of a run."""

    state_dir: str | None = Field(
        None,
        min_length=1,
        description="Folder for what may be lost: key indexes, and the scratch of a Spark that frazil starts, unless "
        "`spark.conf` has its own `spark.local.dir`. It is made when it is missing.",
    )
    retry: RetrySettings = Field(RetrySettings(), description="How a failed call is tried again.")
    restart: RestartSettings = Field(RestartSettings(), description="How a pipeline that failed is started again.")
    parallel: int | None = Field(
        None, ge=1, le=64, description="How many pipelines write at the same time; all of them when left out."
    )
    on_failure: Literal["continue", "stop"] = Field(
        "continue", description="A pipeline fails for good: the others go on, or are stopped, too."
    )
    health: HealthSettings = Field(HealthSettings(), description="Where health answers.")
    metrics: MetricsSettings = Field(MetricsSettings(), description="Where metrics answer.")
    tracing: TracingSettings = Field(TracingSettings(), description="Traces of batches, by OpenTelemetry.")
    lineage: LineageSettings = Field(LineageSettings(), description="Runs as events of OpenLineage.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="Least level that is logged; `trace` means `debug`, `critical` means `error`.",
        json_schema_extra=_with_levels_of_others,
    )
    log_format: Literal["text", "json"] = Field("text", description="Form of the log.")
    spark: SparkSettings = Field(SparkSettings(), description="The Spark that does the work.")

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"warn": "warning", **_LEVELS}.get(value.lower(), value.lower())
        return value
