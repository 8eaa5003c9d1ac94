"""Which columns the log speaks of, by the catalog of later and what was known before."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frazil.sources.postgres.numbering import Attribute, Shape, numbered, united
from frazil.sources.postgres.spool import SpooledColumn
from frazil.sources.postgres.types import STRING

TEXT = 25


@dataclass
class Table:
    """A table's columns as PostgreSQL numbers them."""

    live: dict[int, str] = field(default_factory=dict)
    last: int = 0

    def add(self, *names: str) -> Table:
        for name in names:
            self.last += 1
            self.live[self.last] = name
        return self

    def number(self, name: str) -> int:
        return next(number for number, one in self.live.items() if one == name)

    def drop(self, name: str) -> Table:
        del self.live[self.number(name)]
        return self

    def rename(self, name: str, new: str) -> Table:
        self.live[self.number(name)] = new
        return self

    @property
    def names(self) -> list[str]:
        return list(self.live.values())

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self.live)

    @property
    def catalog(self) -> list[Attribute]:
        return [
            Attribute(number, self.live.get(number, ""), TEXT if number in self.live else 0, number in self.live)
            for number in range(1, self.last + 1)
        ]

    @property
    def shape(self) -> Shape:
        return shape(self.live, self.last)

    def read(self, *names: str, before: Shape | None = None) -> tuple[int | None, ...]:
        return numbers(names, self.catalog, before)


def shape(names: Mapping[int, str], last: int = 0) -> Shape:
    return Shape.of(7, {number: (name, TEXT) for number, name in names.items()}, last)


def listed(names: Sequence[str]) -> list[tuple[str, int]]:
    return [(name, TEXT) for name in names]


def numbers(
    names: Sequence[str], catalog: Sequence[Attribute], before: Shape | None = None, chosen: Sequence[int] | None = None
) -> tuple[int | None, ...]:
    return numbered(7, listed(names), catalog, before, chosen).numbers


def made(*names: str) -> Table:
    return Table().add(*names)


def test_without_dropped_columns_the_order_tells_everything() -> None:
    now = made("id", "a", "b").rename("a", "x").rename("b", "a").add("c")
    assert now.read("id", "a", "b") == (1, 2, 3), "before the renames"
    assert now.read("id", "x", "b") == (1, 2, 3), "between them"
    assert now.read("id", "x", "a", "c") == (1, 2, 3, 4), "as it is"


def test_changes_of_before_a_drop_are_read_after_it() -> None:
    table = made("id", "a", "b")
    before = table.shape
    now = table.drop("a").add("c").rename("b", "x")
    assert now.read("id", "a", "b", before=before) == (1, 2, 3)
    assert now.read("id", "x", "c", before=before) == (1, 3, 4)
    assert now.read("id", "x", before=before) == (1, 3)


def test_what_was_dropped_before_is_not_meant() -> None:
    table = made("id", "a", "b").drop("a")
    before = table.shape
    now = table.add("c").rename("b", "x").rename("c", "y")
    assert now.read("id", "b", "c", before=before) == (1, 3, 4)
    assert now.read("id", "b", "c")[1] is None, "without that it could be the column that is gone"


def test_the_same_name_again_is_the_column_of_now() -> None:
    table = made("id", "a")
    before = table.shape
    now = table.drop("a").add("a")
    assert now.read("id", "a", before=before) == (1, 3)
    assert numbered(7, listed(["id", "a"]), now.catalog, before).shape is None, "it is not certain"
    number = [*now.catalog[:2], Attribute(3, "a", 23, listed=True)]
    assert numbers(["id", "a"], number, before) == (1, 2), "another type tells them apart"
    assert numbered(7, [("id", TEXT), ("a", 23)], number, before).numbers == (1, 3)


def test_only_what_is_certain_is_reported() -> None:
    table = made("id", "a", "b")
    before = table.shape
    now = table.drop("a").rename("b", "x")
    assert now.read("id", "x", before=before) == (1, 3)
    assert now.drop("x").read("id", "x", before=before) == (1, None), "a was renamed, or b: both are gone"
    assert now.read("id", "b", before=before) == (1, 3)
    assert made("id", "a").read("id", "a", "b", "c") == (None,) * 4, "not this table"


