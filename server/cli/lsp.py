"""Run the language server on stdin and stdout, for an editor."""

from __future__ import annotations

import argparse

SWITCH_S = 0.0002


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # Editors' client libraries pass it of their own accord; there is no other transport.
    parser.add_argument("--stdio", action="store_true", help="speak on stdin and stdout, which is the default")


def run(args: argparse.Namespace) -> int:
    import asyncio
    import contextlib
    import logging
    import os
    import sys

    from server.lsp import create_server

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # pygls logs whole messages when one fails, and those hold the user's text; ours say what failed.
    logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
    # A thread that parses would otherwise keep the one that answers waiting for 5 ms at a time.
    sys.setswitchinterval(SWITCH_S)
    server = create_server()
    # The server closes its output when it ends, and nothing else may ever write there.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output, os.fdopen(os.dup(0), "rb", buffering=0) as source:
        sys.stdout = sys.stderr
        # pygls ends by SystemExit once the client has said `exit`; what a client that has left cannot read is lost.
        with contextlib.suppress(SystemExit, BrokenPipeError, KeyboardInterrupt):
            asyncio.run(server.serve(source, output))
    return 0 if server.ended_well else 1
