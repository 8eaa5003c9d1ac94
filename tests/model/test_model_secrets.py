from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from frazil.model.catalog import CatalogSpec, CatalogType, RestCatalog, SqlCatalog
from frazil.model.secrets import MASK, is_secret_name, mask_uri, masked, remember, scrub, secret_values
from frazil.model.settings import Settings, SparkSettings
from frazil.model.storage import AzureStorage, S3Storage


@pytest.mark.parametrize(
    "name",
    [
        "password", "spark.hadoop.fs.s3a.secret.key", "s3.access-key-id", "access_key_id", "accessKey", "header.Authorization",
        "token", "adls.sas-token.acc", "service_account_key", "service-account-key", "connection_string", "private-key",
        "sasl.jaas.config", "api_key", "credential", "gcs.decryption-key", "gcs.encryption-key", "s3.sse.key",
        "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net", "header.Cookie", "spark.hadoop.fs.azure.sas.box.account",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "uri",
        "warehouse",
        "region",
        "write.format.default",
        "key_fields",
        "partition_fields",
        "encryption.key-id",
        "sasl.mechanism",
    ],
)
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:pw123@host/db", f"postgresql://me:{MASK}@host/db"),
        ("jdbc:postgresql://me:pw@host/db?a=b", f"jdbc:postgresql://me:{MASK}@host/db?a=b"),
        ("postgresql://me:p@ss@host/db", f"postgresql://me:{MASK}@host/db"),
        ("postgresql://:pw@host/db", f"postgresql://:{MASK}@host/db"),
        ("a://u:p1@h, b://u:p2@h", f"a://u:{MASK}@h, b://u:{MASK}@h"),
        ("a://u:p1@h,b://u:p2@h", f"a://u:{MASK}@h,b://u:{MASK}@h"),
        ("jdbc:x://h/db?user=u&password=pw&x=1", f"jdbc:x://h/db?user=u&password={MASK}&x=1"),
        ("abfss://container@account.dfs.core.windows.net/path", "abfss://container@account.dfs.core.windows.net/path"),
        ("http://localhost:8181/catalog", "http://localhost:8181/catalog"),
        ("https://ghp_4711@host/x", f"https://{MASK}@host/x"),
        ("sv=2024&ss=b&sig=a%2Bb%3D&se=2030", f"sv=2024&ss=b&sig={MASK}&se=2030"),
        ("sig=abc&sv=2024", f"sig={MASK}&sv=2024"),
        ("-Da=b -Djavax.net.ssl.trustStorePassword=pw -Dc=d", f"-Da=b -Djavax.net.ssl.trustStorePassword={MASK} -Dc=d"),
        ("X: Bearer 0123456789abcdef", f"X: Bearer {MASK}"),
        ("Basic authentication is refused", "Basic authentication is refused"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_", MASK),
        ("sqlite:///lake/catalog.db", "sqlite:///lake/catalog.db"),
    ],
)
def test_passwords_in_addresses(text: str, shown: str) -> None:
    assert mask_uri(text) == shown


def test_properties_are_masked_by_name_and_by_look() -> None:
    shown = masked({"s3.secret-access-key": "abc", "uri": "x://u:pw@h", "region": "r"})
    assert shown == {"s3.secret-access-key": MASK, "uri": f"x://u:{MASK}@h", "region": "r"}
    nested = masked({"a": [{"token": 12, "password": None}], "b": ("x://u:pw@h", 1)})
    assert nested == {"a": [{"token": MASK, "password": None}], "b": (f"x://u:{MASK}@h", 1)}


def test_remembered_secrets_are_scrubbed_longest_first() -> None:
    remember(["abcd", "abcd-efgh"])
    assert scrub("x abcd-efgh y abcd z") == f"x {MASK} y {MASK} z"


@pytest.mark.parametrize("value", ["", "a", "abc", "true", "False", "null"])
def test_short_and_common_values_are_not_scrubbed(value: str) -> None:
    remember([value])
    assert scrub(f"this is {value}, true or false") == f"this is {value}, true or false"


@settings(deadline=None)
@given(secret=st.text(min_size=4, max_size=30), before=st.text(max_size=10), after=st.text(max_size=10))
def test_no_remembered_secret_survives(secret: str, before: str, after: str) -> None:
    remember([secret])
    if secret.lower() not in ("true", "none", "null", "false") and secret not in MASK:
        assert secret not in scrub(f"{before}{secret}{after}").replace(MASK, "")


def test_every_secret_of_a_value_is_found() -> None:
    rest = CatalogSpec(
        type=CatalogType.REST,
        rest=RestCatalog(
            uri="http://h:1", credential=SecretStr("id:one"), properties={"header.Authorization": "two", "plain": "no"}
        ),
    )
    sql = CatalogSpec(
        type=CatalogType.SQL, sql=SqlCatalog(uri="postgresql://u:th%40ree@h/db", password=SecretStr("four"), warehouse="w")
    )
    s3 = S3Storage(access_key_id=SecretStr("five"), session_token=SecretStr("six"))
    azure = AzureStorage(connection_string=SecretStr("seven"))
    conf = Settings(spark=SparkSettings(conf={"spark.my.password": "eight", "spark.other": "no"}))
    found = set(secret_values([rest, sql, s3, azure, conf]))
    secret = {"id:one", "two", "th%40ree", "th@ree", "four", "five", "six", "seven", "eight"}
    assert secret <= found
    assert "no" not in found
    shown = repr([rest, sql, s3, azure, conf]) + str(rest)
    assert not [one for one in secret if one in shown], shown
    assert "'plain': 'no'" in shown


def test_secrets_print_as_stars() -> None:
    s3 = S3Storage(access_key_id=SecretStr("visible?"))
    assert "visible?" not in f"{s3!r} {s3} {s3.model_dump_json()} {s3.model_dump()}"


def test_an_address_in_a_message_has_no_password() -> None:
    sql = CatalogSpec(type=CatalogType.SQL, sql=SqlCatalog(uri="postgresql://u:pw@h/db", warehouse="w"))
    assert sql.address == f"postgresql://u:{MASK}@h/db"
