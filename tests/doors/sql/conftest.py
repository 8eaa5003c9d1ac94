from __future__ import annotations

import pytest

from frazil.model import secrets


@pytest.fixture(autouse=True)
def _own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that one test brings are not scrubbed from the messages of another."""
    monkeypatch.setattr(secrets, "_remembered", set())
