"""How `frazil check` must fail: one step, with a code, an exit code, words and a cure, and without secrets or traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cli.commands import Outcome
from services.s3proxy import SECRET

CANARY = "c4nary-in-the-mine"


@dataclass(frozen=True)
class Expected:
    """How a step must fail."""

    code: str
    exit_code: int
    message: str
    fix: str


HOST_NOT_FOUND = Expected("host-not-found", 75, "the host name cannot be resolved", "DNS")
REFUSED = Expected("connection-refused", 75, "Connection refused", "Verify that the service is running")
TIMEOUT = Expected("connection-timeout", 75, "no answer in time", "Check network and firewall rules")
UNTRUSTED = Expected("tls-untrusted", 78, "its certificate is not trusted", "REQUESTS_CA_BUNDLE")
WRONG_HOST = Expected("tls-wrong-host", 78, "its certificate is for another host name", "Use the host name")
NOT_SPOKEN = Expected("tls-not-spoken", 78, "the server does not speak TLS", "Write http://")
NEEDED = Expected("tls-needed", 78, "the server speaks TLS at this port", "Write https://")
CLOCK = Expected("clock-differs", 75, "the clocks differ too much", "NTP")


def must_fail(result: Outcome, step: str, expected: Expected) -> dict[str, Any]:
    """The error of the one step that failed, which is as expected, and shows neither secrets nor traces."""
    failed = [check for check in result.json["checks"] if not check["ok"]]
    assert [check["step"] for check in failed] == [step], result.out
    error: dict[str, Any] = failed[0]["error"]
    assert (error["code"], result.code) == (expected.code, expected.exit_code), error
    assert expected.message in error["message"]
    assert expected.fix in error["fix"]
    for secret in (CANARY, SECRET):
        assert secret not in result.text
    for trace in ("Traceback", "\tat ", "Exception in", "Caused by"):
        assert trace not in result.text
    return error
