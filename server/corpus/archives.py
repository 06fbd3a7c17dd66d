"""Reads the files of a package archive from memory; nothing is ever unpacked to disk.

An archive with a path that would leave its folder is refused whole, and so is one that is too large.
Links and devices are passed over.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from server.corpus.errors import PackageSkipped

MAX_MEMBERS = 300_000
MAX_UNPACKED_BYTES = 4_000_000_000
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError)


def read_archive(archive: Path, wanted: Callable[[str, int], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield (path, content) of the files for which `wanted(path, size in bytes)` is true.

    Reads wheels and zips, tarballs, and .deb files with a data.tar in gz, xz or bz2.
    Raises PackageSkipped when the archive is broken, unsafe or too large.
    """
    try:
        if archive.suffix in (".whl", ".zip"):
            yield from _read_zip(archive, wanted)
        elif archive.suffix == ".deb":
            with archive.open("rb") as file:
                yield from _read_tar(_deb_data(file, archive.name), wanted)
        else:
            with archive.open("rb") as file:
                yield from _read_tar(file, wanted)
    except _BROKEN as error:
        raise PackageSkipped(f"archive {archive.name} cannot be read: {type(error).__name__}") from error


class _Limits:
    """Checks each member's path and counts against the limits."""

    def __init__(self) -> None:
        self.members = 0
        self.bytes = 0

    def check(self, path: str, size: int) -> None:
        parts = PurePosixPath(path.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or "\0" in path or path[1:2] == ":":
            raise PackageSkipped(f"unsafe path in its archive: {path[:80]!r}")
        self.members += 1
        self.bytes += max(size, 0)
        if self.members > MAX_MEMBERS or self.bytes > MAX_UNPACKED_BYTES:
            raise PackageSkipped("its archive unpacks to too much")


def _read_zip(archive: Path, wanted: Callable[[str, int], bool]) -> Iterator[tuple[str, bytes]]:
    limits = _Limits()
    with zipfile.ZipFile(archive) as file:
        members = file.infolist()
        for member in members:
            limits.check(member.filename, member.file_size)
        for member in members:
            if member.is_dir() or not wanted(member.filename, member.file_size):
                continue
            with file.open(member) as content:
                # The size in the directory is what the archive claims: do not read past it.
                data = content.read(member.file_size + 1)
            if len(data) == member.file_size:
                yield member.filename, data


def _read_tar(file: IO[bytes], wanted: Callable[[str, int], bool]) -> Iterator[tuple[str, bytes]]:
    limits = _Limits()
    with tarfile.open(fileobj=file, mode="r:*") as tar:
        for member in tar:
            limits.check(member.name, member.size)
            if not member.isfile() or not wanted(member.name, member.size):
                continue
            content = tar.extractfile(member)
            if content is not None:
                yield member.name, content.read()


def _deb_data(file: IO[bytes], name: str) -> IO[bytes]:
    """The data.tar.* of a .deb, which is an ar archive: 8 bytes of magic, 60-byte headers, even padding."""
    if file.read(8) != b"!<arch>\n":
        raise PackageSkipped(f"archive {name} is not a .deb")
    while header := file.read(60):
        size = int(header[48:58])
        if header[:16].startswith(b"data.tar"):
            if b".zst" in header[:16]:
                raise PackageSkipped(f"archive {name} is packed with zstd, which cannot be read here")
            return io.BytesIO(file.read(size))
        file.seek(size + size % 2, io.SEEK_CUR)
    raise PackageSkipped(f"archive {name} has no data.tar")
