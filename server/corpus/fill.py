"""Renders holes as the prompts that are sent when somebody completes there, with what is due behind them.

An example is the prompt of a profile, token for token (`context.prompt`), then the middle, then a stop token. What
the prompt cuts off to be healed begins the middle, as it begins the engine's answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from server.benchmarks.holes import LARGEST_FILE, Hole
from server.completion.boundaries.boundary import CursorText
from server.completion.boundaries.choice import boundary_for
from server.completion.surroundings import AFTER_LIMIT, BEFORE_LIMIT
from server.context.assembly import begins_at, lines_above
from server.context.formats import Chunk, shows_suffix
from server.context.grammars import ParseLimit, error_count, parse, parser_for
from server.context.languages import Language, language_for
from server.context.prompt import Around, Prompt, PromptBuilder, TextBefore
from server.context.related import fit_to_show, names_near, near_text
from server.context.tags import definitions
from server.context.tokenizer import PromptTokenizer
from server.corpus.editor_holes import choose_holes
from server.corpus.errors import CorpusError
from server.profiles import Profile
from server.profiles.settings import PromptFormat

if TYPE_CHECKING:
    from tree_sitter import Tree

PARSE_LIMIT_S = 1.0
MOST_MIDDLE = 160  # tokens; nobody is offered more
SHARES = (1.0, 0.6, 0.35, 0.2)  # of the profile's budgets: files are short as often as long
RELATED = 0.2  # of the examples show text of other files
END_OF_FILE = 0.12  # of the examples have nothing below
OTHER_FORMAT = 0.25  # of the examples are laid out in the other order of prefix and suffix
WINDOW = 0.6  # of the characters that serving looks at: code with so few tokens that more would fit is rare
MOST_CHUNKS = 8
MOST_DEFINITIONS = 4_000  # remembered of one package
_OTHER: dict[str, PromptFormat] = {
    "suffix-prefix-middle": "prefix-suffix-middle",
    "prefix-suffix-middle": "suffix-prefix-middle",
}


@dataclass(frozen=True)
class Example:
    """tokens[middle:] is what is due, with its stop token; tokens[:middle] is the prompt."""

    kind: str
    tokens: list[int]
    middle: int


@dataclass
class Source:
    """One file to cut holes in, with `\\n` line ends. tree: None where no grammar fits the text."""

    path: str
    text: str
    language: Language
    tree: Tree | None = None
    lines: list[str] = field(default_factory=list)


def read_file(path: str, text: str) -> Source:
    """The file with its tree where it has one, of text that the grammar finds no fault in."""
    language = language_for("", path)
    source = Source(path, text, language, None, text.splitlines(keepends=True))
    fits = text.isascii() and len(text) <= LARGEST_FILE
    if language.syntax is not None and fits:
        try:
            tree = parse(parser_for(language.syntax), text.encode(), PARSE_LIMIT_S)
            source.tree = None if error_count(tree) else tree
        except ParseLimit:
            pass
    return source


def holes_of(source: Source, count: int, chance: random.Random) -> list[Hole]:
    """At most `count` holes of a file, each ending where the product would end it."""
    chosen = choose_holes(source.text, source.tree, source.language.syntax, count, chance)
    return [served for hole in chosen if (served := as_served(source, hole)) is not None]


def as_served(source: Source, hole: Hole) -> Hole | None:
    """The hole, ending where the boundary of a completion at its place ends the hole's own text.

    Statements behind a blank line, say, are another unit: a model that learns to write on there never stops by itself
    where it should. None where nothing is left, and for a piece of text cut at random that goes on past a unit.
    """
    if hole.start == hole.end:
        return hole  # nothing is due
    text = source.text
    after = text[hole.end : hole.end + AFTER_LIMIT]
    ends = hole.end + len(after) == len(text)
    boundary = boundary_for(
        CursorText(text[max(0, hole.start - BEFORE_LIMIT) : hole.start], after, source.language, ends)
    )
    kept = text[hole.start : hole.start + (boundary.finish(text[hole.start : hole.end]).end or 0)].rstrip()
    if len(kept) == len(text[hole.start : hole.end].rstrip()):
        return hole
    return Hole(hole.kind, hole.start, hole.start + len(kept)) if kept and hole.kind != "random" else None


def ends_with_a_line(source: Source, hole: Hole) -> bool:
    """Whether the text below could be missing: where more of the line follows, only it tells where the unit ends."""
    return not source.text[hole.end :].partition("\n")[0].strip()


class Neighbours:
    """Definitions of a package's files read so far: what other files may lend to a prompt."""

    def __init__(self) -> None:
        self._by_name: dict[str, Chunk] = {}

    def add(self, source: Source) -> None:
        syntax = source.language.syntax
        if source.tree is None or syntax is None or len(self._by_name) >= MOST_DEFINITIONS:
            return
        for each in definitions(source.tree, source.lines, syntax):
            self._by_name.setdefault(each.name, Chunk(source.path, each.text))

    def chunks(self, path: str, names: Sequence[str]) -> list[Chunk]:
        found = [self._by_name[name] for name in names if name in self._by_name]
        return [chunk for chunk in found if chunk.path != path][: 2 * MOST_CHUNKS]


