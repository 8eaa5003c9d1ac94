"""Loads a pipeline file: reads the YAML, checks every section, and translates it into values of the model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frazil.doors.yaml.dialect import DIALECT
from frazil.doors.yaml.file import SOURCES, PipelineFile
from frazil.doors.yaml.translate import Parts, project_of
from frazil.errors import ConfigError, ConfigErrors
from frazil.model.pipeline import ProjectSpec
from frazil.model.secrets import remember, secret_values
from frazil.model.sink import SinkSpec
from frazil.model.source import KafkaSource, SourceSpec
from frazil.reading.anatomy import keys_of
from frazil.reading.document import Document, read
from frazil.reading.explain import checked, unknown_key
from frazil.reading.file import config_errors, text_of


def load(path: Path | str, env: Mapping[str, str] | None = None) -> ProjectSpec:
    """Loads a pipeline file.

    Variables come from ``env``, or from the process's environment. Everything that is wrong is raised at once, as
    :class:`frazil.errors.ConfigErrors`; a file that cannot be read at all is a :class:`frazil.errors.ConfigError`.
    """
    return load_text(text_of(path), str(path), env)


def load_text(text: str, name: str = "<text>", env: Mapping[str, str] | None = None) -> ProjectSpec:
    """Loads a pipeline file from its text; ``name`` stands for it in messages."""
    try:
        document = read(text, name, os.environ if env is None else env, DIALECT)
        remember(document.secrets)
        project = _project(document)
    except ConfigErrors:
        raise
    except ConfigError as error:
        raise config_errors([error]) from None
    except RecursionError:
        raise ConfigErrors([ConfigError("bad-yaml", f"{name} is nested too deeply")]) from None
    remember(secret_values(project))
    return project


def _project(document: Document) -> ProjectSpec:
    if not document.value:
        fix = "`frazil init` writes a pipeline file that works."
        raise ConfigError("empty-config", "The file is empty", fix=fix, location=document.value_place(()))
    if not isinstance(document.value, dict):
        shown = "a list" if isinstance(document.value, list) else "text"
        message = f"A pipeline file holds sections such as `sources`, `sinks` and `pipelines`, and {shown} stands here"
        raise ConfigError("wrong-type", message, location=document.value_place(()))
    for key in [key for key in document.value if key.startswith("x-")]:
        document.drop((key,))
    parts = _parts(document)
    project = project_of(document, parts) if parts is not None else None
    if document.problems or project is None:
        raise config_errors(document.problems)
    return project


def _parts(document: Document) -> Parts | None:
    """Every section checked on its own, so that a problem in one does not hide those of another."""
    sources = {name: _source(document, name) for name in _names(document, "sources")}
    sinks = {name: _sink(document, name) for name in _names(document, "sinks")}
    file = checked(PipelineFile, document, ())
    if file is None:
        return None
    return Parts(
        file,
        {name: source for name, source in sources.items() if source is not None},
        {name: sink for name, sink in sinks.items() if sink is not None},
    )


def _names(document: Document, section: str) -> list[str]:
    """The entries whose `config` can be looked at."""
    entries = document.value.get(section)
    if not isinstance(entries, dict):
        return []
    names = []
    for name, entry in entries.items():
        if isinstance(entry, dict):
            if entry.get("config") is None:
                entry["config"] = {}
            if isinstance(entry["config"], dict):
                names.append(name)
    return names


def _source(document: Document, name: str) -> SourceSpec | None:
    entry = document.at(("sources", name))
    connector = entry.get("connector")
    model = SOURCES.get(connector) if isinstance(connector, str) else None
    if model is None:
        return None
    path = ("sources", name, "config")
    if "connector" in entry["config"]:
        document.problems.append(unknown_key(document, (*path, "connector"), keys_of(model)))
        return None
    if model is KafkaSource and "bootstrap_servers" not in entry["config"]:
        _take_broker(document, entry["config"])
    return checked(model, document, path)


def _take_broker(document: Document, config: dict[str, Any]) -> None:
    """A Kafka source without servers of its own reads from the broker of the file; errors of the broker are reported there."""
    broker = document.value.get("broker")
    if not isinstance(broker, dict):
        return
    servers = broker.get("bootstrap_servers")
    if isinstance(servers, list) and all(isinstance(server, str) for server in servers):
        servers = ",".join(servers)
    if isinstance(servers, str):
        config["bootstrap_servers"] = servers
        for part in ("tls", "security"):
            if isinstance(broker.get(part), dict):
                config.setdefault(part, broker[part])


def _sink(document: Document, name: str) -> SinkSpec | None:
    if document.at(("sinks", name)).get("connector") != "iceberg":
        return None
    return checked(SinkSpec, document, ("sinks", name, "config"))
