"""Made-up shop events: enough like real ones to try partitioning, types and queries on.

Every column is computed by Spark from the event's number and the seed, so that executors make the rows and a slice reads the
same whenever it is read. Only the time of an event comes from elsewhere: from the two positions between which it lies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

from frazil.errors import FrazilError
from frazil.model.commit import Position, position
from frazil.model.source import GeneratorSource
from frazil.model.types import Column, Decimal, ListType, Primitive, StructType
from frazil.sources.base import Session, Slice
from frazil.sources.positions import fields_of, unknown_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A run that begins finds the events of one second there already, so that a single pass has something to write.
HEAD_START_MS = 1_000
# A pause longer than this makes no events: nobody wants a night's worth of them at breakfast.
LONGEST_BACKLOG_MS = 60_000
# Fewer rows than this are made faster by one task than spread over many.
ROWS_FOR_ONE_TASK = 20_000
# The numbers of a chunk are held in memory at once.
ROWS_OF_A_CHUNK = 250_000

_WEIGHTS = {"page_view": 62, "search": 15, "add_to_cart": 13, "purchase": 9, "refund": 1}
_COUNTRIES = {"US": 26, "DE": 14, "GB": 12, "FR": 10, "IN": 9, "BR": 8, "JP": 7, "NL": 5, "CA": 5, "AU": 4}
_AGENTS = {
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/131.0": 34,
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Mobile Safari/604.1": 26,
    "Mozilla/5.0 (Linux; Android 15) Chrome/131.0 Mobile": 22,
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_7) Safari/605.1": 12,
    "Mozilla/5.0 (X11; Linux x86_64) Firefox/133.0": 6,
}
_PRODUCTS = (
    ("Pour-over kettle", "kitchen", "54.90"), ("Cast-iron pan", "kitchen", "39.00"),
    ("Paring knife", "kitchen", "12.50"), ("Oak cutting board", "kitchen", "28.00"),
    ("Espresso cups, set of 4", "kitchen", "24.90"), ("Pepper mill", "kitchen", "31.20"),
    ("Down jacket", "clothing", "189.00"), ("Merino socks", "clothing", "17.90"),
    ("Rain trousers", "clothing", "74.50"), ("Wool cap", "clothing", "22.00"),
    ("Linen shirt", "clothing", "59.00"), ("Hiking boots", "clothing", "149.95"),
    ("Two-person tent", "outdoor", "239.00"), ("Sleeping mat", "outdoor", "69.90"),
    ("Head torch", "outdoor", "34.50"), ("Water filter", "outdoor", "42.00"),
    ("Trekking poles", "outdoor", "64.00"), ("Dry bag", "outdoor", "18.75"),
    ("Field guide to ice", "books", "21.00"), ("Atlas of rivers", "books", "45.00"),
    ("Pocket dictionary", "books", "9.80"), ("Desk lamp", "home", "79.00"),
    ("Felt storage box", "home", "26.40"), ("Wall clock", "home", "49.00"),
    ("Bluetooth speaker", "electronics", "119.00"), ("USB-C charger", "electronics", "29.90"),
    ("Trail camera", "electronics", "99.00"),
)  # fmt: skip

_TEXT, _LONG = Primitive("string"), Primitive("long")
_PRODUCT = StructType(
    (*(Column(name, _TEXT, required=True) for name in ("id", "name", "category")), Column("price", Decimal(10, 2), required=True))
)
# The columns that `_events` selects, as Spark finds them there: required are those that Spark knows to have no nulls.
COLUMNS = StructType(
    (
        Column("event_id", _TEXT, required=True),
        Column("event_number", _LONG, required=True),
        Column("event_time", Primitive("timestamptz")),
        Column("event_type", _TEXT),
        Column("user_id", _LONG),
        Column("session_id", _TEXT, required=True),
        Column("country", _TEXT),
        Column("user_agent", _TEXT),
        Column("search_term", _TEXT),
        Column("product", _PRODUCT),
        Column("quantity", Primitive("int")),
        Column("amount", Decimal(12, 2)),
        Column("tags", ListType(_TEXT), required=True),
    )
)


@dataclass(frozen=True)
class _Place:
    """A position: the next event, and when it is due. ``from_ms``: when the slice that ends here began, if that left a gap."""

    row: int
    time_ms: int
    from_ms: int | None = None

    @classmethod
    def of(cls, text: Position) -> _Place:
        fields = fields_of(text, "the generator")
        if not isinstance(fields.get("row"), int) or not isinstance(fields.get("time_ms"), int):
            raise unknown_position(text, "the generator")
        return cls(fields["row"], fields["time_ms"], fields.get("from_ms"))


@dataclass(frozen=True)
class _Span:
    """The events of one slice: their numbers, and the times between which they lie."""

    first: int
    last: int
    begin_ms: int
    end_ms: int


class Generator:
    """Events numbered from 0, so many a second.

    Delivery: a slice is computed from its positions and the seed. Parallelism: one task for a small slice, otherwise as
    many as Spark has cores. An endless generator follows the clock: it begins when it is first asked, and catches up with
    at most a minute. With ``rows`` given all of them are there at once, with times that end about now.
    """

    poll_seconds: float
    reads_ahead: Literal[True] = True

    def __init__(self, spec: GeneratorSource, session: Session, clock: Callable[[], float] = time.time) -> None:
        self._spec = spec
        self._session = session
        self._clock = clock
        self._begun: tuple[Position | None, int] | None = None
        self.poll_seconds = min(max(1 / spec.rows_per_second, 0.1), 1.0)

    @property
    def columns(self) -> StructType:
        """The columns of an event."""
        return COLUMNS

    @property
    def fingerprint(self) -> str:
        """The seed alone: other speeds and counts continue the same events."""
        return f"generator:{self._spec.seed}"

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """So many events as are due, or as remain, up to the limit."""
        row = _row(start)
        now_ms = int(self._clock() * 1000)
        begin_ms = self._begin_ms(start, now_ms)
        if self._spec.rows is None:
            available = max(0, now_ms - begin_ms) * self._spec.rows_per_second // 1000
        else:
            available = max(0, self._spec.rows - row)
        count = min(available, limit)
        if count == 0:
            return None
        # Rounded up: a slice that took no time at all would let the next one have the same events' worth of it again.
        end_ms = begin_ms + -(-count * 1000 // self._spec.rows_per_second)
        end: dict[str, int] = {"row": row + count, "time_ms": end_ms}
        if start is None or _Place.of(start).time_ms != begin_ms:
            end["from_ms"] = begin_ms
        return Slice(start, position(end), count, full=available > limit)

    def _begin_ms(self, start: Position | None, now_ms: int) -> int:
        """When the events after ``start`` begin: where the last ones ended, unless that is far from now. Decided once a start."""
        if self._begun is None or self._begun[0] != start:
            self._begun = (start, self._first_begin_ms(start, now_ms))
        return self._begun[1]

    def _first_begin_ms(self, start: Position | None, now_ms: int) -> int:
        if self._spec.rows is not None:
            remaining_ms = (self._spec.rows - _row(start)) * 1000 // self._spec.rows_per_second
            return now_ms - remaining_ms if start is None else _Place.of(start).time_ms
        if start is None or abs(now_ms - (ended_ms := _Place.of(start).time_ms)) > LONGEST_BACKLOG_MS:
            return now_ms - HEAD_START_MS
        return ended_ms

    def between(self, start: Position | None, end: Position) -> Slice:
        """The rows between two counts."""
        return Slice(start, end, _row(end) - _row(start))

    def count(self, start: Position | None, end: Position) -> int | None:
        """How many rows lie between two positions."""
        return self.between(start, end).rows

    def finished(self, position: Position | None) -> bool:
        """When the last of ``rows`` is behind."""
        return self._spec.rows is not None and _row(position) >= self._spec.rows

    def total_rows(self, start: Position | None) -> int | None:
        """What remains of ``rows``."""
        return None if self._spec.rows is None else max(0, self._spec.rows - _row(start))

    def read(self, part: Slice) -> DataFrame:
        """The events of a slice."""
        return _events(_numbers(self._session(), _span(part)), self._spec.seed)

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: the counts are exact."""

    def committed(self, position: Position) -> None:
        """Nothing is kept for this reader alone."""

    def explain(self, error: Exception) -> FrazilError | None:  # noqa: ARG002 - the protocol's signature
        """Nothing that Spark says here is the generator's fault."""
        return None

    def close(self) -> None:
        """Nothing is held open."""

    def check(self) -> None:
        """Nothing outside is needed."""


