"""Sentences of a comparison: the causes of a change by size, then details of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.comparison.parts import (
    AT_ONCE,
    COMPUTING,
    COPIES,
    EXPOSED,
    EXPOSED_WAITING,
    IDLE,
    WAITING,
)
from timeline.comparison.sides import Sides
from timeline.errors import format_ids
from timeline.tables.short_names import operator_label, shortened
from timeline.tables.table import Table
from timeline.units import format_count, format_duration, format_short
from timeline.verdict.figures import Figures
from timeline.verdict.words import Kernel, few_kernels

if TYPE_CHECKING:
    from timeline.comparison.comparison import Comparison


NOTABLE = 0.01
"""Minimum change, as a share of a step, that is worth a sentence."""
MOST_CAUSES, MOST_EXPLAINED, MOST_NAMED = 4, 3, 2
"""Maximum number of causes in the first sentence, of causes explained, and of names per cause."""
MOST_OF_NAME = 100
"""Maximum length of a name in a sentence."""
LEAST_SHARE, MOST_SHARE = 0.1, 10.0
"""Shares of a part between which a change is reported with its share."""
AFTER_FIRST = " after the first"
"""Words behind a number of steps if a first one is left out."""
LEAST_OF_CAUSE = 0.1
"""Minimum share of the change of a cause for an operator or call to be named."""


def kernel_changes(base: Figures, new: Figures, sides: Sides) -> Iterator[str]:
    """Yield a sentence on each kernel of two captures of few operators: its time, and its bound.

    A kernel that only one of them ran is left out, unless each ran a single one.
    """
    runs = [list(few_kernels(side)[1].values()) for side in (base, new)]
    if [len(kernels) for kernels in runs] == [1, 1]:
        pairs = [(runs[0][0], runs[1][0])]
    else:
        before = {(one.name, one.core): one for one in runs[0]}
        keys = [(one.name, one.core) for one in runs[1]]
        pairs = [
            (before[key], one) for key, one in zip(keys, runs[1], strict=True) if key in before
        ]
    for was, now in pairs:
        name = now.name if was.name == now.name else sides.both(was.name, now.name)
        took = sides.both(was.took(), now.took())
        change = format_change(was.median_ns, now.median_ns)
        bound = ""
        if was.pipe and now.pipe:
            bound = f"; {sides.both(was.bound_text(), now.bound_text())}"
        if was.name != now.name and was.core == now.core:
            yield (
                f"The operators differ, so that their times do not compare: {name}; {took}"
                f" ({_basis(was, now)}){bound}."
            )
        elif not was.alike or not now.alike:
            yield f"{name}: {took} (launches differ, so that medians do not compare){bound}."
        else:
            yield f"{name} {change}: {took} ({_basis(was, now)}){bound}."


def _basis(was: Kernel, now: Kernel) -> str:
    """Return the number of launches that the times of two kernels are of."""
    if was.count == now.count == 1:
        return "one launch each, cold"
    if 1 in (was.count, now.count):
        return "one side is a single cold launch"
    return "medians of launches" if was.alike and now.alike else "ranges of launches"


def sentences_of(comparison: Comparison) -> Iterator[str]:
    """Yield the sentences, the most important first; none if a run holds nothing."""
    yield from comparison.kernels
    whole = comparison.whole
    base_ns, new_ns, delta_ns = whole["base_ns"], whole["new_ns"], whole["delta_ns"]
    if not base_ns or not new_ns:
        return
    least_ns = NOTABLE * base_ns
    causes = [row for row in comparison.causes.to_dicts() if abs(row["delta_ns"] or 0) >= least_ns]
    sides = comparison.sides
    what = sides.subject("Step" if comparison.per_step else "End to end")
    if not causes and abs(delta_ns) < least_ns:
        yield _unchanged(what, base_ns, new_ns, sides)
        return
    waited_for = _waited_for(comparison)
    named = ", ".join(_format_cause(row, waited_for) for row in causes[:MOST_CAUSES])
    change = f"{format_change(base_ns, new_ns)}{sides.against}"
    yield f"{what} {change}" + (f": {named}." if named else ".")
    yield from _of_rank(comparison, least_ns)
    yield from _frequencies(comparison)
    both = sides.both(format_duration(base_ns), format_duration(new_ns))
    yield f"{both} ({_mean(comparison)})."
    for row in causes[:MOST_EXPLAINED]:
        yield from _explain(comparison, row)
    yield from _launchers(comparison, causes[:MOST_EXPLAINED])
    yield from _waiting(comparison, least_ns)


def _mean(comparison: Comparison) -> str:
    """Return the numbers of steps and ranks that the mean is over."""
    base, new = comparison.ranks_of_runs
    texts = [format_count(base, "rank") if base == new else f"{base} and {new} ranks"]
    if comparison.per_step and len(comparison.base_steps_ns):
        steps = len(comparison.base_steps_ns), len(comparison.new_steps_ns)
        texts.insert(0, count_steps(steps, comparison.without_first))
    return f"mean of {', '.join(texts)}"


def count_steps(steps: tuple[int, int], without_first: tuple[bool, bool]) -> str:
    """Return the numbers of steps of both runs, and whether a first step is left out.

    >>> count_steps((3, 5), (True, True)), count_steps((3, 5), (False, True))
    ('3 and 5 steps after the first', '3 steps and 5 steps after the first')
    """
    after = [AFTER_FIRST if left_out else "" for left_out in without_first]
    if after[0] == after[1]:
        base, new = steps
        count = format_count(base, "step") if base == new else f"{base} and {new} steps"
        return f"{count}{after[0]}"
    counts = (format_count(count, "step") for count in steps)
    return " and ".join(f"{count}{words}" for count, words in zip(counts, after, strict=True))


def _unchanged(what: str, base_ns: int, new_ns: int, sides: Sides) -> str:
    base, both = sides.titles[0], sides.both(format_duration(base_ns), format_duration(new_ns))
    if base_ns == new_ns:
        return f"{what} exactly as long as {base}: {format_duration(new_ns)}."
    return f"{what} about as long as {base} ({new_ns / base_ns - 1:+.2%}): {both}."


def cause_label(cause: str, part_of: str) -> str:
    """Return the name of a cause, with what it is part of.

    >>> cause_label("launch calls", "idle")
    'idle (launch calls)'
    """
    if part_of == IDLE:
        return f"{IDLE} ({cause})"
    if part_of == EXPOSED:
        return f"exposed {cause}"
    return "exposed communication" if cause == EXPOSED else cause


def _format_cause(row: dict[str, Any], waited_for: str = "") -> str:
    """Format a cause and its change; waited_for: added to exposed waiting."""
    label, base_ns, delta_ns = _label(row), row["base_ns"], row["delta_ns"]
    if row["part_of"] == EXPOSED and row["cause"] == EXPOSED_WAITING:
        label += waited_for
    change = format_signed(delta_ns)
    if not base_ns or not row["new_ns"]:
        return f"{label} {change} ({'gone' if base_ns else 'new'})"
    share = delta_ns / abs(base_ns)
    if not LEAST_SHARE <= abs(share) <= MOST_SHARE:
        return f"{label} {change}"
    return f"{label} {share:+.0%} ({change})"


def _label(row: dict[str, Any]) -> str:
    """Return the name of a cause in a sentence."""
    if row["cause"] == AT_ONCE:
        return f"{'less' if row['delta_ns'] > 0 else 'more'} {AT_ONCE}"
    return cause_label(row["cause"], row["part_of"])


def _waited_for(comparison: Comparison) -> str:
    """Return the rank for which waiting changed as text, empty if it is not a single one."""
    causes = comparison.rank_causes
    return f" for rank {causes['rank'][0]}" if len(causes) else ""


def format_signed(time_ns: int) -> str:
    """Format a change with its sign in at most eight characters.

    >>> format_signed(189_277), format_signed(-33_310)
    ('+189 us', '-33.3 us')
    """
    return f"{'+' if time_ns > 0 else ''}{format_short(time_ns)}"


def format_change(base_ns: int, new_ns: int) -> str:
    """Format a change as a share and as a time.

    >>> format_change(3_303_000, 3_492_000)
    '+5.7% (+189 us)'
    """
    return f"{new_ns / base_ns - 1:+.1%} ({format_signed(new_ns - base_ns)})"


def _explain(comparison: Comparison, cause: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence on the operators, collectives, calls or copies that explain a cause."""
    label, delta_ns = cause_label(cause["cause"], cause["part_of"]), cause["delta_ns"]
    if cause["part_of"] == EXPOSED and cause["cause"] == EXPOSED_WAITING:
        return
    if EXPOSED in (cause["cause"], cause["part_of"]):
        table, name = comparison.collectives, "Communication, overlapped or not"
    elif cause["part_of"] == IDLE:
        table, name = comparison.idle_calls, label[:1].upper() + label[1:]
        causes = [one.value for one in IdleCause if one.words == cause["cause"]]
        table = table.take(np.isin(table["cause"], causes)) if len(table) else table
    elif cause["cause"] == COPIES:
        table, name = comparison.copies, "Copies, overlapped or not"
    else:
        table = comparison.operators
        table = table.take(table["class"] == cause["cause"]) if len(table) else table
        name = label[:1].upper() + label[1:]
    rows = _alike(table, delta_ns)
    if rows:
        shown = ", ".join(
            f"{name_of_row} {format_signed(row['delta_ns'])} "
            f"({comparison.sides.both(*map(format_short, (row['base_ns'], row['new_ns'])))})"
            for name_of_row, row in zip(_names(rows), rows, strict=True)
        )
        yield f"{name}: {shown}."


