"""An OpenID issuer, whose tokens are signed and last for seconds: npm's oauth2-mock-server, on the machine's own Node."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from frazil.spark.cache import cache_dir
from services.processes import Child, started

LOCK = Path(__file__).parent / "locks" / "oauth2-mock-server-8.2.3.json"
SCRIPT = Path(__file__).with_name("oidc.mjs")
MODULE = "node_modules/oauth2-mock-server/dist/index.mjs"
READY_SECONDS = 60
CLIENT, SECRET = "frazil", "c4nary-of-the-issuer"


@dataclass(frozen=True)
class Issuer:
    """Where it answers, and its log."""

    url: str
    process: Child

    @property
    def tokens(self) -> str:
        """Where it gives out tokens."""
        with urlopen(f"{self.url}/.well-known/openid-configuration", timeout=READY_SECONDS) as answer:
            return str(json.load(answer)["token_endpoint"])

    @property
    def given_out(self) -> int:
        """How many tokens it has given out for the secret."""
        return self.process.log_text().count("token client_credentials")


@contextmanager
def running_issuer(folder: Path, seconds: int) -> Iterator[Issuer]:
    """An issuer of its own, as long as the block. Its tokens last so long."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("the issuer needs Node and npm")
    command = ["node", str(SCRIPT), str(_installed() / MODULE), SECRET, str(seconds)]
    with started("OpenID issuer", command, folder / "issuer.log") as process:
        url = process.await_line(r"issuer (http\S+)", READY_SECONDS)[1]
        yield Issuer(url, process)


def _installed() -> Path:
    """The folder with the server's packages, fetched once and kept in the cache."""
    services = cache_dir() / "services"
    folder = services / LOCK.stem
    if not folder.is_dir():
        services.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=services) as scratch:
            shutil.copy(LOCK, Path(scratch) / "package-lock.json")
            wanted = json.loads(LOCK.read_text())["packages"][""]
            (Path(scratch) / "package.json").write_text(json.dumps({"private": True, **wanted}))
            subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=scratch, check=True)
            with suppress(OSError):  # another process was faster: what it has put there is the same
                Path(scratch).rename(folder)
            Path(scratch).mkdir(exist_ok=True)
    return folder
