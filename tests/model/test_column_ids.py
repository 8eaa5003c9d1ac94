"""Which column of the source a table's column is: renames, names that pass on, columns that come and go."""

from __future__ import annotations

import random

import pytest

from frazil.model.column_ids import ColumnIds, Following, followed, known_from_json
from frazil.model.evolution import RenameColumn

FIELDS = {"id": 1, "a": 2, "b": 3}
KNOWN = {"7.1": (1,), "7.2": (2,), "7.3": (3,)}


def given(**names: int) -> dict[str, str]:
    return {name: f"7.{number}" for name, number in names.items()}


def done(following: Following, fields: dict[str, int]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """The table's columns, and what is known of them, after a batch that adds what is new."""
    after = dict(fields)
    for change in following.renames:
        assert change.name not in after, "a name is free when it is given"
        after[change.name] = after.pop(change.path)
    free = max(fields.values(), default=0) + 1
    after |= {name: free + number for number, name in enumerate(following.new.values())}
    return after, dict(known_from_json(ColumnIds("p", following.known, following.new).to_json(after)))


def test_a_table_that_nothing_is_known_of_is_taken_by_names() -> None:
    found = followed(given(id=1, a=2, c=4), FIELDS, {}, renames=True)
    assert found == Following({"7.1": (1,), "7.2": (2,)}, {"7.4": "c"})
    assert done(found, FIELDS)[1] == {"7.1": (1,), "7.2": (2,), "7.4": (4,)}


def test_a_column_under_another_name_is_renamed() -> None:
    found = followed(given(id=1, x=2, b=3), FIELDS, KNOWN, renames=True)
    assert found == Following(KNOWN, renames=(RenameColumn("a", "x"),))


def test_where_it_is_not_renamed_it_has_two_columns_from_then_on() -> None:
    found = followed(given(id=1, x=2, b=3), FIELDS, KNOWN, renames=False)
    assert (found.renames, found.new, dict(found.apart)) == ((), {"7.2": "x"}, {"x": "a"})
    fields, known = done(found, FIELDS)
    assert known["7.2"] == (2, 4)
    assert followed(given(id=1, a=2, b=3), fields, known, renames=False).known["7.2"] == (4, 2), "the last one is the current one"
    assert followed(given(id=1, y=2, b=3), fields, known, renames=True).renames == (RenameColumn("x", "y"),)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"id": 1, "b": 2, "a": 3}, id="two change places"),
        pytest.param({"a": 1, "b": 2, "id": 3}, id="three go round"),
        pytest.param({"id": 1, "b": 2, "c": 3}, id="one after the other"),
        pytest.param({"id": 1, "b": 2, "c": 3, "a": 4}, id="and a new one takes the first name"),
        pytest.param({"id": 1, "b": 2, "a__1": 3}, id="a name that looks like a detour"),
    ],
)
def test_names_that_pass_on_are_followed(names: dict[str, int]) -> None:
    found = followed(given(**names), FIELDS, KNOWN, renames=True)
    assert not found.replaced
    fields, known = done(found, FIELDS)
    assert {name: fields[name] for name in names} == names
    assert known == {f"7.{number}": (number,) for number in names.values()}


@pytest.mark.parametrize("renames", [True, False])
def test_a_name_that_another_column_has_taken_over(renames: bool) -> None:
    assert followed(given(id=1, a=4, b=3), FIELDS, KNOWN, renames=renames).replaced == ("a",), "dropped and added"
    assert followed(given(id=1, a=3), FIELDS, KNOWN, renames=renames).replaced == ("a",), "dropped, and another one renamed"
    unowned = {"7.1": (1,), "7.2": (2,)}
    assert followed(given(id=1, b=2), FIELDS, unowned, renames=True).replaced == ("b",), "nobody knows what is in b"


def test_a_swap_is_not_followed_where_nothing_is_renamed() -> None:
    assert followed(given(id=1, a=3, b=2), FIELDS, KNOWN, renames=False).replaced == ("a", "b")


def test_a_table_that_was_made_anew_goes_on_by_names() -> None:
    anew = {"id": "8.1", "b": "8.2", "a": "8.3"}
    found = followed(anew, FIELDS, KNOWN, renames=True)
    assert (found.renames, found.replaced) == ((), ())
    assert found.known == {**KNOWN, "8.1": (1,), "8.2": (3,), "8.3": (2,)}


def test_two_tables_of_the_source_may_share_a_column() -> None:
    both = {**KNOWN, "8.1": (1,), "8.2": (2,)}
    found = followed({"id": "7.1", "x": "7.2", "a": "8.2"}, FIELDS, both, renames=True)
    assert (found.renames, found.new, found.replaced) == ((), {"7.2": "x"}, ())
    first = followed({"id": "7.1", "x": "7.2", "a": "8.2"}, FIELDS, KNOWN, renames=True)
    assert (first.renames, first.new, first.known["8.2"]) == ((), {"7.2": "x"}, (2,))


def test_what_is_gone_from_the_table_is_forgotten() -> None:
    found = followed(given(id=1, x=2), {"id": 1, "b": 3}, KNOWN, renames=True)
    assert (found.new, found.renames) == ({"7.2": "x"}, ())
    assert done(found, {"id": 1, "b": 3})[1] == {"7.1": (1,), "7.2": (4,), "7.3": (3,)}


def test_values_never_go_into_a_column_that_has_those_of_another() -> None:
    """Against a database that renames, drops and adds at random, whose table is looked at now and then."""
    for seed in range(400):
        chance = random.Random(seed)
        source, last = {"a": 1, "b": 2, "c": 3}, 3
        fields: dict[str, int] = {}
        known: dict[str, tuple[int, ...]] = {}
        held: dict[int, set[str]] = {}
        for _ in range(12):
            for _ in range(chance.randrange(4)):
                name, other = chance.choice(sorted(source)), chance.choice("abcdef")
                match chance.randrange(3):
                    case 0 if other not in source:
                        source[other] = source.pop(name)
                    case 1 if len(source) > 1:
                        del source[name]
                    case 2 if other not in source:
                        last += 1
                        source[other] = last
            columns = given(**source)
            mode = chance.random() < 0.8
            found = followed(columns, fields, known, renames=mode)
            if found.replaced:
                for name in found.replaced:  # what the message advises
                    fields[f"{name}_{last}_{len(fields)}"] = fields.pop(name)
                found = followed(columns, fields, known, renames=mode)
            assert not found.replaced
            fields, known = done(found, fields)
            for name, column in columns.items():
                held.setdefault(fields[name], set()).add(column)
        assert all(len(columns) == 1 for columns in held.values()), seed