def _launchers(comparison: Comparison, causes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence on the launching operators whose computing changed, if it is a cause."""
    changed_ns = sum(row["delta_ns"] for row in causes if row["part_of"] == COMPUTING)
    table = comparison.launchers
    if not changed_ns or not len(table):
        return
    is_named = np.array([name is not None for name in table["launched_by"].tolist()], np.bool_)
    rows = _alike(table.take(is_named & (table["communication"] == 0)), changed_ns)
    if rows:
        shown = ", ".join(f"{_launcher(row)} {format_signed(row['delta_ns'])}" for row in rows)
        yield f"Launched by {shown}."


def _launcher(row: dict[str, Any]) -> str:
    (name,) = shortened([row["launched_by"]], MOST_OF_NAME)
    return f"{name} ({row['phase']})" if row["phase"] in ("forward", "backward") else name


def _alike(table: Table, delta_ns: int) -> list[dict[str, Any]]:
    """Return the rows that changed most in the direction of a change, and by a notable share."""
    if not len(table):
        return []
    towards = table["delta_ns"] * (1 if delta_ns > 0 else -1)
    order = np.argsort(-towards, kind="stable")[:MOST_NAMED]
    return table.take(order[towards[order] >= LEAST_OF_CAUSE * abs(delta_ns)]).to_dicts()


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the name of each row, with shapes if names alone are equal."""
    labels = [
        row["task"]
        if "task" in row
        else row["call"]
        if "call" in row
        else operator_label(row["type"], row["name"])
        for row in rows
    ]
    with_shapes = [
        f"{label} {row['shapes']}" if labels.count(label) > 1 and row.get("shapes") else label
        for label, row in zip(labels, rows, strict=True)
    ]
    return shortened(with_shapes, MOST_OF_NAME)


def _waiting(comparison: Comparison, least_ns: float) -> Iterator[str]:
    """Yield a sentence on how long ranks wait for others, and for which."""
    rows = {row["metric"]: row for row in comparison.parts.to_dicts()}
    waiting = rows.get(WAITING)
    if waiting is None or abs(waiting["delta_ns"] or 0) < least_ns:
        return
    sides = comparison.sides
    new, base = format_short(waiting["new_ns"]), format_short(waiting["base_ns"])
    text = f"Ranks wait {new} for other ranks, {base} before"
    if sides.in_one_run:
        text = f"Waiting for other ranks takes {sides.both(base, new)}"
    known = [row for row in comparison.waiting.to_dicts() if row["waited_for_rank"] is not None]
    if known:
        now, before = (max(known, key=lambda row: row[time]) for time in ("new_ns", "base_ns"))
        if now is before or not now["new_ns"] or not before["base_ns"]:
            most = max(known, key=lambda row: abs(row["delta_ns"]))
            text += f": {format_signed(most['delta_ns'])} for {_rank(most)}"
        else:
            text += f"; most for {_rank(now)}, {sides.places[0]} for {_rank(before)}"
    yield f"{text}."


def _rank(waited_for: dict[str, Any]) -> str:
    absent = "" if waited_for["profiled"] else " (not read)"
    return f"rank {waited_for['waited_for_rank']}{absent}"


def _of_rank(comparison: Comparison, least_ns: float) -> Iterator[str]:
    """Yield a sentence on what changed on the rank for which waiting changed."""
    own = [row for row in comparison.rank_causes.to_dicts() if abs(row["delta_ns"]) >= least_ns]
    if own:
        causes = ", ".join(map(_format_cause, own[:MOST_CAUSES]))
        rank = own[0]["rank"]
        where = f"On rank {rank}"
        if comparison.sides.by_order:
            where = f"Rank {_new_ranks(comparison)[rank]} against rank {rank}"
        yield f"{where}: {causes}."


def _new_ranks(comparison: Comparison) -> dict[int, int]:
    """Return the rank of the new side by the one of the base that it is compared with."""
    pairs = (comparison.ranks[name].tolist() for name in ("rank", "new_rank"))
    return dict(zip(*pairs, strict=True))


def _frequencies(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence on AI cores that run at another frequency, which changes all computing."""
    rows = [
        row
        for row in comparison.frequencies.to_dicts()
        if abs(row["new_mhz"] - row["base_mhz"]) > NOTABLE * row["base_mhz"]
    ]
    if not rows:
        return
    most = max(rows, key=lambda row: abs(row["new_mhz"] - row["base_mhz"]))
    few = len(rows) < len(comparison.frequencies)
    like = _new_ranks(comparison)
    ranks = f"rank{'s' if len(rows) > 1 else ''} {format_ids(like[row['rank']] for row in rows)}"
    where = ranks if few else "all ranks" if len(rows) > 1 else ranks
    up_to = "up to " if len(rows) > 1 else ""
    where_base = comparison.sides.places[0]
    yield (
        f"AI cores of {where} run at another frequency: {up_to}"
        f"{most['new_mhz'] / 1000:.2f} GHz, {most['base_mhz'] / 1000:.2f} {where_base}."
    )