class FillRenderer:
    """Renders examples for one profile, whose format must show the text after the cursor."""

    def __init__(self, profile: Profile, tokenizer: PromptTokenizer) -> None:
        settings = profile.prompt
        if settings is None or not shows_suffix(settings.format, settings.marker_ids) or not settings.suffix_budget:
            raise CorpusError(f"profile {profile.name} shows no text after the cursor: there is nothing to fill in")
        if not settings.stop_ids:
            raise CorpusError(f"profile {profile.name} has no stop_ids: a middle could not end")
        self._stop = settings.stop_ids[-1]
        self._tokenizer = tokenizer
        formats = [settings.format, _OTHER[settings.format]] if settings.format in _OTHER else [settings.format]
        self._builders = [
            [
                PromptBuilder(replace(profile, prompt=replace(
                    settings, format=each, budget=int(settings.budget * share),
                    suffix_budget=max(8, int(settings.suffix_budget * share)),
                )))
                for share in SHARES
            ]
            for each in formats
        ]  # fmt: skip

    def examples(self, source: Source, count: int, neighbours: Neighbours, chance: random.Random) -> Iterator[Example]:
        """Examples of at most `count` holes of a file."""
        for hole in holes_of(source, count, chance):
            example = self.example(source, hole, neighbours, chance)
            if example is not None:
                yield example

    def example(self, source: Source, hole: Hole, neighbours: Neighbours, chance: random.Random) -> Example | None:
        """The prompt at a hole and its middle; None where the middle is longer than anybody is offered."""
        other = len(self._builders) > 1 and chance.random() < OTHER_FORMAT
        builder = self._builders[other][chance.randrange(len(SHARES))]
        after = source.text[hole.end : hole.end + int(builder.suffix_limit * WINDOW)]
        if ends_with_a_line(source, hole) and chance.random() < END_OF_FILE:
            after = ""
        prompt = prompt_at(builder, source, hole.start, after, neighbours if chance.random() < RELATED else None)
        middle = self._tokenizer.encode(prompt.heal + source.text[hole.start : hole.end])
        if len(middle) > MOST_MIDDLE:
            return None
        assert isinstance(prompt.content, list)
        return Example(hole.kind, [*prompt.content, *middle, self._stop], len(prompt.content))


def prompt_at(
    builder: PromptBuilder, source: Source, cursor: int, after: str, neighbours: Neighbours | None = None
) -> Prompt:
    """The prompt that is sent at a cursor (offset in the file's text) when `after` stands behind it."""
    text, tree, language = source.text, source.tree, source.language
    syntax = language.syntax
    begin = max(0, cursor - int(builder.limit * WINDOW))
    before = TextBefore(text[begin:cursor], begin, text.count("\n", 0, begin))
    near = near_text(before.text, after)
    related: list[Chunk] = []
    if neighbours is not None:
        chunks = neighbours.chunks(source.path, names_near(before.text, after))
        related = builder.fitting_chunks(fit_to_show(chunks, near))
        related.sort(key=lambda chunk: (chunk.path, chunk.text))
    if tree is None or syntax is None:
        return builder.build(before, source.path, language, Around(related=related, suffix=after))
    names = set(names_near(near, ""))
    around = Around(
        related=related,
        head=lambda row: builder.fitting_head(lines_above(tree, source.lines, row, syntax, names)),
        begins=lambda row: begins_at(tree, source.lines, row),
        suffix=after,
    )
    return builder.build(before, source.path, language, around)
