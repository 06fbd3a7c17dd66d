"""Whether a profile's draft fits its target: asked alike by `doctor`, by `models` and before an engine loads them."""

from __future__ import annotations

from dflash_core.compatibility import PairReport, compare_pair
from server.profiles.settings import Profile


def compare_profile(profile: Profile) -> PairReport | None:
    """By the files beside the weights, tokenizers included, the one of prompts as well; None without a pair at hand."""
    target, draft = profile.target, profile.draft
    if target is None or draft is None:
        return None
    if not all((source.path / "config.json").is_file() for source in (target, draft)):
        return None
    return compare_pair(
        target.path,
        draft.path,
        tokenizer=profile.prompt.tokenizer if profile.prompt else None,
        revisions=(target.revision, draft.revision),
    )
