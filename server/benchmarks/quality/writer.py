"""Writes at a place of a file with a profile's pair, as the product does, and keeps what the engine said on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.benchmarks.holes import Hole
from server.completion.cut import Cut
from server.completion.fit import fit
from server.completion.result import Finish
from server.completion.sound_text import Ending, sound_text
from server.completion.soundness import errors_around
from server.completion.surroundings import surroundings
from server.context.file_errors import Snapshot
from server.context.prompt import Prompt, PromptBuilder
from server.context.tokenizer import PromptTokenizer
from server.corpus.fill import Source, prompt_at
from server.documents.document import Change, Document, Place
from server.errors import DflashError
from server.profiles import Profile

if TYPE_CHECKING:
    from dflash_core.engine import Engine

AFTER_LIMIT = 4_000  # characters of the file below the cursor that a prompt may draw on
PAST_TOKENS = 12  # written after the boundary is known: a model that stops by itself has done so by then
PROMPT_LIMIT = 4_000  # the same above


@dataclass
class Written:
    """One completion. raw: what the model wrote; kept: that up to its boundary; served: what of it is offered, closed
    or cut back so that the file parses no worse; after: the file with that.

    ended: the model ended the text by itself. cut: the boundary ended it, and the model wrote on. Neither: the tokens
    ran out. rounds: (tokens before it, accepted) of each full block.
    """

    raw: str = ""
    kept: str = ""
    served: str = ""
    after: str = ""
    ended: bool = False
    cut: bool = False
    tokens: list[int] = field(default_factory=list)
    rounds: list[tuple[int, int]] = field(default_factory=list)


class Writer:
    def __init__(self, profile: Profile) -> None:
        """Load the profile's pair in this process. Raises DflashError when it has none."""
        from dflash_core.engine import Engine, EngineOptions

        if profile.target is None or profile.prompt is None:
            raise DflashError(f"profile {profile.name} has no target to measure")
        self.profile = profile
        self.prompts = PromptBuilder(profile)
        self.tokenizer = PromptTokenizer.from_file(profile.prompt.tokenizer)
        options = EngineOptions(
            device=profile.engine.device, dtype=profile.engine.dtype, context=profile.engine.context, sessions=1
        )
        draft = profile.draft.path if profile.draft else None
        self.engine: Engine = Engine.load(profile.target.path, draft, self.tokenizer.token_bytes, options)

    def prompt(self, source: Source, cursor: int, after: str) -> Prompt:
        return prompt_at(self.prompts, source, cursor, after[:AFTER_LIMIT])

    def write(self, source: Source, hole: Hole, *, draft: bool = True) -> Written:
        """Complete at the hole of a file from which it was taken, and a little on, to see whether the model stops."""
        without = source.text[: hole.start] + source.text[hole.end :]
        document = Document(f"file:///{source.path}", without, language=source.language.name)
        line = without.count("\n", 0, hole.start)
        place = Place(line, hole.start - (without.rfind("\n", 0, hole.start) + 1))
        site = surroundings(document, place, source.path, PROMPT_LIMIT)
        cut, written, settled_at = Cut(site.cursor), Written(), 0
        for piece, ended in self._pieces(self.prompt(source, hole.start, source.text[hole.end :]), written, draft):
            written.raw += piece
            written.ended = ended
            if cut.decision.end is None:
                cut.add(piece)
            elif len(written.tokens) - settled_at > PAST_TOKENS:
                break
            if cut.decision.end is None:
                settled_at = len(written.tokens)
        finish: Finish = "boundary"
        written.cut = not written.ended and cut.decision.end is not None
        if cut.decision.end is None:
            finish = "eos" if written.ended else "length"
            cut.finish(ran_out=not written.ended)
        written.kept = cut.kept()
        # What has no grammar is judged by what stands near, as it is served; so is a page's script here.
        syntax = source.language.syntax
        file = errors_around(site.cursor)
        if syntax is not None and site.cursor.language is source.language:
            file = Snapshot(document.lines, place, syntax).errors
        written.served = sound_text(written.kept, site.cursor, file, Ending.of(finish, cut.decision.reason))
        if written.served:
            insertion = fit(written.served, site, lambda: file)
            document.apply([Change(insertion.text, insertion.range)])
        written.after = document.text
        return written

    def _pieces(self, prompt: Prompt, written: Written, draft: bool) -> Iterator[tuple[str, bool]]:
        """Yields (text, whether the model ended here); fills `written` with tokens and rounds."""
        from dflash_core.generation import GenerationRequest

        assert isinstance(prompt.content, list)
        full = self.engine.decoder.block_size - 1
        generation = self.engine.submit(
            GenerationRequest(
                prompt=prompt.content,
                max_tokens=prompt.max_tokens,
                stop_ids=prompt.stop_ids,
                heal=prompt.heal.encode(),
                draft="on" if draft and self.engine.decoder.draft else "off",
            )
        )
        pending = b""
        try:
            while generation.finish is None:
                step = self.engine.step()
                if step is None or step.block is None:
                    continue
                block = step.block
                if full and block.drafted == full:
                    written.rounds.append((len(written.tokens), block.accepted))
                written.tokens += block.tokens
                pending += block.text
                text = pending.decode("utf-8", errors="ignore")
                pending = pending[len(text.encode()) :]
                yield text, generation.finish in ("eos", "stop")
            yield "", generation.finish in ("eos", "stop")
        finally:
            if generation.finish is None:
                generation.cancel()
                while self.engine.step() is not None:
                    pass

    def middle_bits(self, source: Source, hole: Hole) -> tuple[float, int, bool]:
        """Bits of the hole's own text after its prompt, and over how many tokens; what is healed is given.

        Also whether a completion may have so many tokens, with the one that ends it.
        """
        from dflash_core.training.evaluation import bits_of

        prompt = self.prompt(source, hole.start, source.text[hole.end :])
        middle = self.tokenizer.encode(prompt.heal + source.text[hole.start : hole.end])
        given, size = 0, 0
        for token in middle:  # a token that ends beyond what is healed carries text of the hole
            size += len(self.tokenizer.token_bytes[token])
            if size > len(prompt.heal.encode()):
                break
            given += 1
        assert isinstance(prompt.content, list)
        text = [*prompt.content, *middle]
        bits = bits_of(self.engine.decoder.target, text, len(prompt.content) + given)
        return bits, len(middle) - given, len(middle) < prompt.max_tokens
