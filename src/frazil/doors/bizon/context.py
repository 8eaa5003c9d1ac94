"""A document on its way: its settings, where its parts stand, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import ValidationError

from frazil.doors.bizon.file import BizonDocument, PagedDocument
from frazil.errors import ConfigError
from frazil.model.base import InconsistencyError
from frazil.reading.document import Document, Path

T = TypeVar("T")

# Which key of a Bizon file an option of the sink comes from, where they differ.
_KEYS = {"key_fields": "upsert", "partition_by": "time_partitioning", "schema": "iceberg_schema", "sort_by": "clustering_keys",
         "when_matched_update_all": "upsert", "namespace": "iceberg_namespace", "table": "destination_id"}  # fmt: skip


class Context:
    """One document, checked by itself, and the problems that show when its parts are put together."""

    def __init__(self, document: Document, file: BizonDocument | PagedDocument) -> None:
        self.document = document
        self.file = file
        self.config = file.merged
        self.notices: list[tuple[Path, str]] = []

    @property
    def runs(self) -> bool:
        """Whether it is a pipeline, and not a part of one."""
        return self.file.source is not None and self.file.config is not None

    @property
    def base(self) -> Path:
        """Where the settings of the destination stand."""
        return ("destination", "config") if self.file.destination is not None else ("bigquery_iceberg",)

    def home(self, key: str) -> Path:
        """Where a part of the destination stands: in its settings, or at the top."""
        return () if key in self.document.value else self.base

    def problem(self, code: str, message: str, path: Path, fix: str = "", *, at_value: bool = False) -> None:
        """Adds one, at a key or at its value."""
        place = self.document.value_place(path) if at_value else self.document.key_place(path)
        self.document.problems.append(ConfigError(code, message, fix=fix, location=place))

    def made(self, path: Path, make: Callable[[], T]) -> T | None:
        """A value of the model. Its errors are reported at the key that the option comes from."""
        try:
            return make()
        except ValidationError as error:
            for found in error.errors(include_url=False):
                cause = found.get("ctx", {}).get("error")
                if isinstance(cause, InconsistencyError):
                    for problem in cause.problems:
                        self.problem("invalid-value", str(problem), self._written(path, problem.at))
                else:
                    way = tuple(str(step) for step in found["loc"])
                    words = str(cause) if cause is not None else found["msg"]
                    message = f"{way[-1]}: {words}" if way else words
                    self.problem("invalid-value", message, self._written(path, way))
            return None

    def _written(self, path: Path, way: Sequence[str]) -> Path:
        for step in reversed(way):
            key = _KEYS.get(step, step)
            for base in (path, self.base, ()):
                if (*base, key) in self.document.keys:
                    return (*base, key)
        return path
