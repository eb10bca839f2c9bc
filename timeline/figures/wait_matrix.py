"""Who waited for whom: ranks by the ranks that they waited for."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Int64
from timeline.figures.table import Table
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID

__all__ = ["WaitMatrix"]


@dataclass(frozen=True)
class WaitMatrix:
    """How long each rank (row) waited in collectives for each other (column).

    ranks: (R,), those that are read. awaited: (C,), those and all that any of them waited for, at
    the end NO_ID where it is not known of all waiting for whom it was. waited_ns: (R, C).
    """

    ranks: Int64
    awaited: Int64
    waited_ns: Int64

    @classmethod
    def of(cls, waiting: Table, waited_for: Table) -> WaitMatrix | None:
        """The matrix of `Figures.waiting` and `Figures.waited_for`; None where nobody waited."""
        if not len(waited_for) or not waited_for["waited_ns"].any():
            return None
        ranks = np.unique(np.asarray(waiting["rank"], np.int64))
        whom = np.ma.filled(waited_for["waited_for_rank"], NO_ID).astype(np.int64)
        awaited = np.union1d(ranks, whom[whom != NO_ID])
        if (whom == NO_ID).any():
            awaited = np.append(awaited, NO_ID)
        column = np.searchsorted(awaited, whom, sorter=np.argsort(awaited, kind="stable"))
        column = np.argsort(awaited, kind="stable")[column]
        row = np.searchsorted(ranks, waited_for["rank"])
        waited_ns = np.zeros((len(ranks), len(awaited)), np.int64)
        np.add.at(waited_ns, (row, column), waited_for["waited_ns"])
        return cls(ranks, awaited, waited_ns)

    @property
    def caused_ns(self) -> Int64:
        """How long others waited for each, (C,)."""
        sums: Int64 = self.waited_ns.sum(axis=0)
        return sums

    def labels(self) -> list[str]:
        """The columns as people call them."""
        return ["?" if rank == NO_ID else str(rank) for rank in self.awaited.tolist()]
