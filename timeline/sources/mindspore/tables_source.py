"""Source of a rank of MindSpore of which small tables alone are left."""

from __future__ import annotations

from pathlib import Path

from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.layers import Layer
from timeline.records.tables import Records
from timeline.sources.files.opened import find_file
from timeline.sources.mindspore.format import MINDSPORE_TABLES, table_ids
from timeline.sources.mindspore.hccl_files import find_hccl_files
from timeline.sources.mindspore.records_builder import RecordsBuilder
from timeline.sources.mindspore.step_ticks import read_step_ticks
from timeline.sources.source import Clock, Identity, ReadRequest

__all__ = ["MindSporeTablesSource"]

_WITH_STEPS = "MindSpore step trace"


@dataclass(frozen=True)
class MindSporeTablesSource:
    """The small tables of one id in a directory; of these it reads the steps of the step trace,
    and the tasks of communication beside it.

    The other tables are read as those beside any capture are. number: the id in names of files.
    """

    identity: Identity
    clock: Clock
    directory: Path
    number: int

    @property
    def layout(self) -> str:
        """MindSpore step trace, or MindSpore tables where there is none."""
        return MINDSPORE_TABLES.name if self._step_trace is None else _WITH_STEPS

    @property
    def files(self) -> tuple[Path, ...]:
        """The step trace and the tasks of communication, as far as they are there."""
        steps = () if self._step_trace is None else (self._step_trace,)
        return (*steps, *self._hccl_files)

    @property
    def _hccl_files(self) -> tuple[Path, ...]:
        return find_hccl_files(self.directory, self.number, lambda: table_ids(self.directory))

    @property
    def _step_trace(self) -> Path | None:
        return find_file(self.directory, f"step_trace_raw_{self.number}_detail_time.csv")

    def read(self, wanted: ReadRequest) -> Records:
        """Read the steps, their reduces, and what HCCL recorded of them.

        Raises:
            SourceError: a file cannot be read.
        """
        strings, rank = StringPool(), self.identity.rank
        path = self._step_trace
        empty = Records(rank, strings, tells_copies=False, tables_only=True)
        builder = RecordsBuilder(empty)
        if path is not None:
            builder.add_steps(read_step_ticks(path, strings, rank))
        builder.add_hccl(self._hccl_files, with_planes=Layer.COMMUNICATION in wanted.layers)
        return builder.build()
