"""Registers the fixtures of the services; each service has its own module."""

pytest_plugins = [
    "services.rest_catalog",
    "services.faulty_rest",
    "services.postgres",
    "services.kafka",
    "services.spark",
    "services.standalone",
]
