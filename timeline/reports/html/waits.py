"""Turns who waited for whom, and how fast ranks sent to each other, into tables of a page."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.figures.figures import Figures
from timeline.figures.table import Table
from timeline.reports.html.cells import (
    Cell,
    Column,
    Listing,
    integers,
    listing,
    rates,
    sizes,
    texts,
    times,
)
from timeline.units import spell_count

__all__ = ["waits"]

MOST_SIDES = 16
"""Links between so many ranks are shown in rows and columns."""
MOST_ROWS = 50


def waits(figures: Figures) -> Iterator[Listing]:
    """Who waits for whom, collectives by kind and group, and links, as far as they are known."""
    if np.ma.filled(figures.waiting["caused_ns"], 0).any():
        yield _stragglers(figures.waiting)
    if len(figures.collectives):
        yield _collectives(figures.collectives)
    if len(figures.links):
        links = _joined_links(figures.links)
        if len(np.union1d(links["source_rank"], links["target_rank"])) <= MOST_SIDES:
            yield _matrix(links)
        yield _slowest(links)


def _stragglers(waiting: Table) -> Listing:
    caused_ns, waited_ns = (np.ma.filled(waiting[name], 0) for name in ("caused_ns", "waited_ns"))
    order = np.lexsort((-waited_ns, -caused_ns))
    shown = waiting.take(order[:MOST_ROWS])
    longest_ns = int(max(shown["caused_ns"].max(), shown["waited_ns"].max()))
    left = len(waiting) - len(shown)
    return listing(
        "stragglers",
        "Who waits for whom",
        [
            integers("Rank", shown["rank"]),
            integers("Came last", shown["times_last"]),
            times("Others waited for it", shown["caused_ns"], like_ns=longest_ns, bars=True),
            times("Late by computing", shown["compute_late_ns"], like_ns=longest_ns),
            times("Late by its host", shown["host_late_ns"], like_ns=longest_ns),
            times("Longest", shown["slowest_ns"], like_ns=longest_ns),
            times("Waited itself", shown["waited_ns"], like_ns=longest_ns, bars=True),
        ],
        f"{spell_count(left, 'more rank')} in the JSON report (--json)." if left else "",
    )


_SUMMED = ("count", "size_bytes", "moved_bytes", "total_ns", "waited_ns", "transfer_ns")


def _collectives(collectives: Table) -> Listing:
    """A row per kind and group, all ranks together, longest first."""
    sums = _summed(collectives, ("kind", "group"), (*_SUMMED, "ranks", "moved"))
    shown = sums.take(np.argsort(-sums["total_ns"], kind="stable")[:MOST_ROWS])
    longest_ns = int(shown["total_ns"].max())
    speed = np.ma.masked_array(
        shown["moved"] / np.maximum(shown["transfer_ns"], 1), shown["moved"] == 0
    )
    return listing(
        "groups",
        "Collectives by kind and group",
        [
            texts("Kind", shown["kind"]),
            texts("Group", shown["group"]),
            integers("Ranks", shown["ranks"]),
            integers("Count", shown["count"]),
            sizes("Size", shown["size_bytes"]),
            sizes("Moved", shown["moved_bytes"]),
            times("Total", shown["total_ns"], bars=True),
            times("Waiting", shown["waited_ns"], like_ns=longest_ns),
            times("Transfer", shown["transfer_ns"], like_ns=longest_ns),
            rates("Bus", speed),
        ],
        "Transfer begins when the last rank has come.",
    )


def _joined_links(links: Table) -> Table:
    sums = _summed(
        links, ("source_rank", "target_rank", "link"), ("count", "size_bytes", "total_ns")
    )
    return Table({**sums.columns, "speed": sums["size_bytes"] / np.maximum(sums["total_ns"], 1)})


def _matrix(links: Table) -> Listing:
    """Bandwidth from each rank (row) to each other (column), all links between them together."""
    pairs = _summed(links, ("source_rank", "target_rank"), ("size_bytes", "total_ns"))
    speed = pairs["size_bytes"] / np.maximum(pairs["total_ns"], 1)
    fastest = float(speed.max()) or 1.0
    ends = zip(pairs["source_rank"].tolist(), pairs["target_rank"].tolist(), strict=True)
    cells = {
        end: Cell(f"{value:.2f}", round(value, 4), value / fastest)
        for end, value in zip(ends, speed.tolist(), strict=True)
    }
    sources, targets = (np.unique(pairs[name]) for name in ("source_rank", "target_rank"))
    columns = [
        Column(
            f"To {target}",
            True,
            tuple(cells.get((source, target), Cell("", -1)) for source in sources.tolist()),
        )
        for target in targets.tolist()
    ]
    note = "Short bars are slow links; each is a share of the fastest."
    return listing("links", "Links (GB/s)", [integers("From", sources), *columns], note)


def _slowest(links: Table) -> Listing:
    shown = links.take(np.argsort(links["speed"], kind="stable")[:MOST_ROWS])
    left = len(links) - len(shown)
    return listing(
        "slow-links",
        "Slowest links",
        [
            integers("From", shown["source_rank"]),
            integers("To", shown["target_rank"]),
            texts("Link", shown["link"]),
            integers("Count", np.ma.masked_equal(shown["count"], 0)),
            sizes("Size", shown["size_bytes"]),
            times("Time", shown["total_ns"]),
            rates("Bandwidth", shown["speed"]),
        ],
        f"{spell_count(left, 'more link')}, all faster, in the JSON report (--json)."
        if left
        else "",
    )


def _summed(table: Table, keys: tuple[str, ...], names: tuple[str, ...]) -> Table:
    """One row per distinct key, with the sums of what rows have; ranks counts rows.

    moved: bytes on the bus, from its bandwidth.
    """
    columns = {name: table[name] for name in names if name in table.columns}
    if "ranks" in names:
        columns["ranks"] = np.ones(len(table), np.int64)
    if "moved" in names:
        columns["moved"] = np.ma.filled(table["bandwidth_gb_s"] * table["transfer_ns"], 0)
    found = list(zip(*(table[name].tolist() for name in keys), strict=True))
    number = {key: at for at, key in enumerate(dict.fromkeys(found))}
    row = np.array([number[key] for key in found], np.intp)
    made = {
        name: np.array([key[at] for key in number], table[name].dtype)
        for at, name in enumerate(keys)
    }
    for name, values in columns.items():
        summed = np.zeros(len(number), values.dtype)
        np.add.at(summed, row, np.ma.filled(values, 0))
        known = np.zeros(len(number), np.bool_)
        known[row[~np.ma.getmaskarray(values)]] = True
        made[name] = summed if known.all() else np.ma.masked_array(summed, ~known)
    return Table(made)
