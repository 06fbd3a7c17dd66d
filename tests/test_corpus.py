"""`train corpus` with the real pip and npm, on packages that the tests build themselves."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from server.cli import main
from server.cli.train.corpus import PACKAGES
from server.context.languages import language_for
from server.context.prompt import PromptBuilder, TextBefore
from server.context.tokenizer import PromptTokenizer
from server.corpus.archives import read_archive
from server.corpus.errors import PackageSkipped
from server.corpus.licences import is_permissive, read_licence
from server.corpus.package_list import Package, load_package_list
from server.corpus.selection import may_be_source, one_build, read_document, shown_path
from server.corpus.tokens import read_documents, render
from server.paths import asset
from server.profiles import load_profile

TOKENIZER = asset("embedded", "tokenizer.json")
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


def source(name: str, lines: int = 12) -> str:
    return "".join(f"def {name}_{line}(value):\n    return value + {line}\n\n\n" for line in range(lines))


def make_wheel(folder: Path, name: str, files: dict[str, str | bytes], licence: str = "MIT") -> Path:
    """A wheel that pip takes, with the given files."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    metadata += f"License-Expression: {licence}\n" if licence else ""
    contents = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        for path, content in {**contents, f"{info}/RECORD": record}.items():
            file.writestr(path, content)
    return wheel


