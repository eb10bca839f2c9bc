"""The tables of a page on how fast ranks sent to each other, beside what links can do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.figures.collective_tables import REFERENCE_GB_S, bandwidth_table, reference_gb_s
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.reports.html.page_table import (
    Cell,
    Column,
    PageTable,
    integer_column,
    page_table,
    percent_column,
    rate_column,
    size_column,
    text_column,
    time_column,
)
from timeline.units import spell_count

MOST_SIDES = 16
"""Links between so many ranks are shown in rows and columns."""
MOST_ROWS = 20
_LEAST = 1e-9


def bandwidth_tables(figures: Figures) -> Iterator[PageTable]:
    """Bandwidth by kind of link, of each link, and collectives by kind and group, where known."""
    kinds = bandwidth_table(figures.links)
    if len(kinds):
        yield _by_kind(kinds)
    known = links_of_known_ends(figures.links)
    if len(known):
        links = _joined_links(known)
        one_group = all(group is None for group in links["group"].tolist())
        sides = len(np.union1d(links["source_rank"], links["target_rank"]))
        if one_group and sides <= MOST_SIDES:
            yield _matrix(links)
        yield _slowest(links, kinds)
    if len(figures.collectives):
        yield _collectives(figures.collectives)


def links_of_known_ends(links: Table, *, known: bool = True) -> Table:
    """The links of which it is known between which ranks, or in which group; or the others."""
    if not len(links):
        return links
    unnamed = [group is None for group in links["group"].tolist()]
    unknown = (links["numbered_in"] == "group") & np.array(unnamed, np.bool_)
    return links.take(~unknown if known else unknown)


def _by_kind(kinds: Table) -> PageTable:
    usual = [kind for kind in kinds["link"].tolist() if kind.upper() in REFERENCE_GB_S]
    told = ", ".join(f"{REFERENCE_GB_S[kind.upper()]:g} GB/s for {kind}" for kind in usual)
    others = "the best link of the run" + (" for others" if usual else "")
    is_other = len(usual) < len(kinds)
    reference = " and ".join(filter(None, [told, others if is_other else ""]))
    return page_table(
        "bandwidth",
        "Bandwidth of links",
        [
            text_column("Link", kinds["link"]),
            rate_column("Bandwidth", kinds["bandwidth_gb_s"]),
            rate_column("Reference", kinds["reference_gb_s"]),
            percent_column("Of reference", kinds["bandwidth_gb_s"] / kinds["reference_gb_s"]),
            rate_column("Slowest", kinds["slowest_gb_s"]),
            rate_column("Fastest", kinds["fastest_gb_s"]),
            integer_column("Links", kinds["links"]),
            size_column("Size", kinds["size_bytes"]),
        ],
        f"The reference is {reference}. Small transfers stay far below it.",
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
        "Transfer begins when the last rank has arrived.",
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


def _slowest(links: Table, kinds: Table) -> PageTable:
    fastest = dict(zip(kinds["link"].tolist(), kinds["fastest_gb_s"].tolist(), strict=True))
    shown = links.take(np.argsort(links["speed"], kind="stable")[:MOST_ROWS])
    reference = np.array(
        [reference_gb_s(link, fastest.get(link, 0.0)) for link in shown["link"].tolist()]
    )
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
            percent_column("Of reference", shown["speed"] / np.maximum(reference, _LEAST)),
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
