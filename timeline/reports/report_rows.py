"""Rows of reports: files, ranks, resolutions, and lines on what is merged or left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timeline.errors import format_ids
from timeline.fitting.drawn_layers import WHOLE_NS
from timeline.fitting.limits import LimitName
from timeline.language import said
from timeline.printable import valid_text
from timeline.records.clock import CommunicationRule, FreeRule
from timeline.records.not_given import NO_GRAPH
from timeline.records.tables import Omission, OmissionCode
from timeline.tables.parallel import ParallelIndices
from timeline.tracks.root_rows import Note, Notes
from timeline.units import format_bytes, format_count, format_duration, format_number


@dataclass(frozen=True)
class OutputFile:
    """A file that was written.

    elements: number of its slices, samples and arrow ends, which determine the memory of a viewer.
    steps: steps whose detail it holds. drawn_ns: first and last timestamp in it, on the clock of
    the figures. offset_ns: offset of timestamps in the file from that clock. replaced: whether a
    file of that name existed.
    """

    path: Path
    format: str
    size_bytes: int
    slices: int
    elements: int
    steps: tuple[int, ...]
    drawn_ns: tuple[int, int]
    offset_ns: int
    replaced: bool = False

    @property
    def written_line(self) -> str:
        """Return a line with its path and size."""
        replaced = " (replaced)" if self.replaced else ""
        return f"Wrote {self.path}{replaced}  {format_bytes(self.size_bytes)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the file under the names of the report."""
        return {
            "path": str(self.path),
            "format": self.format,
            "bytes": self.size_bytes,
            "slices": self.slices,
            "elements": self.elements,
            "steps": list(self.steps),
            "replaced": self.replaced,
        }


@dataclass(frozen=True)
class CsvFile:
    """A CSV table that was written in addition to the timeline."""

    path: Path
    size_bytes: int
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Return the table under the names of the report."""
        return {"path": str(self.path), "bytes": self.size_bytes, "rows": self.rows}


@dataclass(frozen=True)
class RankReport:
    """The records read of one rank, and how its clock was aligned with those of other ranks.

    offset_ns: shift of its times. drift_ppb: further shift per second, in ns. spread_ns: largest
    remaining difference between the ends of collectives that it shares with other ranks, of which
    there are `matched_ops`; None if clocks were not compared by collectives. free_rule,
    communication_rule: rules by which its device time is split. host_offset_ns: shift of its host
    times onto the clock of its device, before all others. indices: its data, pipeline and tensor
    parallel index.
    """

    rank: int
    device: int | None
    source: Path
    layout: str
    tasks: int
    communication_tasks: int
    communication_ops: int
    steps: int
    graphs: tuple[int, ...]
    offset_ns: int
    drift_ppb: int
    align: str
    spread_ns: int | None
    matched_ops: int
    free_rule: FreeRule = FreeRule()
    communication_rule: CommunicationRule = CommunicationRule()
    host_offset_ns: int = 0
    indices: ParallelIndices = ParallelIndices()

    def to_dict(self) -> dict[str, Any]:
        """Return the rank under the names of the report."""
        return {
            "rank": self.rank,
            "device": self.device,
            "source": str(self.source),
            "layout": self.layout,
            "tasks": self.tasks,
            "comm": self.communication_tasks,
            "comm_ops": self.communication_ops,
            "steps": self.steps,
            "graphs": [graph for graph in self.graphs if graph != NO_GRAPH],
            "offset_ns": self.offset_ns,
            "drift_ppb": self.drift_ppb,
            "align": self.align,
            "spread_ns": self.spread_ns,
            "matched_ops": self.matched_ops,
            "free_rule": self.free_rule.name,
            "free_evidence": self.free_rule.evidence or None,
            "communication_rule": self.communication_rule.name,
            "communication_evidence": self.communication_rule.evidence or None,
            "host_offset_ns": self.host_offset_ns,
            "dp_index": self.indices.dp,
            "pp_index": self.indices.pp,
            "tp_index": self.indices.tp,
        }


@dataclass(frozen=True)
class ResolutionRow:
    """The resolution of one layer of a timeline.

    Slices of resolution_ns and longer are exact; before finer_until_ns, those of finer_ns and
    longer. exact: number of such slices. The other slices, `merged` of them, were drawn as
    `merged_into` slices.
    """

    layer: str
    resolution_ns: int
    finer_ns: int | None
    finer_until_ns: int | None
    exact: int
    merged: int
    merged_into: int

    def describe(self) -> str:
        """Return the row as text for people."""
        noun = self.layer.replace("_", " ")
        if not self.resolution_ns:
            return f"{noun}: exact ({format_count(self.exact, 'slice')})"
        width = format_duration(self.resolution_ns)
        if self.resolution_ns >= WHOLE_NS:
            width = "each row as a whole"
        finer = ""
        if self.finer_until_ns is not None:
            width_there = format_duration(self.finer_ns) if self.finer_ns else "exact"
            finer = f", the first part {width_there}"
        if self.layer == "counters":
            return f"{noun}: {width}{finer} ({format_count(self.merged, 'sample')} thinned out)"
        into = format_number(self.merged_into)
        return (
            f"{noun}: {width}{finer} "
            f"({format_count(self.exact, 'slice')} exact, "
            f"{format_count(self.merged, 'slice')} merged into {into})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the row under the names of the report."""
        return dict(vars(self))


