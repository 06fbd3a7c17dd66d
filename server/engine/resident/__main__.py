"""`python -P -m server.engine.resident --profile NAME|PATH`: one profile's engine as a process."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from filelock import FileLock, Timeout

from server.engine.threads import engine_environment
from server.engine.whereabouts import ALREADY_RUNS, EngineFiles
from server.errors import DflashError
from server.profiles import load_profile


def main() -> int:
    """Serve until told to stop or idle for long; exit code 0, 1 with one line, or 75 when one runs already."""
    parser = argparse.ArgumentParser(prog="python -m server.engine.resident", description=__doc__)
    parser.add_argument("--profile", default="embedded", metavar="NAME|PATH", help="profile to serve")
    parser.add_argument("--key", help="refuse to serve when the profile has changed to another key")
    parser.add_argument("--loopback", action="store_true", help="127.0.0.1 and a token, no Unix socket")
    arguments = parser.parse_args()
    try:
        profile = load_profile(arguments.profile)
        if arguments.key not in (None, profile.key):
            raise DflashError(f"profile {profile.name} has changed since it was read: read it again")
        files = EngineFiles.of(profile)
        lock = FileLock(files.lock, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return ALREADY_RUNS
        # The launcher has done this too; a start by hand needs it as well, before torch is imported.
        os.environ.update(engine_environment(profile.engine.threads, os.environ))
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        # Only the holder of the lock pays for the rest.
        from server.engine.resident.process import serve

        try:
            serve(profile, files, loopback=arguments.loopback)
        finally:
            lock.release()
    except DflashError as error:
        print(f"dflash-lsp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stderr.flush()
    # Not sys.exit: an engine thread that is still loading cannot be interrupted, and torch aborts the
    # process when the interpreter is taken down beneath it.
    os._exit(code)
