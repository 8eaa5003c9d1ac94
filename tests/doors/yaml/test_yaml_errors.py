from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from yaml_cases import file_text, loaded, place_of, problem, problems, stands_at

from frazil.doors.yaml import ConfigErrors, load, load_text
from frazil.errors import ConfigError
from frazil.model.secrets import scrub

NAMED = "namespace: db\ntable: t\n"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist") as caught:
        load(tmp_path / "nothing.yaml")
    assert (caught.value.code, caught.value.exit_code) == ("config-not-found", 78)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load(tmp_path)
    assert caught.value.code == "config-unreadable"


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes("a: 1\nname: Å\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8 text: line 2"):
        load(file)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + file_text().encode())
    assert load(file, {}).pipelines


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "{}", "~"])
def test_an_empty_file(text: str) -> None:
    found = problem(text)
    assert (found.code, found.message) == ("empty-config", "The file is empty")
    assert "frazil init" in found.fix


@pytest.mark.parametrize(("text", "shown"), [("- a\n- b\n", "a list"), ("hello\n", "text"), ("5", "text")])
def test_a_file_without_sections(text: str, shown: str) -> None:
    found = problem(text)
    assert found.code == "wrong-type"
    assert f"and {shown} stands here" in found.message


@pytest.mark.parametrize(
    ("text", "place", "words", "fix"),
    [
        ("a: b: c\n", (1, 5), "mapping values are not allowed here", "needs quotes"),
        ("a:\n\t- b\n", (2, 1), "cannot start any token", "spaces, not with tabs"),
        ("a: 'x\n", (2, 1), "quoted scalar that begins on line 1", "Close the quotes"),
        ("a: [1, 2}\n", (1, 9), "expected ',' or ']'", "Close the bracket"),
        ("a: *x\n", (1, 4), "undefined alias 'x'", "&name"),
        ("a: 1\n b: 2\n", (2, 3), "mapping values are not allowed here", "indented"),
        ("a: 1\n---\nb: 2\n", (2, 1), "one YAML document", "split"),
        ("a: !python/object:os.system x\n", (1, 4), "The tag", "Remove the tag"),
        ("a: !!binary aGk=\n", (1, 4), "The tag", "Remove the tag"),
        ("a: !!set {b}\n", (1, 4), "The tag", "Remove the tag"),
        ("a: &a [*a]\n", (1, 4), "An alias stands within the value that it names", ""),
        ("a: &a\n  <<: *a\n", (1, 4), "An alias stands within the value that it names", ""),
        ("a: {<<: 5}\n", (1, 9), "`<<` takes a section", ""),
        ("? [a]\n: b\n", (1, 3), "A key must be a text", ""),
        ("a: \x07\n", (1, 4), "a character", ""),
        ("a: " + "[" * 80 + "]" * 80, None, "nested too deeply", ""),
    ],
)  # fmt: skip
def test_broken_yaml(text: str, place: tuple[int, int] | None, words: str, fix: str) -> None:
    found = problem(text)
    assert found.code == "bad-yaml"
    assert words in found.message
    assert fix in found.fix
    assert place is None or stands_at(found) == place


def test_a_file_that_grows_by_its_aliases() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
    )
    assert "more than 100,000 values" in problem(bomb).message
    merges = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9))
    assert "more than 100,000 values" in problem(merges).message


def test_a_key_written_twice() -> None:
    text = file_text("namespace: db\ntable: one\nbatch_size: 5\ntable: two\n")
    found = problem(text)
    assert found.code == "duplicate-key"
    assert f"first on line {place_of(text, 'table: one')[0]}" in found.message
    assert stands_at(found) == place_of(text, "table: two")


