"""What the size limit of a timeline display cut off, told from its size and what lies beside it.

MindSpore 0.7 to 2.2 writes events in order of time until the file exceeds a limit, and leaves out
the rest without a word; the file stays valid.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from timeline.errors import spell_ids
from timeline.frozen import dataclass
from timeline.records.tables import Omission, OmissionCode, Steps
from timeline.units import spell_bytes

__all__ = ["CutOff", "cut_off_by_limit"]

_MIB = 1024 * 1024
LIMITS_BYTES = (20 * _MIB, 100 * _MIB, 500 * _MIB)
"""Of versions 0.7 to 1.2, 1.3 to 1.9, and 1.10 to 2.2 unless the user sets another one there."""
OVERSHOOT_BYTES = 32 * 1024
"""What is written beyond the limit: two text buffers, one event and the labels of processes."""


@dataclass(frozen=True)
class CutOff:
    """What is reported of a display that a limit cut off; empty for a whole one."""

    omissions: tuple[Omission, ...] = ()
    warnings: tuple[str, ...] = ()


def cut_off_by_limit(
    path: Path, rank: int, size_bytes: int, missing_ops: int, last_ns: int, steps: Steps
) -> CutOff:
    """Tell whether a display was cut off.

    It was when its size is just above a limit of MindSpore, when whole steps begin after its last
    record, or when its summary counts more operators and its size is just above whole megabytes
    (the limit is the user's in 2.0 to 2.2).

    Args:
        missing_ops: operators in the summary less those in the display, 0 where that is unknown.
        steps: those of the step trace on the clock of last_ns; none where nothing relates the two.
    """
    later = steps.iteration[steps.start_ns >= last_ns] if last_ns else np.empty(0, np.int64)
    at_limit = any(0 < size_bytes - limit <= OVERSHOOT_BYTES for limit in LIMITS_BYTES)
    at_megabyte = size_bytes > _MIB and size_bytes % _MIB <= OVERSHOOT_BYTES
    if not (at_limit or len(later) or (missing_ops > 0 and at_megabyte)):
        return CutOff()
    steps_lost = f"; steps {spell_ids(later.tolist())} have no device record" if len(later) else ""
    warning = (
        f"rank {rank}: MindSpore cut off {path.name} ({spell_bytes(size_bytes)}) at its size "
        f"limit, so the end of the run is missing{steps_lost}."
    )
    what, rows = "the unknown rest", 1
    if missing_ops > 0:
        what, rows = "operators", missing_ops
    elif len(later):
        what, rows = "steps", len(later)
    reason = f"{what} behind the size limit of {path.name}"
    code = OmissionCode.WRITER_LIMIT
    lost = Omission(reason, rows, rank, tuple(later.tolist()), loss=True, code=code)
    return CutOff((lost,), (warning,))
