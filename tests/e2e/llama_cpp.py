"""Completions from llama-cpp-python's server, a real engine that is not ours, with the embedded target's GGUF.

Outside CI, since the package is built from source for some minutes: `make llama-cpp`. Prints what it saw as one JSON
object and fails when something is not as the documentation says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from server.completion.request import CompletionOptions
from server.completion.service import CompletionService
from server.documents.document import Document, Place
from server.engine.client import CompletionRequest, EngineClient
from server.engine.remote import remote_endpoint
from server.profiles import load_profile

START_S = 60.0
TEXT = "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n"
CANCELLED = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="of an environment with llama-cpp-python[server]")
    parser.add_argument("--gguf", type=Path, required=True)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [args.python, "-m", "llama_cpp.server", "--model", args.gguf, "--port", str(port), "--n_ctx", "2048"]
    server = subprocess.Popen(
        [*map(str, command), "--model_alias", "smollm2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/v1/models", server)
        report = asyncio.run(look(f"http://127.0.0.1:{port}"))
    finally:
        server.terminate()
        server.wait()
    print(json.dumps(report, ensure_ascii=False))
    return 0


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    begun = time.monotonic()
    while time.monotonic() < begun + START_S and server.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        time.sleep(0.2)
    sys.exit("llama-cpp-python's server does not start")


async def look(address: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report: dict[str, Any] = {}
        for api in ("completions", "chat"):
            file = Path(folder) / f"{api}.toml"
            file.write_text(
                f'extends = "openai-compatible"\n[engine]\naddress = "{address}"\napi = "{api}"\ncontext = 2048\n'
            )
            report[api] = await complete(str(file))
        client = EngineClient(remote_endpoint(load_profile(str(Path(folder) / "completions.toml"))))
        report["health"] = (await client.health()).target
        report["unicode"] = await text_of(client, "# Ein Gedicht über Öl, naïve café, 漢字, 😀:\n# ")
        report["token_ids"] = await token_ids(client)
        report["after_cancelling"] = await cancel(client)
        await client.aclose()
    return report


async def complete(profile: str) -> dict[str, Any]:
    service = CompletionService(load_profile(profile))
    document = Document("file:///work/maths.py", TEXT + "\n", language="python")
    try:
        await service.link.connect()
        options = CompletionOptions(exact_stats=True, raise_errors=True)
        result = await service.complete(document, Place(5, 0), "maths.py", options)
        # In a raw completion it goes on with the function; what a chat answers is the model's affair.
        return {"text": result.text, "finish": result.finish, "reason": result.reason, **result.to_json()["stats"]}
    finally:
        await service.aclose()


async def text_of(client: EngineClient, prompt: str) -> str:
    request = CompletionRequest(prompt=prompt, max_tokens=48)
    async with client.stream(request) as stream:
        text = "".join([chunk.text async for chunk in stream])
    assert "\ufffd" not in text, text
    return text


async def token_ids(client: EngineClient) -> str:
    """What it says to a prompt of token ids, which its documentation does not list."""
    try:
        return await text_of_ids(client)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:120]}"


async def text_of_ids(client: EngineClient) -> str:
    async with client.stream(CompletionRequest(prompt=[1, 2, 3], max_tokens=4)) as stream:
        return "".join([chunk.text async for chunk in stream])


async def cancel(client: EngineClient) -> dict[str, Any]:
    """Cancel requests after their first chunk; then one more must be served."""
    for _ in range(CANCELLED):
        async with client.stream(CompletionRequest(prompt=TEXT, max_tokens=64)) as stream:
            async for _ in stream:
                break
    begun = time.monotonic()
    text = await text_of(client, TEXT)
    assert text
    return {"cancelled": client.left_behind.cancelled, "next_s": round(time.monotonic() - begun, 2)}


if __name__ == "__main__":
    os.environ.setdefault("NO_PROXY", "*")
    sys.exit(main())
