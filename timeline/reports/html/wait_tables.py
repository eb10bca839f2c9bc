"""The tables of a page on who waited for whom, and how fast ranks sent to each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.reports.html.page_table import (
    Cell,
    Column,
    PageTable,
    integer_column,
    page_table,
    rate_column,
    size_column,
    spell_rank,
    text_column,
    time_column,
)
from timeline.units import spell_count

__all__ = ["links_of_known_ends", "wait_tables"]

MOST_SIDES = 16
"""Links between so many ranks are shown in rows and columns."""
MOST_ROWS = 50


def wait_tables(figures: Figures) -> Iterator[PageTable]:
    """Who waits for whom, collectives by kind and group, and links, as far as they are known."""
    if np.ma.filled(figures.waiting["caused_ns"], 0).any():
        yield _stragglers(figures.waiting)
    if len(figures.waited_for):
        yield _waited_for(figures.waited_for)
    if len(figures.collectives):
        yield _collectives(figures.collectives)
    known = links_of_known_ends(figures.links)
    if len(known):
        links = _joined_links(known)
        one_group = all(group is None for group in links["group"].tolist())
        sides = len(np.union1d(links["source_rank"], links["target_rank"]))
        if one_group and sides <= MOST_SIDES:
            yield _matrix(links)
        yield _slowest(links)


def links_of_known_ends(links: Table, *, known: bool = True) -> Table:
    """The links of which it is known between which ranks, or in which group; or the others."""
    if not len(links):
        return links
    unnamed = [group is None for group in links["group"].tolist()]
    unknown = (links["numbered_in"] == "group") & np.array(unnamed, np.bool_)
    return links.take(~unknown if known else unknown)


def _stragglers(waiting: Table) -> PageTable:
    caused_ns, waited_ns = (np.ma.filled(waiting[name], 0) for name in ("caused_ns", "waited_ns"))
    order = np.lexsort((-waited_ns, -caused_ns))
    shown = waiting.take(order[:MOST_ROWS])
    longest_ns = int(max(shown["caused_ns"].max(), shown["waited_ns"].max()))
    left = len(waiting) - len(shown)
    return page_table(
        "stragglers",
        "Who waits for whom",
        [
            integer_column("Rank", shown["rank"]),
            integer_column("Times last", shown["times_last"]),
            time_column("Wait caused", shown["caused_ns"], like_ns=longest_ns, bars=True),
            time_column("Due to compute", shown["compute_late_ns"], like_ns=longest_ns),
            time_column("Due to its host", shown["host_late_ns"], like_ns=longest_ns),
            time_column("Longest", shown["slowest_ns"], like_ns=longest_ns),
            time_column("Time it waited", shown["waited_ns"], like_ns=longest_ns, bars=True),
        ],
        f"{spell_count(left, 'more rank')} in the JSON report (--json)." if left else "",
    )


def _waited_for(waited_for: Table) -> PageTable:
    """A row per rank and whom it waited for, the longest waits of all ranks first."""
    order = np.argsort(-waited_for["waited_ns"], kind="stable")
    shown = waited_for.take(order[:MOST_ROWS])
    left = len(waited_for) - len(shown)
    names = map(spell_rank, shown["waited_for_rank"].tolist(), shown["profiled"].tolist())
    return page_table(
        "waits",
        "Waits in collectives",
        [
            integer_column("Rank", shown["rank"]),
            text_column("Waited for", np.array(list(names), object)),
            integer_column("Times", shown["times"]),
            time_column("Waited", shown["waited_ns"], bars=True),
        ],
        f"{spell_count(left, 'more row')}, all shorter, in the JSON report (--json)."
        if left
        else "",
    )


_SUMMED = ("count", "size_bytes", "moved_bytes", "total_ns", "waited_ns", "transfer_ns")


def _collectives(collectives: Table) -> PageTable:
    """A row per kind and group, all ranks together, longest first."""
    sums = _summed(collectives, ("kind", "group"), (*_SUMMED, "ranks", "moved"))
    shown = sums.take(np.argsort(-sums["total_ns"], kind="stable")[:MOST_ROWS])
    longest_ns = int(shown["total_ns"].max())
    speed = np.ma.masked_array(
        shown["moved"] / np.maximum(shown["transfer_ns"], 1), shown["moved"] == 0
    )
    return page_table(
        "groups",
        "Collectives by kind and group",
        [
            text_column("Kind", shown["kind"]),
            text_column("Group", shown["group"]),
            integer_column("Ranks", shown["ranks"]),
            integer_column("Count", shown["count"]),
            size_column("Size", shown["size_bytes"]),
            size_column("Moved", shown["moved_bytes"]),
            time_column("Total", shown["total_ns"], bars=True),
            time_column("Waiting", shown["waited_ns"], like_ns=longest_ns),
            time_column("Transfer", shown["transfer_ns"], like_ns=longest_ns),
            rate_column("Bus", speed),
        ],
        "Transfer begins when the last rank has come.",
    )


def _joined_links(links: Table) -> Table:
    sums = _summed(
        links, ("group", "source_rank", "target_rank", "link"), ("count", "size_bytes", "total_ns")
    )
    return Table({**sums.columns, "speed": sums["size_bytes"] / np.maximum(sums["total_ns"], 1)})


def _matrix(links: Table) -> PageTable:
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
    return page_table("links", "Links (GB/s)", [integer_column("From", sources), *columns], note)


def _slowest(links: Table) -> PageTable:
    shown = links.take(np.argsort(links["speed"], kind="stable")[:MOST_ROWS])
    left = len(links) - len(shown)
    names = [group or "" for group in shown["group"].tolist()]
    groups = [text_column("Group", np.array(names, object))] if any(names) else []
    return page_table(
        "slow-links",
        "Slowest links",
        [
            *groups,
            integer_column("From", shown["source_rank"]),
            integer_column("To", shown["target_rank"]),
            text_column("Link", shown["link"]),
            integer_column("Count", np.ma.masked_equal(shown["count"], 0)),
            size_column("Size", shown["size_bytes"]),
            time_column("Time", shown["total_ns"]),
            rate_column("Bandwidth", shown["speed"]),
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
