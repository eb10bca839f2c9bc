"""Steps that the frameworks' own profilers mark on the host."""

from __future__ import annotations

import numpy as np

from timeline.patterns import compile_late
from timeline.records.not_given import NO_GRAPH
from timeline.records.tables import Steps
from timeline.sources.decoders.event_rows import EventRows

__all__ = ["profiler_steps"]

_NAME = compile_late(r"ProfilerStep#([0-9]{1,9})")


def profiler_steps(host: EventRows) -> Steps:
    """The window of each ProfilerStep#N among events of the host, as step N without a graph."""
    rows, numbers = host.numbered(_NAME)
    count = len(numbers)
    return Steps.of(
        count,
        host.spans(rows)
        | {
            "graph": np.full(count, NO_GRAPH),
            "iteration": numbers,
            "host": np.ones(count, np.bool_),
        },
    )
