"""Turns the figures of two runs into what one lost or won against the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timeline.figures import Figures
from timeline.table import Table
from timeline.units import spell_duration
from timeline.verdict import slowest_rank_of_each_step

__all__ = ["Comparison"]

CUBE = frozenset({"AI_CORE", "MIX_AIC"})
VECTOR = frozenset({"AI_VECTOR_CORE", "MIX_AIV"})
NOTABLE = 0.01
"""A change by less than this share of a step is no change worth a sentence."""


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side; times are the mean of a step and rank where both runs have steps.

    overall: metric, base_ns, new_ns, delta_ns. steps: a row per step in order, of the rank on
    which it took longest: base_step, new_step, base_start_ns and new_start_ns (on the device, each
    on the clock of its run), base_ns, new_ns, delta_ns. ranks: rank, base_ns, new_ns and delta_ns
    of its mean step. operators, collectives: matched (by what, or "one run only"), type, name,
    shapes, base_count, new_count, base_ns, new_ns, delta_ns; who lost most first.
    """

    overall: Table
    steps: Table
    ranks: Table
    operators: Table
    collectives: Table
    per_step: bool

    @classmethod
    def of(cls, base: Figures, new: Figures) -> Comparison:
        """Compare two runs."""
        per_step = bool(_step_count(base) and _step_count(new))
        shares = tuple(
            1 / max(1, _step_count(own) if per_step else len(own.overlap)) for own in (base, new)
        )
        return cls(
            _overall(base, new, shares),
            _steps(base, new),
            _ranks(base, new),
            _matched(base, new, shares, communication=0),
            _matched(base, new, shares, communication=1),
            per_step,
        )

    def sentences(self) -> Iterator[str]:
        """What changed, for people; the most telling first."""
        rows = {row["metric"]: row for row in self.overall.to_dicts()}
        whole = rows[WHOLE]
        unit = "A step" if self.per_step else "A rank"
        if not whole["base_ns"]:
            return
        change = whole["delta_ns"] / whole["base_ns"]
        if abs(change) < NOTABLE:
            now = spell_duration(whole["new_ns"])
            yield f"{unit} takes as long as before: {now} ({change:+.1%})."
        else:
            word = "longer" if change > 0 else "less"
            yield (
                f"{unit} takes {spell_duration(abs(whole['delta_ns']))} {word} "
                f"({change:+.1%}): {spell_duration(whole['base_ns'])} before, "
                f"{spell_duration(whole['new_ns'])} now."
            )
        for noun, table in (("operator", self.operators), ("collective", self.collectives)):
            yield from _most_changed(noun, table, whole["base_ns"])

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {
            "per_step": self.per_step,
            "sentences": list(self.sentences()),
            "overall": self.overall.to_dicts(),
            "steps": self.steps.to_dicts(),
            "ranks": self.ranks.to_dicts(),
            "operators": self.operators.to_dicts(),
            "collectives": self.collectives.to_dicts(),
        }


WHOLE = "device time"


def _most_changed(noun: str, table: Table, whole_ns: int) -> Iterator[str]:
    if not len(table):
        return
    for at, word in ((0, "lost"), (-1, "won")):
        row = table.take(np.array([at % len(table)])).to_dicts()[0]
        delta_ns = row["delta_ns"] if word == "lost" else -row["delta_ns"]
        if delta_ns > NOTABLE * whole_ns:
            yield (
                f"Most {word} by {noun}: {row['name'] or row['type']}, "
                f"{spell_duration(delta_ns)} ({spell_duration(row['base_ns'])} before, "
                f"{spell_duration(row['new_ns'])} now)."
            )


def _step_count(figures: Figures) -> int:
    """Steps over all ranks that hold device work."""
    return int(np.count_nonzero(~np.ma.getmaskarray(figures.steps["span_ns"])))


def _overall(base: Figures, new: Figures, shares: tuple[float, ...]) -> Table:
    """Device time and its parts; computing by what ran it, as far as task types tell."""
    sides = [_metrics(own, share) for own, share in zip((base, new), shares, strict=True)]
    names = list(dict.fromkeys(name for side in sides for name in side))
    columns = [np.array([side.get(name, 0) for name in names], np.int64) for side in sides]
    return Table(
        {
            "metric": np.array(names, object),
            "base_ns": columns[0],
            "new_ns": columns[1],
            "delta_ns": columns[1] - columns[0],
        }
    )


def _metrics(figures: Figures, share: float) -> dict[str, int]:
    whole = figures.overlap
    by_core = {"cube": 0, "vector": 0, "AI CPU": 0, "other": 0}
    operators = figures.operators
    for communication, core, total_ns in zip(
        operators["communication"].tolist(),
        operators["core"].tolist(),
        operators["total_ns"].tolist(),
        strict=True,
    ):
        if not communication:
            by_core[_class_of(core)] += total_ns
    found = {
        WHOLE: int(whole["span_ns"].sum()),
        "computing": int(whole["computing_ns"].sum()),
        **{f"computing: {name}": total_ns for name, total_ns in by_core.items() if total_ns},
        "communication": int(whole["communication_ns"].sum()),
        "communication, not overlapped": int(whole["not_overlapped_ns"].sum()),
        "waiting for other ranks": int(figures.waiting["waited_ns"].sum()),
        "free": int(whole["free_ns"].sum()),
    }
    return {name: round(total_ns * share) for name, total_ns in found.items()}


