"""Writes, reads and deletes a small file where the files of tables are, or will be, and says what was not allowed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from frazil.errors import ConfigError, DataError, FrazilError
from frazil.model import connections
from frazil.model.connections import DELETE, READ, WRITE, Place
from frazil.observe.greeting import first_line
from frazil.observe.s3 import Bucket, keys_of
from frazil.observe.store_faults import cloud_failed, storage_failed
from frazil.spark.catalogs import GCS_SCHEMES

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

PROBE_PREFIX = ".frazil-probe-"
PROBE_CONTENT = b"written by frazil check; safe to delete"

# How the buckets of Amazon S3 Tables end. They refuse every delete, so that a probe would stay.
_MANAGED = "--table-s3"


def probe_folder(path: Path) -> Path:
    """Writes, reads and deletes a probe in the folder, or in the nearest one above it that exists; returns which it was."""
    folder = existing_folder(path)
    probe = folder / f"{PROBE_PREFIX}{uuid.uuid4()}"
    try:
        try:
            probe.write_bytes(PROBE_CONTENT)
            _require_same(probe.read_bytes(), str(probe))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise storage_failed(error, str(folder)) from error
    return folder


def existing_folder(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists: the run makes the rest."""
    for place in (path, *path.parents):
        if place.is_dir():
            return place
        if place.exists():
            raise ConfigError("not-a-folder", f"{place} is a file, and a folder is needed there.", fix="Choose another place.")
    return path


def probe_store(location: str, io: FileIO) -> str:
    """Writes, reads and deletes a probe in an object store, and says that it did. ``io`` is what PyIceberg reaches it with."""
    place = urlsplit(location)
    probe = f"{PROBE_PREFIX}{uuid.uuid4()}"
    if place.netloc.endswith(_MANAGED):
        return f"no probe is written to {location}: Amazon S3 Tables would never delete it"
    keys = keys_of(io.properties) if place.scheme in ("s3", "s3a", "s3n") else None
    if keys is not None:
        _probe_s3(Bucket.at(location, io.properties, keys), f"{place.path.strip('/')}/{probe}".lstrip("/"))
    else:
        _probe_files(io, location, f"{location.rstrip('/')}/{probe}")
    return f"wrote, read and deleted a probe in {location}"


def _probe_s3(bucket: Bucket, key: str) -> None:
    """Asks for the delete of what is not there first: whoever may not delete leaves nothing behind."""
    bucket.ask("DELETE", key, DELETE)
    bucket.ask("PUT", key, WRITE, PROBE_CONTENT)
    with _deleted_after(lambda: bucket.ask("DELETE", key, DELETE)):
        _require_same(bucket.ask("GET", key, READ), key)


def _probe_files(io: FileIO, location: str, probe: str) -> None:
    with _store_errors(location):
        try:
            with io.new_output(probe).create(overwrite=True) as stream:
                stream.write(PROBE_CONTENT)
        except FileNotFoundError as error:
            if urlsplit(location).scheme not in GCS_SCHEMES:
                raise
            raise connections.bucket_missing(Place.storage(location), first_line(error)) from error
        with _deleted_after(lambda: io.delete(probe)), io.new_input(probe).open() as stream:
            _require_same(stream.read(), probe)


@contextmanager
def _store_errors(location: str) -> Iterator[None]:
    """Turns what the libraries of stores raise into errors for people."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        known = cloud_failed(error, location)
        if known is None and isinstance(error, OSError):
            known = storage_failed(error, location)
        if known is None and isinstance(error, ValueError):
            text = f"{Place.storage(location).failed}: {first_line(error)}"
            known = ConfigError("storage-settings", text, fix="Check the settings of the store.")
        if known is None:
            raise
        raise known from error


@contextmanager
def _deleted_after(delete: Callable[[], object]) -> Iterator[None]:
    """Deletes the probe in the end. What went wrong before comes first, and that this went wrong, too, beside it."""
    try:
        yield
    except FrazilError as error:
        try:
            delete()
        except FrazilError as left:
            error.beside = (*error.beside, left)
        raise
    except Exception:
        with suppress(Exception):
            delete()
        raise
    delete()


def _require_same(content: bytes, probe: str) -> None:
    if content != PROBE_CONTENT:
        raise DataError("storage-failed", f"{probe} was read back with other content than was written.")
