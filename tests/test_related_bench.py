"""Whether related chunks help a target is measured on the same holes, with and without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.benchmarks import related
from server.benchmarks.related import ARMS, edit_similarity
from server.cli import main

HELPERS = "".join(f"def helper_{n}(first, second):\n    return first + second * {n}\n\n\n" for n in range(20))
USER = (
    "from helpers import helper_3\n\n"
    + "".join(f"value_{n} = {n}\n" for n in range(60))
    + ("\n\ndef use(a, b):\n    total = helper_3(a, b)\n    return total\n")
)


@pytest.mark.parametrize(
    ("one", "other", "similarity"), [("", "", 1.0), ("abc", "abc", 1.0), ("abc", "abd", 2 / 3), ("abc", "", 0.0)]
)
def test_edit_similarity_counts_edits(one: str, other: str, similarity: float) -> None:
    assert edit_similarity(one, other) == pytest.approx(similarity)


@pytest.mark.usefixtures("private_target")
def test_every_arm_completes_the_same_holes_on_the_real_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(related, "LINES_ABOVE", 5)
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "user.py").write_text(USER)
    assert main(["bench", "context", "--related", "1", "--sources", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["holes"] == 1 and set(report["arms"]) == set(ARMS)
    assert all(0 <= arm["edit_similarity"] <= 1 for arm in report["arms"].values())
