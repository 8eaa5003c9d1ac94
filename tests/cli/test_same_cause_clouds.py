"""What `frazil check` says of a wrong setting for a store of Google's or Microsoft's is what a run says when it meets it."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from cli.agreeing import both_succeed, must_agree, write_in_store
from cli.answering import answering
from cli.commands import Frazil, Outcome, frazil_process
from cli.expected import CANARY
from cli.google_keys import google_key
from frazil.spark.session import give_components
from helpers.lakes import fresh_name
from services.azure import Azure
from services.between import Asked, Made, between, s3_error
from services.gcs import Gcs
from services.processes import free_port

pytestmark = [pytest.mark.slow(seconds=20), pytest.mark.usefixtures("spark")]


def by_connection(azure: Azure, *, key: str | None = None, endpoint: str | None = None) -> str:
    text = azure.connection_string.replace(azure.key, key or azure.key).replace(azure.endpoint, endpoint or azure.endpoint)
    return f"azure: {{connection_string: '{text}'}}"


class TestAzure:
    """Azurite, which checks signatures."""

    @pytest.fixture(autouse=True)
    def _with_azure(self, spark: SparkSession) -> None:
        give_components(spark, ["azure"])

    @pytest.fixture
    def container(self, azure: Azure) -> str:
        return azure.create_bucket(fresh_name().replace("_", "-"))

    def test_the_key_is_wrong(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str) -> None:
        write_in_store(tmp_path, container, by_connection(azure, key=base64.b64encode(CANARY.encode()).decode()))
        must_agree(frazil, "storage-keys-refused", 78)

    def test_the_container_is_not_there(self, frazil: Frazil, tmp_path: Path, azure: Azure) -> None:
        write_in_store(tmp_path, f"abfss://puddle@{azure.account}.dfs.core.windows.net", by_connection(azure))
        must_agree(frazil, "no-such-bucket", 78)

    def test_a_right_is_missing(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str) -> None:
        """A documented answer, given by a stand-in."""
        made = s3_error(
            403, "AuthorizationPermissionMismatch", "Not authorized.", **{"x-ms-error-code": "AuthorizationPermissionMismatch"}
        )
        parts = urlsplit(azure.endpoint)
        with between(f"http://{parts.netloc}", lambda asked: made if asked.method == "PUT" else asked) as uri:
            write_in_store(tmp_path, container, by_connection(azure, endpoint=f"{uri}{parts.path}"))
            must_agree(frazil, "no-permission", 1)

    @pytest.mark.slow(seconds=60)
    def test_nothing_listens_at_the_port(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str) -> None:
        write_in_store(tmp_path, container, by_connection(azure, endpoint=f"http://127.0.0.1:{free_port()}/{azure.account}"))
        must_agree(frazil, "connection-refused", 75)


GOOGLE_TOKEN = "good-as-g0ld"


class TestGoogle:
    """fake-gcs-server, which asks for no credentials: a stand-in before it does."""

    @pytest.fixture(autouse=True)
    def _with_google(self, spark: SparkSession) -> None:
        give_components(spark, ["gcp"])

    @pytest.fixture
    def bucket(self, gcs: Gcs) -> str:
        return gcs.create_bucket(fresh_name().replace("_", "-"))

    def test_rows_are_written_with_a_token(self, frazil: Frazil, tmp_path: Path, gcs: Gcs, bucket: str) -> None:
        with asking_for_a_token(gcs) as endpoint:
            write_in_store(tmp_path, bucket, f"gcs: {{endpoint: '{endpoint}', token: {GOOGLE_TOKEN}}}")
            both_succeed(check_apart(frazil, tmp_path), GOOGLE_TOKEN)
        assert [name for name in gcs.left_in(urlsplit(bucket).netloc) if name.endswith(".parquet")]

    def test_the_token_is_wrong(self, frazil: Frazil, tmp_path: Path, gcs: Gcs, bucket: str) -> None:
        with asking_for_a_token(gcs) as endpoint:
            write_in_store(tmp_path, bucket, f"gcs: {{endpoint: '{endpoint}', token: {CANARY}}}")
            must_agree(frazil, "storage-keys-refused", 78)

    @pytest.mark.slow(seconds=80)
    def test_a_right_is_missing(self, frazil: Frazil, tmp_path: Path, gcs: Gcs, bucket: str) -> None:
        made = google_error(403, "w@p does not have storage.objects.create access")
        with between(gcs.endpoint, lambda asked: made if asked.method in ("POST", "PUT") else asked) as uri:
            write_in_store(tmp_path, bucket, f"gcs: {{endpoint: '{uri}', no_auth: true}}")
            must_agree(frazil, "no-permission", 1)

    @pytest.mark.slow(seconds=80)
    def test_the_bucket_is_not_there(self, frazil: Frazil, tmp_path: Path, gcs: Gcs) -> None:
        write_in_store(tmp_path, "gs://puddle", f"gcs: {{endpoint: '{gcs.endpoint}', no_auth: true}}")
        must_agree(frazil, "no-such-bucket", 78)

    @pytest.mark.slow(seconds=60)
    def test_nothing_listens_at_the_port(self, frazil: Frazil, tmp_path: Path) -> None:
        write_in_store(tmp_path, "gs://box", f"gcs: {{endpoint: 'http://127.0.0.1:{free_port()}', no_auth: true}}")
        must_agree(frazil, "connection-refused", 75)

    def test_nobody_gives_out_a_token_for_the_key(self, tmp_path: Path, gcs: Gcs, bucket: str) -> None:
        """A run of its own: Java takes the file with the key from its environment."""
        refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        with answering(400, json.dumps(refusal).encode()) as tokens:
            (tmp_path / "key.json").write_text(google_key(tokens, CANARY))
            write_in_store(tmp_path, bucket, f"gcs: {{endpoint: '{gcs.endpoint}', service_account_path: '{tmp_path}/key.json'}}")
            must_agree(functools.partial(frazil_process, cwd=tmp_path), "storage-keys-refused", 78)


def google_error(status: int, words: str) -> Made:
    error = {"error": {"code": status, "message": words, "errors": [{"message": words, "domain": "global", "reason": "x"}]}}
    return Made(status, json.dumps(error).encode(), {"Content-Type": "application/json"})


def check_apart(frazil: Frazil, folder: Path) -> Frazil:
    """Calls of which check is a process of its own: PyArrow waits for Google's store with the lock of Python's threads in hand,
    so that no stand-in of the same process could answer it.
    """

    def call(*arguments: str | Path) -> Outcome:
        return frazil_process(*arguments, cwd=folder) if arguments[0] == "check" else frazil(*arguments)

    return call


@contextmanager
def asking_for_a_token(gcs: Gcs) -> Iterator[str]:
    """The store, which lets nobody in without the one token."""

    def change(asked: Asked) -> Asked | Made:
        shown = {name.lower(): value for name, value in asked.headers.items()}.get("authorization")
        return asked if shown == f"Bearer {GOOGLE_TOKEN}" else google_error(401, "Invalid Credentials")

    with between(gcs.endpoint, change) as endpoint:
        yield endpoint
