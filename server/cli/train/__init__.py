"""Build a training corpus from packages, tune a target on it, train a draft for it, measure what it accepts."""

from __future__ import annotations

import argparse
from importlib import import_module

# Each is a module of this package with add_arguments(parser), run(args) and a docstring: its first line is its help.
STEPS = ("corpus", "holes", "target", "continuations", "draft", "evaluate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(required=True, metavar="STEP")
    for name in STEPS:
        module = import_module(f"server.cli.train.{name}")
        summary, _, rest = (module.__doc__ or "").strip().partition("\n\n")
        step = steps.add_parser(name, help=summary, description=rest or summary)
        module.add_arguments(step)
        step.set_defaults(run_step=module.run)


def run(args: argparse.Namespace) -> int:
    """Run the chosen step; returns the exit code."""
    result: int = args.run_step(args)
    return result
