"""Writes small, deterministic Ascend profiles in any of the layouts a user may have on disk.

    python examples/make_profile.py OUT --layout torch-db --ranks 2 --steps 3 --seed 1

The run is simulated and written by the package `simulator` beside this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from simulator.layouts import LAYOUTS
from simulator.simulation import make_run


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    slower = dict(options.slower)
    run = make_run(ranks=options.ranks, steps=options.steps, seed=options.seed, slower=slower)
    written = LAYOUTS[options.layout](run, options.out)
    files = [path for one in written for path in (one, *one.rglob("*")) if path.is_file()]
    size_kb = sum(path.stat().st_size for path in files) / 1000
    print(
        f"Wrote {options.out}  {options.layout}, ranks {_span(0, options.ranks)},"
        f" steps {_span(1, options.steps)}, {len(files)} files, {size_kb:.0f} kB"
    )
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write a small, deterministic Ascend profile.")
    parser.add_argument("out", metavar="OUT", type=Path, help="directory to write into")
    parser.add_argument("--layout", choices=LAYOUTS, default="torch-text", help="(torch-text)")
    parser.add_argument("--ranks", type=_at_least_one, default=2, help="(2)")
    parser.add_argument("--steps", type=_at_least_one, default=3, help="(3)")
    parser.add_argument("--seed", type=int, default=1, help="another run, equally valid (1)")
    parser.add_argument(
        "--slower",
        type=_slower,
        action="append",
        default=[],
        metavar="TYPE=FACTOR",
        help="a type of operators takes so many times as long, as in MatMulV2=1.5",
    )
    return parser.parse_args(arguments)


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _slower(text: str) -> tuple[str, float]:
    op_type, _, factor = text.partition("=")
    return op_type, float(factor)


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than one")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
