"""The notes that travel in a file: warnings, omissions and resolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timeline.fitting.limits import LimitName
from timeline.printable import valid_text
from timeline.records.tables import Omission
from timeline.reports.bookkeeping import KEPT_EXACT, spell_merged
from timeline.reports.report_rows import (
    ExactStep,
    ResolutionRow,
    spell_exact_steps,
    spell_omissions,
)
from timeline.tracks.root_rows import Note, Notes
from timeline.units import spell_count

MERGED = "Merged"
"""The topic of layers that are not exact."""
MOST_NOTES = 8
"""So many notes of each topic are in the file; the rest is in the report."""
MOST_CHARACTERS = 240


def notes_of(
    warnings: Sequence[str],
    omissions: Sequence[Omission],
    resolutions: Sequence[ResolutionRow],
    exact_steps: Sequence[ExactStep] = (),
    limited_by: LimitName | None = None,
) -> Notes | None:
    """What whoever opens the file should know; None where nothing is wrong or missing.

    Records that only repeat others, or arrows to what was not asked for, are no reason for notes,
    but are told where there are any.
    """
    merged = [row for row in resolutions if row.merged]
    lossy = any(omission.loss for omission in omissions)
    if not warnings and not merged and not lossy:
        return None
    left_out = list(spell_omissions(omissions))
    topics = {
        "Warnings": [Note(valid_text(text)) for text in dict.fromkeys(warnings)],
        "Left out": [Note(valid_text(text), (("records", rows),)) for text, rows, _ in left_out],
        MERGED: [
            *([Note(f"{KEPT_EXACT}: {spell_exact_steps(exact_steps)}")] if exact_steps else []),
            *map(_merged, merged),
        ],
    }
    return Notes(
        "; ".join(_counts(topics, len(merged), limited_by)),
        tuple((topic, tuple(_first(notes))) for topic, notes in topics.items() if notes),
    )


def _merged(row: ResolutionRow) -> Note:
    return Note(
        row.spelled(),
        (
            ("resolution_ns", row.resolution_ns),
            ("exact", row.exact),
            ("merged", row.merged),
            ("merged_into", row.merged_into),
        ),
    )


def _counts(
    topics: dict[str, list[Note]], merged: int, limited_by: LimitName | None
) -> Iterator[str]:
    """The notes in one line."""
    if warnings := topics["Warnings"]:
        yield spell_count(len(warnings), "warning")
    if left_out := topics["Left out"]:
        records = sum(rows for note in left_out for _, rows in note.numbers)
        yield f"{spell_count(records, 'record')} left out"
    if merged:
        yield spell_merged(merged, limited_by)


def _first(notes: Sequence[Note]) -> Iterator[Note]:
    """The first notes, none too long, and how many there are besides."""
    for note in notes[:MOST_NOTES]:
        text = note.text
        if len(text) > MOST_CHARACTERS:
            text = text[: MOST_CHARACTERS - 1] + "…"
        yield Note(text, note.numbers)
    more = len(notes) - MOST_NOTES
    if more > 0:
        yield Note(f"and {spell_count(more, 'more note')} in the report", (("more", more),))
