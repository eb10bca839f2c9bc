"""The raw log of the AI CPUs, as MindSpore 0.x and 1.x leave it."""

from __future__ import annotations

from pathlib import Path

from simulator.model import RankRun, Run
from simulator.writers.mindspore.text import TextFiles, tick

DISPATCH_US = 4
TICKS_IN_MICROSECOND = 100
THREADS = 3


def write_aicpu_log(run: Run, rank: RankRun, profiler: Path) -> None:
    """Write DATA_PREPROCESS.dev.AICPU: a record of each operator, and one of its thread."""
    records = []
    for number, (task, kernel) in enumerate(TextFiles(run, rank, profiler).kernels(on_cpu=True)):
        start, end = tick(run, task.start_ns), tick(run, task.end_ns)
        start_us, end_us = (at // TICKS_IN_MICROSECOND for at in (start, end))
        asked = start - DISPATCH_US * TICKS_IN_MICROSECOND
        total_us = (end - asked) // TICKS_IN_MICROSECOND
        records.append(
            f"[{start_us - 1}] Node:{kernel.scope}, Run start:{start_us} {start}, "
            f"compute start:{start_us}, memcpy start:{end_us}, memcpy end:{end_us}, "
            f"Run end:{end_us} {end}"
        )
        records.append(
            f"Thread[{number % THREADS:2}] process device[0]:aicpu[ 0] task end, "
            f"tickDrvTopHalf={asked},tickDrvBottomHalf={asked + 9}, tickBeforeRun={start},"
            f"tickAfterRun={end}, dispatchTime={DISPATCH_US} us, totalTime={total_us} us."
        )
    path = profiler / f"DATA_PREPROCESS.dev.AICPU.{rank.rank}.slice_0"
    path.write_bytes("".join(f"{record}\0" for record in records).encode())
