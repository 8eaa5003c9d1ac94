from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import BaseModel, SecretStr
from yaml_cases import ROOT

from frazil.doors.yaml.file import SOURCES, BrokerEntry, PipelineEntry, PipelineFile, SinkEntry, SourceEntry
from frazil.doors.yaml.reference import reference
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.reading.anatomy import alternatives, key_of, models_of
from frazil.reading.document import keeps_secret

MODELS = [PipelineFile, BrokerEntry, SourceEntry, SinkEntry, PipelineEntry, Settings, SinkSpec, *SOURCES.values()]


def test_the_page_is_what_the_models_say() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    assert page == reference(), "write it anew: python -m frazil.doors.yaml.reference > docs/reference.md"


def test_every_option_is_there_with_its_meaning() -> None:
    page = reference()
    for model, key in options():
        assert f"- **`{key}`** (" in page, f"{model.__name__}.{key}"
    assert re.findall(r"\):\s*(?=\n(?:-|$))", page) == []


def test_ranges_choices_and_defaults_are_there() -> None:
    page = reference()
    assert "- **`batch_size`** (whole number, 1 to 1,000,000; default `10000`): " in page
    assert "- **`partitioning`** (`none` `table_default` `identity` `bucket` `time`; default `none`): " in page
    assert "- **`password`** (text, secret): " in page
    assert "- **`format`** (`json` `csv` `parquet` `avro`; *required*): " in page


def test_secrets_are_known_by_the_names_of_their_keys() -> None:
    """Lines of a file are shown with secrets masked, and only secrets."""
    for model, key in options():
        field = next(info for name, info in model.model_fields.items() if key_of(name, info) == key)
        assert keeps_secret(key) == (SecretStr in list(alternatives(field.annotation))), f"{model.__name__}.{key}"


def options() -> Iterator[tuple[type[BaseModel], str]]:
    seen: set[type[BaseModel]] = set()
    waiting: list[type[BaseModel]] = list(MODELS)
    while waiting:
        model = waiting.pop()
        if model in seen:
            continue
        seen.add(model)
        for name, info in model.model_fields.items():
            if key_of(name, info) != "connector" or "config" in model.model_fields:
                yield model, key_of(name, info)
            waiting += models_of(info.annotation)
