"""How the parts of a prompt are laid out for a target: one function a format, markers by id, never by text.

What stays the same comes first and what typing changes comes last, so that the engine reuses the KV of all
before it. Suffix-prefix-middle only ever appends while the suffix stands; prefix-suffix-middle must show
the suffix again behind each key, so its suffix should be short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from server.context.languages import Language

# A piece of a prompt: text, or the id of a marker.
Piece = str | int


@dataclass(frozen=True)
class Chunk:
    """Text of another place that helps: `path` as the target should see it, `text` with `\\n` line ends."""

    path: str
    text: str


@dataclass(frozen=True)
class Parts:
    """What a prompt shows beside the text before the cursor.

    head: what of the file above that text is shown, whole lines. suffix: the text after the cursor.
    """

    path: str
    language: Language
    related: Sequence[Chunk] = ()
    head: str = ""
    suffix: str = ""
    repository: str = ""


@dataclass(frozen=True)
class Layout:
    """A prompt around the text before the cursor: `lead` is text that it continues without a break."""

    before: Sequence[Piece]
    lead: str
    after: Sequence[Piece] = ()


def path_comment(path: str, language: Language) -> str:
    """A comment line with the path; small targets write the right language after it. "" without a path."""
    opening, closing = language.comment
    name = one_line(path)
    return f"{opening} {name} {closing}".rstrip() + "\n" if name else ""


def one_line(path: str) -> str:
    """The path without characters that end lines or steer terminals."""
    return "".join("?" if ord(each) < 0x20 or each in "\x7f\x85\u2028\u2029" else each for each in path)


def _plain(parts: Parts, markers: Mapping[str, int]) -> Layout:
    return Layout(_bos(markers), _text_lead(parts))


def _suffix_prefix_middle(parts: Parts, markers: Mapping[str, int]) -> Layout:
    before = [*_bos(markers), markers["suffix"], parts.suffix, markers["prefix"]]
    return Layout(before, _text_lead(parts), [markers["middle"]])


def _prefix_suffix_middle(parts: Parts, markers: Mapping[str, int]) -> Layout:
    before = [*_bos(markers), markers["prefix"]]
    return Layout(before, _text_lead(parts), [markers["suffix"], parts.suffix, markers["middle"]])


def _repository(parts: Parts, markers: Mapping[str, int]) -> Layout:
    """Files one after the other, each behind its path; the hole's markers are used where the target has them."""
    before: list[Piece] = [*_bos(markers)]
    if "repo_name" in markers and parts.repository:
        before += [markers["repo_name"], one_line(parts.repository) + "\n"]
    for chunk in parts.related:
        before += [markers["file_sep"], f"{one_line(chunk.path)}\n{chunk.text}\n"]
    before += [markers["file_sep"], one_line(parts.path) + "\n"]
    if not _has_hole(markers):
        return Layout(before, parts.head)
    before.append(markers["prefix"])
    return Layout(before, parts.head, [markers["suffix"], parts.suffix, markers["middle"]])


FENCE = "```"


def question(parts: Parts, fence: str = FENCE) -> str:
    """What a chat is asked, so that its answer is the file's text behind `fence`."""
    asked = ["Continue this file. Answer with its text only."]
    asked += [f"{one_line(chunk.path)}:\n{fence}\n{chunk.text}\n{fence}" for chunk in parts.related]
    if parts.suffix.strip():
        asked.append(f"Below the place where you end, the file goes on:\n{fence}\n{parts.suffix}\n{fence}")
    return "\n\n".join(asked)


def _chat(parts: Parts, markers: Mapping[str, int]) -> Layout:
    """A question, and an answer that has begun: the target can only go on with the file."""
    before = [*_bos(markers), *_turn("user", markers), question(parts), markers["turn_end"], "\n"]
    before += _turn("assistant", markers)
    if "think_start" in markers and "think_end" in markers:
        # A reasoning model would think first, and nobody waits for that at a key.
        before += [markers["think_start"], "\n\n", markers["think_end"], "\n\n"]
    opening = f"{FENCE}{parts.language.name}\n"
    return Layout(before, f"{opening}{path_comment(parts.path, parts.language)}{parts.head}")


Format = Callable[[Parts, Mapping[str, int]], Layout]
FORMATS: Mapping[str, Format] = {
    "plain": _plain,
    "suffix-prefix-middle": _suffix_prefix_middle,
    "prefix-suffix-middle": _prefix_suffix_middle,
    "repository": _repository,
    "chat": _chat,
}


def shows_suffix(format: str, markers: Mapping[str, int]) -> bool:
    """Whether the format has a place for the text after the cursor."""
    return format != "plain" and (format != "repository" or _has_hole(markers))


def likeliest_format(markers: Mapping[str, int]) -> str:
    """The format that a target with these markers was most likely trained in, until a self-test tells."""
    return "suffix-prefix-middle" if _has_hole(markers) else "plain"


def _bos(markers: Mapping[str, int]) -> list[Piece]:
    return [markers["bos"]] if "bos" in markers else []


def _has_hole(markers: Mapping[str, int]) -> bool:
    return {"prefix", "suffix", "middle"} <= markers.keys()


def _turn(role: str, markers: Mapping[str, int]) -> list[Piece]:
    if "role_end" in markers:
        return [markers["turn_start"], role, markers["role_end"], "\n\n"]
    return [markers["turn_start"], f"{role}\n"]


def _text_lead(parts: Parts) -> str:
    related = "".join(f"{path_comment(chunk.path, parts.language)}{chunk.text}\n\n" for chunk in parts.related)
    return related + path_comment(parts.path, parts.language) + parts.head
