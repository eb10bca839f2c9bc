"""What a graph holds at each of its operators, as columns of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timeline.columns.columns import Int64
from timeline.figures.table import Table
from timeline.reports.html.step_grid import run_length


@dataclass(frozen=True)
class MemoryCurve:
    """What a graph holds; of operators that share a column, the one that holds most counts.

    nodes: the first operator of each column. run: how many share one. peak: the column of the
    peak. marks: columns, and what is there. static_bytes: what is held whatever runs.
    """

    nodes: Int64
    use_bytes: Int64
    run: int
    peak: int
    marks: Sequence[tuple[int, str]]
    static_bytes: int

    @classmethod
    def of(cls, graph: dict[str, Any], operators: Table, most: int) -> MemoryCurve:
        """The curve of a graph, a row of memory_graphs, and its operators, at least one.

        most: columns.
        """
        use_bytes = np.ma.filled(operators["use_bytes"], 0)
        run = run_length(len(use_bytes), most)
        starts = np.arange(0, len(use_bytes), run)
        names = operators["name"]
        marks = []
        for key, label, last in (("fp_start", "FP start", False), ("bp_end", "BP end", True)):
            found = np.flatnonzero(names == graph[key]) if graph[key] else np.zeros(0, np.int64)
            if len(found):
                marks.append((int(found[-1 if last else 0]) // run, label))
        return cls(
            np.asarray(np.ma.getdata(operators["node"])[starts], np.int64),
            np.maximum.reduceat(use_bytes, starts),
            run,
            int(graph["peak_node"]) // run,
            marks,
            int(graph["static_bytes"]),
        )
