"""Turns captures of one rank that are copies of each other into the best one, and notes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from timeline.errors import spell_ids
from timeline.sources.common.identity import Claim, how_to_export, raw_error
from timeline.sources.finding.capture_times import named_time, recorded_time
from timeline.sources.finding.runs import LONGEST_NS
from timeline.sources.source import RAW_LAYOUTS, Layout

__all__ = ["without_twins"]


def without_twins(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """The captures without those of which another one is made, and a note for each passed over.

    What was recorded and not exported gives way to any export of its rank, MindSpore's text to an
    export inside its directory, and data of msprof to what lies around it and was made of it.
    """
    claims, notes = _without_logs_of_texts(claims)
    claims, passed = _without_nameless_raw(claims)
    notes += passed
    by_rank: dict[int | None, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_rank[claim.rank].append(claim)
    kept = _without_raw_twins(by_rank.pop(None, []), claims)
    for rank, own in sorted(by_rank.items(), key=lambda found: str(found[0])):
        assert rank is not None
        rich, passed = _without_poorer(rank, _without_raw_twins(own, own))
        notes += passed
        best, passed = _without_text_twins(rank, rich)
        notes += passed
        kept += best
    return kept, notes


def _without_logs_of_texts(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Pass over raw files beside the text outputs that MindSpore made of them.

    Their ids cannot be compared: those of raw files are devices, those of text may be ranks.
    """
    texts = {own.capture.directory for own in claims if own.capture.layout is Layout.TEXT}
    around = texts | {directory.parent for directory in texts}
    kept, devices = [], defaultdict(list)
    for claim in claims:
        directory = claim.capture.directory
        if claim.capture.layout is Layout.HARDWARE_LOG and {directory, *directory.parents} & around:
            devices[directory].append(claim.capture.device or 0)
        else:
            kept.append(claim)
    return kept, [
        f"the raw files of device {spell_ids(own)} in {directory.name} were not read: MindSpore's "
        "text outputs are beside them."
        for directory, own in devices.items()
    ]


def _without_nameless_raw(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Pass over raw captures of no known rank where better ones are.

    So are PROF_* directories beside text outputs, which MindSpore made of them.
    """
    layouts = {own.capture.layout for own in claims}
    poor = RAW_LAYOUTS if layouts - RAW_LAYOUTS else frozenset({Layout.RAW})
    texts = {own.capture.directory for own in claims if own.capture.layout is Layout.TEXT}
    if not layouts - poor:
        return claims, []
    kept, notes = [], []
    for claim in claims:
        directory = claim.capture.directory
        if claim.rank is None and directory.parent in texts:
            said = claim.contradiction or "no rank id in its metadata or name"
            notes.append(f"{directory}: {said}. The text outputs beside it are read instead.")
        elif claim.capture.layout in poor and not claim.evidence:
            notes.append(str(raw_error(directory)))
        else:
            kept.append(claim)
    return kept, notes


def _without_poorer(rank: int, candidates: list[Claim]) -> tuple[list[Claim], list[str]]:
    """The captures that were exported; without any, raw ones that can be read; else all.

    And a note for each raw capture passed over that is newer than all of those.
    """
    for poor in (RAW_LAYOUTS, frozenset({Layout.RAW})):
        kept = [found for found in candidates if found.capture.layout not in poor]
        if kept:
            latest = max(found.taken for found in kept)
            return kept, [
                f"rank {rank}: {found.capture.directory.name} is newer, but was not read. "
                f"{how_to_export(found.capture.directory)}"
                for found in candidates
                if found.capture.layout in poor and found.taken > latest
            ]
    return candidates, []


def _without_raw_twins(candidates: list[Claim], around: list[Claim]) -> list[Claim]:
    """Drop msprof's own data that lies beside what the framework made of it (MindSpore to 2.4)."""
    made: dict[Path, list[Claim]] = defaultdict(list)
    for found in around:
        if found.capture.directory.name.endswith(("_ascend_ms", "_ascend_pt")):
            made[found.capture.directory.parent].append(found)

    def is_twin(found: Claim) -> bool:
        directory = found.capture.directory
        beside = made.get(directory.parent, []) if directory.name.startswith("PROF_") else []
        return any(_may_be_of_one_time(found, own) for own in beside)

    return [found for found in candidates if not is_twin(found)]


def _may_be_of_one_time(one: Claim, other: Claim) -> bool:
    """Whether neither names nor files tell that two captures were taken at different times."""
    for time_of in (named_time, recorded_time):
        (one_ns, _), (other_ns, _) = time_of(one), time_of(other)
        if one_ns is not None and other_ns is not None:
            return abs(one_ns - other_ns) < LONGEST_NS
    return True


def _without_text_twins(rank: int, candidates: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Drop MindSpore's text outputs where the export they were made of lies beside them."""
    exported = [found for found in candidates if found.capture.layout is not Layout.TEXT]
    kept, notes = list(exported), []
    for found in candidates:
        if found.capture.layout is Layout.TEXT:
            own = found.capture.directory
            richer = [one for one in exported if own in one.capture.directory.parents]
            if richer:
                notes.append(
                    f"rank {rank}: the text outputs in {own.name} hold less than "
                    f"{richer[-1].capture.directory.name} and were not read."
                )
            else:
                kept.append(found)
    return kept, notes
