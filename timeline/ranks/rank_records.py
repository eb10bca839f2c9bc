"""The records of one rank, read from its source, checked, and with steps."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from timeline.analysis.communication_rule import with_communication_rule
from timeline.analysis.sound_records import drop_backward_arrows, drop_invalid_rows, fit_host_clock
from timeline.analysis.steps import with_steps
from timeline.analysis.waits.group_members import with_global_ranks
from timeline.layers import HOST_LAYERS
from timeline.options import StepOperators
from timeline.records.tables import Records
from timeline.selection import Align
from timeline.sources.source import ReadRequest, Source


def read_rank(
    source: Source, wanted: ReadRequest, operators: StepOperators, align: Align | None = None
) -> Records:
    """Read a rank: at least what is wanted, checked, and with its steps.

    Where host calls are wanted, its host clock is fitted to that of the device, unless clocks are
    wanted as recorded.

    Raises:
        SourceError: its profile cannot be read.
    """
    with _collector_paused():
        records = source.read(wanted)
    records = drop_backward_arrows(with_global_ranks(drop_invalid_rows(records)))
    if wanted.layers & HOST_LAYERS and align not in (Align.RECORDED, Align.NONE):
        records = fit_host_clock(records)
    return with_communication_rule(with_steps(records, operators))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Reading makes millions of short-lived objects, and no cycles to look for among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
