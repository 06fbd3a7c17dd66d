"""A prompt shows what helps, keeps it while the user types, and never shows what must stay private."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from server import paths
from server.benchmarks.context import measure_reuse, reused_share
from server.benchmarks.traces import Trace, TraceError, read_trace, record, write_trace
from server.completion.service import CompletionService
from server.completion.surroundings import surroundings
from server.context.formats import Chunk
from server.context.index import WorkspaceIndex
from server.context.open_documents import file_of
from server.context.prompt import Prompt
from server.context.related import fit_to_show, names_near
from server.context.tokenizer import PromptTokenizer
from server.context.workspace import Workspace
from server.documents.document import Change, Document, Place
from server.documents.positions import Position, Range
from server.profiles import Profile, load_profile

TOKENIZER = PromptTokenizer.from_file(paths.asset("embedded", "tokenizer.json"))
TRACE = Path(__file__).parent / "traces" / "client.json"
EMBEDDED = load_profile("embedded")
assert EMBEDDED.prompt is not None
# Its own prompts hold no chunks of other places, which are tested here.
PROFILE = replace(EMBEDDED, prompt=replace(EMBEDDED.prompt, related_budget=None))
HELPER = "def helper_of_all(first, second):\n    return first + second\n"


def shown(prompt: Prompt) -> str:
    assert isinstance(prompt.content, list)
    return TOKENIZER.decode(prompt.content) + prompt.heal


class Window:
    """A service without its engine, and the documents that are open in it."""

    def __init__(self, workspace: Workspace | None = None, profile: Profile = PROFILE) -> None:
        self.service = CompletionService(profile, workspace=workspace)
        self.paths: dict[Document, str] = {}

    async def open(self, uri: str, text: str, path: str, language: str = "python") -> Document:
        document = Document(uri, text, language=language)
        self.paths[document] = path
        await self.service.ready(document, path)
        return document

    async def prompt(self, document: Document, line: int | None = None, column: int | None = None) -> Prompt:
        """The prompt at a place, or at the document's end."""
        line = len(document.lines) - 1 if line is None else line
        column = len(document.lines[line].rstrip("\n")) if column is None else column
        site = surroundings(document, Place(line, column), self.paths[document], self.service.prompts.limit)
        return await self.service.prompt(document, site.place, site.spot)


