"""Proves that extremes in columns of profiles break none of the promises of exports."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from simulator.layouts import LAYOUTS
from tests.fuzz.input_tree import SeenInputs
from tests.fuzz.sweep import Sweeper
from tests.fuzz.sweep_seeds import Seed, made_seeds

pytestmark = pytest.mark.sweep

CASES = 2
SEEDS = [seed for seed in made_seeds() if seed.name in LAYOUTS]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_extremes_keep_what_exports_promise(seed: Seed, tmp_path: Path) -> None:
    """A small slice of the sweep, always the same: whole runs, loaded and checked."""
    sweeper = Sweeper(seed, Random(1))
    try:
        outcomes = [sweeper.plain, *islice(sweeper.sweep(SeenInputs(tmp_path / "seen")), CASES)]
    finally:
        sweeper.close()
    for outcome in outcomes:
        assert outcome.fault is None, f"{outcome.case.name}: {outcome.fault.told}"
    assert sweeper.plain.drawn is not None
    assert sweeper.plain.drawn.has_slices
    assert len(outcomes) == 1 + CASES


FOUND = (
    (
        "kineto-2.2",
        "host_#.#.pt.trace.json: /traceEvents[]X:cuda_runtime/ph = long in all rows",
    ),
    ("mindspore-2.1", "msprof_#_#_#.json: []X:Iteration Refresh/pid = long in one row"),
    (
        "torch-db-no-operators",
        "ascend_pytorch_profiler_#.db: AICORE_FREQ.freq = 1e308 in all rows",
    ),
    ("torch-text", "trace_view.json: []C:/args/Hit Rate(%) = 1e308 in one row"),
    ("msprof-sqlite-cann-9", "llc.db: LLCMetrics.hitrate = 1e308 in all rows"),
    ("mindstudio", "msprof_#.json: []X:/args/model id = NaN in one row"),
    (
        "kineto-announced",
        "host_#.#.pt.trace.json: /traceEvents[]X:kernel/args/block[] = NaN in all rows and "
        "host_#.#.pt.trace.json: /traceEvents[]X:kernel/args/grid[] = long in one row",
    ),
)
"""Cases that showed a fault.

What is left out was told, strings were numbered, and rows were ordered, in the order in which parts
were read. Means of frequencies that no core has, and percentages of such fractions, were too large
for a number.
"""


@pytest.mark.parametrize(("name", "case"), FOUND)
def test_what_was_found_stays_found(name: str, case: str) -> None:
    (seed,) = (seed for seed in made_seeds() if seed.name == name)
    sweeper = Sweeper(seed, Random(1))
    try:
        outcome = sweeper.again(case)
    finally:
        sweeper.close()
    assert outcome is not None, "there is no such column any more"
    assert outcome.fault is None, outcome.fault.told
