"""Measures how time and memory grow with every dimension of records, in every way of using them.

    python -m tests.bench.growing [--only WORD] [--ways detail,report] [--scale 1] [--times 1 2 4]

Each measurement is a process of its own that makes the records in memory and uses them once; CPU is
that of the work, without starting and making. A star marks what grows faster than it should.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.support.grown_records import DIMENSIONS, Shape
from tests.support.grown_ways import WAYS, Way
from timeline.errors import LimitError

MOST_GROWTH = 5.5
"""Of four times as much."""
LEAST_SECONDS = 0.1
LEAST_BYTES = 40 << 20
"""What is less is noise."""
LONGEST_SECONDS = 40


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growing", description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2, 4])
    asked = parser.parse_args()
    ways = asked.ways.split(",")
    for way in ways:  # whatever is imported late is there then
        _used(WAYS[way], Shape())
    for name, dimension in DIMENSIONS.items():
        if asked.only not in name:
            continue
        for way in ways:
            sizes = [int(dimension.least * asked.scale * times) for times in asked.times]
            found = [_measure(dimension.shape, WAYS[way], size) for size in sizes]
            print(_line(f"{name}: {way}", sizes, found), flush=True)


def _line(work: str, sizes: list[int], found: list[tuple[float, int]]) -> str:
    seconds = [one for one, _ in found]
    grown = seconds[-1] / max(seconds[0], LEAST_SECONDS)
    more = (
        (found[-1][1] - found[0][1]) / max(found[-2][1] - found[0][1], LEAST_BYTES)
        if len(found) > 2
        else 0.0
    )
    bad = "*" if grown > MOST_GROWTH or more > MOST_GROWTH else " "
    spelled = "  ".join(
        f"{size:>8} {s:6.2f} s {b >> 20:5} MB" for size, (s, b) in zip(sizes, found, strict=True)
    )
    return f"{bad} {work:45} {spelled}  x{grown:.1f}"


def _measure(shape: Callable[[int], Shape], way: Way, size: int) -> tuple[float, int]:
    """CPU seconds of the work, and the peak of its process in bytes."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        gc.collect()
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_SECONDS, LONGEST_SECONDS))
        warnings.simplefilter("ignore")
        try:
            os.write(writing, f"{_used(way, shape(size))}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 100)
    os.close(reading)
    _, _, usage = os.wait4(child, 0)
    return float(said or "nan"), usage.ru_maxrss * 1024


def _used(way: Way, shape: Shape) -> float:
    """CPU seconds of one use, or of finding out that no limit of that size holds it."""
    with tempfile.TemporaryDirectory() as directory:
        begin = time.process_time()
        with contextlib.suppress(LimitError):
            way(shape, Path(directory))
        return time.process_time() - begin


if __name__ == "__main__":
    main()
