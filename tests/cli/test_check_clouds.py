"""`frazil check` tells apart why a store of Google's or Microsoft's cannot be used, without secrets or traces of programs.

The stores are emulators: what they do not refuse, a stand-in in front of them does.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.answering import answering
from cli.commands import Frazil, sink_file
from cli.expected import CANARY, HOST_NOT_FOUND, REFUSED, Expected, must_fail
from cli.google_keys import google_key
from helpers.lakes import fresh_name
from services.azure import Azure
from services.between import Made, between
from services.gcs import Gcs
from services.processes import free_port

pytestmark = pytest.mark.slow(seconds=60)

WRONG_KEY = base64.b64encode(CANARY.encode()).decode()
KEYS_REFUSED = Expected("storage-keys-refused", 78, "it refused the credentials", "whether it has expired")
NO_BUCKET = Expected("no-such-bucket", 78, "there is no such bucket or container", "correct the warehouse")
DENIED = Expected("no-permission", 1, "", "Check who may")


def sink_in(folder: Path, location: str, store: str) -> None:
    """A sink whose catalog is a file, and whose files are at a location."""
    sink_file(folder, f"{{type: sql, sql: {{uri: 'sqlite:///{folder}/catalog.db', warehouse: '{location}/warehouse'}}}}", store)


def by_connection(azure: Azure, *, key: str | None = None, endpoint: str | None = None) -> str:
    text = azure.connection_string.replace(azure.key, key or azure.key).replace(azure.endpoint, endpoint or azure.endpoint)
    return f"azure: {{connection_string: '{text}'}}"


@pytest.fixture
def container(azure: Azure) -> str:
    return azure.create_bucket(fresh_name().replace("_", "-"))


@pytest.fixture
def bucket(gcs: Gcs) -> str:
    return gcs.create_bucket(fresh_name().replace("_", "-"))


class TestAzure:
    """Azurite, which checks signatures."""

    @pytest.mark.parametrize("scheme", ["abfss", "wasbs"])
    def test_a_container_is_left_as_it_was(
        self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str, scheme: str
    ) -> None:
        location = container if scheme == "abfss" else container.replace("abfss", "wasbs").replace(".dfs.", ".blob.")
        sink_in(tmp_path, location, by_connection(azure))
        result = frazil("check", "--json")
        assert result.code == 0, result.out
        assert result.json["checks"][-1]["message"] == f"wrote, read and deleted a probe in {location}/warehouse"
        assert azure.left_in(urlsplit(container).username or "") == []

    def test_the_key_is_wrong(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str) -> None:
        sink_in(tmp_path, container, by_connection(azure, key=WRONG_KEY))
        must_fail(frazil("check", "--json"), "storage", KEYS_REFUSED)

    def test_the_container_is_not_there(self, frazil: Frazil, tmp_path: Path, azure: Azure) -> None:
        sink_in(tmp_path, "abfss://puddle@frazil.dfs.core.windows.net", by_connection(azure))
        must_fail(frazil("check", "--json"), "storage", NO_BUCKET)

    def test_a_right_is_missing(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str) -> None:
        code = "AuthorizationPermissionMismatch"
        error = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>Not permitted.</Message></Error>".encode()
        denied = Made(403, error, {"Content-Type": "application/xml", "x-ms-error-code": code})
        with between(azure.endpoint, lambda asked: denied if asked.method == "PUT" else asked) as uri:
            sink_in(tmp_path, container, by_connection(azure, endpoint=f"{uri}/{azure.account}"))
            must_fail(frazil("check", "--json"), "storage", DENIED)

    def test_nothing_listens(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str) -> None:
        endpoint = f"http://127.0.0.1:{free_port()}/{azure.account}"
        sink_in(tmp_path, container, by_connection(azure, endpoint=endpoint))
        must_fail(frazil("check", "--json"), "storage", REFUSED)

    def test_the_account_is_not_known(self, frazil: Frazil, tmp_path: Path) -> None:
        account = f"azure: {{storage_account: '{fresh_name()}', access_key: '{WRONG_KEY}'}}"
        sink_in(tmp_path, f"abfss://box@{fresh_name()}.dfs.core.windows.net", account)
        must_fail(frazil("check", "--json"), "storage", HOST_NOT_FOUND)

    def test_the_connection_string_is_none(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str) -> None:
        sink_in(tmp_path, container, f"azure: {{connection_string: 'AccountName=frazil;BlobEndpoint={azure.endpoint};{CANARY}'}}")
        result = frazil("check", "--json")
        must_fail(result, "storage", Expected("storage-settings", 78, "Connection string", "Check the settings of the store"))


class TestGoogle:
    """fake-gcs-server, which asks for no credentials."""

    def test_a_bucket_is_left_as_it_was(self, frazil: Frazil, tmp_path: Path, gcs: Gcs, bucket: str) -> None:
        sink_in(tmp_path, bucket, f"gcs: {{endpoint: '{gcs.endpoint}', no_auth: true}}")
        result = frazil("check", "--json")
        assert result.code == 0, result.out
        assert gcs.left_in(urlsplit(bucket).netloc) == []

    def test_the_bucket_is_not_there(self, frazil: Frazil, tmp_path: Path, gcs: Gcs) -> None:
        sink_in(tmp_path, "gs://puddle", f"gcs: {{endpoint: '{gcs.endpoint}', no_auth: true}}")
        must_fail(frazil("check", "--json"), "storage", NO_BUCKET)

    @pytest.mark.parametrize(("status", "expected"), [(401, KEYS_REFUSED), (403, DENIED)])
    def test_the_store_refuses(
        self, frazil: Frazil, tmp_path: Path, gcs: Gcs, bucket: str, status: int, expected: Expected
    ) -> None:
        error = {"error": {"code": status, "message": "w@p does not have storage.objects.create access", "errors": []}}
        made = Made(status, json.dumps(error).encode(), {"Content-Type": "application/json"})
        with between(gcs.endpoint, lambda asked: made if asked.method == "POST" else asked) as uri:
            sink_in(tmp_path, bucket, f"gcs: {{endpoint: '{uri}', no_auth: true}}")
            must_fail(frazil("check", "--json"), "storage", expected)

    def test_nothing_listens(self, frazil: Frazil, tmp_path: Path) -> None:
        sink_in(tmp_path, "gs://box", f"gcs: {{endpoint: 'http://127.0.0.1:{free_port()}', no_auth: true}}")
        must_fail(frazil("check", "--json"), "storage", REFUSED)

    def test_the_host_is_not_known(self, frazil: Frazil, tmp_path: Path) -> None:
        sink_in(tmp_path, "gs://box", "gcs: {endpoint: 'http://no-such-host.invalid', no_auth: true}")
        must_fail(frazil("check", "--json"), "storage", HOST_NOT_FOUND)

    def test_nobody_gives_out_a_token_for_the_key(self, frazil: Frazil, tmp_path: Path, gcs: Gcs, bucket: str) -> None:
        refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        with answering(400, json.dumps(refusal).encode()) as tokens:
            (tmp_path / "key.json").write_text(google_key(tokens, CANARY))
            sink_in(tmp_path, bucket, f"gcs: {{endpoint: '{gcs.endpoint}', service_account_path: '{tmp_path}/key.json'}}")
            must_fail(frazil("check", "--json"), "storage", KEYS_REFUSED)

    @pytest.mark.parametrize(
        ("content", "words"), [(None, "cannot be read"), (CANARY, "is not the JSON")], ids=["missing", "not-json"]
    )
    def test_the_key_is_none(
        self, frazil: Frazil, tmp_path: Path, gcs: Gcs, bucket: str, content: str | None, words: str
    ) -> None:
        if content is not None:
            (tmp_path / "key.json").write_text(content)
        sink_in(tmp_path, bucket, f"gcs: {{endpoint: '{gcs.endpoint}', service_account_path: '{tmp_path}/key.json'}}")
        must_fail(frazil("check", "--json"), "catalog", Expected("bad-service-account-key", 78, words, "service_account_path"))
