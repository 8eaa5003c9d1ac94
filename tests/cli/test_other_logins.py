"""Ways to prove who one is, other than keys and OAuth2: check and run take them, and say the same of wrong ones.

The services are real. What they do not ask for, a stand-in in front of them does.
"""

from __future__ import annotations

import functools
import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from cli.agreeing import both_succeed, must_agree, write, write_in_store
from cli.commands import Frazil, frazil_process
from cli.expected import CANARY
from frazil.spark.session import give_components
from helpers.lakes import fresh_name
from services.azure import Azure
from services.between import Asked, Made, between
from services.instance import instance_role
from services.rest_catalog import RestCatalog
from services.s3proxy import REGION, SECRET, S3Store

pytestmark = pytest.mark.slow(seconds=15)

JSON = {"Content-Type": "application/json"}
PASSWORD = "hush-h0use"


@contextmanager
def asking_for(catalog: RestCatalog, header: str, value: str) -> Iterator[str]:
    """The address of a catalog behind a gate that lets through whoever shows the one header, as long as the block."""
    error = {"error": {"message": "Who are you?", "type": "NotAuthorizedException", "code": 401}}

    def change(asked: Asked) -> Asked | Made:
        shown = {name.lower(): content for name, content in asked.headers.items()}.get(header.lower())
        return asked if shown == value else Made(401, json.dumps(error).encode(), JSON)

    with between(catalog.uri, change) as uri:
        yield uri


class TestRest:
    """A REST catalog with its tables in S3, and a gate before it."""

    @pytest.fixture
    def catalog(self, rest_catalog_s3: RestCatalog, spark: SparkSession) -> RestCatalog:
        give_components(spark, ["aws"])
        return rest_catalog_s3

    @pytest.fixture
    def described(self, tmp_path: Path, s3: S3Store) -> Callable[[str, str], None]:
        """Writes a pipeline into the catalog at an address, with what proves who one is."""

        def to(uri: str, proof: str) -> None:
            keys = f"access_key_id: '{s3.access_key_id}', secret_access_key: '{s3.secret_access_key}'"
            store = f"s3: {{endpoint: '{s3.endpoint}', region: {REGION}, path_style_access: true, {keys}}}"
            rest = f"{{type: rest, name: {fresh_name()}, rest: {{uri: '{uri}', {proof}}}}}"
            write(tmp_path, rest, f"      {store}", namespace=fresh_name())

        return to

    @pytest.mark.parametrize("how", ["headers", "password"])
    def test_rows_are_written(
        self, frazil: Frazil, catalog: RestCatalog, described: Callable[[str, str], None], how: str
    ) -> None:
        header, value, proof = PROOFS[how](PASSWORD)
        with asking_for(catalog, header, value) as uri:
            described(uri, proof)
            both_succeed(frazil, PASSWORD, value, SECRET)

    @pytest.mark.parametrize("how", ["headers", "password"])
    def test_a_wrong_one_is_refused(
        self, frazil: Frazil, catalog: RestCatalog, described: Callable[[str, str], None], how: str
    ) -> None:
        header, value, _ = PROOFS[how](PASSWORD)
        with asking_for(catalog, header, value) as uri:
            described(uri, PROOFS[how](CANARY)[2])
            must_agree(frazil, "not-authorized", 78)


def by_header(key: str) -> tuple[str, str, str]:
    """The header that is shown, its value, and what the file has for it."""
    return "X-Api-Key", key, f"headers: {{X-Api-Key: {key}}}"


def by_password(password: str) -> tuple[str, str, str]:
    """The same for a user and a password."""
    return "Authorization", f"Basic {b64encode(f'keeper:{password}'.encode()).decode()}", f"user: keeper, password: {password}"


PROOFS: Mapping[str, Callable[[str], tuple[str, str, str]]] = {"headers": by_header, "password": by_password}


