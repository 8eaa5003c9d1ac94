"""What is wrong in a Bizon file is reported at its place in that file, with the nearest name."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.doors.bizon import is_bizon, load_text
from frazil.errors import ConfigErrors
from tiers import examples

GOOD = """\
name: p
source:
  name: kafka
  bootstrap_servers: kafka:9092
  message_encoding: utf-8
  topics:
    - {name: a, destination_id: users}
destination:
  name: bigquery_iceberg
  config:
    project_id: proj
    dataset_id: set
    gcs_warehouse_bucket: bucket
    catalog_config:
      default: {type: rest, uri: "http://catalog:8181"}
    time_partitioning:
      - {field: created_at, type: DAY}
    destination_table_config:
      - destination_id: users
        clustering_keys: [uid]
        upsert: {enabled: true, join_cols: [uid]}
        iceberg_schema:
          user_id: {target_field: uid, iceberg_type: long}
          created_at: {target_field: made, iceberg_type: timestamp}
"""

TOPICS_AND_CONFIG = GOOD[GOOD.index("  topics:") : GOOD.index("    project_id")]

# What is changed into what, where it is reported, and what is said.
CASES = {
    "a key of the destination": ("    dataset_id: set", "    datset_id: set", "12:5", "Did you mean `dataset_id`?"),
    "a key of the source": ("  message_encoding", "  message_encodng", "5:3", "Did you mean `message_encoding`?"),
    "another destination": ("name: bigquery_iceberg", "name: bigquery_icebreg", "9:9", "Did you mean `bigquery_iceberg`?"),
    "another source": ("name: kafka", "name: kafkaa", "3:9", "Did you mean `kafka`?"),
    "a type of a column": ("iceberg_type: long", "iceberg_type: lng", "23:54", "unknown type 'lng'"),
    "a width of partitions": ("type: DAY", "type: DAYS", "17:35", "Did you mean `DAY`?"),
    "a partition by the new name": ("field: created_at", "field: made", "17:17", "Did you mean `created_at`?"),
    "a partition by no time": ("field: created_at", "field: user_id", "17:17", "which cannot be applied"),
    "a key that is no column": ("join_cols: [uid]", "join_cols: [uuid]", "21:45", "Did you mean `uid`?"),
    "a dot in the name of a table": ("destination_id: users}", "destination_id: set.users}", "7:33", "project.dataset.table"),
    "a type of catalog": ("type: rest", "type: rset", "15:23", "Did you mean `rest`?"),
    "a key of the catalog": ("uri: ", "urii: ", "15:29", "Did you mean `uri`?"),
    "the login of a catalog in a database": (
        'type: rest, uri: "http://catalog:8181"',
        "type: sql, uri: 'postgresql://h/d', rest.credential: a",
        "15:53",
        "`rest.credential` belongs to a catalog of type rest, and this one is of type sql\nThe login of a sql catalog stands in",
    ),
    "a password of one": (
        'type: rest, uri: "http://catalog:8181"',
        "type: sql, uri: 'postgresql://h/d', password: a",
        "15:53",
        "Unknown key `password` in `default`\nThe login of a sql catalog stands in its uri",
    ),
    "a property of another type": (
        "type: rest,",
        "type: rest, jdbc.schema-version: V1,",
        "15:29",
        "`jdbc.schema-version` belongs to a catalog of type sql",
    ),
    "a catalog without an address": (', uri: "http://catalog:8181"', "", "15:7", "REST catalog URI is required"),
    "an address of nothing": ("http://catalog", "catalog", "15:34", "Invalid REST catalog URI"),
    "a database that is none of the catalogs'": (
        'type: rest, uri: "http://catalog:8181"',
        "type: sql, uri: 'oracle://h/d'",
        "15:33",
        "Invalid SQL catalog URI",
    ),
    "a catalog in a database under a name that Spark has not": (
        'default: {type: rest, uri: "http://catalog:8181"',
        "prod.eu: {type: sql, uri: 'postgresql://h/d'",
        "15:7",
        "`prod.eu` is no name that Spark takes",
    ),
    "a mechanism that nobody knows": (
        "  topics:",
        "  consumer_config: {sasl.mechanism: scram}\n  topics:",
        "6:37",
        "Known values: PLAIN, SCRAM-SHA-256",
    ),
    "what must be there": ("    gcs_warehouse_bucket: bucket\n", "", "10:3", "`gcs_warehouse_bucket` is required in `config`"),
    "a key beside config": ("  config:\n", "  table_format: orc\n  config:\n", "10:3", "Put it under `config`."),
    "no name": ("name: p\n", "", "1:1", "`name` is required"),
    "a mode that would double rows": ("  bootstrap", "  sync_mode: full_refresh\n  bootstrap", "4:3", "write incremental"),
    "checkpoints": ("  bootstrap", "  force_ignore_checkpoint: true\n  bootstrap", "4:3", "`frazil reset` lets it begin anew"),
    "a setting of the client": ("  topics:", "  consumer_config: {fetch.max.byte: 1}\n  topics:", "6:21", "`fetch.max.bytes`?"),
    "avro without a registry": ("utf-8", "avro", "5:3", "schema_registry_url"),
    "Python": ("destination:\n", "transforms:\n  - {label: x, python: 'data = 1'}\ndestination:\n", "9:16", "add_field"),
    "a number out of range": ("    dataset_id", "    target_file_size_mb: 5000\n    dataset_id", "12:26", "between 1 and 1,024"),
    "a long wait": ("    dataset_id", "    buffer_flush_timeout: 4000\n    dataset_id", "12:27", "between 0 and 3,600"),
    "a variable that is not set": (
        "bootstrap_servers: kafka:9092",
        "bootstrap_servers: env://SERVERS",
        "4:22",
        "SERVERS is not set",
    ),
    "a value in a vault": (
        "kafka:9092",
        "gsm://servers",
        "4:22",
        "Secret Manager is not asked for values\nBring it into the env",
    ),
    "a bucket with a scheme": (
        "gcs_warehouse_bucket: bucket",
        "gcs_warehouse_bucket: gs://bucket/lake/ice/",
        "13:27",
        "without gs:// and without a folder: write bucket, and gcs_warehouse_path: lake/ice",
    ),
    "offsets that the client commits": (
        "  topics:",
        "  consumer_config: {enable.auto.commit: True}\n  topics:",
        "6:21",
        "offsets are kept in the table, in the same commit as the rows",
    ),
    "a user without a password": (
        "  topics:",
        "  authentication: {params: {username: u}}\n  topics:",
        "6:29",
        "`username` is half a login: `password` is missing, or empty\nAdd `password`.",
    ),
    "a password without a user": (
        "  topics:",
        "  consumer_config: {security.protocol: sasl_ssl, sasl.password: hunter2-hunter2}\n  topics:",
        "6:50",
        "`password` is half a login",
    ),
    "a user of the registry without a password": (
        "utf-8\n",
        "avro\n  authentication: {schema_registry_url: 'http://r', schema_registry_username: u, schema_registry_password: ''}\n",
        "6:53",
        "`schema_registry_username` is half a login",
    ),
    "a limit of letters that nobody keeps": (
        "    dataset_id",
        "    max_dead_letters: 3\n    dataset_id",
        "12:5",
        "max_dead_letters has no meaning with on_error: stop",
    ),
    "letters that are wanted and not wanted": (
        TOPICS_AND_CONFIG,
        f"  skip_message_on_decode_error: true\n{TOPICS_AND_CONFIG}    on_error: stop\n",
        "12:5",
        "on_error: stop contradicts skip_message_on_decode_error: true",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_reported_where_it_stands(case: str) -> None:
    before, after, place, words = CASES[case]
    assert before in GOOD
    with pytest.raises(ConfigErrors) as caught:
        load_text(GOOD.replace(before, after, 1), "theirs.yaml", {})
    message = "\n".join(str(error) for error in caught.value.errors)
    assert f"theirs.yaml:{place}: " in message, message
    assert words.replace("which cannot be applied", "cannot be applied") in message, message


AT_ONE_PLACE = ("a catalog", "an address", "a database", "a dot", "a limit")
ONE_PLACE = [name for name in CASES if name.startswith(AT_ONE_PLACE)]


@pytest.mark.parametrize("case", ONE_PLACE)
def test_a_mistake_that_concerns_several_tables_is_reported_once(case: str) -> None:
    before, after, place, _ = CASES[case]
    more = """\
      - {destination_id: more, iceberg_schema: [{name: created_at, type: timestamp}]}
