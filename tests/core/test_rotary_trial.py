"""The rotary base that accepts more is found by trying, said, and used from then on without a further trial."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash_core import Engine, EngineOptions
from dflash_core.block_decoder import BlockDecoder
from dflash_core.rotary_trial import RotaryTrial, try_rotary_bases
from dflash_core.sessions import Session
from server.engine.rotary_bases import bases_to_try, keep_base, kept_base
from server.profiles import load_profile
from tests.core import tiny
from tests.core.test_decoding import drafted_by, generate, prompts

OPTIONS = EngineOptions(device="cpu", dtype="float32", context=256)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    config = tiny.draft_config(dflash={"backbone_rotary_base": 5000000})
    return tiny.write_target(tmp_path / "target"), tiny.write_draft(tmp_path / "draft", config, mask=True)


def test_a_changed_base_drafts_what_a_draft_loaded_with_it_does(pair: tuple[Path, Path]) -> None:
    changed = Engine.load(*pair, tiny.token_bytes(), OPTIONS)
    loaded = Engine.load(*pair, tiny.token_bytes(), replace(OPTIONS, rotary_base=5e6))
    own = Engine.load(*pair, tiny.token_bytes(), OPTIONS)
    changed.use_rotary_base(5e6)
    blocks = [drafted_by(engine) for engine in (changed, loaded, own)]
    texts = [generate(engine, prompts(1)[0], 40, draft="on") for engine in (changed, loaded, own)]
    assert blocks[0] == blocks[1] != blocks[2]
    assert texts[0] == texts[1] == texts[2]  # lossless all the same


def test_the_base_with_more_accepted_is_kept(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that is right with one base only, as a trained one is: a fake, since no trained MiMo draft can be had."""
    engine = Engine.load(*pair, tiny.token_bytes(), OPTIONS)
    target = engine.decoder.target

    def right_with_5e6(self: BlockDecoder, session: Session, anchor: int) -> torch.Tensor:
        block = [anchor]
        right = self.draft is not None and self.draft.spec.rotary.base == 5e6
        while len(block) < 8:
            tokens = torch.tensor([session.tokens + block])
            fresh = Session(target, None, 256)
            positions = fresh.next_positions(tokens.shape[1])
            hidden, _ = target(tokens, positions, fresh.target_attention(positions))
            block.append(int(target.logits(hidden)[0, -1].argmax()) if right else 0)
        return torch.tensor([block])

    monkeypatch.setattr(BlockDecoder, "_draft_block", right_with_5e6)
    trial = try_rotary_bases(engine, [1e4, 5e6], prompts(2, 30))
    assert trial is not None and trial.kept == 5e6
    assert trial.acceptance[5e6] > 4 > 2 > trial.acceptance[1e4]
    assert "5e+06 is kept" in trial.words() and "tokens a round" in trial.words()
    draft = engine.decoder.draft
    assert draft is not None and draft.spec.rotary.base == 5e6
    assert try_rotary_bases(engine, [1e4, 5e6], prompts(1, 30), stop=lambda: True) is None


def test_what_was_found_is_kept_in_the_cache_for_this_pair(
    pair: tuple[Path, Path], private_dirs: Path, tmp_path: Path
) -> None:
    def profile(more: str = "") -> Path:
        file = tmp_path / "own.toml"
        tokenizer = Path("assets/embedded/tokenizer.json").resolve()
        file.write_text(
            f'[target]\npath = "{pair[0]}"\n[draft]\npath = "{pair[1]}"\n{more}[prompt]\ntokenizer = "{tokenizer}"\n'
        )
        return file

    found = load_profile(str(profile()))
    assert bases_to_try(found) == [10000.0, 5000000.0] and kept_base(found) is None
    keep_base(found, RotaryTrial({1e4: 1.1, 5e6: 4.2}, 5e6))
    kept = kept_base(found)
    assert kept is not None and kept["base"] == 5e6 and "1.10 tokens a round" in kept["words"]
    assert bases_to_try(load_profile(str(profile("rotary_base = 10000.0\n")))) == []  # the profile decides
    config = json.loads((pair[1] / "config.json").read_text())
    del config["dflash_config"]["backbone_rotary_base"]
    (pair[1] / "config.json").write_text(json.dumps(config))
    assert bases_to_try(found) == []  # nothing is contested
    tiny.write_draft(pair[1], tiny.draft_config(num_hidden_layers=2))
    assert kept_base(found) is None  # another draft
