"""The index is a process of its own: it finds what may be shown, follows the files, and holds nobody up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.context import index as index_module
from server.context.formats import Chunk
from server.context.index import WorkspaceIndex
from server.context.index_process import Index
from server.context.privacy import Privacy

FILES = {
    "app/main.py": "from app.tools import helper\nhelper(1)\n",
    "app/tools.py": "def helper(x):\n    return x\n\n\ndef unique_tool():\n    return 2\n",
    "other/tools.py": "def helper(y, z):\n    return z\n",
    "web/page.ts": "export function unique_page(): void {}\n",
    "app/secret.py": 'PASSWORD_OF_ALL = "hunter2hunter2"\n\n\ndef beside_a_secret():\n    return 1\n',
    ".gitignore": "ignored.py\n",
    "ignored.py": "def ignored_thing():\n    pass\n",
    ".env": "unique_env=1\n",
    "odd/[id] %20 c%3A.py": "def odd_name():\n    pass\n",
    "bad.py": b"def not_text():\n    x = '\xff'\n",
    "nul.py": b"def with_nul():\n    x = '\0'\n",
    "template.py": "def templated(a='{prefix} %s $1 {{x}} <|endoftext|>'):\n    pass\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def scanned(folder: Path) -> Index:
    index = Index(Privacy((folder,)))
    index.scan()
    return index


def names(index: Index, *wanted: str, near: str = "app/main.py", imports: tuple[str, ...] = ()) -> list[str]:
    found = index.find(wanted, index.privacy.folders[0] / near, imports, 8)
    return [f"{each['path']}:{each['name']}" for each in found]


def test_only_what_may_be_context_is_found(folder: Path) -> None:
    index = scanned(folder)
    assert names(index, "unique_tool", "odd_name", "templated", "beside_a_secret") == [
        "app/tools.py:unique_tool",
        "odd/[id] %20 c%3A.py:odd_name",
        "template.py:templated",
        "app/secret.py:beside_a_secret",
    ]
    assert names(index, "PASSWORD_OF_ALL", "ignored_thing", "unique_env", "not_text", "with_nul", "nowhere") == []
    assert index.state()["skipped"] == {"ignored": 1, "not UTF-8 text": 1, "binary file": 1}


def test_an_import_tells_which_definition_is_meant(folder: Path) -> None:
    index = scanned(folder)
    assert names(index, "helper") == []  # two of them, and nothing says which
    assert names(index, "helper", imports=("from app.tools import helper\n",)) == ["app/tools.py:helper"]
    assert names(index, "helper", imports=("from other.tools import helper\n",)) == ["other/tools.py:helper"]


def test_definitions_of_the_file_itself_and_of_other_languages_are_not_found(folder: Path) -> None:
    index = scanned(folder)
    assert names(index, "unique_tool", near="app/tools.py") == []
    assert names(index, "unique_page") == []
    assert names(index, "unique_page", near="web/other.tsx") == ["web/page.ts:unique_page"]


def test_a_page_finds_its_styles_and_scripts_but_not_the_other_way_round(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(".card-title { color: red; }\n:root { --main: red; }\n")
    (tmp_path / "a.js").write_text("function openMenu() {}\n")
    index = scanned(tmp_path)
    assert names(index, "card-title", "openMenu", near="a.html") == ["a.css:card-title", "a.js:openMenu"]
    assert names(index, "--main", near="b.css") == ["a.css:--main"]
    assert names(index, "openMenu", near="b.css") == []


def test_files_that_change_move_or_go_are_followed(folder: Path) -> None:
    index = scanned(folder)
    tools = folder / "app/tools.py"
    tools.write_text("def fresh_tool():\n    pass\n")
    os.utime(tools, ns=(1, 1))
    assert names(index, "unique_tool") == []  # what was read is no longer so
    index.update(tools)
    assert names(index, "unique_tool", "fresh_tool") == ["app/tools.py:fresh_tool"]
    tools.rename(folder / "app/moved.py")
    assert names(index, "fresh_tool") == []
    index.scan()
    assert names(index, "fresh_tool") == ["app/moved.py:fresh_tool"]
    (folder / ".gitignore").write_text("app/moved.py\n")
    index.scan()
    assert names(index, "fresh_tool") == []


def test_the_process_imports_no_model_code() -> None:
    heavy = "('torch', 'transformers', 'numpy')"
    code = f"import sys, server.context.index_process; print([each for each in sys.modules if each in {heavy}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def until_scanned(index: WorkspaceIndex) -> None:
    for _ in range(600):
        state = await index.state()
        if state is not None and state["scanned"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the index was not ready")


@pytest.fixture
async def index(folder: Path) -> AsyncIterator[WorkspaceIndex]:
    index = WorkspaceIndex((folder,))
    await index.start()
    yield index
    await index.aclose()


async def find(index: WorkspaceIndex, name: str, near: Path, timeout_s: float = 10) -> list[Chunk] | None:
    return await index.find([name], near, [], 8, timeout_s)


async def test_the_process_answers_and_hears_of_changes(index: WorkspaceIndex, folder: Path) -> None:
    await until_scanned(index)
    near = folder / "app/main.py"
    assert await find(index, "unique_tool", near) == [Chunk("app/tools.py", "def unique_tool():\n    return 2")]
    (folder / "app/tools.py").write_text("def renamed_tool():\n    pass\n")
    index.changed([folder / "app/tools.py"])
    for _ in range(200):
        if found := await find(index, "renamed_tool", near):
            break
        await asyncio.sleep(0.05)
    assert found == [Chunk("app/tools.py", "def renamed_tool():\n    pass")]


async def test_what_is_excluded_later_is_no_longer_found(index: WorkspaceIndex, folder: Path) -> None:
    await until_scanned(index)
    assert await find(index, "unique_tool", folder / "app/main.py")
    index.exclude(["app/tools.py"])
    assert await find(index, "unique_tool", folder / "app/main.py") == []


async def test_who_asks_waits_no_longer_than_it_says(index: WorkspaceIndex, folder: Path) -> None:
    assert index._process is not None
    await until_scanned(index)
    os.kill(index._process.pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, index._process.pid, os.WSTOPPED | os.WNOWAIT)  # it takes a moment
    begun = time.monotonic()
    assert await find(index, "unique_tool", folder / "a.py", 0.01) is None
    assert time.monotonic() - begun < 5
    os.kill(index._process.pid, signal.SIGCONT)
    assert await find(index, "unique_tool", folder / "a.py") is not None


async def test_a_process_that_died_is_started_again_but_not_for_ever(
    index: WorkspaceIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "FIRST_PAUSE_S", 0.0)
    index._next_start = 0.0
    pids = set()
    for _ in range(index_module.MOST_STARTS):
        await until_scanned(index)
        assert index._process is not None
        pids.add(index._process.pid)
        index._process.kill()
        await index._process.wait()
    assert await find(index, "unique_tool", folder / "a.py") is None
    assert len(pids) == index_module.MOST_STARTS and not index.running


async def test_the_process_ends_with_its_input(folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "server.context.index_process"]
    first = json.dumps({"folders": [str(folder)]}) + "\n"
    done = await asyncio.to_thread(subprocess.run, command, input=first.encode(), timeout=60, check=False)
    assert done.returncode == 0


async def test_without_folders_there_is_no_process() -> None:
    index = WorkspaceIndex(())
    await index.start()
    assert not index.running and await index.state() is None
    await index.aclose()
