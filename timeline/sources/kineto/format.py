"""Recognition of traces of PyTorch's own profiler; each file is a capture of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from timeline.sources.capture import (
    Capture,
    CaptureFile,
    Claim,
    Evidence,
    Extent,
    Folder,
    Format,
    Lookalike,
    Part,
    Root,
)
from timeline.sources.common.export_files import (
    JsonKind,
    find_event_time_ns,
    has_json_name,
    kind_of_json,
)
from timeline.sources.common.identity import find_evidence_in_names
from timeline.sources.kineto.header import (
    host_of,
    is_named_kineto,
    may_hold_several,
    read_name,
    read_rank,
)
from timeline.sources.source import Identity, Source

_NEVER_KINETO = frozenset({JsonKind.EXECUTION_TRACE, JsonKind.NPU_TRACE})
"""Kinds of files that are not PyTorch traces even if they have the name of one."""
_LOOKALIKES = frozenset(
    {JsonKind.EXECUTION_TRACE, JsonKind.OPERATOR_TRACE, JsonKind.OTHER_TRACE, JsonKind.CUT_TRACE}
)


def _recognise(folder: Folder) -> Iterator[Capture | Lookalike]:
    for path in (folder.path / name for name in folder.names if has_json_name(name)):
        kind = _find_kind(path)
        if kind is JsonKind.KINETO:
            yield Capture(KINETO, path, path)
        elif kind in _LOOKALIKES:
            yield Lookalike(path, kind.value)


def _recognise_content(file: CaptureFile) -> list[Capture]:
    is_trace = _find_kind(file.path) is JsonKind.KINETO
    return [Capture(KINETO, file.path, file.path)] if is_trace else []


def _find_kind(path: Path) -> JsonKind:
    """Return the kind of a file, judged by its content, else by its name.

    A broken file with the name of a trace is a trace, so that reading it reports the damage.
    """
    kind = kind_of_json(path)
    if is_named_kineto(path.name) and kind not in _NEVER_KINETO:
        return JsonKind.KINETO
    return kind


def _identify(capture: Capture, root: Root) -> list[Claim]:
    """Identify the rank of a trace: by its metadata, else by its file name and directories.

    Names often number the processes of one machine, while metadata holds the rank of the run.
    """
    name = read_name(capture.content.name)
    rank, world = read_rank(capture.content)
    if rank is not None:
        evidence = [Evidence(rank, f"{capture.content.name}: distributedInfo")]
    else:
        evidence = [Evidence(rank, f"file name {capture.content.name}") for rank in name.ranks]
        evidence = evidence or find_evidence_in_names(capture, root)
    claim = Claim(capture, tuple(evidence), taken=name.taken, worker=name.worker, world=world)
    return [*_claim_parts(claim, is_distributed=rank is not None)] or [claim]


def _claim_parts(claim: Claim, *, is_distributed: bool) -> Iterator[Claim]:
    """Yield a claim for each rank of a trace that holds several, none for any other trace."""
    path = claim.capture.content
    if not may_hold_several(path, is_distributed=is_distributed):
        return
    from timeline.sources.kineto.parts import find_parts

    for part, rank in find_parts(path):
        evidence = claim.evidence
        if rank is not None:
            evidence = (Evidence(rank, f"{part.name} in {path.name}"),)
        yield replace(claim, evidence=evidence, device=part.device, part=part)


def _recorded_time(capture: Capture) -> Extent:
    return find_event_time_ns(capture.content), None


def _read_with(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.kineto.source import KinetoSource

    host = claim.clock.host or host_of(identity.worker)
    clock = replace(claim.clock, host=host)
    return KinetoSource(KINETO.name, identity, clock, claim.capture.content, claim.part or Part(""))


KINETO = Format(
    name="PyTorch trace",
    recognise=_recognise,
    recognise_content=_recognise_content,
    identify=_identify,
    recorded_time=_recorded_time,
    read_with=_read_with,
    shares_directory=True,
    utc_names=True,
    hardware="GPU",
)
