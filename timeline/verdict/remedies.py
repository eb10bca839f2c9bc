"""Remedies: what to try against a loss, where the recording holds evidence for it.

Each is the last clause of the sentence on a finding. Without evidence there is none: a wrong advice
costs more than no advice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from timeline.analysis.gains.findings import Cause, Finding, FindingKind

LEAST_SHARE = 0.05
"""Share of the recording from which time in the allocator of the device has a remedy."""
_COMPILES = re.compile(r"aclop\w*compile", re.I)
"""Calls of torch_npu that compile an operator of unknown shapes before they launch it."""
_READS_VALUE = re.compile(r"(?:^|::|@|\b)(?:_?local_scalar_dense|item|tolist|nonzero|is_nonzero)\b")
"""Operators that copy values from the device to Python, and wait for them."""
_ONE_PROCESS = re.compile(r"SingleProcessDataLoader")
_WORKERS = re.compile(r"MultiProcessingDataLoader")

COMPILE = "try torch.npu.set_compile_mode(jit_compile=False)"
ALLOCATE = (
    "the allocator's cache is too small: try a smaller batch or expandable_segments, and no "
    "empty_cache() in the loop"
)
NO_WORKERS = "the training process loads them itself: try num_workers > 0 and pinned memory"
MORE_WORKERS = "try more workers of the DataLoader, or less work for each sample"
READ_LESS = "read values from the device less often (.item(), .cpu(), tolist())"
WARM_UP = "warm up before the recording: schedule(wait, warmup, active)"
AI_CPU = "it runs on AI CPUs: a type that the AI Core supports, not int64 or double, is faster"


def find_remedy(
    finding: Finding,
    cause: Cause,
    *,
    call: str,
    share: float,
    waits: Collection[str],
    on_ai_cpu: bool,
    first_steps: Sequence[int],
) -> str:
    """Return what to try against a loss, empty if nothing in the recording points at it.

    Args:
        finding: the loss.
        cause: its cause, as it is reported.
        call: host call that takes most of it, empty if unknown.
        share: its gain as a share of the recording.
        waits: names of the calls on the critical path that wait for data.
        on_ai_cpu: whether the operator of the finding runs on AI CPUs.
        first_steps: the first steps of the recording.
    """
    if finding.steps is not None and set(finding.steps) == set(first_steps):
        return WARM_UP if cause in (Cause.HOST, Cause.MEMORY, Cause.UNKNOWN) else ""
    if _COMPILES.search(call):
        return COMPILE
    if cause is Cause.MEMORY:
        return ALLOCATE if share >= LEAST_SHARE else ""
    if cause is Cause.INPUT:
        return _loader_remedy(waits)
    if cause is Cause.HOST and _READS_VALUE.search(call):
        return READ_LESS
    return AI_CPU if finding.kind is FindingKind.SLOW_OPERATOR and on_ai_cpu else ""


def _loader_remedy(waits: Collection[str]) -> str:
    names = " ".join(waits)
    if _ONE_PROCESS.search(names):
        return NO_WORKERS
    return MORE_WORKERS if _WORKERS.search(names) else ""
