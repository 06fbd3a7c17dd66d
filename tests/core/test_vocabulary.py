"""Token healing finds every token that can begin to spell a text, and no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dflash_core.vocabulary import Healing, Vocabulary

TEXTS = st.binary(min_size=1, max_size=4).map(lambda b: bytes(x % 3 + 97 for x in b))


@given(st.lists(TEXTS, min_size=1, max_size=40), TEXTS)
def test_spelling_is_exactly_the_tokens_that_agree_with_the_text(tokens: list[bytes], rest: bytes) -> None:
    vocabulary = Vocabulary([*tokens, b""])
    agree = {i for i, t in enumerate(tokens) if t.startswith(rest) or rest.startswith(t)}
    found = vocabulary.spelling(rest)
    assert set(found) == agree and len(found) == len(agree)


@given(st.data(), st.lists(TEXTS, max_size=20), st.binary(min_size=1, max_size=9))
def test_whatever_allowed_tokens_are_chosen_the_text_is_spelled_and_the_rest_is_answer(
    data: st.DataObject, tokens: list[bytes], text: bytes
) -> None:
    vocabulary = Vocabulary([bytes([i]) for i in range(256)] + tokens)
    healing, spelled, beyond = Healing(text, vocabulary), b"", b""
    while not healing.done:
        token = data.draw(st.sampled_from(healing.allowed()))
        spelled += vocabulary.token_bytes[token]
        beyond = healing.advance(token)
    assert spelled == text + beyond