async def until_scanned(index: WorkspaceIndex) -> None:
    for _ in range(600):
        if (await index.state() or {}).get("scanned"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the index was not ready")


def filler(count: int, indent: str = "") -> str:
    return "".join(f"{indent}value_{n} = {n} * {n}\n" for n in range(count))


async def test_what_encloses_the_text_and_what_it_imports_is_shown_though_it_lies_above() -> None:
    window = Window()
    text = (
        "import os\nfrom far.away import wanted_thing\n\n\nclass Outer(Base):\n    def method(self, argument):\n"
        f"{filler(120, '        ')}        result = wanted_thing("
    )
    prompt = await window.prompt(await window.open("untitled:a", text, "pkg/a.py"))
    head, _, rest = shown(prompt).partition("        value_")
    assert head == (
        "# pkg/a.py\nfrom far.away import wanted_thing\nclass Outer(Base):\n    def method(self, argument):\n"
    )
    assert rest.endswith("result = wanted_thing(") and "value_119" in rest
    await window.service.aclose()


def test_the_embedded_pairs_prompt_spends_nothing_on_other_places() -> None:
    assert CompletionService(EMBEDDED).prompts.related_budget == 0 < CompletionService(PROFILE).prompts.related_budget


@pytest.mark.parametrize(("related_budget", "head"), [(0, True), (0, False), (None, True)])
async def test_a_profile_says_whether_other_places_and_the_head_are_shown(
    related_budget: int | None, head: bool
) -> None:
    assert PROFILE.prompt is not None
    prompt = replace(PROFILE.prompt, related_budget=related_budget, head=head)
    window = Window(profile=replace(PROFILE, prompt=prompt))
    text = f"import wanted_thing\n\n\ndef own_far_thing(a):\n    return a\n\n\n{filler(200)}"
    document = await window.open("untitled:a", text + "x = wanted_thing(own_far_thing(1), ", "a.py")
    found = shown(await window.prompt(document))
    assert ("import wanted_thing" in found) is head
    assert ("def own_far_thing(a):" in found) is (related_budget is None)
    await window.service.aclose()


async def test_definitions_are_found_in_other_open_documents_and_far_away_in_the_own() -> None:
    window = Window()
    await window.open("untitled:b", HELPER, "lib/b.py")
    text = f"def own_far_thing(a):\n    return a\n\n\n{filler(200)}x = helper_of_all(own_far_thing(1), "
    document = await window.open("untitled:a", text, "a.py")
    # Only documents that the user was at lend text.
    assert "def helper_of_all" not in shown(await window.prompt(document))
    other = next(each for each in window.paths if each is not document)
    await window.prompt(other, 1, 0)
    window.service.context._choices.clear()
    prompt = shown(await window.prompt(document))
    assert "# lib/b.py\ndef helper_of_all(first, second):" in prompt
    assert "# a.py\ndef own_far_thing(a):" in prompt
    await window.service.aclose()


async def test_definitions_are_found_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(HELPER)
    (tmp_path / ".env").write_text("def secret_of_all(): pass\n")
    window = Window(Workspace((tmp_path,), indexed=True))
    await window.service.start()
    assert window.service.context.index is not None
    await until_scanned(window.service.context.index)
    document = await window.open((tmp_path / "a.py").as_uri(), "x = helper_of_all(secret_of_all(), ", "a.py")
    for _ in range(20):  # the first request need not wait for the index
        prompt = shown(await window.prompt(document))
        if "def helper_of_all" in prompt:
            break
    assert prompt == f"# lib.py\n{HELPER}\n# a.py\nx = helper_of_all(secret_of_all(), "
    await window.service.aclose()


async def test_context_leaves_most_of_the_budget_to_the_text_before_the_cursor() -> None:
    window = Window()
    for number in range(12):
        body = f"def helper_{number}(first, second):\n" + filler(30, "    ")
        await window.prompt(await window.open(f"untitled:{number}", body, f"lib/{number}.py"), 0, 0)
    calls = "".join(f"helper_{number}(1, 2)\n" for number in range(12))
    document = await window.open("untitled:a", filler(200) + calls + "x = ", "a.py")
    prompt = await window.prompt(document)
    text = shown(prompt).partition("# a.py\n")[2]
    assert len(prompt.content) <= 512
    assert len(TOKENIZER.encode(text)) > 0.5 * 512
    await window.service.aclose()


PRIVATE = {
    ".env": "def helper_of_all(first, second): pass\n",
    "ignored.py": HELPER,
    "excluded/b.py": HELPER,
    "minified.py": HELPER + "x = 1;" * 2000,
    "generated.py": "# generated by a tool\n" + HELPER,
    "keys.py": 'def helper_of_all(first, second="x"):\n    password = "hunter2hunter2"\n',
}


@pytest.mark.parametrize("name", PRIVATE)
async def test_private_documents_lend_nothing_though_they_are_open(tmp_path: Path, name: str) -> None:
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    window = Window(Workspace((tmp_path,), exclude=("excluded/*",)))
    other = await window.open((tmp_path / name).as_uri(), PRIVATE[name], name)
    await window.prompt(other, 0, 0)
    document = await window.open((tmp_path / "a.py").as_uri(), "x = helper_of_all(1, ", "a.py")
    assert shown(await window.prompt(document)) == "# a.py\nx = helper_of_all(1, "
    await window.service.aclose()


async def test_a_closed_document_lends_nothing() -> None:
    window = Window()
    other = await window.open("untitled:b", HELPER, "b.py")
    await window.prompt(other, 1, 0)
    window.service.closed("untitled:b")
    document = await window.open("untitled:a", "x = helper_of_all(1, ", "a.py")
    assert "def helper_of_all" not in shown(await window.prompt(document))
    await window.service.aclose()


def test_chunks_like_the_surroundings_or_with_secrets_are_dropped() -> None:
    near = (
        "def total(items):\n    amount = 0\n    for item in items:\n        amount += item.price\n    return amount\n"
    )
    copy = Chunk("a.py", near)
    useful = Chunk("b.py", "class Item:\n    price: float\n    name: str\n    def reduced(self): ...")
    secret = Chunk("c.py", 'password = "hunter2hunter2"')
    assert fit_to_show([copy, useful, secret, useful, Chunk("d.py", "  \n")], near) == [useful]


def test_names_of_styles_have_hyphens() -> None:
    names = names_near('<a class="card-title"> var(--main) a - b x--', "")
    assert names == ["--main", "card-title", "main", "var", "title", "card", "class"]


def test_names_are_taken_from_around_the_cursor_nearest_first() -> None:
    assert names_near("alpha = beta(gamma\nx = delta.half", " + omega\nlast") == [
        "delta", "gamma", "beta", "alpha", "omega", "last",
    ]  # fmt: skip


async def test_a_recorded_trace_keeps_nine_tenths_of_each_prompt() -> None:
    shares = (await measure_reuse(PROFILE, read_trace(TRACE)))["reused"]
    assert shares["plain"] >= 90 and shares["suffix-prefix-middle"] >= 90
    # The suffix, 96 tokens here, is shown again behind each key.
    assert shares["prefix-suffix-middle"] >= 70


async def test_a_document_that_was_looked_at_lends_the_place_that_was_seen() -> None:
    window = Window(Workspace((Path("/w"),)))
    one = await window.open("file:///w/one.py", "x = 1\n", "one.py")
    other = await window.open("file:///w/other.py", filler(40) + "def seen_by_the_user():\n    pass\n", "other.py")
    assert "seen_by_the_user" not in shown(await window.prompt(one))
    window.service.viewed(other, 40, "other.py")
    window.service.context.exclude(["anything"])  # what was chosen before is chosen anew
    assert "seen_by_the_user" in shown(await window.prompt(one))


async def test_other_documents_that_change_do_not_disturb_the_prompt() -> None:
    window = Window()
    other = await window.open("untitled:b", HELPER, "b.py")
    await window.prompt(other, 1, 0)
    document = await window.open("untitled:a", "x = helper_of_all(1, ", "a.py")
    before = await window.prompt(document)
    other.apply([Change("changed", Range(Position(0, 4), Position(0, 10)))])
    document.apply([Change("2", Range(Position(0, 21), Position(0, 21)))])
    after = await window.prompt(document)
    assert reused_share([before, after]) > 90 and "def helper_of_all" in shown(after)
    await window.service.aclose()


async def test_prompts_are_the_same_byte_for_byte_when_nothing_changes() -> None:
    window = Window()
    await window.prompt(await window.open("untitled:b", HELPER, "b.py"), 1, 0)
    document = await window.open("untitled:a", filler(100) + "x = helper_of_all(1, ", "a.py")
    prompts = [await window.prompt(document) for _ in range(5)]
    assert all(one == other for one, other in pairwise(prompts))
    await window.service.aclose()


async def test_secrets_of_the_document_itself_are_masked_above_and_below_the_cursor() -> None:
    text = f"import os\ntoken = 'ab12CD34ef56'\nx = \n{filler(3)}AWS = 'AKIAABCDEFGHIJKLMNOP'\n"
    for profile in (PROFILE, EMBEDDED):
        window = Window(profile=profile)
        seen = shown(await window.prompt(await window.open("untitled:a", text, "a.py"), 2))
        assert "x = " in seen and "token = 'xxxxxxxxxxxx'" in seen and f"AWS = '{'x' * 20}'" in seen
        await window.service.aclose()


ODD = {
    "two megabytes": "".join(f"def f{n}(a):\n    return a + {n}\n\n\n" for n in range(50_000)),
    "one long line": "x = [" + "1, " * 170_000,
    "NUL": "x = 'a\0b'\ny = ",
    "separators": "x = 'a\u2028b\x0bc\x0cd\x85e'\ny = ",
    "brackets": "(" * 10_000,
    "templates": "x = '{prefix} %s $1 {{x}} <|endoftext|><file_sep>'\ny = ",
    "lone returns": "x = 1\ry = 2\rz = ",
    "empty": "",
}


async def test_odd_texts_give_a_prompt_that_ends_with_them() -> None:
    window = Window()
    for language in ("python", "typescript", "shellscript", "markdown", "unknown"):
        for kind, text in ODD.items():
            if len(text) > 400_000 and language != "python":
                continue  # large texts once are enough
            document = await window.open(f"untitled:{kind} {language}", text, "odd", language)
            prompt = await window.prompt(document)
            assert shown(prompt).endswith(text.replace("\r", "\n")[-200:]), (kind, language)
            assert [token for token in prompt.content if token < 17] == [0, 9, 8, 10] and len(prompt.content) <= 512
    await window.service.aclose()


@pytest.mark.parametrize(
    ("uri", "file"),
    [
        ("file:///w/a%20b/%5Bid%5D.tsx", "/w/a b/[id].tsx"),
        ("file:///w/100%25/a.py", "/w/100%/a.py"),
        ("file:///w/c%3A/a.py", "/w/c:/a.py"),
        ("untitled:Untitled-1", None),
        ("output:log", None),
        ("git:/w/a.py?{}", None),
        ("vscode-notebook-cell:/w/a.ipynb#W0", "/w/a.ipynb"),
    ],
)
def test_a_uri_names_a_file_or_none(uri: str, file: str | None) -> None:
    assert file_of(uri) == (None if file is None else Path(file))


def test_a_trace_types_the_very_text_of_its_file(tmp_path: Path) -> None:
    source = Path(__file__).with_name("test_prompt.py").read_text(encoding="utf-8")
    trace = record(source, 25, 200, "python", "a.py")
    assert len(trace.keys) == 200
    document = Document("untitled:a", trace.text)
    for key in trace:
        document.apply([key.change])
    typed = "\n".join(document.text.split("\n")[25:])[:150]
    assert typed in source
    write_trace(trace, tmp_path / "t.json")
    assert read_trace(tmp_path / "t.json") == trace
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(TraceError, match="is not a trace"):
        read_trace(tmp_path / "t.json")
    assert isinstance(replace(trace, path="b.py"), Trace)
