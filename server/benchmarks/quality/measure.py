"""Measures a pair on holes of held-out documents, and on infilling tasks."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server.benchmarks.holes import Hole
from server.benchmarks.quality.infilling import Task, one_line
from server.benchmarks.quality.sandbox import run_program
from server.benchmarks.quality.writer import Writer, Written
from server.context.grammars import ParseLimit, error_count, parse, parser_for
from server.context.languages import Language
from server.corpus.fill import Source, holes_of, read_file
from server.corpus.fill_shards import source_path, source_text

PARSE_LIMIT_S = 2.0
LENGTHS = (8, 16, 32, 64)  # tokens written before a round: acceptance is told for each stretch
UNITS = ("line", "word", "statement", "lines", "block", "body", "function", "head")  # that end with a line
LONGEST = 12_000  # characters of a document: longer ones take long to parse and say nothing more

Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    source: Source
    hole: Hole


@dataclass
class Outcome:
    """What came of one hole. bits over `bit_tokens` tokens of its own text. equal: with and without the draft.

    stopped: the model ended its text by itself, no later than where the syntax says that the unit ends. ran_out: it
    wrote until no token was left, and the unit had not ended. fits: the hole's own text could have ended before that.
    one_line: the hole ends with a line and is no longer than that.
    """

    kind: str
    exact: bool
    similarity: float
    parses: bool
    stopped: bool
    bits: float
    bit_tokens: int
    rounds: list[tuple[int, int]] = field(default_factory=list)
    equal: bool | None = None
    ran_out: bool = False
    fits: bool = True
    one_line: bool = False


def held_out_places(corpus: Path, writer: Writer, count: int, seed: int) -> dict[str, list[Place]]:
    """About `count` holes of each held-out language of a corpus, the kinds in the shares that editors make."""
    from dflash_core.training.shards import held_out_splits, read_shard

    found: dict[str, list[Place]] = {}
    for split in held_out_splits(corpus):
        chance = random.Random(f"{seed} {split}")
        places: list[Place] = []
        for shard in sorted(each for each in corpus.glob(f"{split}-*.npy") if each.name.count(".") == 1):
            tokens, starts, _ = read_shard(shard)
            ends = [*starts[1:], len(tokens)]
            order = list(range(len(starts)))
            chance.shuffle(order)
            for index in order:
                if len(places) >= count:
                    break
                comment, _, text = source_text(tokens[starts[index] : ends[index]], writer.tokenizer).partition("\n")
                text = text[:LONGEST]
                source = read_file(source_path(comment), text)
                if source.tree is None or not text.strip():
                    continue
                holes = holes_of(source, 2, chance)
                places += [Place(source, hole) for hole in holes if hole.kind not in ("random", "nothing")]
        found[split.removeprefix("held-")] = places[:count]
    return found


def measure_hole(writer: Writer, place: Place, *, check: bool) -> Outcome:
    """check: also decode without the draft, and compare."""
    source, hole = place.source, place.hole
    written = writer.write(source, hole)
    bits, bit_tokens, fits = writer.middle_bits(source, hole)
    exact = _bare(written.after) == _bare(source.text)
    equal = None
    if check and writer.engine.decoder.draft is not None:
        alone = writer.write(source, hole, draft=False)
        # Neither goes on for long behind the boundary, and the last block makes one of them the longer.
        common = min(len(alone.tokens), len(written.tokens))
        equal = alone.kept == written.kept and alone.tokens[:common] == written.tokens[:common]
    expected = source.text[hole.start : hole.end]
    return Outcome(
        hole.kind,
        exact,
        difflib.SequenceMatcher(None, written.served.strip(), expected.strip(), autojunk=False).ratio(),
        _errors(written.after, source.language) == 0,
        _stopped_at_boundary(written),
        bits,
        bit_tokens,
        written.rounds,
        equal,
        not written.ended and not written.cut,
        fits,
        hole.kind in UNITS and "\n" not in expected,
    )


def _stopped_at_boundary(written: Written) -> bool:
    """The model ended its text by itself, and no later than where the syntax says that the unit ends."""
    return written.ended and bool(written.kept.strip()) and written.raw.rstrip() == written.kept.rstrip()


def _bare(text: str) -> str:
    return "\n".join(line.rstrip(" \t") for line in text.split("\n")).strip("\n")


def _errors(text: str, language: Language) -> int:
    if language.syntax is None:
        return 0
    try:
        return error_count(parse(parser_for(language.syntax), text.encode(), PARSE_LIMIT_S))
    except ParseLimit:
        return 1


def summary(outcomes: Sequence[Outcome], block: int) -> dict[str, Any]:
    """Shares from 0 to 1; None where nothing was measured."""
    rounds = [each for outcome in outcomes for each in outcome.rounds]
    tokens = sum(each.bit_tokens for each in outcomes)
    units = [each for each in outcomes if each.kind in UNITS]
    return {
        "holes": len(outcomes),
        "middle_bits_per_token": round(sum(each.bits for each in outcomes) / tokens, 3) if tokens else None,
        "exact_match": _mean([each.exact for each in outcomes]),
        "exact_match_of_one_line": _mean([each.exact for each in outcomes if each.one_line]),
        "edit_similarity": _mean([each.similarity for each in outcomes]),
        "parse_ok": _mean([each.parses for each in outcomes]),
        "stopped_at_boundary": _mean([each.stopped for each in units]),
        "stopped_where_the_unit_fits": _mean([each.stopped for each in units if each.fits]),
        "units_that_fit": _mean([each.fits for each in units]),
        "endings": {
            "by itself": sum(each.stopped for each in units),
            "at the boundary": sum(not each.stopped and not each.ran_out for each in units),
            "out of tokens": sum(each.ran_out for each in units),
        },
        "acceptance_length": _acceptance(rounds),
        "rounds": len(rounds),
        "acceptance_by_position": [_mean([accepted > k for _, accepted in rounds]) for k in range(block - 1)],
        "acceptance_by_length": {
            f"{low}-{'' if high is None else high - 1}": _acceptance(
                [each for each in rounds if low <= each[0] and (high is None or each[0] < high)]
            )
            for low, high in zip((0, *LENGTHS), (*LENGTHS, None), strict=True)
        },
    }


def kinds_of(outcomes: Sequence[Outcome], block: int) -> dict[str, Any]:
    kinds = sorted({each.kind for each in outcomes})
    return {kind: summary([each for each in outcomes if each.kind == kind], block) for kind in kinds}


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None


def _acceptance(rounds: Sequence[tuple[int, int]]) -> float | None:
    return round(1 + sum(accepted for _, accepted in rounds) / len(rounds), 3) if rounds else None


def infill(writer: Writer, tasks: Sequence[Task], say: Say) -> dict[str, Any]:
    """Greedy pass@1 over the tasks; their tests are run in the sandbox, whose refusal must have been asked before."""
    passed = exact = 0
    for number, task in enumerate(tasks):
        source = read_file("solution.py", task.prompt + task.solution + task.suffix)
        hole = Hole("statement", len(task.prompt), len(task.prompt) + len(task.solution.rstrip("\n")))
        line = one_line(writer.write(source, hole).raw)
        passed += run_program(task.program(line))
        exact += line.strip() == task.solution.strip()
        if number % 20 == 19:
            say(f"infilling: {number + 1} of {len(tasks)} tasks, {passed} passed")
    return {"tasks": len(tasks), "pass_at_1": _mean([1] * passed + [0] * (len(tasks) - passed)), "exact": exact}


def measure(
    writer: Writer, places: dict[str, list[Place]], check: int, say: Say
) -> tuple[dict[str, Any], dict[str, list[Outcome]]]:
    """The report of one pair, without infilling, and what it was made of. check: holes a language decoded twice."""
    outcomes: dict[str, list[Outcome]] = {}
    for language, own in places.items():
        outcomes[language] = [measure_hole(writer, place, check=n < check) for n, place in enumerate(own)]
        say(f"{language}: {len(own)} holes")
    every = [each for own in outcomes.values() for each in own]
    block = writer.engine.decoder.block_size
    checked = [each.equal for each in every if each.equal is not None]
    described = writer.engine.describe()
    report = {
        "profile": writer.profile.name,
        "target": writer.profile.target.name if writer.profile.target else None,
        "device": described["device"],
        "dtype": described["dtype"],
        "files": len({id(place.source) for own in places.values() for place in own}),
        "by_language": {language: summary(own, block) for language, own in outcomes.items() if own},
        "by_kind": kinds_of(every, block),
        "all": summary(every, block),
        "draft_equals_target": all(checked) if checked else None,
        "compared": len(checked),
    }
    return report, outcomes
