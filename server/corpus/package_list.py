"""The list of packages that a corpus is built from, read from a TOML file and checked."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from server.corpus.errors import CorpusError

Registry = Literal["python", "npm", "debian", "debian_source"]
Split = Literal["train", "held"]

# What reaches a client's command line: a name, never an option, a path or an address.
_NAMES: dict[str, re.Pattern[str]] = {
    "python": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9.!+_-]+)?"),
    "npm": re.compile(r"(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*(@[0-9][A-Za-z0-9.+-]*)?"),
    "debian": re.compile(r"[a-z0-9][a-z0-9.+-]+"),
    "debian_source": re.compile(r"[a-z0-9][a-z0-9.+-]+"),
}


@dataclass(frozen=True)
class Package:
    """One wanted package: `spec` is what its client is asked for, `name` is that without a pinned version."""

    registry: Registry
    spec: str
    split: Split

    @property
    def name(self) -> str:
        if self.registry == "python":
            return self.spec.split("==")[0]
        if self.registry == "npm":
            return self.spec[:1] + self.spec[1:].split("@")[0]
        return self.spec

    @property
    def folder(self) -> str:
        """Relative path under which the build keeps what belongs to this package."""
        return f"{self.registry}/{self.spec.replace('/', '+')}"


@dataclass(frozen=True)
class PackageList:
    """packages: held-out ones first, then training ones in the order of the file.

    cap_bytes: text kept of one package. seed: document order in the shards.
    """

    packages: tuple[Package, ...]
    cap_bytes: int
    seed: int


def load_package_list(path: Path) -> PackageList:
    """Read and check a list. Raises CorpusError on a missing, broken or empty file and on a bad name."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CorpusError(f"package list {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorpusError(f"package list {path} is not valid TOML: {error}") from error
    registries = get_args(Registry)
    held = data.pop("held_out", {})
    if not isinstance(held, dict):
        raise CorpusError(f"package list {path}: held_out must be a table")
    cap_mb = data.pop("cap_mb", 15)
    seed = data.pop("seed", 0)
    if isinstance(cap_mb, bool) or not isinstance(cap_mb, int | float) or cap_mb <= 0:
        raise CorpusError(f"package list {path}: cap_mb must be a number above 0")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise CorpusError(f"package list {path}: seed must be a whole number")
    for table in (data, held):
        for key in table:
            if key not in registries:
                raise CorpusError(f"package list {path}: unknown key {key}")
    packages = [
        *(package for registry in registries for package in _read(path, held, registry, "held")),
        *(package for registry in registries for package in _read(path, data, registry, "train")),
    ]
    if not packages:
        raise CorpusError(f"package list {path} names no package")
    seen: set[tuple[str, str]] = set()
    for package in packages:
        key = (package.registry, package.name.lower())
        if key in seen:
            raise CorpusError(f"package list {path}: {package.registry} package {package.name} is named twice")
        seen.add(key)
    return PackageList(packages=tuple(packages), cap_bytes=int(cap_mb * 1_000_000), seed=seed)


def _read(path: Path, table: dict[str, Any], registry: Registry, split: Split) -> list[Package]:
    names = table.get(registry, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CorpusError(f"package list {path}: {registry} must be a list of names")
    for name in names:
        if not _NAMES[registry].fullmatch(name):
            raise CorpusError(f"package list {path}: {name!r} is not a {registry} package name")
    return [Package(registry, name, split) for name in names]
