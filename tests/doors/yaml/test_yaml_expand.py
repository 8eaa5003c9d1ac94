from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yaml_cases import file_text, loaded, problem, problems, stands_at

from frazil.model.transform import AddField
from frazil.reading.expand import expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoneytwoz"),
        ("${A:-other}", "one"),
        ("${EMPTY:-other}", "other"),
        ("${MISSING:-other}", "other"),
        ("${MISSING:-}", ""),
        ("${MISSING:-a:-b}", "a:-b"),
        ("${MISSING:-$$5}", "$5"),
        ("${EMPTY}", ""),
        ("${A:?needed}", "one"),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("$$$${A}", "$${A}"),
        ("$$${A}", "$one"),
        ("$A costs 5$", "$A costs 5$"),
        ("${TRICK}", "${A} $$ {a: b}"),
    ],
)
def test_forms(text: str, expected: str) -> None:
    env = {"A": "one", "B": "two", "EMPTY": "", "TRICK": "${A} $$ {a: b}"}
    result = expand(text, env)
    assert (result.text, result.problems) == (expected, ())


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("${MISSING}", "unset-variable", "The variable MISSING is not set"),
        ("${MISSING:?ask the admin}", "unset-variable", "MISSING: ask the admin"),
        ("${EMPTY:?ask the admin}", "unset-variable", "EMPTY: ask the admin"),
        ("${MISSING:?}", "unset-variable", "MISSING: this variable is required"),
        ("${A", "bad-variable", "no closing brace"),
        ("${}", "bad-variable", "cannot be read"),
        ("${1A}", "bad-variable", "cannot be read"),
        ("${A-x}", "bad-variable", "cannot be read"),
        ("${A:-${B}}", "bad-variable", "cannot be read"),
    ],
)
def test_what_cannot_be_replaced(text: str, code: str, words: str) -> None:
    (found,) = expand(text, {"A": "one", "EMPTY": ""}).problems
    assert found.code == code
    assert words in found.message


def test_every_missing_variable_of_a_value_is_reported() -> None:
    assert len(expand("${X}-${Y}", {}).problems) == 2


NAMES = st.sampled_from(["A", "B_2", "_c"])
LITERALS = st.text(st.characters(exclude_characters="$"), max_size=8)


@settings(deadline=None)
@given(
    env=st.dictionaries(NAMES, st.text(max_size=20)),
    parts=st.lists(st.one_of(LITERALS.map(lambda t: ("literal", t)), st.just(("dollar", "")), NAMES.map(lambda n: ("name", n)))),
)
def test_one_pass_over_any_value(env: dict[str, str], parts: list[tuple[str, str]]) -> None:
    written = {"literal": lambda text: text, "dollar": lambda _: "$$", "name": lambda name: f"${{{name}:-d}}"}
    meant = {"literal": lambda text: text, "dollar": lambda _: "$", "name": lambda name: env.get(name) or "d"}
    text = "".join(written[kind](part) for kind, part in parts)
    result = expand(text, env)
    assert result.text == "".join(meant[kind](part) for kind, part in parts)
    assert result.problems == ()


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_expanded_or_explained(text: str) -> None:
    result = expand(text, {})
    assert "${" not in text or "$$" in text or result.problems or ":-" in text


@settings(deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_a_variable_is_one_value_whatever_it_holds(value: str) -> None:
    project = loaded(file_text("namespace: db\ntable: t\nid: ${NAME}\n"), {"NAME": value})
    assert project.pipelines[0].sink.id == value


def test_keys_are_not_expanded() -> None:
    assert problem(file_text('namespace: db\ntable: t\n"${KEY}": 5\n'), {"KEY": "batch_size"}).code == "unknown-key"


def test_the_option_decides_what_a_variable_is() -> None:
    text = file_text(
        """
        namespace: ${TEXT}
        table: "${TEXT}"
        batch_size: ${NUMBER}
        flush_interval_secs: "${NUMBER}"
        auto_create_table: ${BOOL}
        format_version: ${VERSION}
        compression: ${CODEC:-zstd}
        write_properties:
          plain: ${TEXT}
          quoted: "${TEXT}"
        s3:
          secret_access_key: ${DIGITS}
        """
    )
    env = {"TEXT": "0042", "NUMBER": "77", "BOOL": "false", "VERSION": "3", "DIGITS": "001234"}
    sink = loaded(text, env).pipelines[0].sink
    assert (sink.namespace, sink.table) == ("0042", "0042")
    assert (sink.batch_size, sink.flush_interval_secs) == (77, 77)
    assert (sink.auto_create_table, sink.format_version, sink.compression) == (False, 3, "zstd")
    assert sink.write_properties == {"plain": "0042", "quoted": "0042"}
    assert sink.s3 is not None
    assert sink.s3.secret_access_key is not None
    assert sink.s3.secret_access_key.get_secret_value() == "001234"


def test_a_variable_within_brackets_needs_quotes() -> None:
    found = problem(file_text("namespace: db\ntable: t\ns3: {region: ${REGION}}\n"), {"REGION": "x"})
    assert found.code == "bad-yaml"
    assert found.fix == 'Within brackets a variable needs quotes: {key: "${VAR}"}.'


def test_an_empty_variable_means_left_out() -> None:
    text = file_text(
        "namespace: db\ntable: t\nbatch_size: ${SIZE:-}\ns3: {session_token: '', region: }\n", entry="rate_limit: ${RATE}"
    )
    pipeline = loaded(text, {"RATE": ""}).pipelines[0]
    assert (pipeline.sink.batch_size, pipeline.rate_limit) == (10_000, None)
    assert pipeline.sink.s3 is not None
    assert pipeline.sink.s3.region is None
    assert pipeline.sink.s3.session_token is not None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("5", 5), ("5.5", 5.5), ("true", True), ("NO", "NO"), ("", None), ("[1]", "[1]"), ("0x10", 16), ("1_000", "1_000")],
)
def test_where_any_type_may_stand_yaml_decides(value: str, expected: object) -> None:
    plain = file_text(entry="transforms:\n  - type: add_field\n    field: a\n    value: ${V}\n")
    (transform,) = loaded(plain, {"V": value}).pipelines[0].transforms
    assert isinstance(transform, AddField)
    assert transform.value == expected
    assert type(transform.value) is type(expected)
    quoted = file_text(entry='transforms: [{type: add_field, field: a, value: "${V}"}]')
    (transform,) = loaded(quoted, {"V": value}).pipelines[0].transforms
    assert isinstance(transform, AddField)
    assert transform.value == value


def test_unset_variables_are_reported_with_their_places_and_hide_nothing_else() -> None:
    text = file_text("namespace: ${NS}\ntable: t\nbatch_size: ${SIZE}\ncompression: ${CODEC:?one of the codecs}\ntabel: x\n")
    found = problems(text)
    assert [each.code for each in found] == ["unset-variable"] * 3 + ["unknown-key"]
    assert [text.splitlines()[stands_at(each)[0] - 1].split(":")[0].strip() for each in found] == [
        "namespace", "batch_size", "compression", "tabel",
    ]  # fmt: skip


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    from frazil.doors.yaml import load_text

    monkeypatch.setenv("FRAZIL_TEST_TABLE", "from_process")
    project = load_text(file_text("namespace: db\ntable: ${FRAZIL_TEST_TABLE}\n"), "p.yaml")
    assert project.sinks["lake"].table == "from_process"
