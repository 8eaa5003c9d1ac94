"""Sketches of sets."""

from __future__ import annotations

import random

import pytest

from frazil.sources.sketch import CAPACITY, NUMBER_BYTES, Sketch


def numbers(count: int, seed: int) -> set[int]:
    chance = random.Random(seed)
    return {chance.getrandbits(8 * NUMBER_BYTES) for _ in range(count)}


def test_the_difference_of_two_large_sets_can_be_read() -> None:
    common, mine, theirs = numbers(3000, 1), numbers(CAPACITY // 2, 2), numbers(CAPACITY // 2, 3)
    both = Sketch.of(common | mine).combined(Sketch.of(common | theirs))
    assert both.numbers() == mine | theirs
    assert Sketch.of(common).combined(Sketch.of(common)).numbers() == frozenset()


def test_a_difference_that_is_too_large_is_not_guessed() -> None:
    for seed in range(20):
        assert Sketch.of(numbers(2 * CAPACITY, seed)).numbers() is None


def test_a_sketch_survives_as_text_and_a_small_one_is_short() -> None:
    large, small = Sketch.of(numbers(5000, 1)), Sketch.of(numbers(5, 1))
    for sketch in (large, small, Sketch()):
        assert Sketch.from_text(sketch.to_text()) == sketch
    assert len(large.to_text()) < 25_000
    assert len(small.to_text()) < 1000


@pytest.mark.parametrize("text", ["?", "", "AAAA", "eJwDAAAAAAE="])
def test_a_text_that_is_no_sketch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"sketch|padded|base64"):
        Sketch.from_text(text)