def _class_of(core: str) -> str:
    if core in CUBE:
        return "cube"
    if core in VECTOR:
        return "vector"
    return "AI CPU" if core == "AI_CPU" else "other"


def _steps(base: Figures, new: Figures) -> Table:
    sides = [slowest_rank_of_each_step(own.steps) for own in (base, new)]
    count = min(len(side) for side in sides)
    nothing = np.zeros(0, np.int64)
    base_own, new_own = (
        {
            name: np.asarray(side[name])[:count] if count else nothing
            for name in ("step", "device_start_ns", "span_ns")
        }
        for side in sides
    )
    return Table(
        {
            "base_step": base_own["step"],
            "new_step": new_own["step"],
            "base_start_ns": base_own["device_start_ns"],
            "new_start_ns": new_own["device_start_ns"],
            "base_ns": base_own["span_ns"],
            "new_ns": new_own["span_ns"],
            "delta_ns": new_own["span_ns"] - base_own["span_ns"],
        }
    )


def _ranks(base: Figures, new: Figures) -> Table:
    sides = [_rank_times(own) for own in (base, new)]
    both = sorted(sides[0].keys() & sides[1].keys())
    columns = [np.array([side[rank] for rank in both], np.int64) for side in sides]
    return Table(
        {
            "rank": np.array(both, np.int64),
            "base_ns": columns[0],
            "new_ns": columns[1],
            "delta_ns": columns[1] - columns[0],
        }
    )


def _rank_times(figures: Figures) -> dict[int, int]:
    """The mean step of each rank, or all of its time where it has no steps."""
    rows = figures.overlap.to_dicts()
    return {
        row["rank"]: row["span_ns"] if row["step_ns"] is None else row["step_ns"] for row in rows
    }


_Key = tuple[str, str, str]
"""Type, name and shapes."""
_Sums = tuple[int, int]
"""How often, and how long."""
_NEVER: _Sums = (0, 0)


@dataclass(frozen=True)
class _Match:
    """One operator on both sides, and how it was recognised."""

    key: _Key
    how: str
    base: _Sums
    new: _Sums


def _matched(
    base: Figures, new: Figures, shares: tuple[float, ...], *, communication: int
) -> Table:
    """Operators matched by name and shape, else by name, by type and shape, or by type."""
    found = _matches(*(_by_name(own.operators, communication) for own in (base, new)))
    base_ns = np.array([round(own.base[1] * shares[0]) for own in found], np.int64)
    new_ns = np.array([round(own.new[1] * shares[1]) for own in found], np.int64)
    table = Table(
        {
            "matched": np.array([own.how for own in found], object),
            "type": np.array([own.key[0] for own in found], object),
            "name": np.array([own.key[1] for own in found], object),
            "shapes": np.array([own.key[2] for own in found], object),
            "base_count": np.array([own.base[0] for own in found], np.int64),
            "new_count": np.array([own.new[0] for own in found], np.int64),
            "base_ns": base_ns,
            "new_ns": new_ns,
            "delta_ns": new_ns - base_ns,
        }
    )
    lost_first = (base_ns - new_ns).tolist()
    order = sorted(range(len(found)), key=lambda row: (lost_first[row], found[row].key))
    return table.take(np.array(order, np.intp))


def _matches(base: Mapping[_Key, _Sums], new: Mapping[_Key, _Sums]) -> list[_Match]:
    """Match by ever less: what is left of both runs is summed by it before it is matched.

    A name may hold a number that changes from run to run, and a layout may not tell shapes.
    """
    found = list[_Match]()
    for how, telling in _STAGES:
        sums = [_summed((telling(key), own) for key, own in side.items()) for side in (base, new)]
        both = sums[0].keys() & sums[1].keys()
        found += [_Match(key, how, sums[0][key], sums[1][key]) for key in both]
        base, new = (
            {key: own for key, own in side.items() if telling(key) not in both}
            for side in (base, new)
        )
    for side, is_base in ((base, True), (new, False)):
        for key, own in _summed((_by_shape(key), own) for key, own in side.items()).items():
            sides = (own, _NEVER) if is_base else (_NEVER, own)
            found.append(_Match(key, "one run only", *sides))
    return found


def _whole(key: _Key) -> _Key:
    return key


def _without_shapes(key: _Key) -> _Key:
    return (key[0], key[1], "")


def _by_shape(key: _Key) -> _Key:
    return (key[0], "", key[2])


def _by_type(key: _Key) -> _Key:
    return (key[0], "", "")


_STAGES = (
    ("name and shape", _whole),
    ("name", _without_shapes),
    ("type and shape", _by_shape),
    ("type", _by_type),
)


def _by_name(operators: Table, communication: int) -> Mapping[_Key, _Sums]:
    columns = ("communication", "type", "name", "shapes", "count", "total_ns")
    rows = zip(*(operators[name].tolist() for name in columns), strict=True)
    return _summed(
        ((kind, name, shapes), (count, total_ns))
        for is_op, kind, name, shapes, count, total_ns in rows
        if is_op == communication
    )


def _summed(rows: Iterable[tuple[_Key, _Sums]]) -> dict[_Key, _Sums]:
    found: dict[_Key, _Sums] = {}
    for key, (count, total_ns) in rows:
        held = found.get(key, (0, 0))
        found[key] = (held[0] + count, held[1] + total_ns)
    return found
