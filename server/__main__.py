"""`python -m server`: the command line without the console script."""

import sys

from server.cli import main

if __name__ == "__main__":
    sys.exit(main())
