"""Schemas by their ids, by Confluent's calls or by Apicurio's own. A schema never changes, so each is asked for once."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPSHandler, Request, build_opener

from frazil.errors import ConfigError, FrazilError, SourceAway
from frazil.model.format import RegistrySpec
from frazil.model.secrets import mask_uri, scrub

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_APICURIO = "/apis/registry/v2"
# What the other side of an encrypted connection says when it ends it, in the reasons of OpenSSL.
_ALERT = "_ALERT_"
# A message may have any number for an id: one that is out of range is as unknown as one that was never given out.
_UNKNOWN = (400, 404, 422)


class SchemaBroken(Exception):
    """The registry has a schema under an id, and no message can be read by it, as things are."""


class Registry:
    """A client. What it cannot reach may be reached later; what it knows it never asks for again."""

    def __init__(self, spec: RegistrySpec) -> None:
        self._own_calls = spec.api == "apicurio"
        bare = self._own_calls and "/apis/" not in spec.url
        self._url = spec.url.rstrip("/") + (_APICURIO if bare else "")
        self._headers = {"Accept": _ACCEPT} | _credentials(spec)
        self._timeout = spec.timeout_secs
        self._spec = spec
        self._schemas: dict[int, str] = {}

    def avro_schema(self, number: int) -> str | None:
        """The schema with an id, with everything that it refers to inside. None when the registry does not know it.

        Raises :class:`SchemaBroken` where something of it is missing: that may be put right, and is asked for again.
        """
        if number not in self._schemas:
            found = self._by_apicurio(number) if self._own_calls else self._by_confluent(number)
            if found is None:
                return None
            self._schemas[number] = found
        return self._schemas[number]

    def newest(self, subject: str) -> str | None:
        """The newest Avro schema of a subject; None when there is none, or the registry has no subjects."""
        if self._own_calls:
            return None
        found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest")
        is_avro = found is not None and (found.get("schemaType") or "AVRO") == "AVRO"
        return str(found["schema"]) if is_avro else None

    def _by_confluent(self, number: int) -> str | None:
        found = self._ask(f"/schemas/ids/{number}")
        return None if found is None else self._whole(found)

    def _by_apicurio(self, number: int) -> str | None:
        """The text under a global id; the registry itself puts in what it refers to."""
        wanted = "references=DEREFERENCE" if self._url.endswith("/v3") else "dereference=true"
        text = self._text(f"/ids/globalIds/{number}?{wanted}")
        if text is None:
            return None
        try:
            return json.dumps(json.loads(text))
        except ValueError:
            return _unreadable("something else than Avro")

    def check(self) -> None:
        """A FrazilError when the registry does not answer, or refuses."""
        path = "/system/info" if self._own_calls else "/subjects"
        if self._ask(path) is None:
            raise ConfigError(
                "registry-address",
                f"{mask_uri(self._url)} answers, but is no schema registry.",
                fix=f"Give the address under which the registry has `{path}`"
                + (", with `/apis/registry/v2` or v3." if self._own_calls else "; of Apicurio with `/apis/ccompat/v7`."),
            )

    def _whole(self, found: Mapping[str, Any]) -> str:
        kind = found.get("schemaType") or "AVRO"
        if kind != "AVRO":
            return _unreadable(kind)
        known: dict[str, Any] = {}
        try:
            self._collect(found, known)
            return json.dumps(inlined(json.loads(found["schema"]), known))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SchemaBroken(f"it is no Avro schema: {error!r}") from error

    def _collect(self, found: Mapping[str, Any], known: dict[str, Any]) -> None:
        """The schemas that one refers to, by the name that it uses, those that they refer to first."""
        for one in found.get("references") or ():
            if one["name"] in known:
                continue
            version = self._ask(f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}")
            if version is None:
                raise SchemaBroken(f"it refers to {one['subject']!r}, version {one['version']}, which the registry does not have")
            self._collect(version, known)
            known[one["name"]] = json.loads(version["schema"])

    def _ask(self, path: str) -> Any:
        text = self._text(path)
        try:
            return None if text is None else json.loads(text)
        except ValueError as error:
            raise self._failure(error) from error

    def _text(self, path: str) -> str | None:
        request = Request(self._url + path, headers=self._headers)
        try:
            with self._opener().open(request, timeout=self._timeout) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            with error:
                if error.code in _UNKNOWN:
                    return None
                raise self._refusal(error.code) from error
        except (OSError, HTTPException, ValueError) as error:
            raise self._failure(error) from error

    def _opener(self) -> Any:
        return build_opener(HTTPSHandler(context=self._context()))

    def _context(self) -> ssl.SSLContext:
        spec = self._spec
        try:
            context = ssl.create_default_context(cafile=spec.ca_path)
            if spec.cert_path is not None:
                context.load_cert_chain(spec.cert_path, spec.key_path)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                "registry-certificate",
                f"The certificates for the schema registry cannot be read: {error}",
                fix="Check ca_path, cert_path and key_path.",
            ) from error
        if spec.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _failure(self, error: Exception) -> FrazilError:
        """What went wrong on the way. A certificate that one side does not take is not taken the next time either."""
        where = f"The schema registry {mask_uri(self._url)}"
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            words = f"{where} shows a certificate that is not trusted: {cause.verify_message}."
            return ConfigError("registry-tls", words, fix="Name the file with its authority's certificate in ca_path.")
        if isinstance(cause, ssl.SSLError) and _ALERT in (cause.reason or ""):
            words = f"{where} refuses the encrypted connection: {scrub(str(cause))}"
            return ConfigError("registry-tls", words, fix="Give the certificate that it asks for: cert_path and key_path.")
        if isinstance(cause, TimeoutError):
            words = f"{where} did not answer within {self._timeout:g} s."
            return SourceAway(
                "registry-unreachable", words, fix="Check that it runs, or set timeout_secs. The batch is tried again."
            )
        return SourceAway(
            "registry-unreachable",
            f"{where} does not answer as it should: {scrub(str(cause))}",
            fix=f"Check its address, http or https, and that it runs{_own_certificate(cause)}. The batch is tried again.",
        )

    def _refusal(self, status: int) -> FrazilError:
        where = f"The schema registry {mask_uri(self._url)}"
        if status in (401, 403):
            words = f"{where} refuses the credentials (status {status})."
            return ConfigError("registry-refused", words, fix="Check user and password, or the token.")
        return SourceAway("registry-unreachable", f"{where} answered with status {status}.", fix="The batch is tried again.")


def _credentials(spec: RegistrySpec) -> dict[str, str]:
    if spec.token is not None:
        return {"Authorization": f"Bearer {spec.token.get_secret_value()}"}
    if spec.user is not None and spec.password is not None:
        pair = f"{spec.user}:{spec.password.get_secret_value()}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _unreadable(kind: str) -> str:
    """Not an error of the file: no message with this id can be read, and each of them gets this fault."""
    return json.dumps({"type": f"a schema of {kind}"})


def inlined(schema: Any, known: Mapping[str, Any]) -> Any:
    """The schema with each type that it refers to written out where it is used first."""
    return _inlined(schema, dict(known), "")


def _inlined(schema: Any, left: dict[str, Any], namespace: str) -> Any:
    match schema:
        case str():
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            name = next((one for one in (full, schema) if one in left), None)
            return schema if name is None else _inlined(left.pop(name), left, "")
        case list():
            return [_inlined(one, left, namespace) for one in schema]
        case {"type": "record" | "error"}:
            inner = schema.get("namespace") or (str(schema["name"]).rpartition(".")[0]) or namespace
            fields = [{**one, "type": _inlined(one["type"], left, inner)} for one in schema.get("fields", [])]
            return {**schema, "fields": fields}
        case {"type": "array"}:
            return {**schema, "items": _inlined(schema["items"], left, namespace)}
        case {"type": "map"}:
            return {**schema, "values": _inlined(schema["values"], left, namespace)}
        case _:
            return schema


def _own_certificate(cause: object) -> str:
    """A server that requires a client certificate may close the connection before it says so."""
    cut = isinstance(cause, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError)
    return ", and whether it asks for a client's certificate (cert_path and key_path)" if cut else ""
