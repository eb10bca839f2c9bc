"""Sentences on how measures differ from the profiler's numbers, and on what is not used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from timeline.errors import spell_ids
from timeline.figures.table import Table
from timeline.units import spell_count

MOST_FILES = 12
_NUMBERS = re.compile(r"(?:_\d+)+(?=\.)")
"""The rank and the time stamp in the name of a file."""


def check_lines(checks: Table) -> Iterator[str]:
    """How many numbers of each file are equal, a line per file."""
    for file, rows in _by(checks, "file").items():
        ranks = _ranks(rows)
        some = spell_count(sum(row["numbers"] for row in rows), "number")
        different = [row for row in rows if not row["equal"]]
        if different:
            yield f"  checked: {len(different)} of {some} of {ranks} differ from {file}"
        else:
            within_ns = max(row["tolerance"] for row in rows)
            yield f"  checked: {some} of {ranks} equal to {file} within {within_ns} ns"


def check_warnings(checks: Table) -> Iterator[str]:
    """What differs, a sentence per file and reason, with the numbers that differ most."""
    different = [row for row in checks.to_dicts() if not row["equal"]]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in different:
        reason = row["reason"] or "the reason is not known"
        found.setdefault((row["file"], reason), []).append(row)
    for (file, reason), rows in found.items():
        worst = max(rows, key=_off_ns)
        ours = "not known" if worst["ours"] is None else f"{worst['ours']} ns"
        more = len(rows) - 1
        others = f" ({spell_count(more, 'more number')} of {_ranks(rows)} so)" if more else ""
        yield (
            f"rank {worst['rank']}: {worst['what']} is {worst['theirs']} ns in {file} and {ours} "
            f"here{others}: {reason}."
        )


def unused_lines(unused: Table) -> Iterator[str]:
    """Which files and tables are not used, a line for all ranks that have the same."""
    alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for rank, rows in _by(unused, "rank").items():
        files = dict.fromkeys((_NUMBERS.sub("", row["file"]), row["what"]) for row in rows)
        alike.setdefault(tuple(files), []).append(rank)
    for named_files, ranks in alike.items():
        which = f"{'rank' if len(ranks) == 1 else 'ranks'} {spell_ids(ranks)}"
        named = ", ".join(f"{file} ({what})" for file, what in named_files[:MOST_FILES])
        more = len(named_files) - MOST_FILES
        yield f"  not used of {which}: {named}" + (f", {more} more in --json" if more > 0 else "")


def _by(table: Table, column: str) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in table.to_dicts():
        found.setdefault(row[column], []).append(row)
    return found


def _ranks(rows: list[dict[str, Any]]) -> str:
    ranks = sorted({row["rank"] for row in rows})
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {spell_ids(ranks)}"


def _off_ns(row: dict[str, Any]) -> int:
    return abs(int(row["theirs"]) - int(row["ours"] or 0))
