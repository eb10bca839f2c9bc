"""Measures how time and memory grow with the size of an input."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

MOST_BEND = 3.2
"""How much more from 2n to 4n than from n to 2n: twice is linear, and four times the square."""
MOST_DOUBLED = 2.6
"""Of the time for twice as much, where that from n to 2n is lost in noise: two is linear."""
NOISE_SECONDS = 0.1
ROUNDS = 4
"""The least of so many is taken, as far as one is not enough."""


def processor_seconds(work: Callable[[], object]) -> float:
    """What one run takes of the processor, which other programs hardly change."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def most_megabytes(work: Callable[[], object]) -> float:
    """The most memory that one run holds at a time, the same in each run: pairs of rows show."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def compiled_calls(work: Callable[[], object]) -> Counter[str]:
    """How often one run calls each compiled function, by name: the same on any machine."""
    calls = Counter[str]()

    def note(_: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            calls[called.__qualname__] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def check_growth(
    measure: Callable[[int], float], sizes: Sequence[int], noise: float = NOISE_SECONDS
) -> None:
    """Fail unless what sizes take, each twice the one before, grows no faster than they do."""
    least = [float("inf")] * len(sizes)
    for _ in range(ROUNDS):
        least = [min(before, measure(size)) for before, size in zip(least, sizes, strict=True)]
        *_, few, some, many = least
        is_straight = many - some < MOST_BEND * max(some - few, 0) + noise
        if is_straight or many < MOST_DOUBLED * some:
            return
    pytest.fail(f"{list(sizes)} take {least}")
