"""Whether a draft fits a target, from the files beside their weights: what is refused, and what will cost acceptance.

A draft that fits in sizes alone still drafts nothing right when it was trained over another target, another tokenizer
or another mask. Reads no weights and imports no torch, so that a report can be had before anything is loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_core.config_values import read_config, size
from dflash_core.configs import draft_spec, misfits, target_spec
from dflash_core.errors import DFlashError, UnsupportedModelError
from dflash_core.specs import DraftSpec

_NOT_COMPUTED = {
    "conv_kernel_size": "DFlash 2's convolutions",
    "selector_rank": "DFlash 2's selector",
    "projector_type": "a Domino head",
    "shift_label": "shifted labels (DSpark)",
    "markov_rank": "a Markov head (DSpark)",
}
"""Keys of a draft's config that ask for what the stack does not compute."""

_QWEN_MASK = 151669
"""Mask of Qwen3's drafts; MiMo-V2.5-Pro's first release named it by mistake, where its training had used 151675."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class PairReport:
    """refusals: why the pair cannot run. warnings: why it may draft badly. facts: what was compared and agrees."""

    refusals: tuple[str, ...]
    warnings: tuple[str, ...]
    facts: tuple[str, ...]


def compare_pair(
    target: Path, draft: Path, *, tokenizer: Path | None = None, revisions: tuple[str | None, str | None] = (None, None)
) -> PairReport:
    """target, draft: checkpoint folders. tokenizer: the one that prompts are made with. revisions: the ones wanted."""
    try:
        config, draft_config = read_config(target), read_config(draft)
        spec = draft_spec(draft_config)
        sizes = _sizes(config)
    except DFlashError as error:
        return PairReport((str(error),), (), ())
    refusals = [f"the draft has {words}, which is not computed" for words in _uncomputed(draft_config)]
    refusals += [f"the draft does not fit its target: {words}" for words in misfits(spec, *sizes)] if sizes else []
    warnings, facts = _mask_words(config, spec, draft)
    if not sizes:
        facts.insert(0, "the target's config names its sizes in a way of its own: they are compared when it is loaded")
    elif not refusals:
        facts.insert(0, f"sizes agree: hidden {sizes[0]}, vocabulary {sizes[1]}, tapped layers {_listed(spec)}")
    wrong, agreeing = _tokenizer_words(target, draft, tokenizer, sizes[1] if sizes else None)
    refusals += wrong
    facts += agreeing
    warnings += _revision_words(config, target, draft, revisions)
    bases = rotary_bases(draft_config)
    if len(bases) > 1:
        facts.append(f"the draft's config names rotary bases {' and '.join(f'{base:g}' for base in bases)}: tried once")
    return PairReport(tuple(refusals), tuple(warnings), tuple(facts))


def rotary_bases(draft_config: Mapping[str, Any]) -> list[float]:
    """The bases that a draft's config may mean, the one it is read with first; published MiMo drafts name two."""
    own = draft_spec(draft_config).rotary.base
    other = (draft_config.get("dflash_config") or {}).get("backbone_rotary_base")
    if isinstance(other, bool) or not isinstance(other, int | float) or other <= 0 or other == own:
        return [own]
    return [own, float(other)]


def _sizes(config: dict[str, Any]) -> tuple[int, int, int] | None:
    """Hidden size, vocabulary, layers; also of a target that transformers computes, if it names them as most do."""
    try:
        spec = target_spec(config)
        return spec.hidden_size, spec.vocab_size, len(spec.layers)
    except UnsupportedModelError:
        text = config.get("text_config") or config
        names = ("hidden_size", "vocab_size", "num_hidden_layers")
        if not all(name in text for name in names):
            return None
        hidden, vocabulary, layers = (size(text, name) for name in names)
        return hidden, vocabulary, layers


def _uncomputed(config: Mapping[str, Any]) -> list[str]:
    nested = config.get("dflash_config") or {}
    return [words for key, words in _NOT_COMPUTED.items() if nested.get(key, config.get(key))]


