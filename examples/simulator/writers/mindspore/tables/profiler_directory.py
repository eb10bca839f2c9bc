"""A `profiler` directory of MindSpore that holds small tables and no timeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from simulator.model import RankRun, Run
from simulator.writers.mindspore.tables.aicpu_log import write_aicpu_log
from simulator.writers.mindspore.tables.cluster import write_cluster
from simulator.writers.mindspore.tables.data_preparation import write_data_preparation
from simulator.writers.mindspore.tables.flops import write_flops
from simulator.writers.mindspore.tables.memory_graphs import write_memory_graphs
from simulator.writers.mindspore.tables.operators import write_dynamic_shapes, write_operator_sums
from simulator.writers.mindspore.text import TextFiles

TopicWriter = Callable[[Run, RankRun, Path], None]
"""Writes the files of one topic for one rank.

Its arguments are the whole run, the rank, and the `profiler` directory, which exists and which all
ranks share. The names of files hold the number of the rank. Values come from the run, or are the
same for any run.
"""


def write_step_trace(run: Run, rank: RankRun, profiler: Path) -> None:
    """Write the step trace: a row per step and their mean, in ticks of the device's counter, and
    the operators at which forward begins and backward ends."""
    files = TextFiles(run, rank, profiler)
    files.step_trace()
    files.step_points()


TOPICS: tuple[TopicWriter, ...] = (
    write_step_trace,
    write_flops,
    write_data_preparation,
    write_aicpu_log,
    write_cluster,
    write_operator_sums,
    write_dynamic_shapes,
    write_memory_graphs,
)
"""The writers of all topics, from the modules of this folder."""


def write_mindspore_tables(
    run: Run, directory: str | Path, *, topics: tuple[TopicWriter, ...] = TOPICS
) -> list[Path]:
    """Write one `profiler` directory that all ranks share, and return it once per rank.

    It holds the files that MindSpore 2.0 writes, except the timeline. topics: writers of the files;
    with only topics that record no times, the profile has nothing to draw.
    """
    profiler = Path(directory) / "profiler"
    profiler.mkdir(parents=True, exist_ok=True)
    for rank in run.ranks:
        for write in topics:
            write(run, rank, profiler)
    return [profiler] * len(run.ranks)
