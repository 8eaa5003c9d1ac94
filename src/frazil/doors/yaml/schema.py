"""The JSON Schema of a pipeline file, made from the models, for editors and other tools (draft 2020-12)."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from frazil.doors.yaml.file import NAME_PATTERN, SOURCES, PipelineFile
from frazil.model.sink import SinkSpec
from frazil.model.transform import TRANSFORMS

DIALECT = "https://json-schema.org/draft/2020-12/schema"

# A value that holds a variable: its type shows when the file is loaded.
VARIABLE = {"type": "string", "pattern": r"\$\{"}

_FREE_TEXT = {"type": ["string", "number", "boolean"]}
_REF = "#/$defs/{model}"

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema of the file in both of its forms."""
    models = [PipelineFile, SinkSpec, *SOURCES.values()]
    _, generated = models_json_schema([(model, "validation") for model in models], by_alias=True, ref_template=_REF)
    definitions: dict[str, Schema] = generated["$defs"]
    for source in SOURCES.values():
        definitions[source.__name__]["properties"].pop("connector")
    _short_forms(definitions)
    _configs(definitions)
    definitions = {name: _with_variables(_plain(schema)) for name, schema in definitions.items()}
    file = definitions.pop("PipelineFile")
    return {
        "$schema": DIALECT,
        "title": "frazil pipeline file",
        **file,
        "patternProperties": {"^x-": {}},
        "$defs": dict(sorted(definitions.items())),
    }


def _short_forms(definitions: dict[str, Schema]) -> None:
    """What the file may say in more than one way."""
    for name in ("PartitionField", "SortField"):
        field = definitions[name]
        definitions[name] = {"anyOf": [{"type": "string", "minLength": 1}, field], "description": field["description"]}
    catalog = definitions["CatalogSpec"]["properties"]
    catalog["jdbc"] = {"$ref": _REF.format(model="SqlCatalog"), "description": "Another name of `sql`."}
    definitions["CatalogType"]["enum"].append("jdbc")
    for model in ("SinkSpec", "FilesSource"):
        columns = definitions[model]["properties"]["schema"]
        columns["anyOf"] = [{"type": columns.pop("type"), "items": columns.pop("items")}, _columns_by_name(definitions)]
    earlier = definitions["SinkSpec"]["properties"]["aliases"]
    earlier["additionalProperties"] = {"anyOf": [{"type": "string"}, earlier["additionalProperties"]]}
    file = definitions["PipelineFile"]["properties"]
    file["version"] = {"enum": ["1.0", "1", 1], "description": file["version"]["description"]}
    levels = definitions["Settings"]["properties"]["log_level"]["enum"]
    levels += ["warn", "WARN", *(level.upper() for level in levels)]
    for model in ("SourceEntry", "SinkEntry", "PipelineEntry"):
        options = definitions[model]["properties"]
        options["rate_limit"] = _rate_limit(options["rate_limit"])
    for transform in TRANSFORMS:
        definitions[transform.__name__] = _nested_or_flat(definitions[transform.__name__])
    for model, key in (("SinkEntry", "topics"), ("BrokerEntry", "bootstrap_servers")):
        listed = definitions[model]["properties"][key]
        words = listed.pop("description")
        definitions[model]["properties"][key] = {"anyOf": [listed, {"type": "string", "minLength": 1}], "description": words}


def _columns_by_name(definitions: dict[str, Schema]) -> Schema:
    column = definitions["ColumnSpec"]
    details = {key: schema for key, schema in column["properties"].items() if key != "name"}
    long = {"type": "object", "properties": details, "required": ["type"], "additionalProperties": False}
    return {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, long]}}


def _rate_limit(written: Schema) -> Schema:
    number = next(each for each in written["anyOf"] if each.get("type") == "integer")
    section = {
        "type": "object",
        "properties": {"events_per_second": number},
        "required": ["events_per_second"],
        "additionalProperties": False,
    }
    return {"anyOf": [number, section, {"type": "null"}], "description": written["description"]}


