"""The prompt's tokenizer: text goes in and comes out unchanged, and no text is a special token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pygls
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import paths
from server.context.tokenizer import PromptTokenizer, TokenizerError

ASSET = paths.asset("embedded", "tokenizer.json")
# Strings with which this tokenizer, and others, mark what is not text.
MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>", "<filename>", "<|fim_middle|>", "middle"]


@pytest.fixture(scope="module")
def tokenizer() -> PromptTokenizer:
    return PromptTokenizer.from_file(ASSET)


def real_files() -> Iterator[Path]:
    """Python and JavaScript files of packages that are installed here."""
    packages = Path(pygls.__file__).parents[1]
    for name in ("pygls", "torch/utils", "tqdm", "httpx", "torch/_dynamo"):
        yield from sorted((packages / name).glob("*.py"))
    yield from sorted(packages.glob("torch/**/*.js"))


def write(directory: Path, data: Any) -> Path:
    file = directory / "tokenizer.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


def test_real_files_come_back_unchanged(tokenizer: PromptTokenizer) -> None:
    files = list(real_files())
    assert len(files) > 100
    for file in files:
        text = file.read_bytes().decode("utf-8")
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text, file
        assert len(ids) < len(text) or not text


@settings(deadline=None)  # the first example may come while other tests hold the machine
@given(text=st.text())
def test_any_text_comes_back_but_for_the_bytes_that_no_token_spells(tokenizer: PromptTokenizer, text: str) -> None:
    kept = bytes(byte for byte in text.encode("utf-8") if byte not in tokenizer.missing_bytes)
    spelled = b"".join(tokenizer.token_bytes[id] for id in tokenizer.encode(text))
    assert spelled == kept
    assert tokenizer.decode(tokenizer.encode(text)) == kept.decode("utf-8", errors="replace")


def test_the_bytes_that_no_token_spells_are_these(tokenizer: PromptTokenizer) -> None:
    """None of them is whitespace of a source file or part of a letter in use."""
    controls = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D}
    not_in_utf8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
    unassigned_planes = {0xF1, 0xF2}
    assert tokenizer.missing_bytes == controls | not_in_utf8 | unassigned_planes


def test_digits_stand_alone(tokenizer: PromptTokenizer) -> None:
    pieces = [tokenizer.decode([id]) for id in tokenizer.encode("\n        1")]
    assert pieces == ["\n        ", "1"]
    assert [tokenizer.decode([id]) for id in tokenizer.encode("x = 2024")][-4:] == ["2", "0", "2", "4"]


def test_special_strings_in_text_are_ordinary_characters(tokenizer: PromptTokenizer) -> None:
    for marker in MARKERS:
        text = f"a = '{marker}'\n{marker}"
        ids = tokenizer.encode(text)
        assert min(ids) > 16, "ids 0 to 16 are the markers"
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("ignore_merges", [True, False])
def test_markers_are_text_whatever_the_file_says_of_them(tmp_path: Path, special: bool, ignore_merges: bool) -> None:
    """The same ids with markers in the file, marked special or not, as with a file that has none."""
    data = json.loads(ASSET.read_text(encoding="utf-8"))
    without = json.loads(ASSET.read_text(encoding="utf-8"))
    size = len(data["model"]["vocab"])
    markers = ["<|fim_prefix|>", "<|fim_middle|>", "fimmiddle", "    "]
    for place, marker in enumerate(markers):
        flags = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": False, "special": special}
        data["added_tokens"].append({"id": size + place, "content": marker, **flags})
        data["model"]["vocab"][marker] = size + place
    for token in without["added_tokens"]:
        del without["model"]["vocab"][token["content"]]
    without["added_tokens"] = []
    for file in (data, without):
        file["model"]["ignore_merges"] = ignore_merges
    marked, plain = tmp_path / "marked", tmp_path / "plain"
    marked.mkdir()
    plain.mkdir()
    tokenizer, reference = (PromptTokenizer.from_file(write(*pair)) for pair in ((marked, data), (plain, without)))
    for marker in [*MARKERS, *markers]:
        text = f"def f():\n    x = 1  {marker} fimmiddle{marker}\n"
        assert tokenizer.encode(text) == reference.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.token_bytes) == size + len(markers)
    assert tokenizer.token_bytes[size:] == [b""] * len(markers)


def test_a_word_that_the_file_calls_added_keeps_its_bytes(tmp_path: Path) -> None:
    """An added token that merging gives as well is ordinary text here, and must come back as such."""
    data = json.loads(ASSET.read_text(encoding="utf-8"))
    data["added_tokens"].append({"id": data["model"]["vocab"]["return"], "content": "return", "special": False})
    data["added_tokens"][-1] |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = PromptTokenizer.from_file(write(tmp_path, data))
    assert tokenizer.decode(tokenizer.encode("return x")) == "return x"


def test_markers_have_no_bytes_and_unknown_ids_no_text(tokenizer: PromptTokenizer) -> None:
    assert tokenizer.token_bytes[:17] == [b""] * 17
    assert len(tokenizer.token_bytes) == 49152
    assert all(tokenizer.token_bytes[17:])
    assert tokenizer.decode([0, 2, 49152, -1, 10**9]) == ""


def test_half_a_character_decodes_to_the_replacement(tokenizer: PromptTokenizer) -> None:
    ids = tokenizer.encode("😀")
    assert len(ids) > 1
    assert "�" in tokenizer.decode(ids[:-1])
    assert tokenizer.decode(ids) == "😀"


def test_half_a_surrogate_pair_is_not_an_error(tokenizer: PromptTokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud83d b")) == "a? b"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "is not a byte-level BPE: its model is WordPiece"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "is not a byte-level BPE: its pre-tokenizer has no ByteLevel"),
        ({"pre_tokenizer": None}, "is not a byte-level BPE: its pre-tokenizer has no ByteLevel"),
        ({"model": {"type": "BPE", "vocab": {"▁a": 0}, "merges": []}}, "is not a byte-level BPE: token 0"),
        ({"model": {"type": "BPE", "vocab": {"a": -3, "b": "x"}, "merges": []}}, "is not a usable tokenizer"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "z"]]}}, "is not a usable tokenizer"),
        ({"model": 5}, "is not a usable tokenizer"),
    ],
)
def test_a_tokenizer_of_another_kind_is_one_clear_line(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    data = json.loads(ASSET.read_text(encoding="utf-8")) | change
    file = write(tmp_path, data)
    with pytest.raises(TokenizerError) as caught:
        PromptTokenizer.from_file(file)
    assert str(caught.value).startswith(f"tokenizer {file} {problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b"null"])
def test_a_broken_file_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"is not (valid JSON|a usable tokenizer file)"):
        PromptTokenizer.from_file(file)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="cannot be read: No such file"):
        PromptTokenizer.from_file(tmp_path / "tokenizer.json")
