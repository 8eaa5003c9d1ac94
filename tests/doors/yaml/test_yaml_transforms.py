"""Transforms and tests as the file has them: their places, their values, and what is wrong with them."""

from __future__ import annotations

import pytest
from yaml_cases import file_text, loaded, place_of, problem, stands_at

from frazil.model.transform import RemoveField

PIPELINE = "pipelines:\n  p:\n    source: events\n    sink: lake\n"

ROWS = """
    tests:
      - name: all kinds
        given:
          - {whole: 1, part: 1.5, yes: true, text: "1", none: null, at: 2026-01-31T12:00:00Z, from_env: "${N}", key: abcd}
          - nested: {list: [1, x, {deep: 2}]}
        expect: []
"""


def test_values_of_rows_have_the_types_of_yaml() -> None:
    (pipeline,) = loaded(file_text(top=PIPELINE + ROWS), {"N": "7"}).pipelines
    first, second = pipeline.tests[0].given
    assert first == {
        "whole": 1, "part": 1.5, "yes": True, "text": "1", "none": None, "at": "2026-01-31T12:00:00Z",
        "from_env": "7", "key": "abcd",
    }  # fmt: skip
    assert second == {"nested": {"list": [1, "x", {"deep": 2}]}}
    assert pipeline.tests[0].expect == ()


def test_a_transform_knows_where_its_parts_stand() -> None:
    entry = "transforms:\n  - type: remove_field\n    config:\n      fields: [one, two]\n"
    text = file_text(entry=entry, source="transforms: [{type: remove_field, field: zero}]\n")
    (pipeline,) = loaded(text).pipelines
    zero, both = pipeline.transforms
    for place, part in ((zero.place("field"), "zero"), (both.place("fields", 1), "two"), (both.place(), "type: remove_field\n")):
        assert place is not None
        assert (place.line, place.column) == place_of(text, part)
    assert both == RemoveField(fields=("one", "two"))
    assert hash(both) == hash(RemoveField(fields=("one", "two")))


@pytest.mark.parametrize(
    ("transform", "message", "at"),
    [
        ("{type: remove_field}", "remove_field takes either field or fields", "transforms"),
        ("{type: add_field, field: a}", "add_field takes either value or expression", "transforms"),
        ("{type: add_field, field: a, value: null, expression: b}", "takes either value or expression", "transforms"),
        ("{type: select, expressions: [a, __frazil_at]}", "names that begin with __frazil_ are frazil's own", "__frazil_at"),
        ("{type: select}", "`expressions` is required in item 1 of `transforms`", "{type: select"),
        ("{type: flatten, depth: 0}", "`depth` must be at least 1, not `0`", "0}"),
        ("{type: hash_field, field: a, salt: abc}", "`salt`", "abc}"),
        ("{type: hash_field, field: a, salt: 0123456789, algorithm: md5}", "`algorithm` cannot be `md5`", "md5"),
    ],
)
def test_what_is_wrong_with_a_transform(transform: str, message: str, at: str) -> None:
    text = file_text(entry=f"transforms: [{transform}]\n")
    found = problem(text)
    assert message in found.message
    if at != "transforms":
        assert stands_at(found) == place_of(text, at)


def test_a_salt_that_is_too_short_is_not_shown_either() -> None:
    found = problem(file_text(entry="transforms: [{type: hash_field, field: a, salt: pepper1}]\n"))
    assert found.location is not None
    assert "pepper1" not in str(found) + found.location.text
