"""The names of settings: an unknown one is an error that suggests the nearest, wherever it was written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from dlt.common.configuration.container import Container
from dlt.common.configuration.providers.toml import SettingsTomlProvider
from dlt.common.configuration.specs.config_section_context import ConfigSectionContext
from dlt.common.configuration.specs.pluggable_run_context import PluggableRunContext

from frazil.errors import ConfigError
from frazil.model.names import nearest

_SECTION = "destination"
# What dlt itself looks for beside the settings of a destination.
_DLT_S_OWN = ("destination_type", "capabilities")


def require_known(names: Iterable[tuple[str, str]], known: Iterable[str], own: Iterable[str]) -> None:
    """Refuses names that are not known; each comes with the place that it is in. ``own`` are those that are listed then."""
    every = [*known, *_DLT_S_OWN]
    for name, place in names:
        if name not in every:
            near = nearest(name, every)
            raise ConfigError(
                "unknown-option",
                f"{place}: unknown option {name!r}.",
                fix=f"Did you mean {near!r}?" if near else f"Known are: {', '.join(sorted(own))}.",
            )


def written_elsewhere(destination: str) -> Iterator[tuple[str, str]]:
    """The names of a destination's settings in dlt's files and in variables, which dlt leaves alone if it does not know them.

    dlt looks for them under the name of the pipeline first, where it knows that.
    """
    project = Container()
    pipeline = project[ConfigSectionContext].pipeline_name
    for name in (pipeline, None) if pipeline else (None,):
        sections = (*((name,) if name else ()), _SECTION, destination)
        for provider in project[PluggableRunContext].providers.providers:
            if isinstance(provider, SettingsTomlProvider):
                found, _ = provider.get_value(destination, dict, name or "", _SECTION)
                for key in found if isinstance(found, Mapping) else ():
                    yield key, f"{provider.name}, [{'.'.join(sections)}]"
        prefix = "__".join((*sections, "")).upper()
        for variable in sorted(os.environ):
            if variable.startswith(prefix):
                yield variable.removeprefix(prefix).partition("__")[0].lower(), f"the variable {variable}"
