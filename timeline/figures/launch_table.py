"""Device time by launching operator and by module, with forward and backward apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.work.launching_operators import LauncherFigures, LauncherTimes, Phase
from timeline.figures.table import Table

__all__ = ["launch_table", "module_table", "total_over_ranks"]

_SUMMED = ("count", "total_ns", "shortest_ns", "longest_ns")
_PHASES = np.array([phase.name.lower() for phase in Phase], object)


def launch_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank and launching operator, longest first.

    rank, communication (1 or 0), launched_by (the outermost operator of the framework), operator
    (the innermost), phase (forward, backward or other), count, total_ns, shortest_ns, longest_ns.
    What is not known is masked; each compute task and communication op is in one row.
    """
    return _table(facts, lambda one: one.by_launch, ("launched_by", "operator"))


def module_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank and module, longest first; as `launch_table`, with `module` (a path)."""
    return _table(facts, lambda one: one.by_module, ("module",))


def total_over_ranks(table: Table) -> Table:
    """The rows of `launch_table` or `module_table` of all ranks together, longest first.

    Names that are not known are empty.
    """
    keys = [name for name in table.columns if name not in (*_SUMMED, "rank")]
    found: dict[tuple[Any, ...], list[int]] = {}
    rows = zip(*(table[name].tolist() for name in _SUMMED), strict=True)
    named = zip(*(table[name].tolist() for name in keys), strict=True)
    for key, (count, total_ns, shortest_ns, longest_ns) in zip(named, rows, strict=True):
        sums = found.setdefault(key, [0, 0, shortest_ns, 0])
        sums[0] += count
        sums[1] += total_ns
        sums[2] = min(sums[2], shortest_ns)
        sums[3] = max(sums[3], longest_ns)
    order = sorted(found, key=lambda key: -found[key][1])
    values = np.array([found[key] for key in order], np.int64).reshape(-1, len(_SUMMED))
    return Table(
        {
            name: np.array([key[at] or "" for key in order], object)
            if at
            else np.array([key[at] for key in order], np.int64)
            for at, name in enumerate(keys)
        }
        | dict(zip(_SUMMED, values.T, strict=True))
    )


def _table(
    facts: Sequence[RankFacts],
    table_of: Callable[[LauncherFigures], LauncherTimes],
    names: tuple[str, ...],
) -> Table:
    times = [table_of(rank.launchers) for rank in facts]
    together = LauncherTimes.concat(times)
    ranks = [np.full(len(part), rank.rank) for rank, part in zip(facts, times, strict=True)]
    named = {
        name: _joined([_texts(table_of, rank.launchers, name) for rank in facts]) for name in names
    }
    return Table(
        {
            "rank": np.concatenate([np.empty(0, np.int64), *ranks]),
            "communication": together.communication.astype(np.int64),
            **named,
            "phase": np.ma.masked_array(_PHASES[together.phase], together.phase == Phase.UNKNOWN),
            "count": together.count,
            "total_ns": together.total_ns,
            "shortest_ns": together.shortest_ns,
            "longest_ns": together.longest_ns,
        }
    )


def _texts(
    table_of: Callable[[LauncherFigures], LauncherTimes], figures: LauncherFigures, name: str
) -> npt.NDArray[np.object_]:
    found: npt.NDArray[np.object_] = np.array(figures.strings, object)[
        getattr(table_of(figures), name)
    ]
    return found


def _joined(parts: Sequence[npt.NDArray[np.object_]]) -> npt.NDArray[np.object_]:
    texts = np.concatenate([np.empty(0, object), *parts])
    return np.ma.masked_array(texts, texts == "")