"""
    text = (GOOD + more).replace("  topics:\n", "  topics:\n    - {name: b, destination_id: more}\n")
    with pytest.raises(ConfigErrors) as caught:
        load_text(text.replace(before, after, 1), "theirs.yaml", {})
    line, _, column = place.partition(":")
    assert [str(error.location) for error in caught.value.errors] == [f"theirs.yaml:{int(line) + 1}:{column}"]


def test_half_a_login_is_reported_once_whatever_the_protocol() -> None:
    before, after, *_ = CASES["a password without a user"]
    with pytest.raises(ConfigErrors) as caught:
        load_text(GOOD.replace(before, after, 1), "theirs.yaml", {})
    assert [str(error.location) for error in caught.value.errors] == ["theirs.yaml:6:50"]


def test_the_file_itself_is_right() -> None:
    assert [pipeline.name for pipeline in load_text(GOOD, "theirs.yaml", {}).pipelines] == ["users"]


def test_several_mistakes_are_reported_at_once() -> None:
    wrong = GOOD.replace("dataset_id", "datset_id").replace("join_cols: [uid]", "join_cols: [uid], enabld: true")
    with pytest.raises(ConfigErrors) as caught:
        load_text(wrong, "theirs.yaml", {})
    assert [str(error.location) for error in caught.value.errors] == ["theirs.yaml:12:5", "theirs.yaml:21:51"]


def test_a_mistake_of_the_second_document_has_its_own_line() -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_text(f"{GOOD}---\nbigquery_iceberg:\n  table_format: orcc\n", "theirs.yaml", {})
    assert str(caught.value.location) == f"theirs.yaml:{GOOD.count(chr(10)) + 3}:17"


def test_two_documents_agree_about_the_run() -> None:
    other = GOOD.replace("name: p", "name: q")
    with pytest.raises(ConfigErrors) as caught:
        load_text(f"{GOOD}settings: {{parallel: 1}}\n---\n{other}settings: {{parallel: 2}}\n", "theirs.yaml", {})
    assert "Another document of this file has other values of `settings`" in str(caught.value)
    with pytest.raises(ConfigErrors) as caught:
        load_text(f"{GOOD}---\n{GOOD}", "theirs.yaml", {})
    assert caught.value.code == "shared-sink-id"


def test_a_password_is_never_shown() -> None:
    secret = "hunter2-hunter2"
    wrong = GOOD.replace("  topics:", f"  authentication: {{params: {{username: u, password: {secret}, pasword: x}}}}\n  topics:")
    with pytest.raises(ConfigErrors) as caught:
        load_text(wrong, "theirs.yaml", {})
    shown = str(caught.value) + "".join(error.location.text for error in caught.value.errors if error.location)
    assert secret not in shown


@pytest.mark.parametrize(
    ("text", "bizon"),
    [
        ("bigquery_iceberg: {}", True),
        ("source: {}\ndestination: {}", True),
        ("# note\n'destination':\n  name: x", True),
        ("sources: {}\nsinks: {}", False),
        ("sources: {}\ndestination: x", False),
        ("  destination: nested", False),
        ("", False),
    ],
)
def test_a_file_is_known_by_its_top_keys(text: str, bizon: bool) -> None:
    assert is_bizon(text) is bizon


LINES = GOOD.splitlines(keepends=True)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_whatever_stands_there_is_loaded_or_explained(data: st.DataObject) -> None:
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "twice", "value", "text"])):
            case "drop":
                del lines[number]
            case "twice":
                lines.insert(number, lines[number])
            case "value":
                key, colon, _ = lines[number].partition(": ")
                other = data.draw(st.sampled_from(["null", "[]", "{}", "-1", "yes", "[{}]", "{a: {b: 1}}", "''", "1e400"]))
                lines[number] = f"{key}{colon}{other}\n" if colon else lines[number]
            case _:
                lines[number] = data.draw(st.text(alphabet="ab:{}[]- \n'\"&*!#$", max_size=12)) + "\n"
        if not lines:
            return
    with suppress(ConfigErrors):  # anything else is a fault of the reading
        load_text("".join(lines), "theirs.yaml", {})