def make_tarball(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the package index pip sees."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """An npm registry on a loopback socket: the tarballs put into it by name, all of version 1.0.0."""
    tarballs: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = f"http://127.0.0.1:{self.server.server_address[1]}"
            name = self.path.strip("/").removesuffix(".tgz")
            if name not in tarballs:
                self.send_error(404)
                return
            answer = tarballs[name]
            if not self.path.endswith(".tgz"):
                dist = {"tarball": f"{address}/{name}.tgz", "shasum": hashlib.sha1(answer).hexdigest()}
                release = {"name": name, "version": "1.0.0", "dist": dist}
                document = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": release}}
                answer = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("npm_config_userconfig", str(tmp_path / "npmrc"))
    monkeypatch.setenv("npm_config_update_notifier", "false")
    for name in ("proxy", "https_proxy", "http_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield tarballs
    server.shutdown()
    server.server_close()
    thread.join()


def build(tmp_path: Path, listed: str, *, out: str = "corpus") -> tuple[int, Path]:
    list_file = tmp_path / "list.toml"
    list_file.write_text(listed)
    status = main(["train", "corpus", "--list", str(list_file), "--out", str(tmp_path / out)])
    return status, tmp_path / out


def manifest_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return found


def documents_of(out: Path, shard: str) -> list[str]:
    """Text of each document of a shard; the start offsets must be where token 0 stands."""
    tokens = np.load(out / shard)
    starts = np.load(out / shard.replace(".npy", ".starts.npy"))
    assert tokens.dtype == np.uint16
    assert starts.tolist() == np.flatnonzero(tokens == 0).tolist()
    tokenizer = PromptTokenizer.from_file(TOKENIZER)
    ends = [*starts[1:].tolist(), len(tokens)]
    return [tokenizer.decode(tokens[start + 1 : end].tolist()) for start, end in zip(starts, ends, strict=True)]


@needs_npm
def test_wheels_and_npm_packages_become_shards_with_the_path_comment_of_a_prompt(
    tmp_path: Path, wheels: Path, registry: dict[str, bytes]
) -> None:
    make_wheel(wheels, "alpha", {"alpha/one.py": source("one"), "alpha/two.py": source("two")})
    make_wheel(wheels, "beta", {"beta/other.py": source("other")})
    script = "export function add(left, right) {\n  return left + right;\n}\n" * 10
    registry["gamma"] = make_tarball(
        {
            "package/package.json": '{"name": "gamma", "version": "1.0.0", "license": "ISC"}',
            "package/src/add.js": script,
        }
    )
    listed = 'python = ["alpha"]\nnpm = ["gamma"]\n[held_out]\npython = ["beta"]\n'
    status, out = build(tmp_path, listed)
    assert status == 0
    texts = documents_of(out, "train-00000.npy")
    assert sorted(texts) == sorted(
        [
            "# alpha/one.py\n" + source("one"),
            "# alpha/two.py\n" + source("two"),
            "// src/add.js\n" + script,
        ]
    )
    assert documents_of(out, "held-python-00000.npy") == ["# beta/other.py\n" + source("other")]
    manifest = manifest_of(out)
    packages = {package["name"]: package for package in manifest["packages"]}
    assert {name: (p["split"], p["version"], p["licence"]) for name, p in packages.items()} == {
        "alpha": ("train", "1.0", "MIT"),
        "beta": ("held", "1.0", "MIT"),
        "gamma": ("train", "1.0.0", "ISC"),
    }
    assert packages["alpha"]["bytes"] == len(source("one") + source("two"))
    for shard in manifest["shards"]:
        assert shard["sha256"] == hashlib.sha256((out / shard["file"]).read_bytes()).hexdigest()
        assert shard["tokens"] == len(np.load(out / shard["file"]))
    trained = sum(shard["tokens"] for shard in manifest["shards"] if shard["split"] == "train")
    assert trained == sum(language["tokens"] for language in manifest["totals"]["train"].values())


def test_a_text_of_a_held_out_package_is_never_trained_on(tmp_path: Path, wheels: Path) -> None:
    make_wheel(wheels, "heldback", {"heldback/a.py": source("shared")})
    # The copy differs in white space only.
    copied = source("shared").replace("\n\n\n", "\n\n")
    make_wheel(wheels, "copier", {"copier/copied.py": copied, "copier/own.py": source("own")})
    status, out = build(tmp_path, 'python = ["copier"]\n[held_out]\npython = ["heldback"]\n')
    assert status == 0
    assert documents_of(out, "train-00000.npy") == ["# copier/own.py\n" + source("own")]
    assert len(documents_of(out, "held-python-00000.npy")) == 1


def test_packages_without_a_permissive_licence_or_source_are_skipped_with_the_reason(
    tmp_path: Path, wheels: Path
) -> None:
    make_wheel(wheels, "good", {"good/a.py": source("a")})
    make_wheel(wheels, "copyleft", {"copyleft/a.py": source("b")}, licence="GPL-3.0-only")
    make_wheel(wheels, "unstated", {"unstated/a.py": source("c")}, licence="")
    make_wheel(wheels, "hollow", {"hollow/__init__.py": ""})
    make_wheel(wheels, "evil", {"evil/a.py": source("d"), "../escaped.py": source("e")})
    (wheels / "broken-1.0-py3-none-any.whl").write_bytes((wheels / "good-1.0-py3-none-any.whl").read_bytes()[:300])
    names = ["good", "copyleft", "unstated", "hollow", "evil", "broken", "absent"]
    status, out = build(tmp_path, f"python = {json.dumps(names)}\n")
    assert status == 0
    manifest = manifest_of(out)
    assert [package["name"] for package in manifest["packages"]] == ["good"]
    reasons = {package["name"]: package["reason"] for package in manifest["skipped"]}
    assert sorted(reasons) == sorted(set(names) - {"good"})
    assert "GPL-3.0-only" in reasons["copyleft"]
    assert "states no licence" in reasons["unstated"]
    assert "no source file" in reasons["hollow"]
    assert "unsafe path" in reasons["evil"]
    assert "absent" in reasons["absent"]
    assert all("\n" not in reason for reason in reasons.values())
    assert not list(tmp_path.rglob("escaped.py"))


def test_what_was_downloaded_and_tokenised_is_not_made_again(tmp_path: Path, wheels: Path) -> None:
    make_wheel(wheels, "alpha", {"alpha/one.py": source("one"), "alpha/two.py": source("two")})
    listed = 'python = ["alpha"]\n'
    assert build(tmp_path, listed)[0] == 0
    first = manifest_of(tmp_path / "corpus")
    kept = next((tmp_path / "corpus" / "tokens").rglob("alpha.npy"))
    made = kept.stat().st_mtime_ns
    shutil.rmtree(wheels)
    assert build(tmp_path, listed)[0] == 0
    assert manifest_of(tmp_path / "corpus") == first
    assert kept.stat().st_mtime_ns == made
    # Half-written tokens of an interrupted build are made anew.
    next((tmp_path / "corpus" / "tokens").rglob("alpha.json")).write_text('{"made_from"')
    assert build(tmp_path, listed)[0] == 0
    assert manifest_of(tmp_path / "corpus") == first


def test_the_cap_keeps_a_large_package_small(tmp_path: Path, wheels: Path) -> None:
    make_wheel(wheels, "large", {f"large/m{number}.py": source(f"f{number}") for number in range(40)})
    size = len(source("f10"))
    status, out = build(tmp_path, f'cap_mb = {10.5 * size / 1e6}\npython = ["large"]\n')
    assert status == 0
    assert len(documents_of(out, "train-00000.npy")) == 10


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_an_interrupted_build_says_so_ends_its_clients_and_goes_on_later(tmp_path: Path, wheels: Path) -> None:
    make_wheel(wheels, "alpha", {"alpha/one.py": source("one")})
    # A fake npm that never ends, to be interrupted in the middle of a download.
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "npm").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/client.pid\nexec sleep 60\n")
    (programs / "npm").chmod(0o755)
    list_file = tmp_path / "list.toml"
    list_file.write_text('python = ["alpha"]\nnpm = ["gamma"]\n')
    out = tmp_path / "corpus"
    process = subprocess.Popen(
        [sys.executable, "-m", "server", "train", "corpus", "--list", str(list_file), "--out", str(out)],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    pid_file = tmp_path / "client.pid"
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and (out / "downloads/python/alpha").exists()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=30)[1]
    assert process.returncode == 1
    assert errors.splitlines()[-1].endswith("interrupted; the same command goes on from here")
    assert "Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert not (out / "manifest.json").exists()
    shutil.rmtree(wheels)
    assert build(tmp_path, 'python = ["alpha"]\n')[0] == 0


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("", "names no package"),
        ("python = []\n", "names no package"),
        ("python = [", "not valid TOML"),
        ('ruby = ["rails"]\n', "unknown key ruby"),
        ('python = ["--index-url=x"]\n', "not a python package name"),
        ('npm = ["../../etc"]\n', "not a npm package name"),
        ('python = ["a"]\n[held_out]\npython = ["A"]\n', "named twice"),
        ('cap_mb = 0\npython = ["a"]\n', "cap_mb"),
        ('python = ["absent"]\n', "no package could be had"),
    ],
)
def test_a_list_that_cannot_be_used_is_one_clear_line(
    tmp_path: Path, wheels: Path, capfd: pytest.CaptureFixture[str], listed: str, said: str
) -> None:
    status, out = build(tmp_path, listed)
    assert status == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("dflash-lsp:")]
    assert len(lines) == 1 and said in lines[0]
    assert not (out / "manifest.json").exists()


def test_two_builds_do_not_write_to_one_folder(tmp_path: Path, wheels: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus").mkdir()
    with FileLock(tmp_path / "corpus" / ".lock"):
        assert build(tmp_path, 'python = ["absent"]\n')[0] == 1
    assert "another build is writing to" in capfd.readouterr().err


def test_an_output_folder_that_cannot_be_written_is_named(
    tmp_path: Path, wheels: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus").write_text("a file")
    assert build(tmp_path, 'python = ["absent"]\n')[0] == 1
    assert f"output folder {tmp_path / 'corpus'} cannot be written" in capfd.readouterr().err


def test_no_network_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert build(tmp_path, 'python = ["absent"]\n')[0] == 1
    assert "no package could be had: no network" in capfd.readouterr().err


def test_generated_minified_vendored_and_binary_files_are_left_out() -> None:
    text = source("kept")
    assert read_document("a.py", text.encode()) is not None
    assert read_document("a.py", b"# @generated by a tool\n" + text.encode()) is None
    assert read_document("a.py", b"\xff\xfe" + text.encode()) is None
    assert read_document("a.js", b"var a=1;" * 400) is None
    translated = 'Object.defineProperty(exports, "__esModule", { value: true });\n'
    assert read_document("a.js", (translated + "exports.a = 1;\n" * 30).encode()) is None
    assert read_document("a.py", b"DATA = [\n" + b"    123456, 789012, 345678,\n" * 50 + b"]\n") is None
    assert read_document("a.py", b"# GNU General Public License\n" + text.encode()) is None
    assert may_be_source("package/src/a.ts", 5000)
    for path in ("pip/_vendor/a.py", "package/dist/a.js", "package/a.min.js", "package/a.d.ts", "a_pb2.py", "a.txt"):
        assert not may_be_source(path, 5000), path
    assert not may_be_source("a.py", 199)
    assert not may_be_source("a.py", 400_001)


def test_one_of_several_builds_of_a_module_is_kept() -> None:
    paths = ["lib/a.js", "src/a.ts", "esm/a.mjs", "lib/b.js", "cjs/b.js", "lib/a.py"]
    assert sorted(one_build(paths)) == ["lib/a.py", "lib/b.js", "src/a.ts"]


def test_a_translated_build_gives_way_to_a_readable_one(tmp_path: Path) -> None:
    script = "export function add(left, right) {\n  return left + right;\n}\n" * 10
    translated = 'Object.defineProperty(exports, "__esModule", { value: true });\n' + script
    tarball = tmp_path / "gamma-1.0.0.tgz"
    files = {"package/lib/add.js": translated, "package/esm/add.js": script}
    tarball.write_bytes(make_tarball({"package/package.json": '{"license": "MIT"}', **files}))
    documents = read_documents(Package("npm", "gamma", "train"), [tarball], 1_000_000)[2]
    assert [document.path for document in documents] == ["esm/add.js"]


def test_a_document_shows_its_path_in_the_project() -> None:
    assert shown_path("package/src/a.ts", has_top=True) == "src/a.ts"
    assert shown_path("alpha-1.0/alpha/a.py", has_top=True) == "alpha/a.py"
    assert shown_path("./usr/share/cargo/registry/nom-7.1.1/src/lib.rs", has_top=False) == "src/lib.rs"
    assert shown_path("alpha/a.py", has_top=False) == "alpha/a.py"


def test_a_document_begins_with_the_very_tokens_of_a_prompt() -> None:
    text = source("shown", 4)
    document = read_document("alpha/shown.py", text.encode())
    assert document is not None
    ids = render(document, PromptTokenizer.from_file(TOKENIZER))
    embedded = load_profile("embedded")
    assert embedded.prompt is not None
    builder = PromptBuilder(replace(embedded, prompt=replace(embedded.prompt, format="plain")))
    for end in (40, 100, len(text)):
        prompt = builder.build(TextBefore(text[:end]), "alpha/shown.py", language_for("python"))
        assert len(prompt.content) > 10
        assert ids[: len(prompt.content)] == prompt.content


@pytest.mark.parametrize("path", ["../a.py", "/etc/a.py", "a/../../b.py", "C:/a.py", "a\\..\\..\\b.py"])
def test_an_archive_that_would_leave_its_folder_is_refused(tmp_path: Path, path: str) -> None:
    tarball = tmp_path / "a.tgz"
    tarball.write_bytes(make_tarball({"package/a.py": "x", path: "y"}))
    with pytest.raises(PackageSkipped, match="unsafe path"):
        list(read_archive(tarball, lambda path, size: True))


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text(source("secret"))
    tarball = tmp_path / "a.tgz"
    with tarfile.open(tarball, "w:gz") as tar:
        link = tarfile.TarInfo("package/a.py")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(link)
    assert list(read_archive(tarball, lambda path, size: True)) == []


def test_a_debian_package_is_read_and_only_its_permissive_files_are_taken(tmp_path: Path) -> None:
    data = make_tarball({"./usr/share/gocode/src/x/a.go": "package x\n", "./usr/share/doc/x/copyright": "c"})
    deb = tmp_path / "x_1.0_all.deb"
    parts = [("debian-binary", b"2.0\n"), ("data.tar.gz", data)]
    deb.write_bytes(
        b"!<arch>\n"
        + b"".join(
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
            + content
            + b"\n" * (len(content) % 2)
            for name, content in parts
        )
    )
    assert [path for path, _ in read_archive(deb, lambda path, size: path.endswith(".go"))] == [
        "./usr/share/gocode/src/x/a.go"
    ]
    copyright = b"Format: x\n\nFiles: *\nLicense: Expat\n\nFiles: contrib/*\n tools/x.go\nLicense: GPL-2+\n"
    licence = read_licence("debian", {"usr/share/doc/x/copyright": copyright})
    assert licence.name == "Expat"
    assert licence.covers("a.go")
    assert not licence.covers("contrib/a.go")
    assert not licence.covers("tools/x.go")


@pytest.mark.parametrize(
    ("stated", "permissive"),
    [
        ("MIT", True),
        ("BSD License", True),
        ("Apache Software License", True),
        ("Apache-2.0 OR GPL-2.0-or-later", True),
        ("BSD-3-Clause AND 0BSD AND MIT", True),
        ("MIT AND MPL-2.0", False),
        ("LGPL-3.0", False),
        ("GNU Affero General Public License v3", False),
        ("CC-BY-NC-4.0", False),
        ("SEE LICENSE IN LICENSE.md", False),
        ("Permitted", False),
        ("UNLICENSED", False),
    ],
)
def test_only_clearly_permissive_licences_pass(stated: str, permissive: bool) -> None:
    assert is_permissive(stated) == permissive


def test_the_committed_manifest_is_of_the_committed_list() -> None:
    """What the pair was trained on: 300 M tokens or more of at least six languages, held-out packages apart."""
    root = Path(__file__).parents[1]
    manifest = json.loads((root / "benchmarks" / "results" / "corpus-manifest-2026-11-30.json").read_text())
    listed = {(p.registry, p.name): p.split for p in load_package_list(PACKAGES).packages}
    used = manifest["packages"]
    assert {(p["registry"], p["name"]): p["split"] for p in used}.items() <= listed.items()
    assert all(p["version"] and p["licence"] and p["bytes"] for p in used)
    train = manifest["totals"]["train"]
    assert len(train) >= 6 and sum(each["tokens"] for each in train.values()) >= 300_000_000
    assert {p["split"] for p in used} == {"train", "held"}
