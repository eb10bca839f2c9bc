"""Writes small, deterministic Ascend profiles in any of the layouts a user may have on disk.

    python examples/make_profile.py OUT --layout torch-db --ranks 2 --steps 3 --seed 1

Rank 1 computes slowly in the second step, unless an option says what else is wrong:

    python examples/make_profile.py OUT --ranks 8 --late-host 5=250 --profiled 0,1

Small tables of MindSpore alone, of a run in which rank 1 waits for data:

    python examples/make_profile.py OUT --layout mindspore-tables --starved 1=3000

The run is simulated and written by the package `simulator` beside this file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from simulator.faulty_recording import FaultyRecording
from simulator.layouts import LAYOUTS, SPARSE_LAYOUTS
from simulator.model import MICROSECOND_NS
from simulator.parallelism import Parallelism
from simulator.scenario import Scenario
from simulator.simulation import make_run

_Number = TypeVar("_Number", int, float)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    run = make_run(
        ranks=options.ranks,
        steps=options.steps,
        seed=options.seed,
        slower=dict(options.slower),
        scenario=_scenario(options),
        profiled=options.profiled,
        parallelism=Parallelism(
            options.tensor_parallel, options.stages, options.micro_batches, options.batched
        ),
        recording=_recording(options),
    )
    written = (LAYOUTS | SPARSE_LAYOUTS)[options.layout](run, options.out)
    files = [path for one in written for path in (one, *one.rglob("*")) if path.is_file()]
    size_kb = sum(path.stat().st_size for path in files) / 1000
    ranks = options.profiled or range(options.ranks)
    print(
        f"Wrote {options.out}  {options.layout}, ranks {_numbers(ranks)},"
        f" steps {_numbers(range(1, options.steps + 1))}, {len(files)} files, {size_kb:.0f} kB"
    )
    if options.truth:
        options.truth.write_text(json.dumps(run.truth.to_dict()), encoding="utf-8")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write a small, deterministic Ascend profile.")
    parser.add_argument("out", metavar="OUT", type=Path, help="directory to write into")
    parser.add_argument(
        "--layout",
        choices=LAYOUTS | SPARSE_LAYOUTS,
        default="torch-text",
        help="what writes it; mindspore-tables holds no tasks, only small tables (torch-text)",
    )
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
    parser.add_argument(
        "--profiled",
        type=_ranks,
        metavar="RANKS",
        help="write only these of all ranks, as in 0,1; the others still take part",
    )
    parser.add_argument(
        "--truth", type=Path, metavar="FILE", help="write what is true of the run, as JSON"
    )
    shared = parser.add_argument_group("how ranks share a model (torch-text, torch-db, kineto)")
    shared.add_argument(
        "--tensor-parallel", type=_at_least_one, default=1, metavar="RANKS", help="of a layer (1)"
    )
    shared.add_argument("--stages", type=_at_least_one, default=1, help="of a pipeline (1)")
    shared.add_argument(
        "--micro-batches", type=_at_least_one, default=4, help="of a step in a pipeline (4)"
    )
    shared.add_argument(
        "--batched", action="store_true", help="stages exchange batches of sends and receives"
    )
    faults = parser.add_argument_group("what is wrong, instead of a slow second step of rank 1")
    faults.add_argument("--healthy", action="store_true", help="nothing")
    _add_fault(faults, "--slow-computing", "FACTOR", float, "computes so many times as long")
    _add_fault(faults, "--late-host", "MICROSECONDS", int, "launches every operator so much later")
    _add_fault(faults, "--frequency", "MHZ", int, "runs its AI cores slower than at 1800 MHz")
    _add_fault(faults, "--starved", "MICROSECONDS", int, "gets the data of each step so much later")
    _add_fault(faults, "--slow-link", "FACTOR", float, "has links that take so many times as long")
    recording = parser.add_argument_group("what is wrong with how it was recorded")
    _add_fault(recording, "--clock", "MICROSECONDS", int, "has a clock that is ahead")
    _add_fault(recording, "--drift", "PPB", int, "has a clock that runs fast")
    _add_fault(recording, "--lost", "NUMBER", int, "lost the record of one of its collectives")
    return parser.parse_args(arguments)


def _add_fault(
    faults: argparse._ArgumentGroup, flag: str, unit: str, kind: Callable[[str], _Number], what: str
) -> None:
    def by_rank(text: str) -> tuple[int, _Number]:
        rank, _, value = text.partition("=")
        return int(rank), kind(value)

    faults.add_argument(
        flag,
        type=by_rank,
        action="append",
        default=[],
        metavar=f"RANK={unit}",
        help=f"a rank {what}",
    )


def _scenario(options: argparse.Namespace) -> Scenario | None:
    scenario = Scenario(
        slow_computing=dict(options.slow_computing),
        late_host_ns={rank: us * MICROSECOND_NS for rank, us in options.late_host},
        megahertz=dict(options.frequency),
        starved_ns={rank: us * MICROSECOND_NS for rank, us in options.starved},
        slow_links=dict(options.slow_link),
    )
    return scenario if scenario.causes or options.healthy else None


def _recording(options: argparse.Namespace) -> FaultyRecording:
    lost: dict[int, tuple[int, ...]] = {}
    for rank, number in options.lost:
        lost[rank] = (*lost.get(rank, ()), number)
    clock_ns = {rank: us * MICROSECOND_NS for rank, us in options.clock}
    return FaultyRecording(clock_ns, dict(options.drift), lost)


def _numbers(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if last - first + 1 != len(numbers):
        return ",".join(map(str, numbers))
    return str(first) if first == last else f"{first}-{last}"


def _slower(text: str) -> tuple[str, float]:
    op_type, _, factor = text.partition("=")
    return op_type, float(factor)


def _ranks(text: str) -> list[int]:
    return sorted({int(rank) for rank in text.split(",")})


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than one")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
