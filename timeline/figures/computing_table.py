"""Why ranks compute longer than their peers: a table, and a sentence for each that does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.work.computing_causes import ComputingCause, computing_causes
from timeline.figures.table import Table
from timeline.units import spell_count, spell_short

__all__ = ["computing_sentences", "computing_table", "tell_computing"]

_NEARLY_EQUAL = 0.01
"""Frequencies that differ by less are told as one."""


def computing_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank that computes: how long per step, and why longer than its peers.

    rank; cause: frequency, operators, shapes or work, masked where it does not compute longer;
    peers: how many ranks it is compared with, and same_work: 1 where they do the same work.
    computing_ns, frequency_mhz, and those of the peers (their median); type: the operator that
    makes most of the difference, type_ns and count, and those of the peers. All are means per
    step; what is not known is masked.
    """
    found = computing_causes([rank.work for rank in facts])
    causes, strings = found.causes, np.array(found.strings, object)
    alone = causes.peers == 0
    names = [ComputingCause(cause).name.lower() for cause in causes.cause.tolist()]
    return Table(
        {
            "rank": np.array([rank.rank for rank in facts], np.int64),
            "cause": np.ma.masked_array(
                np.array(names, object), causes.cause == ComputingCause.NONE
            ),
            "peers": causes.peers,
            "same_work": causes.same_work,
            "computing_ns": causes.computing_ns,
            "peer_ns": np.ma.masked_array(causes.peer_ns, alone),
            "frequency_mhz": np.ma.masked_invalid(causes.frequency_mhz),
            "peer_frequency_mhz": np.ma.masked_invalid(causes.peer_frequency_mhz),
            "type": np.ma.masked_array(strings[causes.type], alone),
            "type_ns": np.ma.masked_array(causes.type_ns, alone),
            "peer_type_ns": np.ma.masked_array(causes.peer_type_ns, alone),
            "count": np.ma.masked_array(causes.count, alone),
            "peer_count": np.ma.masked_array(causes.peer_count, alone),
        }
    ).take(causes.computing_ns > 0)


def computing_sentences(table: Table) -> Iterator[str]:
    """A sentence for each rank that computes longer than its peers, the longest by share first."""
    rows = [row for row in table.to_dicts() if row["cause"] is not None]
    rows.sort(key=lambda row: -row["computing_ns"] / row["peer_ns"])
    for row in rows:
        yield f"Rank {row['rank']} {tell_computing(row)}."


def tell_computing(row: Mapping[str, Any]) -> str:
    """What is said of a rank that computes longer, without its name and a full stop.

    row: of `computing_table`, with a cause.
    """
    longer = f"computes {row['computing_ns'] / row['peer_ns'] - 1:.0%} longer"
    if row["same_work"]:
        ranks = (
            f"the {spell_count(row['peers'], 'rank')} that" if row["peers"] > 1 else "the rank that"
        )
        longer += f" than {ranks} {'do' if row['peers'] > 1 else 'does'} the same work"
    return f"{longer}: {_WORDS[row['cause']](row)}"


def _tell_frequency(row: Mapping[str, Any]) -> str:
    own, peers = row["frequency_mhz"] / 1000, row["peer_frequency_mhz"] / 1000
    return f"same operators, AI Core at {own:.2f} against {peers:.2f} GHz"


def _tell_operators(row: Mapping[str, Any]) -> str:
    return f"{_tell_difference(row)}; {_tell_known_frequency(row)}"


def _tell_shapes(row: Mapping[str, Any]) -> str:
    return f"same operators on other shapes, {_tell_difference(row)}"


def _tell_work(row: Mapping[str, Any]) -> str:
    count, peers = row["count"], row["peer_count"]
    if round(count, 1) == round(peers, 1):
        return f"other work, {_tell_difference(row)}"
    what = "more" if count > peers else "other"
    return f"{what} work, {count:.4g} against {peers:.4g} {row['type']} per step"


def _tell_difference(row: Mapping[str, Any]) -> str:
    more_ns = row["type_ns"] - row["peer_type_ns"]
    all_ns = row["computing_ns"] - row["peer_ns"]
    return f"{row['type']} {spell_short(more_ns)} more of {spell_short(all_ns)} per step"


def _tell_known_frequency(row: Mapping[str, Any]) -> str:
    own, peers = row["frequency_mhz"], row["peer_frequency_mhz"]
    if own is None or peers is None:
        return "the frequency is not recorded"
    if abs(own / peers - 1) < _NEARLY_EQUAL:
        return f"AI Core at {own / 1000:.2f} GHz as there"
    return f"AI Core at {own / 1000:.2f} against {peers / 1000:.2f} GHz"


_WORDS = {
    "frequency": _tell_frequency,
    "operators": _tell_operators,
    "shapes": _tell_shapes,
    "work": _tell_work,
}
"""What is said of each cause."""
