"""Stand-ins for Polaris, Lakekeeper, Unity Catalog and Gravitino, whose servers cannot be had here.

A real REST catalog and a real store are behind them. Addresses, prefixes, logins, errors, credentials of files, and what each
server offers or refuses are as its documentation and its published code have them, as of summer 2026. For Unity Catalog that is
the endpoint that writes: the older one, which open-source servers have by default, only reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import parse_qs

from services.between import Asked, Made
from services.logins import CLIENT, SECRET, TokenService, is_commit, token_service
from services.rest_endpoint import Endpoint, answer, in_front, refusal
from services.s3proxy import REGION, S3Store
from services.vending import Vending, keys_for

WAREHOUSE = "lakehouse"
KEYS_LAST_SECONDS = 3600.0

_NAMESPACES, _NAMESPACE = "/v1/{prefix}/namespaces", "/v1/{prefix}/namespaces/{namespace}"
_TABLES, _TABLE = f"{_NAMESPACE}/tables", f"{_NAMESPACE}/tables/{{table}}"
_LOADS = (
    f"GET {_NAMESPACES}",
    f"GET {_NAMESPACE}",
    f"GET {_TABLES}",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"POST {_TABLE}/metrics",
)
_WRITES = (
    *(f"POST {_NAMESPACES}", f"POST {_NAMESPACE}/properties", f"DELETE {_NAMESPACE}"),
    *(f"POST {_TABLES}", f"POST {_TABLE}", f"DELETE {_TABLE}", f"POST {_NAMESPACE}/register"),
    "POST /v1/{prefix}/tables/rename",
)
_ALL = (*_LOADS, *_WRITES, f"HEAD {_NAMESPACE}")
_TOGETHER = "POST /v1/{prefix}/transactions/commit"
_CREDENTIALS = f"GET {_TABLE}/credentials"
_DROPPED = re.compile(r"/namespaces/[^/]+/tables/([^/]+)$")


@dataclass
class RestServer:
    """One of them. ``tokens`` knows who may enter; ``forbids``: whether he may not commit."""

    tokens: TokenService
    keys: Vending
    scope: str
    uri: str = ""
    """The address for clients."""
    forbids: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """Those of the configuration."""
        more = {"CLIENT_ID": CLIENT, "CLIENT_SECRET": SECRET, "TOKEN_URI": self.tokens.uri}
        return {"CATALOG_URI": self.uri, "WAREHOUSE": WAREHOUSE} | more

    @property
    def pyiceberg(self) -> dict[str, str]:
        """The catalog in the words of PyIceberg."""
        login = {"credential": f"{CLIENT}:{SECRET}", "scope": self.scope, "oauth2-server-uri": self.tokens.uri}
        return {"type": "rest", "uri": self.uri, "warehouse": WAREHOUSE} | login

    def enters(self, asked: Asked) -> bool:
        """Whether a request has a good token."""
        if self.tokens.accepts(authorization := asked.headers.get("Authorization", "")):
            return True
        self.tokens.refused.append(authorization)
        return False

    def may(self, asked: Asked) -> bool:
        """Whether a request is allowed to whoever has entered."""
        return not (self.forbids and is_commit(asked))


@contextmanager
def polaris(catalog: str, store: S3Store, bucket: str) -> Iterator[RestServer]:
    """Polaris, as long as the block. It gives out tokens itself, and deletes no files unless that is allowed for the catalog."""

    def config(warehouse: str | None) -> Made:
        if warehouse != WAREHOUSE:
            return refusal(404, f"Unable to find warehouse {warehouse}", "NotFoundException")
        defaults = {"default-base-location": f"s3://{bucket}"}
        overrides = {"prefix": WAREHOUSE, "namespace-separator": "%1F"}
        return answer({"defaults": defaults, "overrides": overrides, "endpoints": [*_ALL, _TOGETHER]})

    def login(asked: Asked) -> Made | None:
        if asked.target == "/api/catalog/v1/oauth/tokens":
            return _polaris_token(server.tokens, _form(asked)) if asked.method == "POST" else Made(405)
        return None if server.enters(asked) else Made(401, b"", {"WWW-Authenticate": "Bearer"})

    def own(asked: Asked, path: str) -> Asked | Made | None:
        if not server.may(asked):
            words = (
                f"Principal '{CLIENT}' with activated PrincipalRoles '[]' and activated grants via '[]' is not authorized for op "
            )
            return refusal(403, f"{words}UPDATE_TABLE", "ForbiddenException")
        dropped = _DROPPED.search(path)
        if asked.method == "DELETE" and dropped and "purgeRequested=true" in asked.target:
            words = f"Unable to purge entity: {dropped[1]}. To enable this feature, set the Polaris configuration "
            words += "DROP_WITH_PURGE_ENABLED or the catalog configuration polaris.config.drop-with-purge.enabled"
            return refusal(403, words, "ForbiddenException")
        return server.keys.at_catalog(catalog, asked, f"v1/{WAREHOUSE}")

    with keys_for(store, bucket, lifetime=KEYS_LAST_SECONDS) as keys:
        server = RestServer(TokenService(), keys, "PRINCIPAL_ROLE:ALL")
        with in_front(catalog, Endpoint("/api/catalog", WAREHOUSE, config, login, own)) as server.uri:
            server.tokens.uri = f"{server.uri}/v1/oauth/tokens"
            yield server


def _polaris_token(tokens: TokenService, form: dict[str, str]) -> Made:
    """It wants to hear of roles, and has its own way to say that a secret is wrong."""
    named = form.get("scope", "").startswith("PRINCIPAL_ROLE:")
    if form["grant_type"] == "client_credentials" and not named:
        return answer({"error": "invalid_scope", "error_description": "The scope is invalid"}, 400)
    made = tokens.answer(form)
    if made.status == 401:
        return answer({"error": "unauthorized_client", "error_description": "The client is not authorized"}, 401)
    return made


@contextmanager
def lakekeeper(catalog: str, store: S3Store, bucket: str) -> Iterator[RestServer]:
    """Lakekeeper, as long as the block. An identity provider gives out tokens; each warehouse has a number for its prefix."""
    number = "019a9c3e-7a55-7c10-9f6e-3d1b5f7f0a26"

    def config(warehouse: str | None) -> Made:
        if warehouse is None:
            words = "No warehouse specified. Please specify the 'warehouse' parameter in the GET /config request."
            return refusal(400, words, "GetConfigNoWarehouseProvided")
        if warehouse != WAREHOUSE:
            return refusal(404, f"Warehouse '{warehouse}' not found", "NoSuchWarehouseException")
        defaults = {"prefix": number, "rest-page-size": "100"}
        endpoints = ["GET /v1/config", *_ALL, _TOGETHER, _CREDENTIALS]
        return answer({"defaults": defaults, "overrides": {"uri": server.uri}, "endpoints": endpoints})

    def login(asked: Asked) -> Made | None:
        if server.enters(asked):
            return None
        if "Authorization" not in asked.headers:
            return refusal(401, "Missing Authorization Header", "MissingAuthorizationHeader")
        return refusal(401, "Authentication failed", "AuthenticationFailed")

    def own(asked: Asked, _path: str) -> Asked | Made | None:
        if not server.may(asked):
            return refusal(403, f"Table action `commit` forbidden for `{CLIENT}`", "TableActionForbidden")
        return server.keys.at_catalog(catalog, asked, f"{server.uri}/v1/{number}")

    def said(made: Made) -> Made:
        words = {"CommitFailedException": "ConcurrentUpdateError"} if made.status == 409 else {}
        return _reworded(made, words, stack=[f"Error ID: {number}"])

    with keys_for(store, bucket, lifetime=KEYS_LAST_SECONDS) as keys, token_service() as tokens:
        server = RestServer(tokens, keys, "lakekeeper")
        with in_front(catalog, Endpoint("/catalog", number, config, login, own, said)) as server.uri:
            yield server


@contextmanager
def unity(catalog: str, store: S3Store, bucket: str, *, writes: bool = True) -> Iterator[RestServer]:
    """Unity Catalog, as long as the block. Schemas have one level, and credentials no address for newer ones.

    ``writes``: whether it is the endpoint that also writes.
    """

    def config(warehouse: str | None) -> Made:
        if warehouse is None:
            return refusal(400, "Must supply a proper catalog in warehouse property.")
        if warehouse != WAREHOUSE:
            return refusal(404, f"Catalog '{warehouse}' does not exist.", "NoSuchCatalogException")
        offered = [*_LOADS, *_WRITES] if writes else [*_LOADS]
        return answer({"defaults": {}, "overrides": {"prefix": f"catalogs/{WAREHOUSE}"}, "endpoints": offered})

    def login(asked: Asked) -> Made | None:
        if asked.target == "/oidc/v1/token":
            return _unity_token(server.tokens, _form(asked)) if asked.method == "POST" else Made(405)
        if server.enters(asked):
            return None
        # Not by the service of the catalog, whose errors are those of the specification.
        return answer({"error_code": "UNAUTHENTICATED", "message": "Invalid access token."}, 401)

    def own(asked: Asked, path: str) -> Asked | Made | None:
        if not server.may(asked):
            return refusal(403, "Access denied.", "AuthorizationException")
        if "parent" in parse_qs(asked.target.partition("?")[2]):
            return answer({"namespaces": []})
        if "%1F" in path.upper():
            return refusal(404, "Table does not exist", "NoSuchTableException")
        if asked.method == "POST" and path == "/namespaces" and len(json.loads(asked.body)["namespace"]) > 1:
            return refusal(400, "Nested namespaces are not supported.")
        return server.keys.at_catalog(catalog, asked)

    with keys_for(store, bucket, lifetime=KEYS_LAST_SECONDS, refreshes=False) as keys:
        server = RestServer(TokenService(exchanges=False), keys, "all-apis")
        base = f"/api/2.1/unity-catalog/{'iceberg-rest' if writes else 'iceberg'}"
        endpoint = Endpoint(base, f"catalogs/{WAREHOUSE}", config, login, own)
        with in_front(catalog, endpoint) as server.uri:
            server.tokens.uri = f"{server.uri.removesuffix(endpoint.base)}/oidc/v1/token"
            yield server


def _unity_token(tokens: TokenService, form: dict[str, str]) -> Made:
    """It knows one scope, and exchanges no token for another."""
    if form.get("scope") != "all-apis":
        return answer({"error": "invalid_scope"}, 400)
    return tokens.answer(form)


@contextmanager
def gravitino(catalog: str, store: S3Store, bucket: str) -> Iterator[RestServer]:
    """Gravitino, as long as the block. It tells clients itself how files are reached, and commits one table at a time."""

    def config(warehouse: str | None) -> Made:
        if warehouse not in (None, WAREHOUSE):
            return refusal(404, f"Couldn't find Iceberg configuration for catalog {warehouse}", "NoSuchCatalogException")
        files = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint": server.keys.endpoint}
        files |= {"s3.path-style-access": "true", "client.region": REGION}
        defaults = files | {"header.X-Iceberg-Access-Delegation": "vended-credentials", "prefix": WAREHOUSE}
        return answer({"defaults": defaults, "overrides": {}, "endpoints": [*_ALL, _CREDENTIALS, f"POST {_TABLE}/plan"]})

    def login(asked: Asked) -> Made | None:
        if server.enters(asked):
            return None
        if "Authorization" in asked.headers:
            return refusal(419, "The token has expired", "AuthenticationTimeoutException")
        return refusal(401, "Empty token authorization header", "NotAuthorizedException")

    def own(asked: Asked, _path: str) -> Asked | Made | None:
        if not server.may(asked):
            return refusal(403, f"User '{CLIENT}' is not authorized to perform operation 'updateTable'", "ForbiddenException")
        return server.keys.at_catalog(catalog, asked, f"v1/{WAREHOUSE}")

    def said(made: Made) -> Made:
        return _reworded(made, {}, stack=["org.apache.gravitino.iceberg.service.IcebergCatalogWrapper"])

    with keys_for(store, bucket, lifetime=KEYS_LAST_SECONDS) as keys, token_service() as tokens:
        server = RestServer(tokens, keys, "test")
        with in_front(catalog, Endpoint("/iceberg", WAREHOUSE, config, login, own, said)) as server.uri:
            yield server


def _form(asked: Asked) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}


def _reworded(made: Made, kinds: dict[str, str], stack: list[str]) -> Made:
    """An error of the catalog with other names for its kinds, and with what the server adds."""
    if not made.body:
        return made
    error = json.loads(made.body)["error"]
    error |= {"type": kinds.get(error["type"], error["type"]), "stack": stack}
    return replace(made, body=json.dumps({"error": error}).encode())


SERVERS = {"Polaris": polaris, "Lakekeeper": lakekeeper, "Unity Catalog": unity, "Gravitino": gravitino}
"""The stand-ins by their titles. Each takes the address of a catalog, its store, and the bucket that it puts tables into."""
