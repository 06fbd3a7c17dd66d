"""The rotary base that a pair's draft accepts more with, found on first use and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_core.compatibility import rotary_bases
from dflash_core.config_values import read_config
from dflash_core.errors import DFlashError
from server import paths
from server.context.tokenizer import PromptTokenizer
from server.engine.weight_files import weight_files
from server.engine.whereabouts import write_private
from server.profiles import Profile

if TYPE_CHECKING:
    from dflash_core.rotary_trial import RotaryTrial

log = logging.getLogger(__name__)

_SOURCES = ("profiles/loading.py", "engine/client.py", "documents/document.py")
"""Code of our own that is always at hand, and of which any target can write on."""
_PROMPT_TOKENS = 128


def bases_to_try(profile: Profile) -> list[float]:
    """The bases that the draft's config names, when there are several and the profile names none; else []."""
    if profile.draft is None or profile.draft.rotary_base is not None:
        return []
    try:
        found = rotary_bases(read_config(profile.draft.path))
    except DFlashError:
        return []
    return found if len(found) > 1 else []


def kept_base(profile: Profile) -> dict[str, Any] | None:
    """What the pair's trial found: `base` and `words` for a person; None when there was none."""
    try:
        found = json.loads(_file(profile).read_text(encoding="utf-8"))
        return {"base": float(found["base"]), "words": str(found["words"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_base(profile: Profile, trial: RotaryTrial) -> None:
    """Keep what a trial found; a cache that cannot be written costs a trial at the next start."""
    file = _file(profile)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, json.dumps({"base": trial.kept, "words": trial.words()}))
    except OSError as error:
        log.warning("the draft's rotary base could not be kept: %s", error.strerror)


def trial_prompts(tokenizer: PromptTokenizer, context: int) -> list[list[int]]:
    """Beginnings of source files, as long as fits beside what is generated."""
    root = Path(__file__).resolve().parent.parent
    length = min(_PROMPT_TOKENS, context // 2)
    return [tokenizer.encode((root / name).read_text(encoding="utf-8"))[:length] for name in _SOURCES]


def _file(profile: Profile) -> Path:
    """Another target or draft is another file."""
    key = hashlib.sha256(json.dumps(weight_files(profile)).encode()).hexdigest()[:16]
    return paths.cache_dir() / "rotary-bases" / f"{key}.json"
