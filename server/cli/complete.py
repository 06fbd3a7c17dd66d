"""Complete at a position of a file and print the text."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.completion.comparison import Comparison
    from server.completion.result import CompletionResult
    from server.completion.service import CompletionService
    from server.completion.surroundings import Surroundings
    from server.documents.document import Document
    from server.engine.protocol import EngineHealth


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from server.cli import add_profile_argument

    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--line", type=int, required=True, metavar="N", help="line, from 0")
    parser.add_argument("--character", type=int, required=True, metavar="N", help="character in the line, from 0")
    parser.add_argument(
        "--encoding",
        choices=("utf-8", "utf-16", "utf-32"),
        default="utf-16",
        help="what --character counts, as in LSP (default: %(default)s)",
    )
    parser.add_argument("--draft", choices=("auto", "on", "off"), default="auto", help="(default: %(default)s)")
    add_profile_argument(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--stream", action="store_true", help="show the text as it grows, block by block")
    output.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--compare", action="store_true", help="decode the prompt again without the draft, and compare")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="(default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    # A terminal that cannot show a character shows a question mark, and the command goes on.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    from server.cli.stream_view import StreamView
    from server.completion.engine_link import LinkListener
    from server.completion.request import CompletionOptions
    from server.completion.service import CompletionService
    from server.completion.surroundings import surroundings
    from server.documents.positions import Position
    from server.profiles import load_profile

    document = _document(args.file, args.encoding)
    place = document.exact_place(Position(args.line, args.character))
    path = _path_for_prompt(args.file)
    service = CompletionService(load_profile(args.profile), LinkListener(changed=_Progress()))
    site = surroundings(document, place, path, service.prompts.limit)
    view = None
    options = CompletionOptions(draft=args.draft, exact_stats=True, raise_errors=True)
    comparison = None
    try:
        await service.link.connect()
        await service.ready(document, path)
        health = service.link.health
        if args.stream:
            # Recorded text has no tokens to tell apart.
            view = StreamView("never" if health.kind == "replay" else args.color)
            view.begin(_engine_named(health), f"{path}:{args.line}:{args.character}", site)
        result = await service.complete(document, place, path, options, view.grow if view else None)
        if view is not None:
            view.end(_numbers(result), result.text)
        if args.compare:
            comparison = await _compare(service, document, site)
    finally:
        await service.aclose()
    if args.json:
        compared = {} if comparison is None else {"comparison": asdict(comparison)}
        print(json.dumps({**result.to_json(), **compared}))
        return 0
    if view is None and result.text:
        print(result.text)
    elif view is None:
        print(f"nothing to insert: {result.reason}", file=sys.stderr)
    if comparison is not None:
        print(_compared(comparison))
    return 0


def _document(file: Path, encoding: str) -> Document:
    """The file as an open document; DflashError, one line, when it is none."""
    from server.documents.document import Document
    from server.documents.positions import Encoding
    from server.errors import DflashError

    try:
        data = file.read_bytes()
    except OSError as error:
        raise DflashError(f"cannot read {file}: {error.strerror}") from error
    if b"\0" in data:
        raise DflashError(f"{file} is a binary file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DflashError(f"{file} is not UTF-8 text") from error
    return Document(file.resolve().as_uri(), text, encoding=Encoding(encoding))


def _path_for_prompt(file: Path) -> str:
    """The path below the working directory, which stands for the workspace, or the file's name."""
    resolved, here = file.resolve(), Path.cwd()
    return resolved.relative_to(here).as_posix() if resolved.is_relative_to(here) else file.name


class _Progress:
    """Says on stderr what a loading engine does, each step once."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, health: EngineHealth) -> None:
        if health.state == "loading" and health.reason and health.reason != self._said:
            self._said = health.reason
            print(f"engine: {health.reason}", file=sys.stderr, flush=True)


async def _compare(service: CompletionService, document: Document, site: Surroundings) -> Comparison:
    from server.completion.comparison import compare

    client = await service.link.connect()
    request = service.submission.request(site.spot, await service.prompt(document, site.place, site.spot))
    return await compare(service.profile, client, request, on_health=_Progress())


def _engine_named(health: EngineHealth) -> str:
    if health.kind == "replay":
        return f"{health.profile}: recorded text, no model"
    pair = " with draft ".join(name for name in (health.target, health.draft) if name)
    where = " ".join(part for part in (health.device, health.dtype) if part)
    return f"{health.profile}: {pair} on {where}" if health.profile else f"{pair} on {where}"


def _numbers(result: CompletionResult) -> str:
    stats = result.stats
    if not result.text:
        return f"nothing to insert: {result.reason}"
    return (
        f"{stats.tokens} tokens in {stats.rounds} rounds, acceptance length {stats.acceptance_length},"
        f" {stats.tokens_per_s} tokens/s, first text after {stats.first_ms:.0f} ms; ended by {result.finish}"
    )


def _compared(found: Comparison) -> str:
    gain = f" ({found.with_draft / found.without_draft:.2f} times)" if found.without_draft else ""
    same = "equal" if found.equal else f"different from token {found.first_difference} on"
    return (
        f"the same prompt once more, uncut, every round drafted: {found.tokens} tokens in {found.rounds} rounds,"
        f" acceptance length {found.acceptance_length};"
        f" {found.with_draft} tokens/s with the draft, {found.without_draft} without{gain},"
        f" in {found.dtype} on {found.device}; texts in float32: {same}"
    )
