"""Token ids of one package's documents, kept on disk so that an interrupted build goes on where it was.

A document is token 0, a comment line with its path as a prompt has it, and its text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from server.context.formats import path_comment
from server.context.languages import language_for
from server.context.tokenizer import PromptTokenizer
from server.corpus.archives import read_archive
from server.corpus.errors import CorpusError, PackageSkipped
from server.corpus.licences import is_metadata, read_licence
from server.corpus.package_list import Package
from server.corpus.selection import Document, may_be_source, one_build, read_document, shown_path

if TYPE_CHECKING:
    import numpy as np

# Raise it when the selection or the rendering of documents changes: what was kept is then made anew.
RENDERING = 3
START = 0
MAX_METADATA_BYTES = 2_000_000


@dataclass
class PackageTokens:
    """Documents of one package. Document i is tokens[starts[i]:starts[i+1]]; starts has one entry more.

    languages, digests (hex) and sizes (bytes of text) are per document.
    """

    version: str
    licence: str
    archives: list[str]
    starts: list[int] = field(default_factory=lambda: [0])
    languages: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    middles: list[int] = field(default_factory=list)  # always empty: nothing is cut out of these
    tokens: Any = None  # uint16 [starts[-1]], memory-mapped


def package_tokens(
    package: Package,
    archives: Sequence[Path],
    tokenizer: PromptTokenizer,
    tokenizer_hash: str,
    cap_bytes: int,
    kept: Path,
) -> PackageTokens:
    """Tokens of the package's documents, from `kept` when they were made from the same things before.

    Raises PackageSkipped when an archive cannot be read, its licence is not permissive, or nothing is left.
    """
    import numpy as np

    info_file = kept / f"{package.folder}.json"
    token_file = kept / f"{package.folder}.npy"
    made_from = [RENDERING, tokenizer_hash, cap_bytes, [[path.name, path.stat().st_size] for path in archives]]
    try:
        info = json.loads(info_file.read_text())
        if info.pop("made_from") == made_from:
            return PackageTokens(**info, tokens=np.load(token_file, mmap_mode="r"))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not made yet, or not to the end
    version, licence, documents = read_documents(package, archives, cap_bytes)
    result = PackageTokens(version, licence, [path.name for path in archives])
    pieces: list[np.ndarray] = []
    for document in documents:
        ids = render(document, tokenizer)
        pieces.append(np.asarray(ids, dtype=np.uint16))
        result.starts.append(result.starts[-1] + len(ids))
        result.languages.append(document.language)
        result.digests.append(document.digest.hex())
        result.sizes.append(len(document.text.encode()))
    info_file.parent.mkdir(parents=True, exist_ok=True)
    np.save(token_file, np.concatenate(pieces))
    info = {**asdict(result), "made_from": made_from}
    del info["tokens"]
    partial = info_file.with_suffix(".partial")
    partial.write_text(json.dumps(info))
    partial.rename(info_file)
    result.tokens = np.load(token_file, mmap_mode="r")
    return result


def kept_tokens(package: Package, kept: Path) -> PackageTokens | None:
    """The tokens that a build kept of a package; None when it kept none."""
    import numpy as np

    try:
        info = json.loads((kept / f"{package.folder}.json").read_text())
        info.pop("made_from")
        return PackageTokens(**info, tokens=np.load(kept / f"{package.folder}.npy", mmap_mode="r"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def render(document: Document, tokenizer: PromptTokenizer) -> list[int]:
    """Token ids of a document as the model meets it when it serves."""
    comment = path_comment(document.path, language_for("", document.path))
    ids = [START, *tokenizer.encode(comment + document.text)]
    if START in ids[1:] or max(ids) > 0xFFFF:
        raise CorpusError("the tokenizer does not fit token shards: ids must fit 16 bits, and 0 start a document")
    return ids


def read_documents(package: Package, archives: Sequence[Path], cap_bytes: int) -> tuple[str, str, list[Document]]:
    """Version, licence and documents of a package, at most `cap_bytes` of text, each text once."""
    metadata: dict[str, bytes] = {}
    sources: dict[str, bytes] = {}

    def wanted(path: str, size: int) -> bool:
        if is_metadata(package.registry, path):
            return size <= MAX_METADATA_BYTES
        return may_be_source(path, size)

    for archive in archives:
        has_top = archive.suffix not in (".whl", ".deb")
        for path, data in read_archive(archive, wanted):
            if is_metadata(package.registry, path):
                metadata[path] = data
            else:
                sources[shown_path(path, has_top=has_top)] = data
    licence = read_licence(package.registry, metadata)
    found = {
        path: document
        for path, data in sources.items()
        if licence.covers(path) and (document := read_document(path, data)) is not None
    }
    # A capped package gives a fair sample of itself, the same one every time.
    order = sorted(one_build(list(found)), key=lambda path: hashlib.blake2b(path.encode()).digest())
    documents: list[Document] = []
    seen: set[bytes] = set()
    size = 0
    for path in order:
        if found[path].digest in seen or size + len(sources[path]) > cap_bytes:
            continue
        seen.add(found[path].digest)
        size += len(sources[path])
        documents.append(found[path])
    if not documents:
        raise PackageSkipped("no source file of it passes the filters")
    return licence.version or _version_in_name(archives), licence.name, documents


def _version_in_name(archives: Sequence[Path]) -> str:
    """A Debian archive's version stands between underscores of its name."""
    for path in reversed(archives):
        if match := re.search(r"_([^_]+?)(\.orig|\.debian|_\w+\.deb|\.tar)", path.name):
            return unquote(match.group(1))
    return ""
