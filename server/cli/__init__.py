"""The command line: finds the command, imports only that one, and turns failures into one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from server import __version__
from server.errors import DflashError

# Each is a module of this package with add_arguments(parser), run(args) and a one-line docstring, its help.
COMMANDS = ("lsp", "complete", "engine", "status", "fetch", "cache", "models", "doctor", "bench", "train")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 done, 1 failed with one line on stderr, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parsed = _parser(arguments).parse_args(arguments)
        status: int = parsed.run(parsed)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has left; what is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if not _is_for_the_user(error):
            raise
        print(f"dflash-lsp: {' '.join(str(error).split())}", file=sys.stderr)
        return 1


def add_profile_argument(parser: argparse.ArgumentParser) -> None:
    """The --profile option, the same in every command that needs a model."""
    from server.profiles import DEFAULT_PROFILE

    parser.add_argument(
        "--profile",
        default=DEFAULT_PROFILE,
        metavar="NAME|PATH.toml",
        help="profile to use (default: %(default)s)",
    )


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dflash-lsp", description="Code completion for any LSP editor, drafted by DFlash, verified by its target."
    )
    parser.add_argument("--version", action="version", version=f"dflash-lsp {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    # All of them are needed only to list them, or to say that none is named so.
    for name in (called,) if called in COMMANDS else () if "--version" in arguments else COMMANDS:
        module = import_module(f"server.cli.{name}")
        summary = (module.__doc__ or "").strip()
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _is_for_the_user(error: Exception) -> bool:
    # The core has a base of its own and is never imported only to ask.
    core = sys.modules.get("dflash_core.errors")
    return isinstance(error, DflashError) or (core is not None and isinstance(error, core.DFlashError))
