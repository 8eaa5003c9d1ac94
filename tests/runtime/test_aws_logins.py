"""Ways to log in to Amazon's store: which keys requests are really signed with, as a stand-in before the store sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.commands import Outcome, frazil_process
from helpers.children import write_project
from helpers.lakes import fresh_name
from services.aws import Aws
from services.between import Asked, between
from services.s3proxy import REGION

Commands = tuple[tuple[str, ...], ...]

ROLE = "arn:aws:iam::123456789012:role/writer"


@dataclass
class Seen:
    """Who signed the requests to a store, and whether with a session token."""

    endpoint: str = ""
    signers: set[tuple[str, bool]] = field(default_factory=set)

    def look(self, asked: Asked) -> Asked:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        key = headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        self.signers.add((key, "x-amz-security-token" in headers))
        return asked


@contextmanager
def watched(aws: Aws) -> Iterator[Seen]:
    seen = Seen()
    with between(aws.endpoint, seen.look) as seen.endpoint:
        yield seen


def project(folder: Path, aws: Aws, endpoint: str, **s3: Any) -> Path:
    warehouse = f"{aws.create_bucket(fresh_name().replace('_', '-'))}/warehouse"
    catalog = {"type": "sql", "sql": {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse}}
    store = {"endpoint": endpoint, "region": REGION, "path_style_access": True, **s3}
    content = {
        "sources": {"numbers": {"connector": "generator", "config": {"rows": 10}}},
        "sinks": {"lake": {"connector": "iceberg", "config": {"catalog": catalog, "s3": store, "namespace": "n", "table": "t"}}},
        "pipelines": {"load": {"source": "numbers", "sink": "lake"}},
    }
    return write_project(folder, content)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """No login but what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere = {name: str(folder / "none") for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")}
    return kept | nowhere | {"AWS_EC2_METADATA_DISABLED": "true"} | more


def succeeded(file: Path, env: dict[str, str], *command: str) -> Outcome:
    done = frazil_process(*command, "-c", file, cwd=file.parent, env=env)
    assert done.code == 0, done.text
    return done


def profiles(folder: Path) -> dict[str, str]:
    file = folder / "credentials"
    file.write_text(
        "[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = x\n"
        "[writer]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = c4nary\n"
    )
    return {"AWS_SHARED_CREDENTIALS_FILE": str(file)}


ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKIAENVIRONMENT", "AWS_SECRET_ACCESS_KEY": "c4nary"}


CHECK, ALL = (("check",),), (("check",), ("run", "--once"), ("status",))
slow = pytest.mark.slow(seconds=50)


@pytest.mark.parametrize(
    ("way", "signer", "commands"),
    [
        ("profile", ("AKIAPROFILE", False), CHECK),
        ("session token", ("AKIASESSION", True), CHECK),
        pytest.param("environment", ("AKIAENVIRONMENT", False), ALL, marks=slow),
        pytest.param("environment with a token", ("AKIAENVIRONMENT", True), ALL, marks=slow),
        pytest.param("profile", ("AKIAPROFILE", False), ALL, marks=slow),
        pytest.param("session token", ("AKIASESSION", True), ALL, marks=slow),
    ],
)
def test_requests_are_signed_by(tmp_path: Path, aws: Aws, way: str, signer: tuple[str, bool], commands: Commands) -> None:
    given = {
        "environment": ({}, ENVIRONMENT),
        "environment with a token": ({}, ENVIRONMENT | {"AWS_SESSION_TOKEN": "c4nary-token"}),
        "profile": ({"profile": "writer"}, profiles(tmp_path)),
        "session token": (
            {"access_key_id": "AKIASESSION", "secret_access_key": "c4nary", "session_token": "c4nary-token"},
            ENVIRONMENT,
        ),
    }
    options, variables = given[way]
    with watched(aws) as seen:
        file, env = project(tmp_path, aws, seen.endpoint, **options), environment(tmp_path, **variables)
        for command in commands:
            done = succeeded(file, env, *command)
            assert "c4nary" not in done.text
            assert seen.signers <= {signer}, command
    assert seen.signers == {signer}


@slow
def test_requests_are_signed_as_an_assumed_role(tmp_path: Path, aws: Aws) -> None:
    """Keys of a role begin with ASIA, and come with a token."""
    with watched(aws) as seen:
        env = environment(tmp_path, AWS_ENDPOINT_URL_STS=aws.endpoint, **ENVIRONMENT)
        file = project(tmp_path, aws, seen.endpoint, role_arn=ROLE, role_session_name="frazil")
        succeeded(file, env, "run", "--once")
        assert seen.signers
        assert {(key[:4], token) for key, token in seen.signers} == {("ASIA", True)}
        seen.signers.clear()
        succeeded(file, env, "check")
        assert {(key[:4], token) for key, token in seen.signers} == {("ASIA", True)}
