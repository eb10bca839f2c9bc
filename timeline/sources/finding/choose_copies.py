"""Which captures of one rank are copies of each other, and which of those is read."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from timeline.errors import spell_ids
from timeline.sources.capture import Claim, FormatKind
from timeline.sources.common.msprof_files import how_to_export, raw_error
from timeline.sources.files.same_files import have_same_files
from timeline.sources.finding.runs import LONGEST_NS
from timeline.sources.finding.times import named_time, recorded_time
from timeline.sources.source import PROF

__all__ = ["choose_among_copies"]

_RAW_KINDS = frozenset({FormatKind.RAW, FormatKind.UNREADABLE})
"""What CANN recorded and nothing was made of."""


def choose_among_copies(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """The captures without those of which another one is made, and a note for each passed over.

    Of a capture that lies in several places one is read. What was recorded and not exported gives
    way to any export of its rank, MindSpore's text to an export inside its directory, and data of
    msprof to what lies around it and was made of it.
    """
    claims, notes = _without_same_files(claims)
    claims, passed = _without_logs_of_texts(claims)
    notes += passed
    claims, passed = _without_nameless_raw(claims)
    notes += passed
    by_rank: dict[int | None, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_rank[claim.rank].append(claim)
    kept = _without_sessions_of_exports(by_rank.pop(None, []), claims)
    for rank, copies in sorted(by_rank.items(), key=lambda found: str(found[0])):
        assert rank is not None
        exports, passed = _without_raw(rank, _without_sessions_of_exports(copies, copies))
        notes += passed
        best, passed = _without_texts_of_exports(rank, _without_sums(exports))
        notes += passed
        kept += best
    return kept, notes


def _without_same_files(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Keep one of the captures that have a name in common, who they are, and all files."""
    read: dict[tuple[object, ...], list[Claim]] = defaultdict(list)
    passed, notes = set[int](), dict[str, None]()
    for claim in sorted(claims, key=_place):
        capture = claim.capture
        key = (capture.directory.name, capture.format.name, claim.device, claim.rank, claim.taken)
        for other in read[key]:
            if have_same_files(capture.content, other.capture.content):
                passed.add(id(claim))
                notes[f"{capture.directory} is a copy of {other.capture.directory}."] = None
                break
        else:
            read[key].append(claim)
    return [claim for claim in claims if id(claim) not in passed], list(notes)


def _place(claim: Claim) -> tuple[int, str]:
    directory = claim.capture.directory
    return len(directory.parts), str(directory)


def _without_logs_of_texts(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Pass over raw files beside the text that a framework made of them.

    Their ids cannot be compared: those of raw files are devices, those of text may be ranks.
    """
    texts = [claim.capture for claim in claims if claim.capture.format.kind is FormatKind.TEXT]
    around = {one.directory for one in texts} | {one.directory.parent for one in texts}
    kept, logs = [], defaultdict(list)
    for claim in claims:
        capture = claim.capture
        lineage = {capture.directory, *capture.directory.parents}
        if capture.format.kind is FormatKind.LOG and lineage & around:
            logs[capture.directory].append(capture)
        else:
            kept.append(claim)
    return kept, [
        f"the {captures[0].format.noun} of device "
        f"{spell_ids([capture.device or 0 for capture in captures])} in {directory.name} were not "
        f"read: {texts[0].format.writer}'s {texts[0].format.noun} are beside them."
        for directory, captures in logs.items()
    ]


def _without_nameless_raw(claims: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Pass over raw captures of no known rank where better ones are.

    So are PROF_* directories beside text, which the framework made of them.
    """
    kinds = {claim.capture.format.kind for claim in claims}
    poor = _RAW_KINDS if kinds - _RAW_KINDS else frozenset({FormatKind.UNREADABLE})
    nouns = {
        claim.capture.directory: claim.capture.format.noun
        for claim in claims
        if claim.capture.format.kind is FormatKind.TEXT
    }
    if not kinds - poor:
        return claims, []
    kept, notes = [], []
    for claim in claims:
        directory = claim.capture.directory
        if claim.rank is None and directory.parent in nouns:
            said = claim.contradiction or "no rank id in its metadata or name"
            noun = nouns[directory.parent]
            notes.append(f"{directory}: {said}. The {noun} beside it are read instead.")
        elif claim.capture.format.kind in poor and not claim.evidence:
            notes.append(str(raw_error(directory)))
        else:
            kept.append(claim)
    return kept, notes


def _without_raw(rank: int, copies: list[Claim]) -> tuple[list[Claim], list[str]]:
    """The captures that were exported; without any, raw ones that can be read; else all.

    And a note for each raw capture passed over that is newer than all of those.
    """
    for poor in (_RAW_KINDS, frozenset({FormatKind.UNREADABLE})):
        kept = [claim for claim in copies if claim.capture.format.kind not in poor]
        if kept:
            latest = max(claim.taken for claim in kept)
            return kept, [
                f"rank {rank}: {claim.capture.directory.name} is newer, but was not read. "
                f"{how_to_export(claim.capture.directory)}"
                for claim in copies
                if claim.capture.format.kind in poor and claim.taken > latest
            ]
    return copies, []


def _without_sessions_of_exports(copies: list[Claim], around: list[Claim]) -> list[Claim]:
    """Drop msprof's own data that lies beside what the framework made of it (MindSpore to 2.4)."""
    exports: dict[Path, list[Claim]] = defaultdict(list)
    for claim in around:
        if claim.capture.format.kind is FormatKind.SUMS:
            continue
        if claim.capture.directory.name.endswith(("_ascend_ms", "_ascend_pt")):
            exports[claim.capture.directory.parent].append(claim)

    def is_exported(claim: Claim) -> bool:
        directory = claim.capture.directory
        beside = exports.get(directory.parent, []) if directory.name.startswith(PROF) else []
        return any(_may_be_of_one_time(claim, export) for export in beside)

    return [claim for claim in copies if not is_exported(claim)]


def _without_sums(copies: list[Claim]) -> list[Claim]:
    """Drop sums of steps where another capture of their rank may be of the same time."""
    sums = [claim for claim in copies if claim.capture.format.kind is FormatKind.SUMS]
    kept = [claim for claim in copies if claim.capture.format.kind is not FormatKind.SUMS]
    return kept + [
        claim for claim in sums if not any(_may_be_of_one_time(claim, other) for other in kept)
    ]


def _may_be_of_one_time(one: Claim, other: Claim) -> bool:
    """Whether neither names nor files tell that two captures were taken at different times."""
    for time_of in (named_time, recorded_time):
        (one_ns, _), (other_ns, _) = time_of(one), time_of(other)
        if one_ns is not None and other_ns is not None:
            return abs(one_ns - other_ns) < LONGEST_NS
    return True


def _without_texts_of_exports(rank: int, copies: list[Claim]) -> tuple[list[Claim], list[str]]:
    """Drop a framework's text where the export that it was made of lies inside its directory."""
    exports = [claim for claim in copies if claim.capture.format.kind is not FormatKind.TEXT]
    kept, notes = list(exports), []
    for claim in copies:
        if claim.capture.format.kind is FormatKind.TEXT:
            text = claim.capture
            inside = [one for one in exports if text.directory in one.capture.directory.parents]
            if inside:
                notes.append(
                    f"rank {rank}: the {text.format.noun} in {text.directory.name} hold less than "
                    f"{inside[-1].capture.directory.name} and were not read."
                )
            else:
                kept.append(claim)
    return kept, notes
