"""Turns a trace of PyTorch's own profiler on GPU into a source of records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timeline.columns.strings import StringPool
from timeline.records.tables import Records
from timeline.sources.kineto_header import read_header
from timeline.sources.kineto_reader import read_kineto
from timeline.sources.source import Clock, Identity, Wanted

__all__ = ["KinetoSource"]


@dataclass(frozen=True)
class KinetoSource:
    """`*.pt.trace.json` of tensorboard_trace_handler, or what export_chrome_trace wrote."""

    identity: Identity
    clock: Clock
    trace: Path
    layout: str = "PyTorch trace"

    @property
    def files(self) -> tuple[Path, ...]:
        """The trace, which may be packed."""
        return (self.trace,)

    def read(self, wanted: Wanted) -> Records:
        """See `Source.read`."""
        base_ns = read_header(self.trace).base_ns
        return read_kineto(self.trace, self.identity.rank, base_ns, StringPool(), wanted)
