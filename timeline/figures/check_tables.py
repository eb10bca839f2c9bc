"""Our numbers beside those of the profiler, and the files that nothing is read of, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.checks import PARTS, RankChecks, known_reasons
from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table, join_tables
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure

_NUMBERED = dict.fromkeys(PARTS, "steps") | {
    Measure.OPERATOR: "types of operators",
    Measure.COLLECTIVE: "communication ops",
}
"""What equal numbers that are summed up are of."""


def check_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.checks`."""
    return join_tables(map(_checks, facts))


def _checks(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    rows, strings = facts.checks.rows, facts.checks.strings
    files = [strings[code] for code in rows.file.tolist()]
    return {
        "rank": np.full(len(rows), facts.rank, np.int64),
        "file": _texts(files),
        "what": _texts([*_compared(facts.checks)]),
        "numbers": rows.numbers,
        "ours": np.ma.masked_equal(rows.ours_ns, NO_TIME),
        "theirs": rows.theirs_ns,
        "tolerance": rows.tolerance_ns,
        "equal": rows.equal.astype(object),
        "reason": _texts(known_reasons(facts.checks)),
    }


def _compared(checks: RankChecks) -> Iterator[str]:
    """Return the name of each compared number."""
    rows = checks.rows
    columns = (rows.measure, rows.step, rows.name, rows.numbers)
    for measure, step, name, numbers in zip(*(column.tolist() for column in columns), strict=True):
        part = PARTS.get(Measure(measure), "total_ns")
        if numbers > 1:
            yield f"{part} of {numbers} {_NUMBERED[Measure(measure)]}"
            continue
        ends = [f"of {checks.strings[name]}"] if name else []
        ends += [f"of step {step}"] if step != NO_ID else []
        yield " ".join([part, *ends])


def unused_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.unused`."""
    return join_tables(map(_unused, facts))


def _unused(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    unused = facts.profile.unused
    return {
        "rank": np.full(len(unused), facts.rank, np.int64),
        "file": _texts([file.file for file in unused]),
        "what": _texts([file.what for file in unused]),
    }


def _texts(values: Sequence[str | None]) -> npt.NDArray[Any]:
    return np.array(values, object)