def test_generated_columns_are_not_in_the_log() -> None:
    catalog = [Attribute(1, "id", TEXT, True), Attribute(2, "twice", TEXT, False), Attribute(3, "b", TEXT, True)]
    assert numbers(["id", "a"], catalog, shape({1: "id", 3: "a"})) == (1, 3)
    assert numbers(["id", "twice", "b"], catalog) == (1, 2, 3), "but where the publication has them"


def test_a_publication_with_chosen_columns() -> None:
    catalog = made("id", "a", "b").catalog
    assert numbers(["id", "b"], catalog, chosen=[1, 3]) == (1, 3)
    assert numbers(["id", "x"], catalog, chosen=[1, 3]) == (None, None), "the choice may have been another one"
    assert numbers(["id", "x"], catalog, shape({1: "id", 3: "x"}), chosen=[1, 3]) == (1, 3)
    assert numbers(["id", "a"], catalog, shape({1: "id", 2: "a"}), chosen=[1, 3]) == (None, None)


def test_many_dropped_columns_are_no_burden() -> None:
    table = made(*[f"c{number}" for number in range(60)])
    for number in range(1, 60, 2):
        table.drop(f"c{number}")
    assert table.read(*table.names) == table.numbers
    assert set(table.rename("c58", "x").read(*table.names[:-1], "c58")) == {None}


def test_a_shape_survives_the_ledger() -> None:
    found = shape(dict(zip([1, 2, 3, 5, 8, 9], "abcdef", strict=True)))
    assert found.to_text().startswith("7:9:1-3,5,8-9:")
    assert Shape.from_text(found.to_text()) == found
    assert Shape.from_text(Shape.of(1, {}).to_text()) == Shape(1, 0, {})


def test_against_tables_that_change_at_random() -> None:
    """The log is read behind the catalog. A number may be missing; a wrong one is that of a column that had the same name."""
    counts = Counter[str]()
    for seed in range(3_000):
        chance = random.Random(seed)
        table = made("a", "b", "c")
        times = [(table.names, table.numbers)]
        before = table.shape
        for _ in range(chance.randrange(1, 5)):
            name, other = chance.choice(table.names), chance.choice("abcdefgh")
            match chance.randrange(3):
                case 0 if other not in table.names:
                    table.rename(name, other)
                case 1 if len(table.names) > 1:
                    table.drop(name)
                case 2 if other not in table.names:
                    table.add(other)
            times.append((table.names, table.numbers))
        had: dict[int, set[str]] = defaultdict(set)
        for names, right in times:
            for number, name in zip(right, names, strict=True):
                had[number].add(name)
        for names, right in times:
            found = numbered(7, listed(names), table.catalog, before)
            for name, number, true in zip(names, found.numbers, right, strict=True):
                counts["missing" if number is None else "right" if number == true else "wrong"] += 1
                if number not in (None, true):
                    assert name in had[number], (seed, names, found, right)
            before = found.shape or before
    assert counts["missing"] < counts["right"] / 50, counts
    assert counts["wrong"] < counts["right"] / 100, counts


def columns(**ids: str | None) -> tuple[SpooledColumn, ...]:
    return tuple(SpooledColumn(name, STRING, number) for name, number in ids.items())


def test_columns_of_several_times_are_one_list_under_their_last_names() -> None:
    newest = columns(id="7.1", b="7.2", a="7.3", new="7.5")
    oldest = columns(id="7.1", a="7.2", b="7.3", gone="7.4")
    found = united([newest, oldest])
    assert found is not None
    assert [column.name for column in found.columns] == ["id", "b", "a", "new", "gone"]
    assert found.names == (("id", "b", "a", "new"), ("id", "b", "a", "gone"))


def test_two_columns_of_one_name_are_no_list() -> None:
    assert united([columns(id="7.1", a="7.3"), columns(id="7.1", a="7.2")]) is None
    assert united([columns(a="7.3"), columns(b="7.3", a="7.2")]) is None
    anew = united([columns(id="8.1", a="8.2"), columns(id="7.1", a="7.3")])
    assert anew is not None, "the table was made anew"
    assert united([columns(a=None), columns(a="7.2")]) is not None
