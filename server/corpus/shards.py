"""Writes documents of many packages as token shards, in one shuffled order.

`train-00000.npy` and `held-LANGUAGE-00000.npy`: uint16 token ids, documents one after another, each begins
with token 0 and 0 stands nowhere else. `NAME.starts.npy` beside it: uint32 [documents], where each begins.
Where the documents are prompts with what is due behind them, `NAME.middles.npy`: uint32 [documents], where that
begins; the document's end where nothing is due. Ids that do not fit 16 bits make uint32 shards.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from server.corpus.tokens import PackageTokens

SHARD_TOKENS = 8_000_000


@dataclass(frozen=True)
class Place:
    """One document: document `index` of package number `package`."""

    package: int
    index: int


@dataclass(frozen=True)
class Shard:
    """What the manifest says of a shard file."""

    file: str
    split: str
    documents: int
    tokens: int
    sha256: str


class Documents(Protocol):
    """Documents of one package: document i is tokens[starts[i]:starts[i+1]]. middles: none, or one a document."""

    tokens: Any
    starts: list[int]
    middles: list[int]


def deduplicate(packages: Sequence[tuple[str, PackageTokens]]) -> dict[str, list[Place]]:
    """Places of the documents of each split, equal texts once: held-out packages first, then list order.

    packages: (split, tokens); split is "train" or "held". Keys of the result: "train", "held-LANGUAGE".
    """
    seen: set[str] = set()
    places: dict[str, list[Place]] = {"train": []}
    for wanted in ("held", "train"):
        for number, (split, package) in enumerate(packages):
            if split != wanted:
                continue
            for index, digest in enumerate(package.digests):
                if digest in seen:
                    continue
                seen.add(digest)
                key = split if split == "train" else f"held-{package.languages[index]}"
                places.setdefault(key, []).append(Place(number, index))
    return places


def write_shards(
    out: Path, name: str, places: Sequence[Place], packages: Sequence[Documents], seed: int
) -> Iterator[Shard]:
    """Shuffle the documents and write them under `out`; yields each shard when it is on disk."""
    import numpy as np

    order = list(places)
    random.Random(f"{seed} {name}").shuffle(order)
    pieces: list[Any] = []
    starts: list[int] = []
    middles: list[int] = []
    size = count = 0

    def flush() -> Shard:
        file = f"{name}-{count:05d}.npy"
        tokens = np.concatenate(pieces)
        _save(out / file, tokens)
        _save(out / f"{name}-{count:05d}.starts.npy", np.asarray(starts, dtype=np.uint32))
        if middles:
            _save(out / f"{name}-{count:05d}.middles.npy", np.asarray(middles, dtype=np.uint32))
        digest = hashlib.sha256((out / file).read_bytes()).hexdigest()
        return Shard(file, name.split("-")[0], len(starts), len(tokens), digest)

    for place in order:
        package = packages[place.package]
        document = package.tokens[package.starts[place.index] : package.starts[place.index + 1]]
        if pieces and size + len(document) > SHARD_TOKENS:
            yield flush()
            pieces, starts, middles, size, count = [], [], [], 0, count + 1
        pieces.append(document)
        starts.append(size)
        if package.middles:
            middles.append(size + package.middles[place.index] - package.starts[place.index])
        size += len(document)
    if pieces:
        yield flush()


def _save(path: Path, array: Any) -> None:
    import numpy as np

    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, array)
    partial.rename(path)
