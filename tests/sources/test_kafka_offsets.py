"""Places in Kafka's topics: how they are shared out, kept, followed and moved. No cluster is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from frazil.errors import ConfigError, Halted
from frazil.model.source import KafkaSource
from frazil.sources.kafka.follow import Cluster, followed, require_topics_there
from frazil.sources.kafka.offsets import KafkaPlace, Range, advanced, ranges, shared_out
from frazil.sources.kafka.rewind import to_latest, to_nearest, to_offsets, to_time, with_others
from frazil.sources.kafka.settings import client_settings
from frazil.sources.kafka.source import time_ms
from frazil.sources.kafka.topics import matches
from frazil.spark.kafka import TopicInfo

TWO = Cluster(
    "c1",
    {"a": TopicInfo("id-a", 2), "b": TopicInfo("id-b", 1)},
    earliest={("a", 0): 0, ("a", 1): 5, ("b", 0): 0},
    latest={("a", 0): 10, ("a", 1): 20, ("b", 0): 0},
)
READ = TWO.place({("a", 0): 4, ("a", 1): 9, ("b", 0): 0})


@given(st.dictionaries(st.tuples(st.just("t"), st.integers(0, 30)), st.integers(0, 10**9)), st.integers(1, 10**6))
def test_shares_never_pass_the_limit_and_always_go_on(waiting: dict[tuple[str, int], int], limit: int) -> None:
    shares = shared_out(waiting, limit)
    assert shares.keys() == waiting.keys()
    assert all(0 <= shares[one] <= waiting[one] for one in waiting)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))


def test_where_more_waits_more_is_taken() -> None:
    assert shared_out({("t", 0): 900, ("t", 1): 90, ("t", 2): 10}, 100) == {("t", 0): 90, ("t", 1): 9, ("t", 2): 1}


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 1000), st.integers(0, 100))), st.integers(1, 500))
def test_all_is_read_once_in_slices_of_any_size(partitions: dict[int, tuple[int, int]], limit: int) -> None:
    start = {("t", number): first for number, (first, _) in partitions.items()}
    latest = {("t", number): first + count for number, (first, count) in partitions.items()}
    place, more, seen = KafkaPlace("c", {"t": "i"}, start), True, dict(start)
    while more:
        end, count, more = advanced(place, latest, limit)
        parts = ranges(place, KafkaPlace.from_position(end.to_position()))
        assert sum(part.end - part.start for part in parts) == count <= limit
        for part in parts:
            assert seen[part.topic, part.partition] == part.start
            seen[part.topic, part.partition] = part.end
        place = end
    assert seen == latest


def test_a_position_comes_back_as_it_was_and_is_canonical() -> None:
    place = replace(READ, began={("b", 0): 0})
    assert KafkaPlace.from_position(place.to_position()) == place
    assert place.to_position() == (
        '{"cluster":"c1","topics":{"a":{"id":"id-a","offsets":{"0":4,"1":9}},"b":{"began":{"0":0},"id":"id-b","offsets":{"0":0}}}}'
    )


@pytest.mark.parametrize("text", ['{"snapshot":1}', '{"cluster":"c","topics":{"a":{"offsets":{"0":1}}}}', "[1]"])
def test_a_position_of_another_source_halts(text: str) -> None:
    with pytest.raises(Halted) as caught:
        KafkaPlace.from_position(text)
    assert caught.value.code == "position-unknown"


def test_the_first_slice_can_be_read_again_from_its_end_alone() -> None:
    begin = followed(TWO.place(dict(TWO.earliest)), TWO)
    end, _, _ = advanced(replace(begin, began=begin.offsets), TWO.latest, 100)
    again = KafkaPlace.from_position(end.to_position())
    assert ranges(None, again) == (Range("a", 0, 0, 10), Range("a", 1, 5, 20))


def test_new_partitions_and_topics_begin_at_their_first_message_and_their_slice_can_be_read_again() -> None:
    topics = {"a": TopicInfo("id-a", 3), "b": TopicInfo("id-b", 1), "new": TopicInfo("id-n", 1)}
    grown = Cluster("c1", topics, {**TWO.earliest, ("a", 2): 0, ("new", 0): 7}, {**TWO.latest, ("a", 2): 3, ("new", 0): 9})
    place = followed(READ, grown)
    assert place.began == {("a", 2): 0, ("new", 0): 7}
    end, _, _ = advanced(place, grown.latest, 1000)
    again = ranges(READ, KafkaPlace.from_position(end.to_position()))
    assert again == (Range("a", 0, 4, 10), Range("a", 1, 9, 20), Range("a", 2, 0, 3), Range("new", 0, 7, 9))
    after = followed(KafkaPlace.from_position(end.to_position()), grown)
    assert not after.began


def test_a_topic_that_is_no_longer_asked_for_keeps_its_place() -> None:
    only_b = Cluster("c1", {"b": TWO.topics["b"]}, {("b", 0): 0}, {("b", 0): 6})
    end, count, _ = advanced(followed(READ, only_b), only_b.latest, 100)
    assert count == 6
    assert ranges(READ, end) == (Range("b", 0, 0, 6),)
    back = followed(KafkaPlace.from_position(end.to_position()), TWO_AFTER)
    assert (back.offsets["a", 0], back.began) == (4, {})


TWO_AFTER = replace(TWO, latest={**TWO.latest, ("b", 0): 6})


def halted(place: KafkaPlace, cluster: Cluster) -> Halted:
    with pytest.raises(Halted) as caught:
        followed(place, cluster)
    assert "frazil rewind" in caught.value.fix
    return caught.value


def test_another_cluster_stops() -> None:
    error = halted(READ, replace(TWO, id="c2"))
    assert error.code == "kafka-cluster-changed"
    assert "c1" in error.message
    assert "c2" in error.message


def test_a_topic_made_again_stops_even_when_it_has_as_many_messages() -> None:
    error = halted(READ, replace(TWO, topics={**TWO.topics, "a": TopicInfo("id-other", 2)}))
    assert error.code == "kafka-topic-recreated"
    assert "a-0 up to 4" in error.message
    assert "a was id-a and is id-other" in error.message


def test_deleted_messages_stop_and_are_counted() -> None:
    error = halted(READ, replace(TWO, earliest={**TWO.earliest, ("a", 0): 6, ("a", 1): 10}))
    assert error.code == "kafka-messages-expired"
    assert "Up to 3 messages" in error.message
    assert "a-0 begins at 6, and was read up to 4" in error.message


def test_a_shorter_partition_stops() -> None:
    error = halted(READ, replace(TWO, latest={**TWO.latest, ("a", 1): 8}))
    assert error.code == "kafka-messages-taken-back"
    assert "a-1 ends at 8, and was read up to 9" in error.message


def test_fewer_partitions_stop() -> None:
    error = halted(READ, replace(TWO, topics={**TWO.topics, "a": TopicInfo("id-a", 1)}))
    assert error.code == "kafka-partitions-fewer"
    assert "had 2 partitions and has 1" in error.message


def test_a_topic_that_is_gone_stops() -> None:
    left = Cluster("c1", {"b": TWO.topics["b"]}, {("b", 0): 0}, {("b", 0): 0})
    with pytest.raises(Halted, match="a-0 up to 4, a-1 up to 9") as caught:
        require_topics_there(READ, frozenset("ab"), left)
    assert caught.value.code == "kafka-topic-gone"
    assert "frazil rewind" in caught.value.fix
    require_topics_there(READ, frozenset("b"), left)


def test_rewound_to_now_and_to_a_time() -> None:
    assert to_latest(TWO).offsets == TWO.latest
    at_noon = to_time(TWO, {("a", 0): 7, ("a", 1): None, ("b", 0): None})
    assert at_noon.offsets == {("a", 0): 7, ("a", 1): 20, ("b", 0): 0}
    assert at_noon.ids == {"a": "id-a", "b": "id-b"}


def test_rewound_to_the_nearest_place_skips_and_repeats_no_more_than_it_must() -> None:
    gone = {"gone": "id-g"}
    place = KafkaPlace(
        "c1", {"a": "id-a", "b": "id-old", **gone}, {("a", 0): 4, ("a", 1): 2, ("a", 5): 3, ("b", 0): 9, ("gone", 0): 1}
    )
    nearest = to_nearest(place, replace(TWO, latest={**TWO.latest, ("a", 0): 3, ("b", 0): 30}))
    assert nearest.offsets == {("a", 0): 3, ("a", 1): 5, ("b", 0): 0}
    assert followed(nearest, replace(TWO, latest={**TWO.latest, ("a", 0): 3})) == nearest
    assert to_nearest(None, TWO).offsets == TWO.earliest
    with pytest.raises(Halted, match="c1"):
        to_nearest(place, replace(TWO, id="c2"))


def test_topics_that_are_not_asked_for_stay_where_they_were() -> None:
    before = KafkaPlace("c1", {"a": "id-a", "left": "id-l", "gone": "id-g"}, {("a", 0): 4, ("left", 0): 7, ("gone", 0): 1})
    kept = with_others(to_latest(TWO), before, lambda topic: topic != "left")
    assert kept.offsets == {**TWO.latest, ("left", 0): 7}
    assert kept.ids == {"a": "id-a", "b": "id-b", "left": "id-l"}
    assert with_others(to_latest(TWO), replace(before, cluster="c2"), lambda topic: topic != "left") == to_latest(TWO)


def test_rewound_to_offsets_that_a_user_names() -> None:
    assert to_offsets(READ, TWO, {"a": {1: 17}}).offsets == {("a", 0): 4, ("a", 1): 17, ("b", 0): 0}
    with pytest.raises(ConfigError, match="the offsets 5 to 20, and 4 is given"):
        to_offsets(READ, TWO, {"a": {1: 4}})
    with pytest.raises(ConfigError, match="2 partitions"):
        to_offsets(READ, TWO, {"a": {2: 4}})
    with pytest.raises(ConfigError, match="no such topic"):
        to_offsets(READ, TWO, {"c": {0: 4}})


@pytest.mark.parametrize(
    ("topic", "wanted", "yes"),
    [
        ("orders", "orders", True),
        ("orders", "Orders", False),
        ("orders.eu", "orders.*", True),
        ("orders", "orders.*", False),
        ("orders-12", r"/orders-\d+/", True),
        ("orders-12-old", r"/orders-\d+/", False),
    ],
)
def test_topics_by_name_and_by_pattern(topic: str, wanted: str, yes: bool) -> None:
    assert matches(topic, [wanted]) is yes


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert time_ms("2026-01-31T12:00:00") == time_ms("2026-01-31T12:00:00Z") == time_ms("2026-01-31T13:00:00+01:00")


def spec(**given: object) -> KafkaSource:
    return KafkaSource.model_validate({"bootstrap_servers": "h:1", "topics": ["t"], **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topics": ["a b"]}, "no name of a topic"),
        ({"topics": ["/a(/"]}, "no regular expression"),
        ({"start_offset": "explicit"}, "belong together"),
        ({"start_offset": "timestamp"}, "belong together"),
        ({"start_offsets": {"t": {0: 1}}}, "belong together"),
        ({"start_offset": "explicit", "start_offsets": {"t": {0: -1}}}, "greater than or equal to 0"),
        ({"start_offset": "timestamp", "start_timestamp": "noon"}, "cannot read the time"),
        ({"options": {"fetch.max.bytes": 1}}, "kafka.fetch.max.bytes"),
        ({"options": {"kafka.group.id": "g"}}, "use consumer_group"),
        ({"tls": {"ca_path": "ca.pem"}}, "no meaning without enabled"),
        ({"tls": {"enabled": True, "cert_path": "c.pem"}}, "belong together"),
        ({"tls": {"enabled": True, "insecure": True, "server_name": "n"}}, "exclude each other"),
        ({"security": {"mechanism": "PLAIN", "user": "u"}}, "password"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(**given)


def test_the_settings_of_the_client() -> None:
    plain = client_settings(spec())
    assert (plain["bootstrap.servers"], plain["security.protocol"]) == ("h:1", "PLAINTEXT")
    assert "sasl.jaas.config" not in plain
    assert client_settings(spec(options={"kafka.fetch.max.bytes": 7}))["fetch.max.bytes"] == "7"
    login = client_settings(spec(security={"mechanism": "SCRAM-SHA-512", "user": "u", "password": 'p"\\w'}))
    assert (login["security.protocol"], login["sasl.mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert login["sasl.jaas.config"].endswith('ScramLoginModule required username="u" password="p\\"\\\\w";')
    both = client_settings(spec(tls={"enabled": True}, security={"mechanism": "PLAIN", "user": "u", "password": "p"}))
    assert both["security.protocol"] == "SASL_SSL"


def test_files_for_tls_that_are_none_are_reported(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("pem")
    missing = {"enabled": True, "ca_path": str(folder / "no.pem")}
    with pytest.raises(ConfigError, match=r"no\.pem cannot be read: No such file") as caught:
        client_settings(spec(tls=missing))
    assert (caught.value.code, "tls.ca_path" in caught.value.fix) == ("source-tls", True)
    (folder / "old.key").write_text("-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----\n")
    (folder / "cert.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    old = {"enabled": True, "cert_path": str(folder / "cert.pem"), "key_path": str(folder / "old.key")}
    with pytest.raises(ConfigError, match="no private key") as caught:
        client_settings(spec(tls=old))
    assert "openssl pkcs8" in caught.value.fix