@dataclass(frozen=True)
class ExactStep:
    """A step that is exact on some ranks while other steps or ranks are merged."""

    step: int
    ranks: tuple[int, ...]


def format_exact_steps(steps: Sequence[ExactStep]) -> str:
    """Format exact steps, grouped by the ranks on which they are exact, most ranks first."""
    by_ranks: dict[tuple[int, ...], list[int]] = {}
    for one in steps:
        by_ranks.setdefault(one.ranks, []).append(one.step)
    return "; ".join(
        f"{'step' if len(numbers) == 1 else 'steps'} {format_ids(numbers)} of "
        f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ids(ranks)}"
        for ranks, numbers in sorted(by_ranks.items(), key=lambda item: -len(item[0]))
    )


def exact_steps_dict(steps: Sequence[ExactStep]) -> dict[str, Any]:
    """Return exact steps, and the ranks of each, under the names of the report."""
    return {
        "exact_steps": [one.step for one in steps],
        "exact_ranks": {str(one.step): list(one.ranks) for one in steps},
    }


def omission_dict(omission: Omission) -> dict[str, Any]:
    """Return an omission under the names of the report."""
    return {
        "code": omission.code.value,
        "reason": omission.reason,
        "rank": omission.rank,
        "rows": omission.rows,
        "steps": list(omission.steps),
        "loss": omission.loss,
    }


def format_omissions(
    omissions: Iterable[Omission],
) -> Iterator[tuple[str, int, OmissionCode]]:
    """Yield the omissions of all ranks by reason: the text, the number of records, and the code."""
    by_reason: dict[str, list[Omission]] = {}
    for omission in omissions:
        by_reason.setdefault(omission.reason, []).append(omission)
    for reason, alike in by_reason.items():
        rows = sum(omission.rows for omission in alike)
        steps = sorted({step for omission in alike for step in omission.steps})
        where = f"steps {format_ids(steps)}: " if steps else ""
        yield f"{where}{format_count(rows, 'record')}, {reason}", rows, alike[0].code


# -- lines on merged and missing records -----------------------------------------------------------


NOTHING_MERGED = "nothing is merged in"
_LIMITS: Mapping[LimitName, str] = {
    "bytes": "size limit",
    "events": "limit of events",
    "memory": "limit of a viewer's memory",
}


