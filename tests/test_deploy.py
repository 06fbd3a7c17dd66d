"""The files of docs/deploy, by the programs that read them; `make deploy-check` brings those that a machine lacks.

No engine is started: that takes GPUs. Behind Caddy stands the scripted server.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from server.engine.client import CompletionRequest, Endpoint, EngineClient, EngineError
from tests.scripted_engine import Script, ScriptedEngine, scripted

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs/deploy"
TOKEN = "a-token-of-this-test"


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine: make deploy-check brings it")
    return found


def flags(text: str) -> dict[str, str]:
    """The flags of the first launch of SGLang in a text, with their values."""
    command = text[text.index("sglang.launch_server") :].replace("\\\n", " ")
    words = shlex.split(command.split("\n\n")[0].split("```")[0].split("#")[0], posix=True)[1:]
    found: dict[str, str] = {}
    for word in words:
        if word.startswith("--"):
            found[name := word] = ""
        elif not found or found[name] or word.endswith(":"):
            break
        else:
            found[name] = word
    return found


def test_the_unit_is_one_for_systemd(tmp_path: Path) -> None:
    verify = program("systemd-analyze")
    unit = (DEPLOY / "mimo-sglang.service").read_text(encoding="utf-8")
    file = tmp_path / "mimo-sglang.service"
    # Of the paths that it names, systemd looks for the program only.
    file.write_text(unit.replace("/opt/sglang/bin/python", sys.executable), encoding="utf-8")
    done = subprocess.run([verify, "verify", file], check=False, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "mimo-sglang" in line]
    assert done.returncode == 0 and not said, done.stderr


def test_the_compose_file_is_one_for_compose_and_asks_for_what_it_needs() -> None:
    compose = [program("docker-compose"), "-f", str(DEPLOY / "compose.yaml"), "config"]
    needed = {"DFLASH_TOKEN": TOKEN, "MODELS": "/srv/models", "HOST": "completions.example.org"}
    plain = {name: value for name, value in os.environ.items() if name not in needed}
    done = subprocess.run(compose, env={**plain, **needed}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'published: "443"' in done.stdout and 'published: "30000"' not in done.stdout
    for name in needed:
        without = {**plain, **{other: value for other, value in needed.items() if other != name}}
        done = subprocess.run(compose, env=without, check=False, capture_output=True, text=True)
        assert done.returncode != 0 and name in done.stderr


def test_the_documentation_the_unit_and_the_compose_file_launch_the_same_engine() -> None:
    unit = flags(
        (DEPLOY / "mimo-sglang.service").read_text(encoding="utf-8").replace("${MODEL}", "/models/MiMo-V2.6-Flash")
    )
    compose = flags((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    documented = flags((ROOT / "docs/scale.md").read_text(encoding="utf-8"))
    assert len(unit) > 15
    # In a container the engine is reached from another one.
    assert {**compose, "--host": unit["--host"]} == unit
    # The cookbook's kernels for B300, of which the documentation says what H200 takes instead.
    for name in ("--moe-runner-backend", "--moe-a2a-backend", "--deepep-mode"):
        documented.pop(name)
        unit.pop(name, None)
    assert documented == unit


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[tuple[str, ScriptedEngine]]:
    """The address of a real Caddy with our Caddyfile, without TLS on loopback, and the engine behind it."""
    caddy = program("caddy")
    async with scripted("sglang") as engine:
        config = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
        file = tmp_path / "Caddyfile"
        options = "{\n\tadmin off\n}\n"
        file.write_text(
            options + config.replace("engine:30000", engine.address.removeprefix("http://")), encoding="utf-8"
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"http://127.0.0.1:{port}"
        process = await asyncio.create_subprocess_exec(
            *(caddy, "run", "--config", str(file), "--adapter", "caddyfile"),
            env={
                **os.environ,
                "HOST": address,
                "DFLASH_TOKEN": TOKEN,
                "HOME": str(tmp_path),
                "XDG_DATA_HOME": str(tmp_path),
            },
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with httpx.AsyncClient(base_url=address, trust_env=False) as http:
                for _ in range(200):
                    try:
                        await http.get("/")
                        break
                    except httpx.ConnectError:
                        await asyncio.sleep(0.05)
            yield address, engine
        finally:
            process.terminate()
            await process.wait()


async def test_the_front_lets_through_who_has_the_token_and_nothing_but_completions(
    front: tuple[str, ScriptedEngine],
) -> None:
    address, engine = front
    async with httpx.AsyncClient(base_url=address, trust_env=False) as http:
        for path, token in (
            ("/v1/models", ""),
            ("/v1/models", "another"),
            ("/flush_cache", TOKEN),
            ("/generate", TOKEN),
        ):
            answer = await http.get(path, headers={"authorization": f"Bearer {token}"} if token else {})
            assert answer.status_code == 401, path
    assert engine.paths == []
    stranger = EngineClient(Endpoint(address, token="another", dialect="sglang", model="mimo"))
    with pytest.raises(EngineError, match="refuses the token"):
        await stranger.probe()
    await stranger.aclose()
    client = EngineClient(Endpoint(address, token=TOKEN, dialect="sglang"))
    assert await client.models() == ["mimo"]
    await client.probe()
    await client.aclose()


async def test_behind_the_front_chunks_come_one_by_one_and_a_client_that_leaves_ends_its_request(
    front: tuple[str, ScriptedEngine],
) -> None:
    address, engine = front
    engine.default = Script(rounds=["x "] * 60, round_s=0.05)
    client = EngineClient(Endpoint(address, token=TOKEN, dialect="sglang", model="mimo"))
    async with client.stream(CompletionRequest(prompt=[1, 2], max_tokens=64)) as stream:
        assert (await anext(aiter(stream))).text == "x "
        assert engine.running == 1, "the first chunk came before the last one was made"
    for _ in range(500):
        if engine.running == 0 and engine.aborted:
            break
        await asyncio.sleep(0.01)
    assert (engine.running, len(engine.aborted), client.left_behind.unheard) == (0, 1, 0)
    await client.aclose()
