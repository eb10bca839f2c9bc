"""Runs the command line: `tlexport`, and `python -m timeline`."""

from __future__ import annotations

from typing import NoReturn

from timeline.process import ended_by_signals, exit_with


def run() -> NoReturn:
    """Run the command and end the process with its exit code."""
    with ended_by_signals():
        from timeline.cli.main import main  # interrupting this import leaves nothing to undo
    exit_with(main)


if __name__ == "__main__":
    run()