def _row(start: Position | None) -> int:
    return 0 if start is None else _Place.of(start).row


def _span(part: Slice) -> _Span:
    """Read from the positions alone, so that a slice means the same in every process."""
    end = _Place.of(part.end)
    begin_ms = end.from_ms if end.from_ms is not None or part.start is None else _Place.of(part.start).time_ms
    if begin_ms is None:
        raise unknown_position(part.end, "the generator")
    return _Span(_row(part.start), end.row, begin_ms, end.time_ms)


def _numbers(spark: SparkSession, span: _Span) -> DataFrame:
    """The numbers of the events, with the values that all of them share, as one row of ranges per task.

    What differs between slices is data here, not part of the expressions: Spark compiles every new expression, which would take
    as long as a small slice itself.
    """
    count = span.last - span.first
    chunks = 1 if count < ROWS_FOR_ONE_TASK else max(spark.sparkContext.defaultParallelism, -(-count // ROWS_OF_A_CHUNK))
    cuts = [span.first + count * number // chunks for number in range(chunks + 1)]
    common = f"{span.first}L, {count}L, {span.begin_ms * 1000}L, {(span.end_ms - span.begin_ms) * 1000}L"
    ranges = ", ".join(f"({low}L, {high - 1}L, {common})" for low, high in pairwise(cuts))
    names = "low, high, first, count, begin_us, length_us"
    return spark.sql(f"SELECT *, explode(sequence(low, high)) AS id FROM VALUES {ranges} AS ranges({names})")


def _events(numbers: DataFrame, seed: int) -> DataFrame:
    """The events with these numbers: first what several columns need, then the columns. Text, since Spark reads it in one go."""

    def chance(purpose: str, of: str, below: int) -> str:
        """A number from 0 to below a bound, always the same for the same ``of``."""
        return f"cast(pmod(xxhash64({seed}L, '{purpose}', {of}), {below}) AS int)"

    # Fifty sessions are open at a time; each has six events.
    session = "(id - id % 300 + id % 50)"
    no_tag = "cast(array() AS array<string>)"
    return numbers.selectExpr(
        "id",
        "timestamp_micros(begin_us + (id - first) * length_us div count) AS event_time",
        f"md5(concat('{seed}:', cast(id AS string))) AS digest",
        f"xxhash64({seed}L, 'session', {session}) AS session",
        f"cast(floor(pow({chance('user', session, 1_000_000)} / 1e6, 2) * 50000) AS bigint) + 1 AS user_id",
        f"{_choice(_WEIGHTS, chance('type', 'id', 100))} AS event_type",
        f"element_at({_catalogue()}, {chance('product', 'id', len(_PRODUCTS))} + 1) AS offer",
        f"element_at(array(1, 1, 1, 1, 2, 2, 3, 4), {chance('quantity', 'id', 8)} + 1) AS pieces",
    ).selectExpr(
        "concat_ws('-', left(digest, 8), substr(digest, 9, 4), substr(digest, 13, 4), substr(digest, 17, 4), right(digest, 12))"
        " AS event_id",
        "id AS event_number",
        "event_time",
        "event_type",
        "user_id",
        "concat('s-', lpad(lower(hex(session)), 16, '0')) AS session_id",
        f"{_choice(_COUNTRIES, chance('country', 'user_id', 100))} AS country",
        f"{_choice(_AGENTS, chance('agent', 'user_id', 100))} AS user_agent",
        "CASE WHEN event_type = 'search' THEN offer.category END AS search_term",
        "CASE WHEN event_type <> 'search' THEN offer END AS product",
        "CASE WHEN event_type IN ('add_to_cart', 'purchase', 'refund') THEN pieces END AS quantity",
        "cast(offer.price * pieces * CASE event_type WHEN 'purchase' THEN 1 WHEN 'refund' THEN -1 END AS decimal(12, 2))"
        " AS amount",
        f"concat(IF({chance('campaign', 'session', 8)} = 0, array('campaign'), {no_tag}),"
        f" IF(event_type <> 'search' AND offer.price >= 100, array('premium'), {no_tag}),"
        f" IF(event_type = 'purchase' AND pieces > 2, array('bulk'), {no_tag})) AS tags",
    )


def _choice(weights: dict[str, int], ticket: str) -> str:
    """One of the names, as often as its weight in a hundred says."""
    bounds = accumulate(weights.values())
    cases = " ".join(f"WHEN {ticket} < {bound} THEN '{name}'" for name, bound in zip(weights, bounds, strict=True))
    return f"CASE {cases} END"


def _catalogue() -> str:
    products = (
        f"named_struct('id', 'P-{number:04}', 'name', '{name}', 'category', '{category}',"
        f" 'price', cast({price} AS decimal(10, 2)))"
        for number, (name, category, price) in enumerate(_PRODUCTS, start=1)
    )
    return f"array({', '.join(products)})"
