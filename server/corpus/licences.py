"""Reads a package's licence from its own metadata, and says whether it is permissive.

Only what is clearly permissive is taken: an unknown or missing licence leaves the package out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from email.parser import HeaderParser
from fnmatch import fnmatchcase

from server.corpus.errors import PackageSkipped
from server.corpus.package_list import Registry

_PERMISSIVE = re.compile(
    r"\b(MIT(-0)?|Expat|X11|BSD|0BSD|[1-4]-clause|Apache|ASL|ISC|ISCL|zlib|Unlicense|CC0(-1\.0)?|PSF(-2\.0)?|PSFL"
    r"|Python-2\.0|Python Software Foundation|public[ -]domain|PostgreSQL|BlueOak|Boost|BSL-1\.0|HPND|ZPL"
    r"|Zope Public|curl|W3C|NCSA|MulanPSL|WTFPL|Unicode|LLVM-exception|repoze)\b"
    r"|^Go$",  # how Debian's golang names its three-clause BSD licence
    re.IGNORECASE,
)
_NOT_PERMISSIVE = re.compile(
    r"GPL|General Public|\bMPL|Mozilla Public|\bEPL|Eclipse Public|CDDL|EUPL|CeCILL|SSPL|BUSL|Business Source"
    r"|Commons Clause|Elastic|Proprietary|UNLICENSED|Non-?Commercial|CC-BY|Creative Commons|\bOSL|Artistic",
    re.IGNORECASE,
)
# Phrases of the licences' own texts, for a package whose metadata only names a licence file.
_TEXTS = (
    (re.compile(r"Permission is hereby granted, free of charge, to any person"), "MIT"),
    (re.compile(r"Apache License,?\s+Version 2\.0"), "Apache-2.0"),
    (re.compile(r"Redistribution and use in source and binary forms"), "BSD"),
    (re.compile(r"Permission to use, copy, modify, and(/or)? distribute"), "ISC"),
)
_LICENCE_FILE = re.compile(r"(^|/)(LICEN[CS]E|COPYING)(\.(md|txt|rst))?$", re.IGNORECASE)


def is_metadata(registry: Registry, path: str) -> bool:
    """Whether the file of the archive is one that `read_licence` needs."""
    parts = path.split("/")
    if _LICENCE_FILE.search(path) and (len(parts) <= 2 or ".dist-info/" in path):
        return True
    if registry == "python":
        return path.endswith(".dist-info/METADATA") or (len(parts) == 2 and parts[1] == "PKG-INFO")
    if registry == "npm":
        return len(parts) == 2 and parts[1] == "package.json"
    if registry == "debian":
        return "usr/share/doc/" in path and parts[-1] == "copyright"
    return path.endswith("debian/copyright")


class Licence:
    """name: the licence as the package states it. version: the package's own, "" when not in the metadata."""

    def __init__(self, name: str, version: str, covers: Callable[[str], bool] = lambda path: True) -> None:
        self.name = name
        self.version = version
        self.covers = covers  # False for a file that the metadata puts under a licence that is not permissive


def read_licence(registry: Registry, metadata: Mapping[str, bytes]) -> Licence:
    """The permissive licence of a package. Raises PackageSkipped when it has none or none is stated.

    metadata: path -> content of the files that `is_metadata` chose.
    """
    texts = {path: data.decode("utf-8", errors="replace") for path, data in sorted(metadata.items())}
    if registry in ("debian", "debian_source"):
        return _debian(texts)
    stated, version = _python(texts) if registry == "python" else _npm(texts)
    if not stated:
        files = [text for path, text in texts.items() if _LICENCE_FILE.search(path)]
        named = [name for text in files for phrase, name in _TEXTS if phrase.search(text)]
        if named and not any(re.search(r"GENERAL PUBLIC|Mozilla Public", text[:3000]) for text in files):
            stated = named[0]
    if not stated:
        raise PackageSkipped("its metadata states no licence")
    if not is_permissive(stated):
        raise PackageSkipped(f"its licence is not known to be permissive: {stated[:80]}")
    return Licence(stated[:120], version)


def is_permissive(stated: str) -> bool:
    """Whether a licence name or SPDX expression is permissive: of alternatives (OR) any, else all of it."""
    alternatives = re.split(r"\s+OR\s+|\|\|", stated.strip("() "))
    return any(
        all(
            _PERMISSIVE.search(part) is not None and not _NOT_PERMISSIVE.search(part)
            for part in re.split(r"\s+AND\s+", alternative)
        )
        for alternative in alternatives
    )


def _python(texts: Mapping[str, str]) -> tuple[str, str]:
    for path, text in texts.items():
        if not path.endswith(("METADATA", "PKG-INFO")):
            continue
        headers = HeaderParser().parsestr(text)
        version = str(headers.get("Version", ""))
        classifiers = [
            value.split("::")[-1].strip()
            for value in headers.get_all("Classifier", [])
            if value.startswith("License ::") and value.split("::")[-1].strip() != "OSI Approved"
        ]
        # The free field may hold the texts of bundled libraries, so it comes last.
        free = " ".join(str(headers.get("License", "")).split())
        if free.upper() == "UNKNOWN":
            free = ""
        if len(free) > 120:
            free = next((name for phrase, name in _TEXTS if phrase.search(free)), free)
        return str(headers.get("License-Expression") or " AND ".join(classifiers) or free), version
    return "", ""


def _npm(texts: Mapping[str, str]) -> tuple[str, str]:
    for path, text in texts.items():
        if not path.endswith("package.json"):
            continue
        try:
            data = json.loads(text)
        except ValueError as error:
            raise PackageSkipped("its package.json is not valid JSON") from error
        if not isinstance(data, dict):
            raise PackageSkipped("its package.json is not an object")
        found = data.get("license") or data.get("licenses") or ""
        names = [
            str(entry.get("type", "")) if isinstance(entry, dict) else str(entry)
            for entry in (found if isinstance(found, list) else [found])
        ]
        return " OR ".join(name for name in names if name), str(data.get("version", ""))
    return "", ""


def _debian(texts: Mapping[str, str]) -> Licence:
    """From a copyright file in Debian's machine-readable form (DEP-5): the licence of each file pattern."""
    rules: list[tuple[list[str], str]] = []
    for path, text in texts.items():
        if not path.endswith("copyright"):
            continue
        for stanza in re.split(r"\n\s*\n", text):
            patterns = re.search(r"^Files:((?:.|\n[ \t])*)", stanza, re.MULTILINE)
            name = re.search(r"^License:[ \t]*(.*)", stanza, re.MULTILINE)
            if patterns and name:
                rules.append((patterns.group(1).split(), name.group(1).strip().replace(" or ", " OR ")))
    general = next((name for patterns, name in rules if "*" in patterns), "")
    if not general:
        raise PackageSkipped("its copyright file states no licence for its files")
    if not is_permissive(general.replace(" and ", " AND ")):
        raise PackageSkipped(f"its licence is not known to be permissive: {general[:80]}")
    refused = [(patterns, is_permissive(name.replace(" and ", " AND "))) for patterns, name in rules]

    def covers(path: str) -> bool:
        allowed = True
        for patterns, permissive in refused:
            # The last stanza that matches holds; installed paths are longer than the source's own.
            if any(fnmatchcase(path, pattern) or fnmatchcase(path, "*/" + pattern) for pattern in patterns):
                allowed = permissive
        return allowed

    return Licence(general, "", covers)
