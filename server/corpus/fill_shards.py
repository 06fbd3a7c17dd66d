"""Builds fill-in-the-middle shards out of the documents of a corpus, in the prompt format of a profile.

What `build` kept of each package is the source, so its split and its filters hold here as well. A package's examples
are kept on disk; a run that is bounded in time, or interrupted, is gone on with by the same command, and what is there
is shuffled into shards at the end of each run.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from server.context.tokenizer import PromptTokenizer
from server.corpus.build import MANIFEST
from server.corpus.errors import CorpusError
from server.corpus.fill import FillRenderer, Neighbours, read_file
from server.corpus.package_list import Package, load_package_list
from server.corpus.shards import Place, deduplicate, write_shards
from server.corpus.tokens import PackageTokens, kept_tokens
from server.profiles import Profile

# Raise it when holes or prompts change: what was kept is then made anew.
RENDERING = 2
TOKENS_A_HOLE = 450  # of a document
MOST_HOLES = 10  # of one document
PLAIN = 0.35  # of the documents are shown from their beginning as well, with nothing due
PLAIN_TOKENS = 600


@dataclass
class Examples:
    """Examples of one package. Example i is tokens[starts[i]:starts[i+1]], its middle begins at middles[i]."""

    starts: list[int] = field(default_factory=lambda: [0])
    middles: list[int] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    tokens: Any = None  # [starts[-1]], memory-mapped

    def add(self, kind: str, language: str, length: int, middle: int) -> None:
        self.middles.append(self.starts[-1] + middle)
        self.starts.append(self.starts[-1] + length)
        self.kinds.append(kind)
        self.languages.append(language)


def build_fill_shards(
    list_file: Path, corpus: Path, out: Path, profile: Profile, minutes: float | None = None
) -> dict[str, Any]:
    """Cut examples out of the packages of `corpus` for at most `minutes`, write shards; returns the manifest.

    Raises CorpusError when the corpus is not one, or the profile shows nothing after the cursor.
    """
    wanted = load_package_list(list_file)
    if profile.prompt is None:
        raise CorpusError(f"profile {profile.name} has no prompt")
    tokenizer = PromptTokenizer.from_file(profile.prompt.tokenizer)
    renderer = FillRenderer(profile, tokenizer)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CorpusError(f"output folder {out} cannot be written: {error.strerror or error}") from error
    made_from = [RENDERING, _fingerprint(profile)]
    read = [(package, found) for package in wanted.packages if (found := kept_tokens(package, corpus / "tokens"))]
    if not read:
        raise CorpusError(f"{corpus} holds no tokens of listed packages: run `train corpus` first")
    places: dict[int, list[int]] = defaultdict(list)
    for each in deduplicate([(package.split, tokens) for package, tokens in read]).values():
        for place in each:
            places[place.package].append(place.index)
    # Held-out packages first; the others in an order in which a part is a fair sample of all.
    order = sorted(
        places, key=lambda n: (read[n][0].split == "train", hashlib.sha256(read[n][0].folder.encode()).digest())
    )
    until = None if minutes is None else time.monotonic() + 60 * minutes
    done: list[tuple[Package, Examples]] = []
    with tqdm(total=len(order), unit=" packages", file=sys.stderr, mininterval=5) as bar:
        for number in order:
            package, tokens = read[number]
            examples = _kept(package, out / "kept", made_from)
            if examples is None and (until is None or time.monotonic() < until):
                examples = _cut(package, tokens, places[number], renderer, tokenizer, out / "kept", made_from)
            if examples is not None:
                done.append((package, examples))
            bar.update()
    return _write(out, done, len(order), profile, wanted.seed, tokenizer)


def _cut(
    package: Package,
    source: PackageTokens,
    documents: list[int],
    renderer: FillRenderer,
    tokenizer: PromptTokenizer,
    kept: Path,
    made_from: list[Any],
) -> Examples:
    import numpy as np

    chance = random.Random(package.folder)
    neighbours, examples = Neighbours(), Examples()
    wide = len(tokenizer.token_bytes) > 0x10000
    pieces: list[Any] = []
    for index in documents:
        ids = source.tokens[source.starts[index] : source.starts[index + 1]]
        language = source.languages[index]
        if chance.random() < PLAIN:
            pieces.append(np.asarray(ids[:PLAIN_TOKENS]))
            examples.add("plain", language, len(pieces[-1]), len(pieces[-1]))
        # The first line is the path as prompts have it; prompts are written anew around each hole.
        comment, _, text = source_text(ids, tokenizer).partition("\n")
        file = read_file(source_path(comment), text)
        count = max(1, min(MOST_HOLES, round(len(ids) / TOKENS_A_HOLE)))
        for example in renderer.examples(file, count, neighbours, chance) if text.strip() else ():
            pieces.append(np.asarray(example.tokens))
            examples.add(example.kind, language, len(example.tokens), example.middle)
        neighbours.add(file)
    info_file, token_file = kept / f"{package.folder}.json", kept / f"{package.folder}.npy"
    info_file.parent.mkdir(parents=True, exist_ok=True)
    joined = np.concatenate(pieces) if pieces else np.zeros(0)
    np.save(token_file, joined.astype(np.uint32 if wide else np.uint16))
    info = {**asdict(examples), "made_from": made_from}
    del info["tokens"]
    partial = info_file.with_suffix(".partial")
    partial.write_text(json.dumps(info))
    partial.rename(info_file)
    examples.tokens = np.load(token_file, mmap_mode="r")
    return examples


def source_text(ids: Any, tokenizer: PromptTokenizer) -> str:
    """The text of a document of a corpus, the comment line with its path first."""
    return tokenizer.decode(ids[1:].tolist())


def source_path(comment: str) -> str:
    """The path in the comment line of a document."""
    return comment.removeprefix("#").removeprefix("//").removeprefix("/*").removesuffix("*/").strip()


def _kept(package: Package, kept: Path, made_from: list[Any]) -> Examples | None:
    import numpy as np

    try:
        info = json.loads((kept / f"{package.folder}.json").read_text())
        if info.pop("made_from") != made_from:
            return None
        return Examples(**info, tokens=np.load(kept / f"{package.folder}.npy", mmap_mode="r"))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not made yet, or not to the end


def _write(
    out: Path,
    done: list[tuple[Package, Examples]],
    packages: int,
    profile: Profile,
    seed: int,
    tokenizer: PromptTokenizer,
) -> dict[str, Any]:
    for pattern in ("train-*.npy", "held-*.npy"):
        for stale in out.glob(pattern):
            stale.unlink()
    places: dict[str, list[Place]] = defaultdict(list)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    totals: dict[str, dict[str, dict[str, int]]] = {"train": {}, "held": {}}
    for number, (package, examples) in enumerate(done):
        for index, (kind, language) in enumerate(zip(examples.kinds, examples.languages, strict=True)):
            places[package.split if package.split == "train" else f"held-{language}"].append(Place(number, index))
            kinds[package.split][kind] += 1
            total = totals[package.split].setdefault(language, {"examples": 0, "tokens": 0, "middle_tokens": 0})
            end = examples.starts[index + 1]
            total["examples"] += 1
            total["tokens"] += end - examples.starts[index]
            total["middle_tokens"] += end - examples.middles[index]
    assert profile.prompt is not None
    manifest = {
        "format": 2,
        "rendering": RENDERING,
        "prompt": {**asdict(profile.prompt), "tokenizer": profile.prompt.tokenizer.name},
        "packages": {"done": len(done), "of": packages},
        "totals": totals,
        "kinds": {split: dict(counted.most_common()) for split, counted in kinds.items()},
        "shards": [
            asdict(shard)
            for name, documents in sorted(places.items())
            for shard in write_shards(out, name, documents, [examples for _, examples in done], seed)
        ],
    }
    partial = out / (MANIFEST + ".partial")
    partial.write_text(json.dumps(manifest, indent=1) + "\n")
    partial.rename(out / MANIFEST)
    return manifest


def _fingerprint(profile: Profile) -> str:
    """Of everything in a profile that a prompt depends on."""
    assert profile.prompt is not None
    prompt = asdict(profile.prompt)
    prompt["tokenizer"] = hashlib.sha256(profile.prompt.tokenizer.read_bytes()).hexdigest()
    return hashlib.sha256(
        json.dumps([prompt, profile.engine.context], sort_keys=True, default=str).encode()
    ).hexdigest()
