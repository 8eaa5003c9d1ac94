from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from frazil.model.partition import PartitionField, Transform, transform_problem, whole_fields
from frazil.model.types import PRIMITIVES


@pytest.mark.parametrize(
    ("text", "printed", "name", "iceberg"),
    [
        ("region", "region", "region", "identity"),
        ("identity(region)", "region", "region", "identity"),
        ("day(ts)", "day(ts)", "ts_day", "day"),
        ("days(ts)", "day(ts)", "ts_day", "day"),
        ("HOURS( ts )", "hour(ts)", "ts_hour", "hour"),
        ("year(a.b)", "year(a.b)", "a_b_year", "year"),
        ("month(ts)", "month(ts)", "ts_month", "month"),
        ("bucket(16, id)", "bucket(16, id)", "id_bucket_16", "bucket[16]"),
        ("bucket(id, 16)", "bucket(16, id)", "id_bucket_16", "bucket[16]"),
        ("truncate(4,name)", "truncate(4, name)", "name_trunc_4", "truncate[4]"),
        ("void(x)", "void(x)", "x_void", "void"),
    ],
)
def test_text_forms(text: str, printed: str, name: str, iceberg: str) -> None:
    field = PartitionField.model_validate(text)
    assert (str(field), field.field_name, field.iceberg_transform) == (printed, name, iceberg)
    assert PartitionField.model_validate(str(field)) == field
    assert field.model_dump() == printed


@settings(deadline=None)
@given(
    source=st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}(\.[a-z]{1,4})?", fullmatch=True),
    transform=st.sampled_from(Transform),
    width=st.integers(1, 10**6),
    name=st.none() | st.from_regex(r"[a-z]{1,5}", fullmatch=True),
)
def test_a_field_survives_being_written(source: str, transform: Transform, width: int, name: str | None) -> None:
    sized = transform in (Transform.BUCKET, Transform.TRUNCATE)
    field = PartitionField(source=source, transform=transform, width=width if sized else None, name=name)
    assert PartitionField.model_validate(field.model_dump()) == field


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dya(ts)", "unknown transform 'dya'"),
        ("bucket(id)", "bucket needs a width"),
        ("day(4, ts)", "day takes no width"),
        ("bucket(16)", "cannot read 'bucket(16)'"),
        ("bucket(1, 2, id)", "cannot read"),
        ("bucket(16, a, b)", "cannot read"),
        ("day()", "cannot read"),
        ("day(ts", "cannot read 'day(ts'"),
        ("", "at least 1 character"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PartitionField.model_validate(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        (["day(ts)", "bucket(16", "id)", "region"], ["day(ts)", "bucket(16, id)", "region"]),
        ("day(ts), bucket(16, id)", ["day(ts)", "bucket(16, id)"]),
        (["bucket(16, id)", {"source": "a"}], ["bucket(16, id)", {"source": "a"}]),
        (["bucket(16"], ["bucket(16"]),
    ],
)
def test_calls_that_were_cut_at_their_commas_are_whole_again(written: object, fields: list[object]) -> None:
    assert [each.strip() if isinstance(each, str) else each for each in whole_fields(written)] == fields


DATES = ("date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
ACCEPTED = {
    "year(c)": DATES,
    "month(c)": DATES,
    "day(c)": DATES,
    "hour(c)": DATES[1:],
    "truncate(4, c)": ("int", "long", "decimal", "string", "binary"),
    "bucket(4, c)": ("int", "long", "decimal", *DATES, "time", "string", "uuid", "fixed", "binary"),
    "c": (*(kind for kind in PRIMITIVES if kind != "variant"), "decimal", "fixed"),
    "void(c)": (*(kind for kind in PRIMITIVES if kind != "variant"), "decimal", "fixed"),
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_which_types_a_transform_takes(text: str) -> None:
    field = PartitionField.model_validate(text)
    for kind in (*PRIMITIVES, "decimal", "fixed", "struct", "list", "map"):
        problem = transform_problem(field, kind)
        assert (problem is None) == (kind in ACCEPTED[text]), kind
        if problem is not None:
            assert f"{text} cannot be applied: column 'c' has type {kind}" in problem
