"""Writes small, deterministic Ascend profiles in any of the layouts a user may have on disk.

    python examples/make_profile.py OUT --layout torch-db --ranks 2 --steps 3 --seed 1

Tests import it instead: `make_run` simulates one run, each writer renders that same run in one
layout, and `expected_overlap` says what a correct summary of it shows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from profile_kineto import write_kineto
from profile_mindspore import write_mindspore_timeline
from profile_mindspore_display import write_mindspore_display
from profile_mindspore_raw import write_mindspore_raw
from profile_mindspore_text import write_mindspore_text
from profile_mindstudio import write_mindformers, write_mindstudio
from profile_model import Iteration, RankRun, Run, Step, Task
from profile_msprof import CANN_9, UNKNOWN_TYPES
from profile_msprof_sqlite import write_msprof_sqlite
from profile_overlap import Segment, expected_overlap, overlap_segments
from profile_raw import write_raw
from profile_simulation import make_run
from profile_tables import write_kernel_details, write_op_summary, write_summary_directory
from profile_torch_database import write_torch_database
from profile_torch_text import write_torch_text

__all__ = [
    "CANN_9",
    "LAYOUTS",
    "UNKNOWN_TYPES",
    "Iteration",
    "RankRun",
    "Run",
    "Segment",
    "Step",
    "Task",
    "expected_overlap",
    "main",
    "make_run",
    "overlap_segments",
    "write_kernel_details",
    "write_kineto",
    "write_mindformers",
    "write_mindspore_display",
    "write_mindspore_raw",
    "write_mindspore_text",
    "write_mindspore_timeline",
    "write_mindstudio",
    "write_msprof_sqlite",
    "write_op_summary",
    "write_raw",
    "write_summary_directory",
    "write_torch_database",
    "write_torch_text",
]

LAYOUTS: dict[str, Callable[[Run, Path], list[Path]]] = {
    "torch-text": write_torch_text,
    "torch-db": write_torch_database,
    "mindspore-2.1": write_mindspore_timeline,
    "mindstudio": write_mindstudio,
    "mindformers": write_mindformers,
    "raw": write_raw,
    "msprof-sqlite": write_msprof_sqlite,
    "kernel-details": write_kernel_details,
    "op-summary": write_op_summary,
    "kineto": write_kineto,
    "mindspore-text": write_mindspore_text,
    "mindspore-raw": write_mindspore_raw,
}


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
