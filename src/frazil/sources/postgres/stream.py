"""The stream of changes: PostgreSQL's replication protocol on one connection.

A separate thread repeatedly confirms to the server the position up to which everything is committed, so that it keeps the log
from there on: the server ends a connection on which it hears nothing while a batch is written.
"""

from __future__ import annotations

import select
import struct
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.pq import ExecStatus

from frazil.errors import FrazilError
from frazil.sources.postgres.connection import Login, explained
from frazil.sources.postgres.protocol import lsn_text
from frazil.sources.postgres.slot import IN_USE_SECONDS, in_use, slot_gone, slot_lost

STATUS_SECONDS = 5.0

_DATA, _KEEPALIVE = b"wk"
_DATA_HEADER = 25
_BURST = 4000
_EPOCH_SECONDS = 946_684_800
_LOOK_AGAIN_SECONDS = 0.2


class ChangeStream:
    """The messages after a position in the log, whole transactions in the order of their commits.

    ``reached`` is up to where the server has read its log: every transaction that ended before was sent. ``asked`` says that it
    was asked for that and has not answered. ``broken``: no more messages will come.
    """

    def __init__(self, login: Login, slot: str, publication: str, start: int) -> None:
        self._slot = slot
        self._confirmed = start
        self.reached = start
        self.asked = False
        self.broken = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._connection = login.connect(replication="database")
        try:
            self._start(publication)
        except BaseException:
            self._connection.close()
            raise
        # A stream that is no longer referenced must not keep its slot in use.
        weakref.finalize(self, _end, self._ended, self._connection)
        arguments = (weakref.ref(self), self._ended)
        threading.Thread(target=_keep_telling, args=arguments, name="frazil-postgres-status", daemon=True).start()

    @property
    def reader(self) -> int:
        """The server's process at the other end."""
        return self._connection.info.backend_pid

    def _start(self, publication: str) -> None:
        names = '"' + publication.replace('"', '""') + '"'
        quoted = names.replace("'", "''")
        command = (
            f'START_REPLICATION SLOT "{self._slot}" LOGICAL {lsn_text(self._confirmed)} '
            f"(proto_version '1', publication_names '{quoted}')"
        )
        until = time.monotonic() + IN_USE_SECONDS
        while True:
            result = self._connection.pgconn.exec_(command.encode())
            if result.status == ExecStatus.COPY_BOTH:
                return
            error = psycopg.errors.error_from_result(result)
            if isinstance(error, pg.ObjectInUse) and time.monotonic() < until:
                time.sleep(_LOOK_AGAIN_SECONDS)
                continue
            raise self._explained(error)

    def _broke(self, error: psycopg.Error) -> FrazilError:
        self.broken = True
        return self._explained(error)

    def _explained(self, error: psycopg.Error) -> FrazilError:
        if isinstance(error, pg.ObjectInUse):
            return in_use(self._slot, None)
        if isinstance(error, pg.ObjectNotInPrerequisiteState):
            return slot_lost(self._slot)
        # PostgreSQL has one code for whatever is not there; which thing that is stands in its words alone.
        if isinstance(error, pg.UndefinedObject) and "replication slot" in str(error):
            return slot_gone(self._slot)
        return explained(error, f"Reading the slot {self._slot}")

    def read(self, wait_seconds: float) -> Sequence[bytes]:
        """The next messages of pgoutput, some thousands at most; none when none came in time."""
        messages: list[bytes] = []
        connection = self._connection.pgconn
        try:
            with self._lock:
                while len(messages) < _BURST:
                    size, data = connection.get_copy_data(1)
                    if size > 0:
                        self._take(bytes(data), messages)
                    elif size < 0:
                        self._raise_end()
                    elif messages or not select.select([connection.socket], [], [], wait_seconds)[0]:
                        break
                    else:
                        wait_seconds = 0.0
                        connection.consume_input()
        except psycopg.Error as error:
            raise self._broke(error) from error
        return messages

    def _take(self, data: bytes, messages: list[bytes]) -> None:
        if data[0] == _DATA:
            messages.append(data[_DATA_HEADER:])
        elif data[0] == _KEEPALIVE:
            (reached,) = struct.unpack_from(">Q", data, 1)
            self.reached = max(self.reached, reached)
            self.asked = False
            if data[17]:
                self._tell(ask=False)

    def _raise_end(self) -> None:
        result = self._connection.pgconn.get_result()
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server ended the stream")

    def ask(self) -> None:
        """Asks the server up to where it has read its log; a later ``read`` takes the answer."""
        try:
            with self._lock:
                self._tell(ask=True)
                self.asked = True
        except psycopg.Error as error:
            raise self._broke(error) from error

    def confirm(self, lsn: int) -> None:
        """Everything up to here is committed: the server need not keep its log.

        It need not hear that from a stream that breaks: the next one begins there, and says so.
        """
        self._confirmed = max(self._confirmed, lsn)
        self.keep_alive()

    def _tell(self, *, ask: bool) -> None:
        at, now = self._confirmed, int((time.time() - _EPOCH_SECONDS) * 1_000_000)
        connection = self._connection.pgconn
        connection.put_copy_data(b"r" + struct.pack(">QQQqB", at, at, at, now, ask))
        while connection.flush():
            select.select([], [connection.socket], [], STATUS_SECONDS)

    def keep_alive(self) -> bool:
        """Sends the server a sign of life. False if that fails; the next read raises the reason."""
        try:
            with self._lock:
                if not self._ended.is_set():
                    self._tell(ask=False)
        except psycopg.Error:
            self.broken = True
        return not self.broken

    def close(self) -> None:
        """Ends the stream; the slot stays."""
        self._ended.set()
        with self._lock:
            self._connection.close()


def _keep_telling(reference: weakref.ref[ChangeStream], ended: threading.Event) -> None:
    while not ended.wait(STATUS_SECONDS):
        stream = reference()
        if stream is None or not stream.keep_alive():
            return
        del stream  # it may go while this waits


def _end(ended: threading.Event, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    ended.set()
    connection.close()
