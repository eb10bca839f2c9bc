"""What to do where data is prepared or sent too slowly."""

from __future__ import annotations

from collections.abc import Iterator

from timeline.figures.advice import Advice
from timeline.figures.table import Table

__all__ = ["data_advice"]


def data_advice(
    preparation: Table, queues: Table, pipeline: Table, step_trace: Table
) -> Iterator[Advice]:
    """Advice on data processing, sending, the operation of the pipeline, processors, intervals."""
    yield from ()
