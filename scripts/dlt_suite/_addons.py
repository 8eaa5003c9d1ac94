"""The hook of dlt's own tests: makes frazil one of the destinations that they run against."""

from __future__ import annotations

from typing import Any

from dlt.common import pendulum, time

NAME = "frazil.dlt.iceberg_rest"
_OF_PIPELINES = ("refresh", "import_schema_path", "export_schema_path")

# Tests of dlt 1.26 ask for these; later versions have other names for them.
_MOVED = {
    "ensure_pendulum_datetime_utc": lambda value: time.ensure_pendulum_datetime(value, pendulum.UTC),
    "ensure_pendulum_datetime_non_utc": lambda value: pendulum.instance(time.ensure_datetime(value), tz=None),
}
for _name, _function in _MOVED.items():
    vars(time).setdefault(_name, _function)


def register_destinations(implemented: set[str], _not_sql: set[str]) -> None:
    """As one that has a SQL client."""
    implemented.add(NAME)


def destinations_configs(**_wanted: Any) -> list[Any]:
    """None besides those that the suite makes by itself for each SQL destination."""
    from tests.load.utils import DestinationTestConfiguration

    if not hasattr(DestinationTestConfiguration, "_factory"):
        DestinationTestConfiguration._factory = DestinationTestConfiguration.destination_factory
        DestinationTestConfiguration.destination_factory = _made
    return []


def _made(configuration: Any, **options: Any) -> Any:
    """Without what the suite hands to pipelines and destinations alike: others leave it unread, this one refuses it."""
    return configuration._factory(**{name: value for name, value in options.items() if name not in _OF_PIPELINES})
