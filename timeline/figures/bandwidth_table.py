"""How fast links between ranks were, by kind, beside what such links can do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from timeline.columns.group_by import group_by
from timeline.figures.table import Table

__all__ = ["BANDWIDTH", "REFERENCE_GB_S", "bandwidth_table", "reference_gb_s"]

REFERENCE_GB_S: Mapping[str, float] = {"HCCS": 18.0, "RDMA": 12.5}
"""What a link of each kind reaches with large transfers."""
BANDWIDTH: Mapping[str, type] = {
    "link": object,
    "links": int,
    "size_bytes": int,
    "total_ns": int,
    "bandwidth_gb_s": float,
    "slowest_gb_s": float,
    "fastest_gb_s": float,
    "reference_gb_s": float,
}


def bandwidth_table(links: Table) -> Table:
    """A row per kind of link that moved data between ranks, the one that took longest first.

    links: how many there are, by their ends and group; bandwidth_gb_s: all of their data by all of
    their time; slowest_gb_s and fastest_gb_s: of a single one; reference_gb_s: see there.

    links: as `Figures.links`.
    """
    if not len(links):
        return Table.of_rows(BANDWIDTH, ())
    moving = (
        (links["source_rank"] != links["target_rank"])
        & (links["size_bytes"] > 0)
        & (links["total_ns"] > 0)
    )
    its = links.take(moving)
    kinds, kind = np.unique(its["link"].astype(str), return_inverse=True)
    _, group = np.unique(its["group"].astype(str), return_inverse=True)
    ends = (np.asarray(its["source_rank"]), np.asarray(its["target_rank"]))
    one = group_by(len(its), (kind.astype(np.int64), group.astype(np.int64), *ends))
    kind_of_one = kind[one.first]
    size_bytes, total_ns = one.sum(its["size_bytes"]), one.sum(its["total_ns"])
    speeds = size_bytes / total_ns
    rows = []
    for code, name in enumerate(kinds.tolist()):
        of_kind = kind_of_one == code
        size, time_ns = int(size_bytes[of_kind].sum()), int(total_ns[of_kind].sum())
        slowest, fastest = float(speeds[of_kind].min()), float(speeds[of_kind].max())
        rows.append(
            (
                name,
                int(of_kind.sum()),
                size,
                time_ns,
                size / time_ns,
                slowest,
                fastest,
                reference_gb_s(name, fastest),
            )
        )
    rows.sort(key=lambda row: (-row[3], row[0]))
    return Table.of_rows(BANDWIDTH, rows)


def reference_gb_s(kind: str, fastest_gb_s: float) -> float:
    """What links of a kind are held against: what such links reach, else the best of the run."""
    return REFERENCE_GB_S.get(kind.upper(), fastest_gb_s)
