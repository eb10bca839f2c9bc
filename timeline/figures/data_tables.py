"""How data is prepared and sent: what limits it, its queues, and its pipeline, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table

__all__ = [
    "DATA_PIPELINE",
    "DATA_PREPARATION",
    "DATA_QUEUES",
    "data_pipeline_table",
    "data_preparation_table",
    "data_queue_table",
]

DATA_PREPARATION: Mapping[str, type] = {
    "rank": int,
    "bottleneck": object,
    "empty_share": float,
    "operations": object,
    "cpu_busy": float,
}
DATA_QUEUES: Mapping[str, type] = {
    "rank": int,
    "queue": object,
    "records": int,
    "empty": int,
    "full": int,
    "capacity": int,
    "get_ns": int,
    "push_ns": int,
    "total_ns": int,
}
DATA_PIPELINE: Mapping[str, type] = {
    "rank": int,
    "op": int,
    "type": object,
    "workers": int,
    "parent": int,
    "children": object,
    "samples": int,
    "capacity": int,
    "mean_size": float,
    "usage": float,
    "empty_share": float,
    "cpu_user": float,
    "cpu_system": float,
    "bottleneck": object,
    "advice": object,
}


def data_preparation_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank: bottleneck (processing, sending, none), empty_share of the host queue,
    operations (the ids that limit the pipeline) and cpu_busy (0 to 1)."""
    return Table.of_rows(DATA_PREPARATION, ())


def data_queue_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank and queue (host, device, to device): records, how many found it empty and
    full,
    capacity, and the mean get_ns, push_ns and total_ns of a record."""
    return Table.of_rows(DATA_QUEUES, ())


def data_pipeline_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank and operation of the pipeline."""
    return Table.of_rows(DATA_PIPELINE, ())
