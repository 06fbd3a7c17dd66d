"""Special strings in the user's text, for engines that are sent text: broken up, so that they stay text.

An engine that tokenises a prompt itself takes `<|im_end|>` in a source file for the marker. A word joiner behind
its first character is no blank, has no width, and is part of no marker. It is taken out of answers again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

JOINT = "\u2060"
# Markers of the families that such engines mostly serve: their tokenizer configurations and chat templates.
_USUAL = (
    r"<\|[^\s|<>]{1,64}\|>",  # ChatML, Llama 3, Qwen, Phi, GPT
    r"<\uff5c[^\s\uff5c<>]{1,64}\uff5c>",  # DeepSeek's, with full-width bars
    r"</?s>|<(?:bos|eos|pad|unk|mask)>",
    r"<(?:start|end)_of_(?:turn|image)>|<unused\d{1,4}>",  # Gemma
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|IMG|PREFIX|SUFFIX|MIDDLE)\]",  # Mistral
    r"<</?SYS>>",
    r"<(?:fim|file|repo|gh|issue|jupyter|commit|empty)[-_][-_a-z]+>|<(?:reponame|filename)>",  # StarCoder, Granite
    r"<(?:PRE|SUF|MID|EOT)>",  # Code Llama
    r"</?think>|</?tool_(?:call|response)>",
)


class SpecialText:
    """Breaks up special strings: the usual ones, and a profile's own."""

    def __init__(self, own: Sequence[str] = ()) -> None:
        # The longest first, or one that begins like another would be found inside it.
        escaped = [re.escape(each) for each in sorted(own, key=len, reverse=True)]
        self._pattern = re.compile("|".join([*escaped, *_USUAL]))

    def broken_up(self, text: str) -> str:
        """The text with a joint inside each special string, so that none is left."""
        while (broken := self._pattern.sub(_with_joint, text)) != text:
            text = broken
        return text


def _with_joint(found: re.Match[str]) -> str:
    # A special string of one character cannot be broken up; it is told from text by nothing then.
    return found[0][:1] + JOINT + found[0][1:] if len(found[0]) > 1 else found[0]