def test_an_unknown_key_has_its_place_its_line_and_the_nearest_key() -> None:
    text = file_text(NAMED + "flush_intervall_secs: 3\n")
    found = problem(text)
    assert (found.code, found.fix) == ("unknown-key", "Did you mean `flush_interval_secs`?")
    assert stands_at(found) == place_of(text, "flush_intervall_secs")
    assert found.location is not None
    assert found.location.text == "      flush_intervall_secs: 3"
    assert str(found).startswith(f"p.yaml:{stands_at(found)[0]}:7: Unknown key `flush_intervall_secs` in `config`")


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        (file_text(top="source: {}\n"), "source: {}", "sources"),
        (file_text(entry="enable: no\n"), "enable: no", "enabled"),
        (file_text(source="config: {row: 5}\n"), "row: 5", "rows"),
        (file_text(NAMED + "batchSize: 5\n"), "batchSize", "batch_size"),
        (file_text(NAMED + "batch-size: 5\n"), "batch-size", "batch_size"),
        (file_text(NAMED + "s3: {regoin: x}\n"), "regoin", "region"),
        (file_text(NAMED + "schema: [{name: a, type: int, requird: true}]\n"), "requird", "required"),
        (file_text(NAMED + "schema: {a: {type: int, requird: true}}\n"), "requird", "required"),
        (file_text(NAMED + "partition_by: [{source: a, transfrom: day}]\n"), "transfrom", "transform"),
        (file_text(NAMED, entry="transforms: [{type: rename_field, form: a, to: b}]\n"), "form: a", "from"),
        (file_text(NAMED, entry="transforms: [{type: filter, config: {feld: a, equals: 1}}]\n"), "feld", "field"),
        (file_text(top="settings: {spark: {mastr: x}}\n"), "mastr", "master"),
        (file_text(top="settings: {retry: {max_retrys: 1}}\n"), "max_retrys", "max_retries"),
    ],
)
def test_the_nearest_key_is_found_in_every_section(text: str, key: str, nearest: str) -> None:
    found = problem(text)
    assert (found.code, found.fix) == ("unknown-key", f"Did you mean `{nearest}`?")
    assert stands_at(found) == place_of(text, key)


def test_a_key_of_the_catalog_under_its_other_name() -> None:
    text = file_text(NAMED).replace("type: sql", "type: jdbc").replace("        sql:", "        jdbc:").replace("uri:", "url:")
    found = problem(text)
    assert (found.message, found.fix) == ("Unknown key `url` in `jdbc`", "Did you mean `uri`?")


def test_names_of_fields_in_python_are_no_keys_of_the_file() -> None:
    assert problem(file_text(NAMED + "columns: {a: int}\n")).code == "unknown-key"
    assert problem(file_text(entry="transforms: [{type: rename_field, from_: a, to: b}]\n")).code == "unknown-key"


def test_a_key_that_belongs_into_config() -> None:
    found = problem(file_text(NAMED, entry="batch_size: 5\n"))
    assert (found.code, found.fix) == ("unknown-key", "Put it under `config`.")
    found = problem(file_text(source="rows: 5\n"))
    assert (found.code, found.fix) == ("unknown-key", "Put it under `config`.")
    assert problem(file_text(source="config: {connector: generator}\n")).code == "unknown-key"


