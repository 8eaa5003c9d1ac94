from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.ui.address import access, is_loopback

TOKEN = "a-token-that-is-long-enough"


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("127.0.0.1:8282", "127.0.0.1", 8282),
        ("localhost:0", "localhost", 0),
        ("[::1]:9000", "::1", 9000),
        ("9000", "127.0.0.1", 9000),
        (":9000", "127.0.0.1", 9000),
    ],
)
def test_an_address_on_this_machine_needs_no_token(given: str, host: str, port: int) -> None:
    made = access("--ui", given, None)
    assert (made.address.host, made.address.port, made.is_local, made.token) == (host, port, True, None)


@pytest.mark.parametrize(
    "given",
    ["", "localhost", "host:", "host:http", "host:70000", "1:2:3", "[::1]", "[127.0.0.1]:80", "::1:80", " :80"],
)
def test_what_is_no_address_is_refused_with_one_that_is(given: str) -> None:
    with pytest.raises(ConfigError) as raised:
        access("--ui", given, None)
    assert (raised.value.code, raised.value.exit_code) == ("address-invalid", 78)
    assert "127.0.0.1:8282" in raised.value.message


@pytest.mark.parametrize("given", ["0.0.0.0:8282", "[::]:8282", "frazil.example:80", "192.0.2.1:80"])
def test_other_machines_need_a_token(given: str) -> None:
    with pytest.raises(ConfigError) as raised:
        access("--listen", given, None)
    assert (raised.value.code, raised.value.exit_code) == ("token-missing", 78)
    assert "FRAZIL_UI_TOKEN" in raised.value.fix
    assert not access("--listen", given, TOKEN).is_local


@pytest.mark.parametrize("token", ["", "fifteen-letters"])
def test_a_token_that_can_be_guessed_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ConfigError) as raised:
        access("--ui", "0.0.0.0:80", token)
    assert raised.value.code == "token-too-short"
    assert not token or token not in str(raised.value)


def test_the_cookie_does_not_tell_the_token_and_stays_the_same_after_a_restart() -> None:
    one, again, other = (access("--ui", "0.0.0.0:80", token) for token in (TOKEN, TOKEN, TOKEN + "2"))
    assert one.cookie == again.cookie
    assert one.cookie[0] != other.cookie[0]
    assert TOKEN not in "".join(one.cookie)
    assert one.knows(one.cookie[1])
    assert not one.knows(other.cookie[1])
    assert not one.knows(TOKEN)
    assert one.admits(TOKEN)
    assert not one.admits(one.cookie[1])


LOCAL = ("127.0.0.1", "127.8.9.1", "::1", "localhost")
ELSEWHERE = ("0.0.0.0", "::", "localhost.example", "127.0.0.1.example", "")


@pytest.mark.parametrize("host", [*LOCAL, *ELSEWHERE])
def test_which_hosts_are_this_machine(host: str) -> None:
    assert is_loopback(host) is (host in LOCAL)
