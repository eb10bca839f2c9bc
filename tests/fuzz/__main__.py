"""Fuzzes the named targets, each in a process of its own, and prints how they held.

    python tests/fuzz [json csv sqlite metadata ...] [--seconds 60] [--runs 100000] [--corpus DIR]

Or sweeps extremes, which needs no Atheris; each has a --help of its own:

    python tests/fuzz sweep | records | options [--seconds 600]
    python tests/fuzz columns
    python tests/fuzz counts

A name stands for all targets that begin with it. What is found is made as small as possible and
lies in DIR/TARGET-findings; inputs that reach new code are kept in DIR/TARGET for the next time.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]


def _main(arguments: list[str]) -> int:
    """Run what the first word names: a sweep, or else targets, which alone need Atheris."""
    if arguments[:1] == ["sweep"]:
        from tests.fuzz import sweep

        return sweep.main(arguments[1:])
    if arguments[:1] == ["records"]:
        from tests.fuzz import records_runs

        return records_runs.main(arguments[1:])
    if arguments[:1] == ["options"]:
        from tests.fuzz import option_sweep

        return option_sweep.main(arguments[1:])
    if arguments[:1] == ["columns"]:
        from tests.fuzz import column_reach

        return column_reach.main(arguments[1:])
    if arguments[:1] == ["counts"]:
        from tests.fuzz import ledger

        return ledger.main(arguments[1:])
    from tests.fuzz import program

    return program.main(arguments)


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
