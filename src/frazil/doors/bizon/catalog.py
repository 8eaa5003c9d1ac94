"""From `catalog_config` to a catalog. Its keys are PyIceberg's; most of Iceberg's Java library have the same names."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from pydantic import ValidationError

from frazil.doors.bizon.destination import DestinationConfig
from frazil.errors import ConfigError
from frazil.model.base import InconsistencyError, Problem
from frazil.model.catalog import SPARK_NAME, SPARK_NAME_LENGTH, CatalogSpec
from frazil.model.names import nearest
from frazil.reading.document import Document, Path
from frazil.reading.explain import suggestion

TYPES = ("sql", "rest", "hive")

# What each type takes by a name of its own here; everything else is passed on.
_SECTIONS = {
    "sql": ("uri", "warehouse"),
    "rest": ("uri", "warehouse", "credential", "token", "scope", "prefix", "oauth2-server-uri"),
    "hive": ("uri", "warehouse"),
}
_RENAMED = {"oauth2-server-uri": "oauth2_server_uri", "rest.credential": "credential", "rest.token": "token"}
_INIT = "init_catalog_tables"
_METASTORE = "hive.metastore.uris"

# All keys that each type knows.
_KNOWN = {
    "sql": ("type", *_SECTIONS["sql"], _INIT),
    "rest": ("type", *_SECTIONS["rest"], "rest.credential", "rest.token"),
    "hive": ("type", *_SECTIONS["hive"], _METASTORE),
}

# How the names of properties begin that are handed on as they are: those of stores, and those of each type.
_STORES = ("s3.", "gcs.", "adls.", "client.", "io-impl")
_FAMILIES = {
    "sql": (*_STORES, "jdbc."),
    "rest": (*_STORES, "rest.", "header.", "oauth2", "auth", "view-", "token-", "audience", "resource"),
    "hive": (*_STORES, "hive.", "hive2"),
}

# Where types have their login that have no keys for it.
_LOGIN_KEYS = ("credential", "token", "user", "username", "password")
_LOGINS = {
    "sql": "The login of a sql catalog stands in its uri, as user:password@ before the host.",
    "hive": "A metastore is asked without a login.",
}


def catalog_of(document: Document, base: Path, config: DestinationConfig) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
    """The catalog as values of the model take it, and what a person should know; problems are in the document then."""
    path: Path = (*base, "catalog_config")
    if len(config.catalog_config) != 1:
        given = ", ".join(config.catalog_config)
        message = f"catalog_config holds one catalog under its name, and here are {given}" if given else _NONE
        fix = "Keep one." if given else "Add catalog_config: {default: {type: sql, uri: ...}}."
        code = "invalid-value" if given else "missing-key"
        document.problems.append(ConfigError(code, message, fix=fix, location=document.key_place(path)))
        return {}, []
    ((name, section),) = config.catalog_config.items()
    path = (*path, name)
    kind = section.get("type")
    if kind not in TYPES:
        near = nearest(str(kind), TYPES) if kind is not None else None
        message = f"`type` cannot be `{kind}`" if kind is not None else f"`type` is required in `{name}`"
        fix = (f"Did you mean `{near}`? " if near else "") + f"Known values: {', '.join(TYPES)}."
        place = document.value_place((*path, "type")) if kind is not None else document.key_place(path)
        document.problems.append(ConfigError("unknown-value", message, fix=fix, location=place))
        return {}, []
    before = len(document.problems)
    _require_known(document, path, kind, section)
    spark_name = _spark_name(document, path, kind)
    if spark_name is None or len(document.problems) > before:
        return {}, []
    made, notes = _made(path, spark_name, section, warehouse_of(config))
    return (made if _is_whole(document, path, made) else {}), notes


def _made(path: Path, name: str, section: dict[str, Any], warehouse: str | None) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
    kind = section["type"]
    own = {key: value for key, value in section.items() if key not in ("type", _INIT, _METASTORE)}
    own = {_RENAMED.get(key, key): value for key, value in own.items()}
    taken = {_RENAMED.get(key, key) for key in _SECTIONS[kind]}
    properties = {key: own.pop(key) for key in list(own) if key not in taken}
    if kind == "hive":
        uri = section.get("uri") or section.get(_METASTORE)
        if uri is None:
            return _folder(name, warehouse, path, properties)
        own["uri"] = uri
    if kind == "sql" and str(section.get(_INIT, "true")).lower() == "false":
        own["init_catalog_tables"] = False
    if warehouse is not None:
        own["warehouse"] = warehouse
    return {"type": kind, "name": name, kind: own | {"properties": properties}}, []


def _spark_name(document: Document, path: Path, kind: str) -> str | None:
    """The catalog's name in Spark: its own, or one that is made of it where Spark takes no such name.

    A database keeps the name of its catalog with each table, so that there it cannot be another one.
    """
    name = str(path[-1])
    if re.fullmatch(SPARK_NAME, name) and len(name) <= SPARK_NAME_LENGTH:
        return name
    if kind == "sql":
        message = f"`{name}` is no name that Spark takes for a catalog: letters, digits, _ and -, and no digit at its beginning"
        fix = "Give it another name; where its database has tables already, change catalog_name in its tables, too."
        document.problems.append(ConfigError("invalid-value", message, fix=fix, location=document.key_place(path)))
        return None
    # What is left of two names may be the same; what distinguishes them is not.
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    readable = re.sub(r"\W", "_", name, flags=re.ASCII)[: SPARK_NAME_LENGTH - len(digest) - 2]
    return f"_{readable}_{digest}" if readable[:1].isdigit() else f"{readable}_{digest}"


def _is_whole(document: Document, path: Path, made: dict[str, Any]) -> bool:
    """Whether the catalog can be one. Its errors are reported here once, and not again for each of its tables."""
    try:
        CatalogSpec.model_validate(made)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            cause = found.get("ctx", {}).get("error")
            way = tuple(map(str, found["loc"]))
            problems = cause.problems if isinstance(cause, InconsistencyError) else (Problem(found["msg"], *way),)
            for problem in problems:
                document.problems.append(_catalog_problem(document, path, problem))
        return False
    return True


def _catalog_problem(document: Document, path: Path, problem: Problem) -> ConfigError:
    back = {ours: theirs for theirs, ours in _RENAMED.items()}
    keys = [key for step in reversed(problem.at) for key in (step, back.get(step, step))]
    written = next(((*path, key) for key in keys if (*path, key) in document.keys), None)
    if written is not None:
        return ConfigError("invalid-value", str(problem), location=document.value_place(written))
    code, fix = ("missing-key", f"Add `{problem.lacks}`.") if problem.lacks else ("invalid-value", "")
    return ConfigError(code, str(problem), fix=fix, location=document.key_place(path))


_NONE = "catalog_config is required: it says who knows where the tables are"


def _folder(
    name: str, warehouse: str | None, path: Path, properties: dict[str, Any]
) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
    """`hive` without a metastore is a folder of tables."""
    words = "a catalog without a metastore is a folder: it has room for one writer at a time"
    if warehouse is not None and warehouse.startswith("gs://"):
        words += "; on gs:// Spark needs Hadoop's own connector for it (settings.spark.conf: spark.jars)"
    return {"type": "hadoop", "name": name, "hadoop": {"warehouse": warehouse, "properties": properties}}, [(path, words)]


def _require_known(document: Document, path: Path, kind: str, section: dict[str, Any]) -> None:
    known = _KNOWN[kind]
    for key, value in section.items():
        place = document.key_place((*path, key))
        if isinstance(value, dict | list):
            message = f"`{key}` must be text, not a section or a list"
            document.problems.append(ConfigError("wrong-type", message, location=place))
        elif key not in known and not key.startswith(_FAMILIES[kind]):
            message, fix = _unknown(key, kind, path)
            document.problems.append(ConfigError("unknown-key", message, fix=fix, location=place))


def _unknown(key: str, kind: str, path: Path) -> tuple[str, str]:
    """What is wrong with a key, and its cure."""
    known = _KNOWN[kind]
    everything = f"Known keys: {', '.join(known)}, and properties such as s3.endpoint."
    owner = next((other for other in TYPES if key in _KNOWN[other] or key.startswith(_FAMILIES[other])), None)
    fix = _LOGINS[kind] if kind in _LOGINS and key.rpartition(".")[2] in _LOGIN_KEYS else everything
    if owner is None:
        return f"Unknown key `{key}` in `{path[-1]}`", suggestion(key, known, fix)
    return f"`{key}` belongs to a catalog of type {owner}, and this one is of type {kind}", fix


def warehouse_of(config: DestinationConfig) -> str | None:
    """Where tables are put: what the catalog says, or the bucket."""
    named = next((section.get("warehouse") for section in config.catalog_config.values()), None)
    if named or config.gcs_warehouse_bucket is None:
        return named
    return "/".join(part for part in (f"gs://{config.gcs_warehouse_bucket}", config.gcs_warehouse_path.strip("/")) if part)
