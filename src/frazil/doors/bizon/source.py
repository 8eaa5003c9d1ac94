"""The source of a Bizon file as it is written: topics of Kafka, or anything that is asked for pages."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, SecretStr, model_validator

from frazil.model.base import InconsistencyError, Model, Problem, Texts
from frazil.model.sink import Name

KAFKA = "kafka"
"""The source that frazil reads itself; all others are asked for their pages."""


class TopicEntry(Model):
    """A topic, and the table that it is written to."""

    name: str = Field(min_length=1, description="Name of the topic.")
    destination_id: Name | None = Field(None, description="The table; that of the destination's `destination_id` when left out.")


class AuthParams(Model):
    """User and password."""

    username: str | None = Field(None, description="User of the cluster.")
    password: SecretStr | None = Field(None, description="Password of the user.")
    schema_registry_type: Literal["apicurio", "confluent"] | None = Field(None, description="Kind of registry.")
    schema_registry_url: str | None = Field(None, description="Address of the registry.")
    schema_registry_username: str | None = Field(None, description="User of the registry.")
    schema_registry_password: SecretStr | None = Field(None, description="Password of that user.")
    auth_method: str | None = Field(None, description="Without effect.")
    auth_header: str | None = Field(None, description="Without effect.")


class KafkaAuth(AuthParams):
    """How to log in to the cluster and to the schema registry. What concerns the registry stands here or under `params`."""

    type: Literal["basic"] = Field("basic", description="Kind of login.")
    params: AuthParams = Field(AuthParams(), description="User and password.")

    @model_validator(mode="after")
    def _once(self) -> KafkaAuth:
        twice = [name for name in AuthParams.model_fields if name in self.model_fields_set & self.params.model_fields_set]
        if twice:
            raise InconsistencyError([Problem(f"{name} stands under params, too: keep one of them", name) for name in twice])
        return self

    def given(self, name: str) -> Any:
        """A value, wherever it stands."""
        own = getattr(self, name)
        return own if own is not None else getattr(self.params, name)


# What would bring rows again. A stream goes on by the offsets of its topics, for Bizon too, and takes no notice of these.
_BEGINS_ANEW = {
    "force_ignore_checkpoint": "a table knows how far its topics were read; `frazil reset` lets it begin anew",
    "reset": "a run does not empty tables; `frazil reset` does",
}


class KafkaEntry(Model):
    """Topics of a Kafka cluster."""

    name: Literal["kafka"] = Field(description="Kind of source.")
    stream: Literal["topic"] = Field("topic", description="What of the source is read.")
    sync_mode: Literal["stream", "incremental", "full_refresh"] | None = Field(
        None, description="`stream` goes on reading; `incremental` reads what is new, and ends."
    )
    topics: tuple[TopicEntry, ...] = Field(min_length=1, description="Topics to read.")
    bootstrap_servers: str = Field(min_length=1, description="`host:port` of one or more brokers.")
    group_id: str = Field("bizon", min_length=1, description="Name under which the cluster knows the reader.")
    batch_size: int | None = Field(None, ge=1, description="Most messages of one answer of the cluster.")
    consumer_timeout: float | None = Field(None, gt=0, le=3600, description="Seconds that the cluster has for an answer.")
    message_encoding: Literal["avro", "utf-8"] | None = Field(
        None, description="How values are written; `utf-8` is JSON. Left out: avro with a schema registry, and JSON without one."
    )
    skip_message_empty_value: bool = Field(True, description="Whether messages without a value are passed over.")
    skip_message_on_decode_error: bool = Field(False, description="Whether messages that cannot be read become dead letters.")
    timestamp_ms_name: Name | None = Field(None, description="Field with the time of a message in milliseconds.")
    consumer_config: Texts | None = Field(None, description="Settings of Kafka's client.")
    authentication: KafkaAuth | None = Field(None, description="How to log in.")

    force_ignore_checkpoint: bool = Field(False, description="Refused, but for streams.")
    reset: bool = Field(False, description="Refused, but for streams.")
    max_iterations: int | None = Field(None, description="Without effect.")
    cursor_field: str | None = Field(None, description="Without effect.")
    skip_message_invalid_keys: bool = Field(False, description="Without effect.")
    nb_bytes_schema_id: int | None = Field(None, description="Without effect.")
    source_file_path: None = Field(None, description="Topics are read by frazil itself.")
    api_config: dict[str, Any] | None = Field(None, description="Without effect.")
    http: dict[str, Any] | None = Field(None, description="Without effect.")
    init_pipeline: bool | None = Field(None, description="Without effect.")

    @property
    def idle(self) -> dict[str, str]:
        """Keys that restart a source, are set, and have no effect on a stream, each with the reason."""
        return {key: why for key, why in _BEGINS_ANEW.items() if getattr(self, key) and self.sync_mode == "stream"}

    @property
    def encoding(self) -> Literal["avro", "utf-8"]:
        """How values are written. Avro, which Bizon takes where nothing is said, cannot be read without a registry."""
        registry = self.authentication is not None and self.authentication.given("schema_registry_url")
        return self.message_encoding or ("avro" if registry else "utf-8")

    @model_validator(mode="after")
    def _possible(self) -> KafkaEntry:
        problems = [
            Problem(f"{key}: {why}", key) for key, why in _BEGINS_ANEW.items() if getattr(self, key) and key not in self.idle
        ]
        if self.sync_mode == "full_refresh":
            words = (
                "sync_mode: full_refresh would read whole topics again on every run; write incremental, which reads what is new, "
                "or stream, and `frazil reset` once where a table is to be made anew"
            )
            problems.append(Problem(words, "sync_mode"))
        names = [topic.name for topic in self.topics]
        problems += [
            Problem(f"the topic {name} stands there twice: its messages go to one table", "topics")
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
        if problems:
            raise InconsistencyError(problems)
        return self


class PagedEntry(Model):
    """A source that is asked for pages. What is not listed here is its own, and is checked by its own class."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(min_length=1, description="Kind of source.")
    stream: str = Field(min_length=1, description="What of the source is read.")
    source_file_path: str | None = Field(None, min_length=1, description="Python file with the source; Bizon's own otherwise.")
    sync_mode: Literal["full_refresh", "incremental", "stream"] = Field(
        "full_refresh", description="All of it in place of what was there; what is new; or on and on."
    )
    cursor_field: str | None = Field(None, description="Field by which the source tells what is new.")
    reset: bool = Field(False, description="Incremental: whether this run reads all of it, in place of what was there.")
    force_ignore_checkpoint: bool = Field(False, description="Whether a run that was cut off is not gone on with.")
    max_iterations: int | None = Field(None, ge=1, description="Most pages of one run.")

    @property
    def replaces(self) -> bool:
        """Whether a run takes the place of all rows."""
        return self.sync_mode == "full_refresh" or self.reset

    @model_validator(mode="after")
    def _possible(self) -> PagedEntry:
        problems = []
        if self.reset and self.sync_mode != "incremental":
            problems.append(Problem(f"reset has no meaning with sync_mode: {self.sync_mode}; it belongs to incremental", "reset"))
        if self.force_ignore_checkpoint and not self.replaces:
            words = (
                "force_ignore_checkpoint would bring the rows again that a run which was cut off has committed; "
                "`frazil reset` empties the table and begins anew"
            )
            problems.append(Problem(words, "force_ignore_checkpoint"))
        if problems:
            raise InconsistencyError(problems)
        return self
