"""What to do where ranks, stages and links differ."""

from __future__ import annotations

from collections.abc import Iterator

from timeline.figures.advice import Advice
from timeline.figures.table import Table

__all__ = ["cluster_advice"]


def cluster_advice(
    step_trace: Table, flops: Table, links: Table, parallel: Table, parallel_times: Table
) -> Iterator[Advice]:
    """Advice on step intervals and FLOP/s of ranks, links, communication, and work of stages."""
    yield from ()
