"""The address of a server that speaks Iceberg REST and cannot be had here, in front of a REST catalog that can.

Paths begin as the server's do, whoever has no good login is refused as the server refuses him, and what the server answers
differently, as far as it is documented or can be read in its code, is answered so. Everything else is the real catalog's answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs

from services.between import Asked, Made, between, passed_on

JSON = {"Content-Type": "application/json"}
_NOT_FOUND = Made(404)
_OF_THE_FRONT = ("accept-encoding", "authorization")


def answer(content: Any, status: int = 200) -> Made:
    """An answer with a content."""
    return Made(status, json.dumps(content).encode(), JSON)


def refusal(status: int, message: str, kind: str = "BadRequestException", **more: Any) -> Made:
    """An error as the REST specification has it."""
    return answer({"error": {"code": status, "message": message, "type": kind, **more}}, status)


@dataclass(frozen=True)
class Endpoint:
    """What a server's address answers.

    ``base`` and ``prefix`` are what all its paths begin with. ``config`` answers whoever asks for a warehouse, ``login`` whoever
    asks for a token or has no good one; ``own`` answers inside of the prefix, or changes what is asked for; ``unknown`` is the
    answer outside of it. ``said`` words the real catalog's errors as the server does.
    """

    base: str
    prefix: str
    config: Callable[[str | None], Made]
    login: Callable[[Asked], Made | None]
    own: Callable[[Asked, str], Asked | Made | None] = lambda _asked, _path: None
    said: Callable[[Made], Made] = lambda made: made
    unknown: Made = _NOT_FOUND

    def wanted(self, asked: Asked) -> Asked | Made:
        """What the real catalog is asked for, which has no prefix; or the answer."""
        if (refused := self.login(asked)) is not None:
            return refused
        path, _, query = asked.target.partition("?")
        if path == f"{self.base}/v1/config":
            return self.config(parse_qs(query).get("warehouse", [None])[0])
        inside = f"{self.base}/v1/{self.prefix}/"
        if not path.startswith(inside):
            return self.unknown
        # What the real catalog remembers of a page or of a state concerns the address that it knows.
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in _OF_THE_FRONT}
        rest = f"/{path.removeprefix(inside)}"
        wanted = replace(asked, target=f"/v1{rest}" + (f"?{query}" if query else ""), headers=headers)
        answered = self.own(wanted, rest)
        return wanted if answered is None else answered


@contextmanager
def in_front(catalog: str, endpoint: Endpoint) -> Iterator[str]:
    """The address of the endpoint before a catalog, for clients, as long as the block."""

    def at_catalog(asked: Asked) -> Asked | Made:
        wanted = endpoint.wanted(asked)
        if isinstance(wanted, Made):
            return wanted
        made = passed_on(catalog, wanted)
        made = replace(made, headers={n: v for n, v in made.headers.items() if n.lower() != "content-encoding"})
        return made if made.accepted else endpoint.said(made)

    with between(catalog, at_catalog) as uri:
        yield f"{uri}{endpoint.base}"