def _nested_or_flat(transform: Schema) -> Schema:
    """The settings of a transform stand beside `type`, or under `config`."""
    kind = transform["properties"]["type"]
    settings = {key: schema for key, schema in transform["properties"].items() if key != "type"}
    required = [key for key in transform.get("required", []) if key != "type"]
    config = {"type": "object", "properties": settings, "required": required, "additionalProperties": False}
    nested = {
        "type": "object",
        "properties": {"type": kind, "config": config},
        "required": ["type", "config"],
        "additionalProperties": False,
    }
    return {"anyOf": [{**transform, "required": ["type", *required]}, nested], "description": transform["description"]}


def _configs(definitions: dict[str, Schema]) -> None:
    """What stands under `config` depends on the connector."""
    words = definitions["SinkEntry"]["properties"]["config"]["description"]
    definitions["SinkEntry"]["properties"]["config"] = {"$ref": _REF.format(model="SinkSpec"), "description": words}
    definitions["SourceEntry"]["allOf"] = [
        {
            "if": {"properties": {"connector": {"const": connector}}, "required": ["connector"]},
            "then": _config_of(definitions, model.__name__),
        }
        for connector, model in SOURCES.items()
    ]
    names = {"pattern": NAME_PATTERN, "maxLength": 100}
    for section in ("sources", "sinks", "pipelines"):
        _entries(definitions["PipelineFile"]["properties"][section])["propertyNames"] = names


def _config_of(definitions: dict[str, Schema], model: str) -> Schema:
    rule: Schema = {"properties": {"config": {"$ref": _REF.format(model=model)}}}
    required = set(definitions[model].get("required", [])) - {"bootstrap_servers"}
    if "bootstrap_servers" in definitions[model]["properties"]:  # the broker of the file may bring them
        definitions[model]["required"] = sorted(required)
    return {**rule, "required": ["config"]} if required else rule


def _entries(section: Schema) -> Schema:
    """The part of a section's schema that describes its entries; null may stand beside it."""
    entries: Schema = next((each for each in section.get("anyOf", []) if each.get("type") == "object"), section)
    entries.pop("patternProperties", None)
    model = {"sources": "SourceEntry", "sinks": "SinkEntry"}.get(section.get("title", "").lower(), "PipelineEntry")
    entries["additionalProperties"] = {"$ref": _REF.format(model=model)}
    return entries


def _plain(schema: Any) -> Any:
    """Without what only pydantic needs: titles of fields, discriminators; secrets are plain texts."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    noise = [key for key in ("title", "discriminator") if isinstance(schema.get(key), str) or key == "discriminator"]
    kept = {key: each for key, each in schema.items() if key not in noise}
    if kept.get("default", "") in (None, {}, []):
        del kept["default"]
    if kept.get("format") == "password":
        kept = {key: each for key, each in kept.items() if key not in ("format", "writeOnly")}
    if kept.get("additionalProperties") == {"type": "string"}:
        kept["additionalProperties"] = _FREE_TEXT
    return {key: each if key in ("default", "enum", "required") else _plain(each) for key, each in kept.items()}


def _with_variables(schema: Any) -> Any:
    """A variable may stand for every number, boolean, choice and text of a form."""
    if isinstance(schema, list):
        return [_with_variables(each) for each in schema]
    if not isinstance(schema, dict) or {"type": "string"} in schema.get("anyOf", []):
        return schema
    inner = {
        key: each if key in ("default", "enum", "required", "if", "propertyNames") else _with_variables(each)
        for key, each in schema.items()
    }
    if "const" in inner or not _is_narrow(inner):
        return inner
    words = {key: inner.pop(key) for key in ("description", "default") if key in inner}
    return {"anyOf": [inner, VARIABLE], **words}


def _is_narrow(schema: Schema) -> bool:
    if schema.get("type") in ("integer", "number", "boolean") or "enum" in schema:
        return True
    return schema.get("type") == "string" and bool(schema.keys() & {"pattern", "maxLength"}) and schema != VARIABLE