def _listed(spec: DraftSpec) -> str:
    return ", ".join(map(str, spec.target_layer_ids))


def _mask_words(config: dict[str, Any], spec: DraftSpec, draft: Path) -> tuple[list[str], list[str]]:
    mask, own_vector = spec.mask_token_id, (draft / "mask_embedding.pt").is_file()
    mimo = str(config.get("model_type", "")).startswith("mimo_v2")
    if mimo and mask == _QWEN_MASK:
        return [f"mask {mask} is that of Qwen3's drafts: MiMo's is 151675, take a later revision of this draft"], []
    if own_vector:
        return [], [f"mask {mask} has a trained vector of the draft's own"]
    if mimo:
        # Row 151675 of the published table has norm 2e-5: nothing was ever trained there.
        return [
            f"the draft comes without mask_embedding.pt: row {mask} of a MiMo's table is untrained, "
            "so next to nothing of what is drafted will be accepted"
        ], []
    return [], [f"mask {mask} is the target's own row"]


def _tokenizer_words(target: Path, draft: Path, prompts: Path | None, vocab: int | None) -> tuple[list[str], list[str]]:
    """Refusals and facts about tokenizers: what is there must say the same of every id."""
    places = {"the target's": target / "tokenizer.json", "the draft's": draft / "tokenizer.json"}
    if prompts is not None:
        places["the one that prompts are made with"] = prompts
    found = {}
    for whose, path in places.items():
        ids = _token_ids(path)
        if ids is not None:
            found[whose] = ids
    wrong = []
    for whose, ids in found.items():
        if vocab is not None and ids and max(ids) >= vocab:
            wrong.append(f"tokenizers: {whose} has id {max(ids)}, the target's vocabulary is {vocab}")
    (first, theirs), *others = list(found.items()) or [("", {})]
    for whose, ids in others:
        # Added tokens may be more in one; what both name must be the same.
        odd = next((i for i in theirs.keys() & ids.keys() if theirs[i] != ids[i]), None)
        if odd is not None or abs(len(theirs) - len(ids)) > max(len(theirs), len(ids)) // 100:
            at = "in size" if odd is None else f"at id {odd}"
            wrong.append(f"tokenizers differ {at}: {first} and {whose}")
    if wrong or len(found) < 2:
        return wrong, []
    return [], [f"tokenizers agree: {' and '.join(found)}"]


def _token_ids(path: Path) -> dict[int, str] | None:
    """Every id of a tokenizer.json with its token; None where there is none that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = data["model"]["vocab"]
        found = {int(i): str(token) for token, i in vocabulary.items()} if isinstance(vocabulary, dict) else {}
        return found | {int(added["id"]): str(added["content"]) for added in data.get("added_tokens") or []}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _revision_words(
    config: dict[str, Any], target: Path, draft: Path, wanted: tuple[str | None, str | None]
) -> list[str]:
    words = []
    for whose, folder, revision in (("target", target, wanted[0]), ("draft", draft, wanted[1])):
        found = revision_of(folder)
        if revision and found and not found.startswith(revision):
            words.append(f"the {whose} at {folder} is revision {found[:12]}, the profile wants {revision[:12]}")
    # Xiaomi's draft was trained over the target it ships with (of 2026-07-03), not over V2.5 as first published.
    if str(config.get("model_type", "")) == "mimo_v2" and draft.parent.resolve() != target.resolve():
        words.append(
            "the draft does not lie in its target's folder: a MiMo draft was trained over the very target that is "
            "published with it, and accepts less over another revision"
        )
    return words


def revision_of(folder: Path) -> str | None:
    """The commit a checkpoint was downloaded at, from where Hugging Face's client notes it; None when nothing says."""
    for part in reversed(folder.resolve().parts):
        if _COMMIT.fullmatch(part):
            return part
    try:
        noted = folder / ".cache" / "huggingface" / "download" / "config.json.metadata"
        first = noted.read_text(encoding="utf-8").split()[0]
    except (OSError, ValueError, IndexError):
        return None
    return first if _COMMIT.fullmatch(first) else None
