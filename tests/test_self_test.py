"""A pair is served in the prompt format that it obeys and is accepted in; one that it answers with prose is refused."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from server import paths
from server.cli import main
from server.completion import self_test as module
from server.completion.self_test import (
    FormatResult,
    SelfTest,
    is_prose,
    kept_self_test,
    pick,
    possible_formats,
    with_tested_format,
)
from server.completion.service import CompletionService
from server.context.languages import language_for
from server.context.prompt import PromptBuilder, TextBefore
from server.errors import DflashError
from server.profiles import Profile, load_profile


def results(**formats: tuple[float, float, str]) -> list[FormatResult]:
    return [
        FormatResult(name.replace("_", "-"), obeyed, 0.0, length, refused)  # type: ignore[arg-type]
        for name, (obeyed, length, refused) in formats.items()
    ]


@pytest.mark.parametrize(
    ("found", "picked"),
    [
        (results(plain=(1.0, 2.0, ""), chat=(0.95, 4.0, "")), "chat"),
        (results(plain=(1.0, 2.0, ""), chat=(0.6, 4.0, "")), "plain"),
        (results(plain=(0.6, 2.0, ""), chat=(1.0, 4.0, "answered 50% of the probes with prose")), "plain"),
        (results(plain=(0.1, 2.0, "went on with only 10% of the files")), None),
    ],
)
def test_the_format_is_picked_by_obedience_and_acceptance(found: list[FormatResult], picked: str | None) -> None:
    assert pick(found) == picked


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("\nThe function returns the area of it.\n", True),
        ("Here is the code:\n", True),
        ("Sure, I can help\n", True),
        ("```python\nx = 1\n```", True),
        ("\n    return 2 * (width + height)\n", False),
        ("# The sum of all the sides\n", False),
        ("Point p = new Point();\n", False),
        ("", False),
    ],
)
def test_prose_is_told_from_code(text: str, prose: bool) -> None:
    assert is_prose(text) is prose


def keep(profile: Profile, found: SelfTest) -> None:
    file = module._file(profile)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found.to_json()))


@pytest.mark.usefixtures("private_dirs")
def test_auto_is_the_format_that_was_picked_and_a_refused_one_is_one_line() -> None:
    embedded = load_profile("embedded")
    assert embedded.prompt is not None and with_tested_format(embedded) is embedded
    auto = replace(embedded, prompt=replace(embedded.prompt, format="auto"))
    assert PromptBuilder(auto).build(TextBefore("x = 1\n"), "a.py", language_for("python")).content  # before any test
    refused = "answered 40% of the probes with prose"
    keep(auto, SelfTest("embedded", tuple(results(repository=(1.0, 3.0, ""), chat=(0.5, 2.0, refused))), "repository"))
    assert with_tested_format(auto).prompt.format == "repository"  # type: ignore[union-attr]
    with pytest.raises(DflashError, match="format 'chat' is refused, its target answered 40% of the probes"):
        with_tested_format(replace(embedded, prompt=replace(embedded.prompt, format="chat")))
    keep(auto, SelfTest("embedded", (), None))
    with pytest.raises(DflashError, match="obeys none of the prompt formats"):
        with_tested_format(auto)


@pytest.mark.usefixtures("private_dirs")
def test_another_draft_or_a_broken_file_is_no_result(tmp_path: Path) -> None:
    embedded = load_profile("embedded")
    keep(embedded, SelfTest("embedded", tuple(results(plain=(1.0, 3.0, ""))), "plain"))
    assert kept_self_test(embedded) is not None
    assert embedded.draft is not None
    assert kept_self_test(replace(embedded, draft=replace(embedded.draft, revision="other"))) is None
    module._file(embedded).write_text("{")
    assert kept_self_test(embedded) is None


@pytest.mark.usefixtures("private_target")
def test_the_embedded_pair_is_tested_in_every_format_it_has_markers_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "PROBES", module.PROBES[:1])
    monkeypatch.setattr(module, "TOKENS", 12)
    assert main(["models", "--self-test", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["format"] for each in found["formats"]] == [
        "plain", "suffix-prefix-middle", "prefix-suffix-middle", "repository", "chat"
    ]  # fmt: skip
    assert found["formats"][0]["obeyed"] == 1.0 and found["formats"][0]["acceptance_length"] > 1
    kept = kept_self_test(load_profile("embedded"))
    assert kept is not None and json.loads(json.dumps(kept.to_json())) == found
    assert paths.cache_dir() in module._file(load_profile("embedded")).parents
    asyncio.run(start_with_auto())


async def start_with_auto() -> None:
    """A window whose profile says `auto` tests its pair by itself, once, and serves in what was picked."""
    embedded = load_profile("embedded")
    assert embedded.prompt is not None
    auto = replace(embedded, prompt=replace(embedded.prompt, format="auto"))
    module._file(auto).unlink()
    service = CompletionService(auto)
    try:
        await service.start()
        assert service._self_testing is not None
        await service._self_testing
    finally:
        await service.aclose()
    found = kept_self_test(auto)
    assert found is not None and with_tested_format(auto).prompt.format == found.picked  # type: ignore[union-attr]
    again = CompletionService(auto)
    await again.start()
    assert again._self_testing is None
    await again.aclose()


def test_a_profile_without_a_prompt_has_no_format() -> None:
    assert possible_formats(load_profile("replay")) == ["plain"]
    assert with_tested_format(load_profile("replay")).prompt is None
