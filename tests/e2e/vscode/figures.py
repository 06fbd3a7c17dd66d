"""What VS Code and the extension take, measured in a real window with the replay engine: a command, no test.

    tests/e2e/run.sh --figures [--keys N] [--completions N] [--json] [--write FILE]

activation: what VS Code itself says that the extension's activation took, with no server to be found.
key to ghost text: from the key's event in the page to the end of the frame that shows ghost text, less the time from
the extension's request to the server's first text for it; isolated keys, and the last key of a word typed quickly. VS
Code waits 50 ms before it asks any provider, of which the figure for isolated keys is given with and without. Where the
rest goes is told piece by piece (stopwatch.py).
leak: after many completions that grow, some of them accepted and some put away: the providers that VS Code has been
told of and not been told to forget, its own warnings of listeners that leak, and the memory of the extension host and
of the server before and after. What the extension itself holds is counted by a test of its code (provider.test.ts).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from code_server import CodeServer
from conftest import SERVER, packaged_extension
from playwright.sync_api import sync_playwright
from stopwatch import PIECES, Key, Stopwatch
from tape import Engine, Tape
from workbench import READY, Workbench

GROWS_AFTER_MS = 110  # so that each update is shown, of which there are at most ten a second
WAITS_MS = 50.0  # VS Code's InlineCompletionsDebounce: its least and its most, for every request but one made by hand


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="dflash-e2e-", dir="/tmp", ignore_cleanup_errors=True) as name:
        figures = measure(Path(name), options.keys, options.completions)
    if options.write:
        command = f"tests/e2e/run.sh --figures --keys {options.keys} --completions {options.completions}"
        report = {"date": date.today().isoformat(), "hardware": hardware(), "command": command, **figures}
        options.write.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(figures))
        return 0
    for key, value in figures.items():
        if key == "goals":
            continue
        pieces = value.pop("pieces_ms", {}) if isinstance(value, dict) else {}
        print(f"{key.replace('_', ' ')}: {value}")
        for piece, each in pieces.items():
            print(f"    {piece}: {each}")
    for goal in goals_of(figures):
        verdict = "met" if goal["met"] else "MISSED"
        print(f"goal {verdict}: {goal['what']} {goal['figure']} {goal['unit']}, at most {goal['at_most']}")
    return 0


def goals_of(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """What is wanted beside what was measured."""
    isolated, typing = (figures[kind]["over_the_answer_ms"]["p95"] for kind in ("isolated", "typing"))
    own = None if isolated is None else round(isolated - WAITS_MS, 1)
    wanted = [
        ("activation without the server", figures["activation_ms"], 100),
        ("isolated key to ghost text over the server's answer and VS Code's own 50 ms, p95", own, 40),
        ("key while typing over the server's answer, p95", typing, 100),
    ]
    goals = [(what, "ms", figure, most) for what, figure, most in wanted]
    if leaked := figures.get("leak"):
        goals.append(("providers after the completions", "of one", leaked["providers_left"], 1))
        goals.append(("warnings of leaking listeners", "of none", leaked["listener_leak_warnings"], 0))
    return [
        {"what": what, "unit": unit, "figure": figure, "at_most": most, "met": figure is not None and figure <= most}
        for what, unit, figure, most in goals
    ]


def hardware() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return f"{os.cpu_count()} CPU cores ({found[1] if found else 'unknown'}), Chromium without a display"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=60, metavar="N", help="keys of each kind (default: %(default)s)")
    parser.add_argument(
        "--completions", type=int, default=1000, metavar="N", help="completions for the leak (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write them here, with date and command")
    return parser.parse_args()


def measure(folder: Path, keys: int, completions: int) -> dict[str, Any]:
    (folder / "run").mkdir(mode=0o700)
    environment = {
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    code_server = CodeServer(folder / "data", packaged_extension(), environment)
    tape = Tape(folder)
    engine = Engine(folder / "run", tape.profile)
    address = code_server.start(log="debug")
    workspace = folder / "workspace"
    workspace.mkdir()
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            # So high that no row of the list lies below.
            window = Workbench(browser.new_page(viewport={"width": 1000, "height": 4000}))
            window.load(address, workspace)
            figures: dict[str, Any] = {"activation_ms": activation(window)}
            print(f"activation: {figures['activation_ms']} ms", file=sys.stderr)
            # The list is a dialogue that keeps the keys, and comes back with its window.
            window.page.close()
            window = Workbench(browser.new_page(viewport={"width": 1000, "height": 620}))
            stopwatch = Stopwatch(window.page, folder / "data/logs")
            window.load(address, workspace)
            code_server.machine_settings({"dflash.server.command": str(SERVER), "dflash.profile": str(tape.profile)})
            figures |= keystrokes(window, stopwatch, tape, workspace, keys)
            if completions:
                figures["leak"] = leak(window, stopwatch, tape, workspace, code_server, completions)
            browser.close()
    finally:
        code_server.stop()
        engine.kill()
    return {**figures, "goals": goals_of(figures)}


def activation(window: Workbench) -> float:
    """As VS Code's own list of running extensions has it: loading the code, and the call."""
    window.page.get_by_text("the server dflash-lsp was not found").first.wait_for()
    window.pause(2000)
    window.command("Developer: Show Running Extensions")
    row = window.page.locator(".monaco-list-row", has_text="DFlash").filter(has_text=re.compile(r"\d+ms")).first
    row.wait_for()
    found = re.search(r"(\d+)ms", row.inner_text())
    assert found, row.inner_text()
    return float(found[1])


