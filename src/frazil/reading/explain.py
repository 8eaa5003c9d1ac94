"""Checks a section against its model, and says what is wrong in the words of the file: place, cause, cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from frazil.errors import ConfigError, SourceLocation
from frazil.model.base import InconsistencyError
from frazil.model.names import nearest
from frazil.reading.anatomy import annotation_at, keys_of, known_values, limits, sections_at
from frazil.reading.document import Document, Path, keeps_secret
from frazil.reading.scalars import plain_value
from frazil.reading.words import EXPECTED, FORMS, OUT_OF_RANGE, bounds, form

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], document: Document, base: Path) -> M | None:
    """The section at ``base`` as a value of ``model``; None when problems were found, which are then in the document."""
    while True:
        try:
            return model.model_validate(document.at(base), by_alias=True, by_name=False)
        except ValidationError as error:
            found = [_Finding(document, base, model, details) for details in error.errors(include_url=False)]
        if not _repaired(document, found):
            document.problems.extend(_errors_of(document, found))
            return None


class _Finding:
    """One complaint of pydantic's, with the way to the place in the file."""

    def __init__(self, document: Document, base: Path, model: type[BaseModel], details: Mapping[str, Any]) -> None:
        self.document = document
        self.base = base
        self.model = model
        self.type: str = details["type"]
        self.context: Mapping[str, Any] = details.get("ctx", {})
        self.last = details["loc"][-1] if details["loc"] else ""
        self.path = base + written_path(details["loc"], document.at(base))
        self.value = document.at(self.path)

    @property
    def inner(self) -> Path:
        """The way from the section that was checked."""
        return self.path[len(self.base) :]

    def annotation(self, path: Path) -> Any:
        """What may stand at a way from the section."""
        return annotation_at(self.model, path, self.document.at(self.base))


def written_path(loc: Iterable[str | int], value: Any) -> Path:
    """The way through the file that pydantic's location means: tags of unions are no keys, and some sections have two forms."""
    path: Path = ()
    for step in loc:
        if isinstance(value, dict):
            steps = _in_section(step, value)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            steps = (step,)
        else:
            steps = ()
        for each in steps:
            path += (each,)
            value = value[each]
    return path


def _in_section(step: str | int, section: Mapping[str, Any]) -> Path:
    if isinstance(step, int):  # declared columns as a mapping: pydantic counts them
        return (list(section)[step],) if step < len(section) else ()
    if step in section:
        return (step,)
    if step == "sql" and "jdbc" in section:
        return ("jdbc",)
    config = section.get("config") if "type" in section else None  # the settings of a transform may stand there
    return ("config", step) if isinstance(config, dict) and step in config else ()


def _repaired(document: Document, found: Iterable[_Finding]) -> bool:
    """Null means left out; a plain scalar that cannot be taken as text is tried as the number that YAML sees in it."""
    repaired = False
    for finding in found:
        path = finding.path
        if finding.type in ("extra_forbidden", "missing") or not path:
            continue
        if finding.value is None and isinstance(path[-1], str) and path[-1] in document.at(path[:-1]):
            document.drop(path)
            repaired = True
        elif finding.type in ("literal_error", "int_parsing", "float_parsing") and path in document.plain:
            number = plain_value(document.plain.pop(path))
            if isinstance(number, int | float) and not isinstance(number, bool):
                document.put(path, number)
                repaired = True
    return repaired


def _errors_of(document: Document, found: list[_Finding]) -> list[ConfigError]:
    """One error per position. If a union has several errors, the one that fits what was written is kept."""
    by_path: dict[Path, list[_Finding]] = {}
    for finding in _without_misspelt(found):
        by_path.setdefault(finding.path, []).append(finding)
    errors: list[ConfigError] = []
    for path, findings in by_path.items():
        if any(path[: len(unresolved)] == unresolved for unresolved in document.unresolved):
            continue
        deeper = any(other != path and other[: len(path)] == path for other in by_path)
        deeper = deeper or any(finding.type == "missing" for finding in findings)
        kept = [f for f in findings if not (deeper and (f.type in EXPECTED or f.type == "literal_error"))]
        listed = [f for f in kept if f.type in ("literal_error", "enum")]
        types = [f for f in kept if f.type in EXPECTED]
        if listed:
            errors += _explain(listed[0])
        elif len(types) > 1:
            errors.append(_wrong_type(types[0], [EXPECTED[f.type] for f in types]))
        else:
            for finding in kept:
                errors += _explain(finding)
    return errors


