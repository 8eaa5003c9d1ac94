"""The servers of the tests, each started when it is first asked for, as long as a block."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from services.hive import running_hive
from services.mariadb import running_mariadb
from services.nessie import running_nessie
from services.postgres import running_postgres
from services.rest_catalog import running_rest_catalog
from services.s3proxy import running_s3


class Services:
    """Starts servers by the names that they have in the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._running: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, name: str) -> Any:
        if name not in self._running:
            self._running[name] = self._stack.enter_context(self._started(name))
        return self._running[name]

    def _started(self, name: str) -> AbstractContextManager[Any]:
        # Others may be started for this one: they have their folders before it is made.
        store = self("s3") if name in ("rest_catalog_s3", "nessie") else None
        if name == "postgres":
            return running_postgres()
        if name == "mariadb":
            return running_mariadb()
        folder = self._folder / name
        folder.mkdir(parents=True)
        match name:
            case "s3":
                return running_s3(folder)
            case "nessie":
                return running_nessie(folder, store)
            case "hive":
                return running_hive(folder)
            case _:
                return running_rest_catalog(folder, store)
