"""Files in Azure for PyIceberg, also by the addresses of blobs (`wasb`, `wasbs`), which its library does not know."""

from __future__ import annotations

import re

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.fsspec import FsspecFileIO, FsspecInputFile, FsspecOutputFile

_OF_BLOBS = re.compile(r"wasb(?=s?://)")


class AzureFileIO(FsspecFileIO):
    """Asks for a file by the address that Data Lake Storage has for it: it is the same file."""

    def new_input(self, location: str) -> FsspecInputFile:
        """A file to read."""
        return super().new_input(_known(location))

    def new_output(self, location: str) -> FsspecOutputFile:
        """A file to write."""
        return super().new_output(_known(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes a file."""
        super().delete(_known(location if isinstance(location, str) else location.location))


def _known(location: str) -> str:
    return _OF_BLOBS.sub("abfs", location, count=1).replace(".blob.", ".dfs.", 1) if _OF_BLOBS.match(location) else location