def _without_misspelt(found: list[_Finding]) -> list[_Finding]:
    """A key that is missing because it is misspelt is reported once."""
    meant = {
        (_holder(finding.path), nearest(str(finding.path[-1]), _known_keys(finding)))
        for finding in found
        if finding.type == "extra_forbidden"
    }
    return [finding for finding in found if finding.type != "missing" or (finding.path, finding.last) not in meant]


def _holder(path: Path) -> Path:
    """The section that a key belongs to; the settings of a transform may stand under `config`."""
    return path[:-2] if len(path) > 2 and path[-2] == "config" and isinstance(path[-3], int) else path[:-1]


def _known_keys(finding: _Finding) -> list[str]:
    sections = sections_at(finding.model, finding.inner[:-1], finding.document.at(finding.base))
    return [key for section in sections for key in keys_of(section)]


def _explain(finding: _Finding) -> list[ConfigError]:
    if finding.type in EXPECTED:
        return [_wrong_type(finding, [EXPECTED[finding.type]])]
    if finding.type == "value_error":
        return _inconsistent(finding)
    return [_WORDS.get(finding.type, _not_allowed)(finding)]


def _unknown_key(finding: _Finding) -> ConfigError:
    return unknown_key(finding.document, finding.path, _known_keys(finding))


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """The cure for a name that is none: the one that was probably meant, or what else there is to say."""
    near = nearest(name, known)
    return f"Did you mean `{near}`?" if near else otherwise


def unknown_key(document: Document, path: Path, known: Iterable[str]) -> ConfigError:
    """A key that nothing reads."""
    key, known = str(path[-1]), sorted(set(known))
    if (home := document.dialect.home_of(document, path)) is not None:
        fix = f"Put it under `{home}`."
    elif (near := nearest(key, known)) is not None:
        fix = f"Did you mean `{near}`?"
    else:
        fix = f"Known keys: {', '.join(known)}."
    where = f" in `{path[-2]}`" if len(path) > 1 and isinstance(path[-2], str) else ""
    return ConfigError("unknown-key", f"Unknown key `{key}`{where}", fix=fix, location=document.key_place(path))


def _missing(finding: _Finding) -> ConfigError:
    holder = _subject(finding.path)
    message = f"`{finding.last}` is required in {holder}" if holder else f"`{finding.last}` is required"
    return ConfigError("missing-key", message, fix=f"Add `{finding.last}`.", location=_holder_place(finding))


def _unknown_value(finding: _Finding) -> ConfigError:
    return unknown_value(finding, known_values(finding.annotation(finding.inner)), finding.path)


def unknown_value(finding: _Finding, known: list[str], path: Path) -> ConfigError:
    """A value that is none of the known ones."""
    value = finding.document.at(path)
    near = nearest(value, known) if isinstance(value, str) else None
    fix = (f"Did you mean `{near}`? " if near else "") + f"Known values: {', '.join(known)}."
    message = f"{_subject(path)} cannot be {_shown(path, value)}"
    return ConfigError("unknown-value", message, fix=fix, location=finding.document.value_place(path))


def _unknown_tag(finding: _Finding) -> ConfigError:
    known = re.findall(r"'([^']*)'", str(finding.context.get("expected_tags", "")))
    # Where a name alone is enough, it stands for a section with that type.
    return unknown_value(finding, known, (*finding.path, "type") if isinstance(finding.value, dict) else finding.path)


def _missing_tag(finding: _Finding) -> ConfigError:
    if not isinstance(finding.value, dict):
        return _wrong_type(finding, ["a section with keys"])
    if "type" in finding.value:
        return _wrong_type(finding, ["text"], (*finding.path, "type"))
    message = f"`type` is required in {_subject(finding.path)}"
    return ConfigError("missing-key", message, fix="Add `type`.", location=_holder_place(finding))


