"""Nessie's catalogs without a JVM: read by its own protocol, of which PyIceberg knows nothing.

Nessie's Iceberg REST endpoint would do only where the server has warehouses configured, which its own clients do not need.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, UnauthorizedError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from requests import HTTPError, Response, Session

_REFUSALS = {401: UnauthorizedError, 403: ForbiddenError}


class NessieReader(NoopCatalog):
    """The tables and namespaces of one branch. It only looks."""

    def __init__(self, name: str, *, seconds: float, ref: str | None, token: str | None, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._base, self._seconds, self._ref = properties["uri"], seconds, ref
        self._session = Session()
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"
        self._known: dict[str, Any] | None = None
        self._branch = ref or self._config["defaultBranch"]

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table as the branch has it now."""
        path = self.identifier_to_tuple(identifier)
        content = self._content(path)
        if content is None or content.get("type") != "ICEBERG_TABLE":
            raise NoSuchTableError(f"Table does not exist on {self._branch}: {'.'.join(path)}")
        place = content["metadataLocation"]
        io = load_file_io(self.properties, place)
        metadata = FromInputFile.table_metadata(io.new_input(place))
        return Table(path, metadata, place, io, self)

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Whether the branch has the namespace."""
        content = self._content(self.identifier_to_tuple(namespace))
        return content is not None and content.get("type") == "NAMESPACE"

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """All namespaces of the branch below this one, at every depth."""
        above = self.identifier_to_tuple(namespace)
        asked, names, more = {"filter": "entry.contentType=='NAMESPACE'"}, [], True
        while more:
            page = self._answer(self._session.get(self._tree("entries"), params=asked, timeout=self._seconds))
            names += [tuple(entry["name"]["elements"]) for entry in page["entries"]]
            asked["page-token"], more = page["token"], page["hasMore"]
        return [name for name in names if name[: len(above)] == above and name != above]

    @property
    def server(self) -> str:
        """The server and the version of its protocol, which is all that it tells; nothing where it does not tell that."""
        version = self._config.get("specVersion")
        return f"Nessie, which speaks version {version} of its protocol" if version else ""

    @property
    def _config(self) -> dict[str, Any]:
        """What the server says of itself."""
        if self._known is None:
            self._known = self._answer(self._session.get(f"{self._base}/config", timeout=self._seconds))
        return self._known

    def _content(self, path: Identifier) -> dict[str, Any] | None:
        keys = {"requestedKeys": [{"elements": list(path)}]}
        found = self._answer(self._session.post(self._tree("contents"), json=keys, timeout=self._seconds))
        return next((one["content"] for one in found["contents"]), None)

    def _tree(self, part: str) -> str:
        return f"{self._base}/trees/{quote(self._branch, safe='')}/{part}"

    @staticmethod
    def _answer(response: Response) -> dict[str, Any]:
        if response.status_code in _REFUSALS:
            raise _REFUSALS[response.status_code](f"{response.status_code} {response.reason}")
        if not response.ok:
            raise HTTPError(_reason(response), response=response)
        answer: dict[str, Any] = response.json()
        return answer


def _reason(response: Response) -> str:
    """What Nessie itself says, such as that there is no such branch."""
    try:
        said = response.json().get("message")
    except ValueError:
        said = None
    return said or f"{response.status_code} {response.reason}"
