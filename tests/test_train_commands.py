"""The training commands on a CPU: a tiny target is tuned, gets a draft, and both serve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_core.checkpoints.draft import load_draft
from dflash_core.checkpoints.target import load_target
from dflash_core.training.delta import merge_delta
from server.benchmarks.plot import Line, bar_plot, line_plot
from server.cli import main
from tests.core import tiny
from tests.core.test_target_training import write_fill_shards


def test_target_continuations_and_draft_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, target = tmp_path / "shards", tiny.write_target(tmp_path / "target")
    write_fill_shards(shards)
    write_fill_shards(shards, "held-python", count=20, seed=9)
    common = ["--shards", str(shards), "--target", str(target)]
    tuned, delta = tmp_path / "tuned", tmp_path / "tuned" / "delta.safetensors"
    tune = ["train", "target", *common, "--out", str(tuned), "--rank", "4", "--rows", "4", "--row-tokens", "48"]
    assert main([*tune, "--steps", "50", "--rate", "0.01", "--json"]) == 0
    last = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in (tuned / "curve.jsonl").read_text().splitlines()]
    assert rows[-1] == last and rows[0]["step"] == 0
    assert last["held"]["python"]["due"] < rows[0]["held"]["python"]["due"]
    assert "<polyline" in (tuned / "curve.svg").read_text()
    assert main([*tune, "--steps", "60", "--rate", "0.01", "--json"]) == 0  # goes on
    assert len((tuned / "curve.jsonl").read_text().splitlines()) > len(rows)
    capsys.readouterr()

    write = ["train", "continuations", *common, "--delta", str(delta), "--max-tokens", "5", "--stop", "2"]
    assert main([*write, "--prompts", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 120

    draft = ["train", "draft", *common, "--delta", str(delta), "--out", str(tmp_path / "draft"), "--layers", "1"]
    draft += ["--rows", "2", "--row-tokens", "48", "--anchors", "4", "--own-share", "0.5", "--mask-id", "95"]
    assert main([*draft, "--steps", "3", "--weighting", "acceptance", "--variation", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] > 0
    merged = load_target(target)
    merge_delta(merged, delta)
    assert load_draft(tmp_path / "draft", merged).spec.block_size == 8


def test_what_cannot_be_trained_on_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tiny.write_target(tmp_path / "target")
    command = ["train", "target", "--target", str(target), "--out", str(tmp_path / "out"), "--shards"]
    assert main([*command, str(tmp_path / "nothing")]) == 1
    assert "no token shards train-*.npy" in capsys.readouterr().err
    write_fill_shards(tmp_path / "shards")
    assert main([*command, str(tmp_path / "shards"), "--rank", "-1"]) == 1
    assert "rank must be 0 or more" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "shards"), "--rank", "4", "--start", str(target / "config.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "out" / "delta.safetensors").exists()


def test_plots_are_whole_for_any_numbers() -> None:
    for points in ([(0, 1.0)], [(0, 2.0), (1000, 2.0)], [(0, -3e-4), (7, 12345.0)]):
        assert line_plot("a <b>", "x", "y", [Line("loss", points)]).count("<polyline") == 1
    assert bar_plot("", "%", ["c", "go"], {"base": [1.5, None], "tuned": [0, 0.25]}).count("<rect") == 1 + 3 + 2