def _holder_place(finding: _Finding) -> SourceLocation:
    """Where a section begins: at its key, or as an item of a list."""
    document, path = finding.document, finding.path
    return document.value_place(path) if path and isinstance(path[-1], int) else document.key_place(path)


def _wrong_type(finding: _Finding, expected: list[str], path: Path | None = None) -> ConfigError:
    path = finding.path if path is None else path
    value = finding.document.at(path)
    message = f"{_subject(path) or 'The file'} must be {_either(expected)}, not {_shown(path, value)}"
    return ConfigError("wrong-type", message, location=finding.document.value_place(path))


def _out_of_range(finding: _Finding) -> ConfigError:
    least, greatest = limits(finding.model, finding.inner, finding.document.at(finding.base))
    rule = bounds(finding.context, least, greatest)
    message = f"{_subject(finding.path)} must be {rule}, not {_shown(finding.path, finding.value)}"
    return ConfigError("out-of-range", message, location=finding.document.value_place(finding.path))


def _empty(finding: _Finding) -> ConfigError:
    own_words = finding.document.dialect.empty(finding.base, finding.inner)
    message = own_words or f"{_subject(finding.path)} must not be empty"
    return ConfigError("missing-key", message, location=finding.document.value_place(finding.path))


def _too_long(finding: _Finding) -> ConfigError:
    limit = finding.context["max_length"]
    message = f"{_subject(finding.path)} must not be longer than {limit} characters"
    return ConfigError("out-of-range", message, location=_place(finding))


def _wrong_form(finding: _Finding) -> ConfigError:
    pattern = str(finding.context.get("pattern"))
    words = form(pattern, {**FORMS, **finding.document.dialect.forms})
    message = f"{_subject(finding.path)} {words}"
    return ConfigError("invalid-value", message, location=_place(finding))


def _place(finding: _Finding) -> SourceLocation:
    """Complaints about a key itself end in `[key]`."""
    document = finding.document
    return document.key_place(finding.path) if finding.last == "[key]" else document.value_place(finding.path)


def _inconsistent(finding: _Finding) -> list[ConfigError]:
    document, cause = finding.document, finding.context["error"]
    if not isinstance(cause, InconsistencyError):
        location = document.value_place(finding.path)
        return [ConfigError("invalid-value", f"{_subject(finding.path)}: {cause}", location=location)]
    errors = []
    for problem in cause.problems:
        path = finding.path + written_path(problem.at, finding.value)
        if path not in document.unresolved:
            errors.append(ConfigError("invalid-value", str(problem), location=document.key_place(path)))
    return errors


def _not_allowed(finding: _Finding) -> ConfigError:
    message = f"{_subject(finding.path)} has a value that is not allowed here"
    return ConfigError("invalid-value", message, location=finding.document.value_place(finding.path))


_WORDS: dict[str, Callable[[_Finding], ConfigError]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing,
    "enum": _unknown_value,
    "literal_error": _unknown_value,
    "union_tag_invalid": _unknown_tag,
    "union_tag_not_found": _missing_tag,
    **dict.fromkeys(OUT_OF_RANGE, _out_of_range),
    "string_too_short": _empty,
    "too_short": _empty,
    "string_too_long": _too_long,
    "string_pattern_mismatch": _wrong_form,
}


def _subject(path: Path) -> str:
    """What a path is called: its key, and which item of a list."""
    if not path:
        return ""
    if isinstance(path[-1], str):
        return f"`{path[-1]}`"
    holder = _subject(path[:-1])
    return f"item {path[-1] + 1} of {holder}" if holder else f"item {path[-1] + 1}"


def _shown(path: Path, value: Any) -> str:
    """A value in a message: short, and never a secret."""
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    if any(isinstance(step, str) and keeps_secret(step) for step in path):
        return "what stands there"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`" if len(text) <= 60 else f"`{text[:57]}...`"


def _either(words: list[str]) -> str:
    unique = [word for word in dict.fromkeys(words) if word != "a whole number" or "a number" not in words]
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"
