"""Conditions that mean the same however often they are evaluated: the current time in them is fixed once."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from frazil.errors import ConfigError

_DAYS = "now|today|yesterday|tomorrow"
# What gives another value each time that it is asked for, apart from texts and quoted names, where such words mean nothing.
_CHANGING = re.compile(
    rf"""(?P<named>\b(?:timestamp(?:_ntz|_ltz)?|date)\s*(?P<quote>['"])\s*(?:{_DAYS})\s*(?P=quote))"""
    r"""|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""
    r"""|(?<![\w.])(?:"""
    r"""(?P<time>current_timestamp\b(?:\s*\(\s*\))?|now\s*\(\s*\))"""
    r"""|(?P<local>localtimestamp\b(?:\s*\(\s*\))?)"""
    r"""|(?P<date>current_date\b(?:\s*\(\s*\))?|curdate\s*\(\s*\))"""
    r"""|(?P<seconds>(?:to_)?unix_timestamp\s*\(\s*\))"""
    r"""|(?P<other>(?:rand|randn|random|randstr|uniform|uuid|shuffle|current_time|monotonically_increasing_id|spark_partition_id"""
    r"""|input_file_name)\s*\()"""
    r""")""",
    re.IGNORECASE,
)
_NOW = """select unix_micros(current_timestamp()) as time, cast(localtimestamp() as string) as local,
    cast(current_date() as string) as date, unix_timestamp() as seconds"""


def at_one_time(session: SparkSession, condition: str, option: str) -> str:
    """The condition with the current time as a constant: it is evaluated repeatedly, and must match the same rows each time.

    Raises a ConfigError that names the option if the condition has a part that cannot be fixed.
    """
    found = [match for match in _CHANGING.finditer(condition) if match.lastgroup is not None]
    if not found:
        return condition
    for match in found:
        if match["named"] is not None or match["other"] is not None:
            raise ConfigError(
                "condition-changes",
                f"{option}: {match[0].rstrip('(')} in {condition!r} gives another value each time that it is asked for.",
                fix="Use current_timestamp(), localtimestamp(), current_date() or unix_timestamp(), or write the value itself.",
            )
    now = session.sql(_NOW).first()
    assert now is not None, "a query without a table has one row"
    fixed = {
        "time": f"timestamp_micros({now['time']})",
        "local": f"timestamp_ntz'{now['local']}'",
        "date": f"date'{now['date']}'",
        "seconds": f"{now['seconds']}L",
    }

    def now_in(match: re.Match[str]) -> str:
        return next((text for name, text in fixed.items() if match[name] is not None), match[0])

    return _CHANGING.sub(now_in, condition)