def bookkeeping_lines(
    omissions: Sequence[Omission],
    resolutions: Sequence[ResolutionRow],
    exact_steps: Sequence[ExactStep],
    limited_by: LimitName | None,
    clocks: Sequence[str],
    *,
    aligned: bool,
    verbose: bool,
) -> list[str]:
    """Return lines on what was merged or left out of a file, and on clocks that were aligned.

    clocks: lines on how far the clocks of ranks differ. aligned: whether clocks were moved.
    verbose: whether to list everything line by line, instead of in one line without what only
    repeats other records.
    """
    merged = sum(1 for row in resolutions if row.merged)
    if verbose:
        return [
            *(f"  clocks: {line}" for line in clocks),
            *([f"  {format_merged(merged, limited_by)}"] if merged else []),
            *(f"  {row.describe()}" for row in resolutions),
            *([f"  {NOTHING_MERGED}: {format_exact_steps(exact_steps)}"] if exact_steps else []),
            *(f"  left out: {text}" for text, *_ in format_omissions(omissions)),
        ]
    exact = f" (nothing in {format_exact_steps(exact_steps)})" if exact_steps else ""
    left_out = sum(omission.rows for omission in omissions if omission.loss)
    lifting = "--limit 0" if (limited_by or "bytes") == "bytes" else "--max-events 0"
    remarks = [
        *([f"{format_merged(merged, limited_by)}{exact}; {lifting} draws all"] if merged else []),
        *([f"{format_count(left_out, 'record')} left out"] if left_out else []),
        *(["clocks aligned"] if aligned else []),
    ]
    return [f"  {', '.join(remarks)}: -v says more"] if remarks else []


def format_merged(layers: int, limited_by: LimitName | None) -> str:
    """Format how many layers are merged, and the limit for which they are."""
    return f"{format_count(layers, 'layer')} merged to keep the {_LIMITS[limited_by or 'bytes']}"


# -- notes in a file -------------------------------------------------------------------------------


MERGED = "Merged"
"""Topic of notes on merged layers."""
MOST_NOTES = 8
"""Maximum number of notes of each topic in a file; the report has all of them."""
MOST_CHARACTERS = 240
"""Maximum length of a note in a file."""


def notes_of(
    warnings: Sequence[str],
    omissions: Sequence[Omission],
    resolutions: Sequence[ResolutionRow],
    exact_steps: Sequence[ExactStep] = (),
    limited_by: LimitName | None = None,
) -> Notes | None:
    """Return the notes that a file shows in a viewer; None if nothing is wrong or missing.

    Omissions without loss, such as records that repeat others, are listed among other notes, but
    alone are no reason for notes.
    """
    merged = [row for row in resolutions if row.merged]
    lossy = any(omission.loss for omission in omissions)
    if not warnings and not merged and not lossy:
        return None
    left_out = list(format_omissions(omissions))
    topics = {
        "Warnings": [Note(valid_text(text)) for text in dict.fromkeys(warnings)],
        "Left out": [Note(valid_text(text), (("records", rows),)) for text, rows, _ in left_out],
        MERGED: [
            *(
                [Note(f"{NOTHING_MERGED}: {format_exact_steps(exact_steps)}")]
                if exact_steps
                else []
            ),
            *map(_merged, merged),
        ],
    }
    return Notes(
        "; ".join(_counts(topics, len(merged), limited_by)),
        tuple((topic, tuple(_first(notes))) for topic, notes in topics.items() if notes),
    )


def _merged(row: ResolutionRow) -> Note:
    return Note(
        row.describe(),
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
    """Yield the number of warnings, of omitted records and of merged layers, as text."""
    if warnings := topics["Warnings"]:
        yield format_count(len(warnings), "warning")
    if left_out := topics["Left out"]:
        records = sum(rows for note in left_out for _, rows in note.numbers)
        yield f"{format_count(records, 'record')} left out"
    if merged:
        yield format_merged(merged, limited_by)


def _first(notes: Sequence[Note]) -> Iterator[Note]:
    """Yield the first notes, shortened if too long, and a note that counts the others."""
    for note in notes[:MOST_NOTES]:
        text = said(note.text)
        if len(text) > MOST_CHARACTERS:
            text = text[: MOST_CHARACTERS - 1] + "…"
        yield Note(text, note.numbers)
    more = len(notes) - MOST_NOTES
    if more > 0:
        text = f"and {format_count(more, 'more note')} in the report"
        yield Note(said(text), (("more", more),))