def signature(azure: Azure, permission: str = "rwdlac", *, key: str | None = None, hours: float = 1) -> str:
    """A shared access signature of the account, for its containers and what is in them."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    now = datetime.now(UTC)
    return generate_account_sas(
        azure.account,
        key or azure.key,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions.from_string(permission),
        expiry=now + timedelta(hours=hours),
        start=now - timedelta(days=1),
    )


class TestAzureSas:
    """Azurite, which checks shared access signatures and what they allow."""

    @pytest.fixture(autouse=True)
    def _with_azure(self, spark: SparkSession) -> None:
        give_components(spark, ["azure"])

    @pytest.fixture
    def container(self, azure: Azure) -> str:
        return azure.create_bucket(fresh_name().replace("_", "-"))

    @pytest.mark.parametrize("where", ["alone", "in-a-connection-string"])
    def test_rows_are_written(self, frazil: Frazil, tmp_path: Path, azure: Azure, container: str, where: str) -> None:
        signed = signature(azure)
        write_in_store(tmp_path, container, by_signature(azure, signed, alone=where == "alone"))
        both_succeed(frazil, signed, signed.rpartition("sig=")[2])
        assert [name for name in azure.left_in(urlsplit(container).username or "") if name.endswith(".parquet")]

    @pytest.mark.parametrize(
        ("signed", "code", "exit_code"),
        [
            (functools.partial(signature, key=b64encode(CANARY.encode()).decode()), "storage-keys-refused", 78),
            (functools.partial(signature, hours=-1), "storage-keys-refused", 78),
            (functools.partial(signature, permission="rl"), "no-permission", 1),
        ],
        ids=["of-another-key", "expired", "that-only-reads"],
    )
    def test_a_wrong_one_is_refused(
        self,
        frazil: Frazil,
        tmp_path: Path,
        azure: Azure,
        container: str,
        signed: Callable[[Azure], str],
        code: str,
        exit_code: int,
    ) -> None:
        write_in_store(tmp_path, container, by_signature(azure, signed(azure), alone=True))
        must_agree(frazil, code, exit_code)
        assert azure.left_in(urlsplit(container).username or "") == []


def by_signature(azure: Azure, signed: str, *, alone: bool) -> str:
    """The settings of the store: the address of an emulator is always in a connection string."""
    if alone:
        return f"azure: {{sas_token: '{signed}', connection_string: 'BlobEndpoint={azure.endpoint};AccountName={azure.account}'}}"
    return f"azure: {{connection_string: 'BlobEndpoint={azure.endpoint};SharedAccessSignature={signed}'}}"


@pytest.mark.slow(seconds=60)
class TestInstanceRole:
    """The keys are those of the machine. Each command is a process: Java keeps such keys for all that it does."""

    @pytest.fixture
    def bucket(self, s3: S3Store) -> str:
        return s3.create_bucket(fresh_name().replace("_", "-"))

    def commands(self, folder: Path, environment: Mapping[str, str]) -> Frazil:
        """The installed command, with no keys but those of the machine."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        files = {name: str(folder / "none") for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")}
        return functools.partial(frazil_process, cwd=folder, env={**plain, **files, **environment})

    def test_rows_are_written(self, tmp_path: Path, s3: S3Store, bucket: str) -> None:
        with instance_role(s3, s3.secret_access_key) as instance:
            write_in_store(
                tmp_path, bucket, f"s3: {{endpoint: '{instance.endpoint}', region: {REGION}, path_style_access: true}}"
            )
            both_succeed(self.commands(tmp_path, instance.environment), SECRET, instance.token)
            assert instance.told >= 3
        assert list((s3.folder / urlsplit(bucket).netloc).rglob("*.parquet"))

    def test_keys_that_the_store_does_not_take_are_refused(self, tmp_path: Path, s3: S3Store, bucket: str) -> None:
        with instance_role(s3, CANARY) as instance:
            write_in_store(
                tmp_path, bucket, f"s3: {{endpoint: '{instance.endpoint}', region: {REGION}, path_style_access: true}}"
            )
            must_agree(self.commands(tmp_path, instance.environment), "s3-keys-refused", 78)