def test_a_key_like_no_other() -> None:
    found = problem(file_text(NAMED + "s3: {zzzzzz: 1}\n"))
    assert found.fix.startswith("Known keys: access_key_id, encryption_key, endpoint, ")


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        ("batch_size: 0", "out-of-range", "`batch_size` must be between 1 and 1,000,000, not `0`"),
        ("batch_size: 1000001", "out-of-range", "`batch_size` must be between 1 and 1,000,000, not `1000001`"),
        ("batch_size: ten", "wrong-type", "`batch_size` must be a whole number, not `ten`"),
        ("batch_size: 1.5", "wrong-type", "`batch_size` must be a whole number, not `1.5`"),
        ("batch_size: true", "wrong-type", "`batch_size` must be a whole number, not `true`"),
        ("batch_size: .inf", "wrong-type", "`batch_size` must be a finite number, not `inf`"),
        ("batch_size: [1]", "wrong-type", "`batch_size` must be a whole number, not a list"),
        ("batch_size: {a: 1}", "wrong-type", "`batch_size` must be a whole number, not a section"),
        ("flush_interval_secs: 3601", "out-of-range", "`flush_interval_secs` must be between 1 and 3,600, not `3601`"),
        ("target_file_size_mb: 2000", "out-of-range", "`target_file_size_mb` must be between 1 and 1,024, not `2000`"),
        ("num_buckets: 0", "out-of-range", "`num_buckets` must be at least 1, not `0`"),
        ("auto_create_table: maybe", "wrong-type", "`auto_create_table` must be true or false, not `maybe`"),
        ("partition_fields: sea", "wrong-type", "`partition_fields` must be a list, not `sea`"),
        ("partition_fields: [[a]]", "wrong-type", "item 1 of `partition_fields` must be text, not a list"),
        ("write_properties: [a]", "wrong-type", "`write_properties` must be a section with keys, not a list"),
        ("write_properties: {a: [b]}", "wrong-type", "`a` must be text, not a list"),
        ("s3: yes", "wrong-type", "`s3` must be a section with keys, not `yes`"),
        ("location: [a]", "wrong-type", "`location` must be text, not a list"),
        ("id: " + "x" * 256, "out-of-range", "`id` must not be longer than 255 characters"),
        ("format_version: 4", "unknown-value", "`format_version` cannot be `4`"),
        ("compression: snapy", "unknown-value", "`compression` cannot be `snapy`"),
        ("schema: {a: lnog}", "invalid-value", "`a`: unknown type 'lnog'; known: boolean, int, long"),
        ("schema: {a: 5}", "invalid-value", "`a`: "),
        ("schema: [{name: a}]", "missing-key", "`type` is required in item 1 of `schema`"),
        ("partition_by: [dya(ts)]", "invalid-value", "item 1 of `partition_by`: unknown transform 'dya'; known: identity"),
        ("partition_by: ['day(ts']", "invalid-value", "cannot read 'day(ts'"),
        ("partition_by: [bucket(id)]", "invalid-value", "bucket needs a width: bucket(16, id)"),
        ("partitioning: bucket", "invalid-value", "Partition fields are required for identity/bucket/time partitioning"),
        ("num_buckets: 4", "invalid-value", "num_buckets has no meaning with partitioning: none; it belongs to bucket"),
        ("commit_mode: upsert", "invalid-value", "upsert sinks must specify a key: add key_fields"),
        ("file_format: avro\ncompression: brotli", "invalid-value", "avro files cannot be compressed with brotli"),
    ],
)  # fmt: skip
def test_wrong_values_in_plain_words(config: str, code: str, message: str) -> None:
    found = problem(file_text(NAMED + config + "\n"))
    assert found.code == code
    assert message in found.message
    assert_plain(found)


def assert_plain(error: ConfigError) -> None:
    """Nothing of the machinery is in the message."""
    text = f"{error.message} {error.fix}"
    for word in ("Input should", "pydantic", "_type", "<class", "NoneType", "dict", "validation error", "Literal", "Enum"):
        assert word not in text, text


@pytest.mark.parametrize(
    ("catalog", "message", "place"),
    [
        ("type: rest", "REST catalog URI is required for REST catalog type", "catalog:"),
        ("type: rest\n  rest: {warehouse: w}", "REST catalog URI is required for REST catalog type", "rest: {"),
        ("type: rest\n  rest: {uri: 'localhost:8181'}", "Invalid REST catalog URI: localhost:8181", "uri:"),
        ("type: rest\n  rest: {uri: 'http://[bad'}", "Invalid REST catalog URI: http://[bad", "uri:"),
        ("type: hive", "Hive metastore URI is required for Hive catalog type", "catalog:"),
        ("type: glue", "AWS region is required for Glue catalog type", "catalog:"),
        ("type: hadoop", "Warehouse is required for Hadoop catalog type", "catalog:"),
        ("type: sql\n  warehouse: w", "SQL catalog URI is required for SQL catalog type", "catalog:"),
        ("type: jdbc\n  jdbc: {uri: 'oracle://x', warehouse: w}", "Invalid SQL catalog URI: it must start with sqlite:", "uri:"),
        ("type: sql\n  sql: {uri: 'sqlite:///x'}", "Warehouse is required for SQL catalog type", "sql: {"),
        ("type: memory\n  glue: {region: r}", "the section glue has no meaning in a catalog of type memory", "glue:"),
        ("type: rst", "`type` cannot be `rst`", "rst"),
        ("type: memory\n  name: 9lives", "`name` must be made of letters, digits, underscores and hyphens", "9lives"),
    ],
)  # fmt: skip
def test_catalogs(catalog: str, message: str, place: str) -> None:
    written = indent(f"catalog:\n  {catalog}\n", "      ")
    text = f"sinks:\n  lake:\n    connector: iceberg\n    config:\n{written}"
    found = problem(text)
    assert message in found.message
    assert stands_at(found) == place_of(text, place)
    assert_plain(found)


