"""Variables in values: ``${VAR}``, ``${VAR:-default}``, ``${VAR:?message}``, and ``$$`` for a dollar sign.

One pass over a value that YAML has already read: what comes out of a variable is neither expanded again nor read as YAML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_VARIABLE = re.compile(
    r"\$\$"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::(?P<operator>[-?])(?P<argument>(?:(?!\$\{)[^}])*))?\}"
    r"|(?P<broken>\$\{)"
)  # fmt: skip

# A value that is nothing but variables without defaults: showing it as written shows no secret.
ONLY_NAMES = re.compile(r"(?:\$\{[A-Za-z_][A-Za-z0-9_]*(?::\?[^}]*)?\})+")


@dataclass(frozen=True)
class Unresolved:
    """Why a variable could not be replaced."""

    code: str
    message: str
    fix: str = ""


class Unreadable(Unresolved):
    """The value is not written in a way that can be read, so that nothing is known of other variables in it."""


@dataclass(frozen=True)
class Expansion:
    """A value after expansion. ``used`` holds the values of the variables by name; with ``problems`` the text is unusable."""

    text: str
    used: dict[str, str]
    problems: tuple[Unresolved, ...] = ()


def expand(text: str, env: Mapping[str, str]) -> Expansion:
    """Replaces the variables of one value."""
    used: dict[str, str] = {}
    problems: list[Unresolved] = []

    def replacement(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        outcome = _unreadable(text) if match["broken"] else _value(match, env)
        if isinstance(outcome, Unresolved):
            problems.append(outcome)
            return match.group()
        if match["name"] in env:
            used[match["name"]] = outcome
        return outcome

    expanded = _VARIABLE.sub(replacement, text)
    unreadable = [problem for problem in problems if isinstance(problem, Unreadable)]
    return Expansion(expanded, used, tuple(unreadable[:1] or problems))


def in_braces(text: str, env: Mapping[str, str]) -> Expansion | None:
    """The usual way: a value that holds a dollar sign is expanded, None for any other."""
    return expand(text, env) if "$" in text else None


def _value(match: re.Match[str], env: Mapping[str, str]) -> str | Unresolved:
    name, operator = match["name"], match["operator"]
    value = env.get(name)
    argument = (match["argument"] or "").replace("$$", "$")
    if operator == "-":
        return value or argument
    if operator == "?" and not value:
        return Unresolved("unset-variable", f"{name}: {argument or 'this variable is required'}", f"Set {name}.")
    if value is None:
        fix = f"Set {name}, or give a default: ${{{name}:-default}}. A mere dollar sign is written $$."
        return Unresolved("unset-variable", f"The variable {name} is not set", fix)
    return value


def _unreadable(text: str) -> Unreadable:
    ends = "}" in text
    what = "A variable is written in a way that cannot be read" if ends else "A variable has no closing brace"
    fix = "Forms: ${VAR}, ${VAR:-default}, ${VAR:?message}; a default holds no variable. A mere dollar sign is written $$."
    return Unreadable("bad-variable", what, fix)
