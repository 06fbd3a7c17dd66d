"""Builds a corpus: get the packages, read and tokenise them, deduplicate across the split, write shards.

What is on disk already is used again, so an interrupted build is gone on with by the same command. The
manifest is written last: a folder with one is complete.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from server.context.tokenizer import PromptTokenizer
from server.corpus.acquire import acquire
from server.corpus.errors import CorpusError, PackageSkipped
from server.corpus.package_list import Package, PackageList, load_package_list
from server.corpus.shards import deduplicate, write_shards
from server.corpus.tokens import RENDERING, PackageTokens, package_tokens

MANIFEST = "manifest.json"
FORMAT = 1


def build_corpus(list_file: Path, out: Path, tokenizer_file: Path) -> dict[str, Any]:
    """Build the corpus that `list_file` names under `out`; returns the manifest.

    Raises CorpusError or TokenizerError. A package that cannot be used is named in the manifest with the
    reason, and the build goes on.
    """
    wanted = load_package_list(list_file)
    tokenizer = PromptTokenizer.from_file(tokenizer_file)
    tokenizer_hash = hashlib.sha256(tokenizer_file.read_bytes()).hexdigest()
    lock = FileLock(out / ".lock", timeout=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with lock:
            return _build(wanted, out, tokenizer, tokenizer_hash)
    except Timeout as error:
        raise CorpusError(f"another build is writing to {out}") from error
    except OSError as error:
        raise CorpusError(f"output folder {out} cannot be written: {error.strerror or error}") from error


def _build(wanted: PackageList, out: Path, tokenizer: PromptTokenizer, tokenizer_hash: str) -> dict[str, Any]:
    (out / MANIFEST).unlink(missing_ok=True)
    with _bar(len(wanted.packages), "packages") as bar:
        archives, skipped = acquire(wanted.packages, out / "downloads", lambda package: _tick(bar, package.name))
    read: list[tuple[Package, PackageTokens]] = []
    with _bar(len(wanted.packages), "tokenised") as bar:
        for package in wanted.packages:
            if package in archives:
                try:
                    tokens = package_tokens(
                        package, archives[package], tokenizer, tokenizer_hash, wanted.cap_bytes, out / "tokens"
                    )
                    read.append((package, tokens))
                except PackageSkipped as error:
                    skipped[package] = str(error)
            _tick(bar, package.name)
    if not read:
        raise CorpusError(f"no package could be used: {next(iter(skipped.values()))}")
    manifest = _write(out, wanted, read, skipped)
    manifest = {"format": FORMAT, "rendering": RENDERING, "tokenizer_sha256": tokenizer_hash, **manifest}
    partial = out / (MANIFEST + ".partial")
    partial.write_text(json.dumps(manifest, indent=1) + "\n")
    partial.rename(out / MANIFEST)
    return manifest


def _write(
    out: Path, wanted: PackageList, read: list[tuple[Package, PackageTokens]], skipped: dict[Package, str]
) -> dict[str, Any]:
    for pattern in ("train-*.npy", "held-*.npy"):
        for stale in out.glob(pattern):
            stale.unlink()
    places = deduplicate([(package.split, tokens) for package, tokens in read])
    shards = []
    with _bar(sum(map(len, places.values())), "documents") as bar:
        for name, documents in sorted(places.items()):
            for shard in write_shards(out, name, documents, [tokens for _, tokens in read], wanted.seed):
                shards.append(asdict(shard))
                bar.update(shard.documents)
    totals: dict[str, dict[str, dict[str, int]]] = {"train": {}, "held": {}}
    by_package: dict[int, dict[str, int]] = defaultdict(lambda: {"documents": 0, "bytes": 0, "tokens": 0})
    languages: dict[int, dict[str, int]] = defaultdict(dict)
    for documents in places.values():
        for place in documents:
            package, tokens = read[place.package]
            language = tokens.languages[place.index]
            count = tokens.starts[place.index + 1] - tokens.starts[place.index]
            total = totals[package.split].setdefault(language, {"documents": 0, "bytes": 0, "tokens": 0})
            for sums in (total, by_package[place.package]):
                sums["documents"] += 1
                sums["bytes"] += tokens.sizes[place.index]
                sums["tokens"] += count
            languages[place.package][language] = languages[place.package].get(language, 0) + count
    return {
        "seed": wanted.seed,
        "cap_bytes": wanted.cap_bytes,
        "totals": totals,
        "shards": shards,
        "packages": [
            {
                "registry": package.registry,
                "name": package.name,
                "version": tokens.version,
                "licence": tokens.licence,
                "split": package.split,
                "archives": tokens.archives,
                **by_package[number],
                "languages": languages[number],
            }
            for number, (package, tokens) in enumerate(read)
        ],
        "skipped": [
            {"registry": package.registry, "name": package.name, "split": package.split, "reason": reason}
            for package, reason in sorted(skipped.items(), key=lambda item: (item[0].registry, item[0].name))
        ],
    }


def _bar(total: int, unit: str) -> tqdm[Any]:
    return tqdm(total=total, unit=f" {unit}", file=sys.stderr, mininterval=1, dynamic_ncols=True)


def _tick(bar: tqdm[Any], name: str) -> None:
    bar.set_postfix_str(name, refresh=False)
    bar.update()
