"""TLS before a service that has none: it asks for a certificate of its own authority, and passes the bytes on."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from services.certificates import HERE, make_certificates
from services.processes import LOCALHOST


@dataclass(frozen=True)
class TlsFront:
    """Where it answers, and the folder with ``ca.pem``, ``client.pem``, ``client.key``."""

    uri: str
    certificates: Path


@contextmanager
def tls_front(folder: Path, target: str) -> Iterator[TlsFront]:
    """A front before the service at an address, as long as the block."""
    certificates = make_certificates(folder / "certificates", {"server": HERE, "client": "DNS:client"})
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem"))
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    there = (LOCALHOST, urlsplit(target).port or 80)
    with socket.create_server((LOCALHOST, 0)) as server:
        threading.Thread(target=_accept, args=(server, context, there), daemon=True).start()
        yield TlsFront(f"https://{LOCALHOST}:{server.getsockname()[1]}", certificates)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, context: ssl.SSLContext, there: tuple[str, int]) -> None:
    with suppress(OSError):  # the end of the block closes it
        while True:
            threading.Thread(target=_serve, args=(server.accept()[0], context, there), daemon=True).start()


def _serve(plain: socket.socket, context: ssl.SSLContext, there: tuple[str, int]) -> None:
    # A client without a certificate is sent away here.
    with (
        suppress(OSError),
        context.wrap_socket(plain, server_side=True) as outer,
        closing(socket.create_connection(there)) as inner,
    ):
        back = threading.Thread(target=_pump, args=(inner, outer), daemon=True)
        back.start()
        _pump(outer, inner)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