def test_an_unknown_catalog_names_the_nearest_and_all() -> None:
    found = problem(file_text(NAMED).replace("type: sql", "type: hiev"))
    assert found.fix.startswith(
        "Did you mean `hive`? Known values: rest, sql, hive, glue, s3tables, nessie, bigquery, hadoop, memory"
    )


def test_a_missing_catalog_or_connector() -> None:
    assert problem("sinks:\n  lake:\n    connector: iceberg\n").message == "`catalog` is required in `config`"
    found = problem("sinks:\n  lake: {config: {catalog: {type: memory}}}\n")
    assert found.message == "`connector` is required in `lake`"
    assert stands_at(found) == (2, 3)
    found = problem("sinks:\n  lake: {connector: icebreg, config: {}}\n")
    assert found.fix == "Did you mean `iceberg`? Known values: iceberg."


def test_names_that_cannot_be() -> None:
    found = problem(file_text(NAMED).replace("lake:", '"la ke":'))
    assert "`la ke` must be made of letters, digits" in found.message
    assert stands_at(found)[1] == 3


def test_everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_lines() -> None:
    text = file_text(
        "tabel: x\nbatch_size: 0\ncompression: ${NOPE}\n", source="config: {rows: -1}\n", top="settings: {log_level: loud}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        load_text(text, "p.yaml", {})
    error = caught.value
    assert [each.code for each in error.errors] == [
        "out-of-range", "unknown-key", "out-of-range", "unset-variable", "unknown-value",
    ]  # fmt: skip
    lines = [stands_at(each)[0] for each in error.errors]
    assert lines == sorted(lines)
    assert error.code == "several-problems"
    assert error.message == "5 problems in the configuration"
    assert all(str(each) in str(error) for each in error.errors)


def test_one_problem_is_itself() -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_text(file_text("namespace: db\ntable: t\nbatch_size: 0\n"), "p.yaml", {})
    assert caught.value.code == "out-of-range"
    assert str(caught.value) == str(caught.value.errors[0])


def test_a_misspelt_required_key_is_reported_once() -> None:
    assert problem(file_text(entry="transforms: [{type: remove_field, feild: a}]\n")).fix == "Did you mean `field`?"
    assert problem(file_text(entry="transforms: [{type: remove_field, config: {feild: a}}]\n")).fix == "Did you mean `field`?"


def test_a_value_of_any_type_is_no_list() -> None:
    found = problem(file_text(entry="transforms: [{type: filter, field: a, equals: [1]}]\n"))
    assert found.message == "`equals` must be text, a number or true or false, not a list"


def test_transforms() -> None:
    found = problems(file_text(entry="transforms: [{type: renam_field}, {field: a}, drop, {type: [1]}]\n"))
    assert [(each.code, each.message) for each in found] == [
        ("unknown-value", "`type` cannot be `renam_field`"),
        ("missing-key", "`type` is required in item 2 of `transforms`"),
        ("wrong-type", "item 3 of `transforms` must be a section with keys, not `drop`"),
        ("wrong-type", "`type` must be text, not a list"),
    ]
    assert found[0].fix.startswith("Did you mean `rename_field`?")


@pytest.mark.parametrize("value", ["{burst: 5}", "{events_per_second: 5, burst: 3}", "fast", "-1"])
def test_rate_limits(value: str) -> None:
    assert_plain(problem(file_text(entry=f"rate_limit: {value}\n")))


class TestSecrets:
    SECRET = "hunter2-is-secret"

    @pytest.mark.parametrize(
        "text",
        [
            file_text(NAMED + "s3: {secret_access_key: hunter2-is-secret, regoin: x}\n"),
            file_text(NAMED + "s3:\n  acces_key: hunter2-is-secret\n"),
            file_text(NAMED + "s3:\n  secret_access_key: [hunter2-is-secret]\n"),
            file_text(NAMED + "s3:\n  secret_access_key: {a: hunter2-is-secret}\n"),
            file_text(source="config: {pasword: hunter2-is-secret}\n"),
            file_text(source="config: {pw: hunter2-is-secret}\n"),
            file_text(NAMED).replace("type: sql", "type: sql\n        password: hunter2-is-secret"),
            file_text(NAMED).replace("sqlite:///lake/catalog.db", "oracle://me:hunter2-is-secret@host/db"),
            'sinks: {a: {password: "hunter2-is-secret\n',
            "sinks: {a: {token: hunter2-is-secret, x: [}}\n",
            "s: {password: hunter2-is-secret, x: !foo y}\n",
            "s: {token: hunter2-is-secret, x: 1, x: 2}\n",
            "s: {token: '${NOPE:-hunter2-is-secret}', x: 1}\n",
        ],
    )
    def test_a_written_secret_is_shown_nowhere(self, text: str) -> None:
        for found in problems(text):
            assert found.location is not None
            assert self.SECRET not in f"{found} {found.location.text} {found!r}"

    def test_the_name_of_a_variable_is_no_secret(self) -> None:
        found = problem(file_text(NAMED + "s3: {secret_access_key: '${KEY}', regoin: x}\n"), {"KEY": self.SECRET})
        assert found.location is not None
        assert "${KEY}" in found.location.text

    def test_a_secret_from_a_variable_is_scrubbed_from_now_on(self) -> None:
        text = file_text(NAMED + "s3: {secret_access_key: '${KEY}'}\nwrite_properties: {note: '${DB_PASSWORD}'}\n")
        loaded(text, {"KEY": "from-the-environment", "DB_PASSWORD": "known-by-its-name"})
        assert scrub("x from-the-environment y known-by-its-name z") == "x ********** y ********** z"

    def test_a_secret_in_a_message_is_scrubbed_though_the_file_is_wrong(self) -> None:
        text = file_text(NAMED + "compression: ${API_TOKEN}\n")
        found = problem(text, {"API_TOKEN": "token-as-codec"})
        assert "token-as-codec" not in str(found)

    def test_text_that_would_steer_a_terminal_is_shown_harmless(self) -> None:
        found = problem(file_text(NAMED + '"ta\\e[31mbel": 1\n'))
        assert "\x1b" not in str(found)


TEXT_KEYS = "key_format: string\nkey_prefix: message_\n"
RENAMED = "transforms: [{type: rename_field, from: at, to: since}, {type: remove_field, field: x}]"
MADE_OF_BOTH = "transforms: [{type: add_field, field: at, expression: 'coalesce(at, kafka_offset)'}]"


def keyed(order: str, source: str = TEXT_KEYS, sink: str = "", entry: str = "") -> str:
    """A topic with keys, into a table whose rows have this order."""
    options = f"commit_mode: upsert\nkey_fields: [id]\norder_by: {order}\n{sink}"
    given = indent(f"bootstrap_servers: 'kafka:9092'\ntopics: [t]\n{source}", "  ")
    return file_text(NAMED + options, entry, source=f"config:\n{given}").replace("connector: generator", "connector: kafka")


@pytest.mark.parametrize(
    ("order", "source", "sink", "entry"),
    [
        ("[at]", "", "", ""),
        ("[at, kafka_offset]", "metadata: [offset]\n", "", ""),
        ("[since.seconds]", "", "", RENAMED),
        ("[at]", "tombstones: delete\n", "late: ignore\n", ""),
        ("[at]", "", "history: scd2\n", ""),
        ("[kafka_time]", "metadata: [timestamp]\n", "", ""),
    ],
)
def test_an_order_by_what_messages_without_a_value_do_not_have(order: str, source: str, sink: str, entry: str) -> None:
    text = keyed(order, TEXT_KEYS + source, sink, entry)
    found = problem(text)
    assert (found.code, "a column of the rows, which a delete does not have" in found.message) == ("invalid-value", True)
    assert "name what each message has, as `[kafka_timestamp, kafka_offset]`" in found.message
    assert stands_at(found) == place_of(text, "order_by")


@pytest.mark.parametrize(
    ("order", "source", "entry"),
    [
        ("[kafka_timestamp, at]", TEXT_KEYS + "metadata: [timestamp]\n", ""),
        ("[message_value]", TEXT_KEYS, ""),
        ("[at]", TEXT_KEYS + "tombstones: ignore\n", ""),
        ("[at]", "key_format: {type: json, schema: {at: long}}\n", ""),
        ("[at]", "key_format: json\n", ""),
        ("[at]", "", ""),
        ("[at]", TEXT_KEYS + "metadata: [offset]\n", MADE_OF_BOTH),
    ],
)
def test_an_order_that_messages_without_a_value_may_have(order: str, source: str, entry: str) -> None:
    assert loaded(keyed(order, source, entry=entry)).pipelines
