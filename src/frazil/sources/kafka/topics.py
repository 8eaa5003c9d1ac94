"""Which topics of a cluster a source reads: names, names with ``*``, and regular expressions between slashes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from frazil.model.source import is_topic_pattern


def named_topics(topics: Iterable[str]) -> frozenset[str]:
    """The topics that are plain names, and no patterns."""
    return frozenset(topic for topic in topics if not is_topic_pattern(topic))


def has_patterns(topics: Iterable[str]) -> bool:
    """Whether the cluster must be asked for its topics."""
    return any(is_topic_pattern(topic) for topic in topics)


def matches(topic: str, wanted: Iterable[str]) -> bool:
    """Whether a topic is one of those wanted. A regular expression must match the whole name."""
    return any(_matches(topic, one) for one in wanted)


def _matches(topic: str, wanted: str) -> bool:
    if wanted.startswith("/"):
        return re.fullmatch(wanted[1:-1], topic) is not None
    return fnmatchcase(topic, wanted)
