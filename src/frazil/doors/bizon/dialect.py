"""What is particular to a Bizon file when it is read and explained."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.doors.bizon.destination import DestinationConfig
from frazil.reading.anatomy import keys_of
from frazil.reading.document import Dialect, Document, Path
from frazil.reading.expand import Expansion, Unresolved, expand

_WHOLE = "BIZON_ENV_"
_REFERENCE = "env://"
_VAULT = "gsm://"


def _variables(text: str, env: Mapping[str, str]) -> Expansion | None:
    """`BIZON_ENV_NAME` and `env://NAME` as Bizon has them, and `${NAME}`. A dollar sign alone, or two, are what they are."""
    if text.startswith((_WHOLE, _REFERENCE)):
        name = text.removeprefix(_REFERENCE)
        value = env.get(name)
        if value is None:
            problem = Unresolved("unset-variable", f"The variable {name} is not set", f"Set {name}.")
            return Expansion(text, {}, (problem,))
        return Expansion(value, {name: value})
    if text.startswith(_VAULT):
        fix = "Bring it into the environment, and write env:// and the variable's name."
        return Expansion(text, {}, (Unresolved("bad-variable", "Google's Secret Manager is not asked for values", fix),))
    return expand(text.replace("$$", "$$$$"), env) if "${" in text else None


def _home_of(_document: Document, path: Path) -> str | None:
    """Settings that stand beside `config` instead of in it."""
    if len(path) == 2 and path[0] == "destination" and path[1] in keys_of(DestinationConfig):
        return "config"
    return None


DIALECT = Dialect(
    file="A Bizon file",
    any_type=("equals", "value"),
    variables=_variables,
    # Bizon reads YAML as PyYAML does, for which the last of several equal keys counts; its own document relies on that.
    repeated_keys=True,
    home_of=_home_of,
)
