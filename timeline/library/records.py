"""Tables of single tasks and host calls, which are read for each call and not kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from timeline.declarations import with_keywords
from timeline.figures.table import Table
from timeline.keywords import SelectionKeywords
from timeline.library.measure import read_known
from timeline.library.open_profile import ALWAYS_ASKED, OpenProfile
from timeline.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Unpack


class RecordTables(OpenProfile):
    """Tables of single tasks and host calls, which are read for each call and not kept."""

    @with_keywords(SelectionKeywords, Selection)
    def tasks(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per device task, by rank and start.

        Columns: rank, graph, step, device, stream, task (its id on the device), role (computing,
        communication: a task of HCCL within a communication op, copy or other), type (as in
        `operators`), name, core (what ran it), start_ns (on the clock that all ranks share),
        duration_ns, launch_ns (when the host launched it), call (the number of that call in
        `host_calls` of the same selection), launched_by and operator (the outermost and the
        innermost operator of the framework around the launch), module, phase, shapes (of inputs),
        size_bytes (of copies). Unknown values are masked or None. Tasks that overlap in time count
        twice in a sum of durations; `overlap` counts them once. They are read again each time:
        select some steps of a large profile.

        Raises:
            TimelineError: as `overlap`.
        """
        from timeline.figures.single_tables import task_table

        asked = replace(ALWAYS_ASKED, every_task=True)
        return task_table(read_known(*self._reader, self._chosen(selection, keywords), asked).facts)

    @with_keywords(SelectionKeywords, Selection)
    def host_calls(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return a row per host call that touches the time of the selection, by rank and start.

        Columns: rank, call (its number, as in `tasks`), graph, step (as recorded, or the step of
        the host in which it began), layer (the caller: CANN, Python, PyTorch, Runtime, ...),
        process, thread, name, level, start_ns (on the clock that all ranks share), duration_ns.
        Calls lie inside others, so durations do not add up. Unknown values are masked or None. They
        are read again each time, as `tasks`.

        Raises:
            TimelineError: as `overlap`.
        """
        from timeline.figures.single_tables import call_table

        asked = replace(ALWAYS_ASKED, every_call=True)
        return call_table(read_known(*self._reader, self._chosen(selection, keywords), asked).facts)