def keystrokes(window: Workbench, stopwatch: Stopwatch, tape: Tape, workspace: Path, keys: int) -> dict[str, Any]:
    open_new(window, workspace, "keys.py", "")
    window.wait_for_status(READY, limit_s=120)
    stopwatch.start()
    figures: dict[str, Any] = {}
    for kind, typed, delay in (("isolated", "x", 0.0), ("typing", "name", 70.0)):
        # One line for each key: a new place, with nothing known of it.
        found: list[Key] = []
        for turn in range(keys):
            name = f"{kind}_{turn} = "
            tape.add(name + typed, [f"_{turn} + 1\n"])
            window.type(name, delay=0)
            window.pause(400)
            stopwatch.forget()
            window.type(typed, delay=delay)
            window.wait_for_ghost(f"_{turn}")
            window.pause(60)
            found += [key] if (key := stopwatch.read()) else []
            window.press("Escape")
            window.press("End", "Enter")
        figures[kind] = {
            "keys": len(found),
            "key_to_ghost_ms": spread([key.total for key in found]),
            "server_answer_ms": spread([key.server for key in found]),
            "over_the_answer_ms": spread([key.over for key in found]),
            "pieces_ms": {piece: spread([dict(key.pieces())[piece] for key in found]) for piece in PIECES},
        }
    return figures


def leak(
    window: Workbench, stopwatch: Stopwatch, tape: Tape, workspace: Path, code_server: CodeServer, completions: int
) -> dict[str, Any]:
    # Each with a name of its own, for the server knows what it has answered before.
    tape.add("_leak:\n    ", ["a = first\n", *(f"    {name}\n" for name in ("b", "c", "last"))], GROWS_AFTER_MS)
    open_new(window, workspace, "leak.py", "")
    warm_up = min(100, completions // 4)  # then what is loaded late is loaded
    before: dict[str, float] = {}
    shown = renewed = 0
    for turn in range(completions):
        if turn == warm_up:
            before = memory(code_server)
        window.type(f"if _{turn}_leak:\n", delay=0)
        # Two of three grow to their end, and one of these is accepted; the third is put away before.
        ends = turn % 3
        shown += bool(window.wait_for_ghost("last" if ends else "first"))
        window.press("Tab" if ends == 2 else "Escape", "Control+a", "Delete")
        if turn % 50 == 49:
            told, here = stopwatch.providers()
            renewed += told
            print(f"completions: {turn + 1}, providers: {here}", file=sys.stderr)
    window.pause(1000)
    told, here = stopwatch.providers()
    logs = (code_server.data / "logs").rglob("*.log")
    warnings = sum(log.read_text(encoding="utf-8", errors="replace").count("LEAK detected") for log in logs)
    return {
        "completions": shown,
        "providers_registered": renewed + told,
        "providers_left": here,
        "listener_leak_warnings": warnings,
        "memory_mb_before": before,
        "memory_mb_after": memory(code_server),
    }


def memory(code_server: CodeServer) -> dict[str, float]:
    """Resident memory of the extension host and of the language server that it started, MB."""
    found: dict[str, float] = {}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = str(code_server.data.parent).encode() in (process / "environ").read_bytes()
            status = (process / "status").read_text(encoding="utf-8")
        except OSError:
            continue
        what = "extension host" if b"--type=extensionHost" in words else "server" if b"lsp" in words else None
        if is_ours and what and (resident := re.search(r"VmRSS:\s+(\d+) kB", status)):
            found[what] = round(int(resident[1]) / 1000, 1)
    return found


def open_new(window: Workbench, workspace: Path, name: str, text: str) -> None:
    file = workspace / name
    file.write_text(text, encoding="utf-8")
    window.open(file)


def spread(values: list[float]) -> dict[str, float | None]:
    """Median and 95th percentile, ms; None of nothing."""
    if not values:
        return {"p50": None, "p95": None}
    ordered = sorted(values)
    return {"p50": round(statistics.median(ordered), 1), "p95": round(ordered[int(0.95 * (len(ordered) - 1))], 1)}


if __name__ == "__main__":
    sys.exit(main())
