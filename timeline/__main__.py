"""Runs the command line: `python -m timeline`."""

import sys

from timeline.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
