"""What readers find of a simulated run, as tracks by which any two layouts can be compared.

All times are wall time of the run. What a layout does not hold is absent: a table that has no rows
in it, and the attributes that none of its rows gives.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from simulator.model import RankRun, Run
from simulator.writers.mindspore.raw import UNNAMED_TASK
from simulator.writers.mindspore.text import device_ns
from tests.support.profile_shelf import Profile
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.analysis.steps import with_steps
from timeline.columns.columns import Codes
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import GPU, Records, StepPart
from timeline.selection import DETAIL_LAYERS, Selection
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest, Source

Span = tuple[int, int]
"""Start and end."""
Rows = dict[Any, dict[str, Any]]
"""Attributes by what tells a row from the others."""
CLOCKS: dict[str, Callable[[Run, int], int]] = {
    "wall": Run.wall_ns,
    "host": Run.monotonic_ns,
    "device": device_ns,
}
"""What each clock shows at a time of a run."""
MARKS = {"python3": "MSTX"}
"""Exports call the layer of a user's marks after the process."""
MODELS = "Models"
BYTES = {"KB": 1024, "MB/s": 1024**2}
"""Units of counters in bytes, or bytes per second."""


@dataclass(frozen=True)
class RankTracks:
    """What a layout tells of one rank.

    kernels, ops and steps have attributes by span or id; others, planes and calls are rows that
    occur as often as counted; counters are samples by name; totals are those of overlap by step,
    and of the whole run by None.
    """

    rank: RankRun
    clock: str
    records: Records
    kernels: Rows
    others: Multiset[Span]
    ops: Rows
    planes: Multiset[tuple[Any, ...]]
    steps: Rows
    parts: dict[str, Multiset[Span]]
    calls: dict[str, Multiset[tuple[Any, ...]]]
    counters: dict[str, list[tuple[int, float]]]
    totals: dict[int | None, dict[str, int]]

    @property
    def gpu(self) -> bool:
        """Whether the devices are GPUs."""
        return self.records.hardware == GPU


def sources_of(profile: Profile) -> list[Source]:
    """One source per rank; captures that do not tell their rank are given it."""
    assigned = {}
    if all(capture.is_file() and capture.suffix != ".db" for capture in profile.captures):
        assigned = {capture.name: rank for rank, capture in enumerate(profile.captures)}
    return list(discover(profile.path, assigned).sources)


def read_tracks(profile: Profile) -> tuple[str, dict[int, RankTracks]]:
    """The name of the layout, and its tracks by rank."""
    sources = sources_of(profile)
    (name,) = {source.layout for source in sources}
    return name, {
        source.identity.rank: _Reading(profile.run, source).tracks() for source in sources
    }


class _Reading:
    """One rank, read, and the clock it turned out to be on."""

    def __init__(self, run: Run, source: Source) -> None:
        self._run, self._rank = run, run.rank(source.identity.rank)
        self._records = with_steps(
            drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS))), StepOperators()
        )
        self._kernel_of = {
            (run.wall_ns(task.start_ns), run.wall_ns(task.end_ns)): kernel
            for one in self._rank.iterations
            for task, kernel in one.kernels
        }
        self._clock = self._found_clock()
        start_ns = min(task.start_ns for one in self._rank.iterations for task, _ in one.kernels)
        self._offset_ns = run.wall_ns(start_ns) - CLOCKS[self._clock](run, start_ns)

    def _found_clock(self) -> str:
        """The only clock on which everything that computes is where the run has it."""
        run = self._run
        tasks = self._records.tasks
        found = set(tasks.start_ns[tasks.compute].tolist())
        starts = [task.start_ns for one in self._rank.iterations for task, _ in one.kernels]
        (name,) = (
            name
            for name, shown in CLOCKS.items()
            if found <= {shown(run, start_ns) for start_ns in starts}
        )
        return name

    def tracks(self) -> RankTracks:
        return RankTracks(
            self._rank,
            self._clock,
            self._records,
            dict(self._kernels()),
            self._others(),
            dict(self._ops()),
            Multiset(self._planes()),
            dict(self._steps()),
            self._parts(),
            self._calls(),
            dict(self._counters()),
            self._totals(),
        )

    def _spelled(self, codes: Codes) -> list[str]:
        return [self._records.strings[code] for code in codes.tolist()]

    def _spans(self, table: Any) -> list[Span]:
        moved = table.shifted(self._offset_ns)
        return list(zip(moved.start_ns.tolist(), moved.end_ns.tolist(), strict=True))

    def _kernels(self) -> Iterator[tuple[Span, dict[str, Any]]]:
        """Names are those of the framework, or of its graph; a type is not a name.

        The unit that ran a task is no type of operators. On GPUs a type is what launched a kernel.
        """
        tasks = self._records.tasks.take(self._records.tasks.compute)
        gpu = self._records.hardware == GPU
        for span, stream, graph, name, kind, unit, *shapes in zip(
            self._spans(tasks),
            tasks.stream.tolist(),
            tasks.graph.tolist(),
            self._spelled(tasks.name),
            self._spelled(tasks.op_type),
            self._spelled(tasks.task_type),
            self._spelled(tasks.input_shapes),
            self._spelled(tasks.output_shapes),
            strict=True,
        ):
            kernel = self._kernel_of[span]
            yield (
                span,
                given(
                    stream=None if stream == NO_ID else stream,
                    graph=None if graph == NO_GRAPH else graph,
                    name=name if name == kernel.name else None,
                    scope=name if name == kernel.scope else None,
                    op_type=None if gpu or kind == unit else kind,
                    launched_by=kind if gpu else None,
                    input_shapes=shapes[0],
                    output_shapes=shapes[1],
                ),
            )

    def _others(self) -> Multiset[Span]:
        """Without what is no work of a step: profiling itself, and a task of no run."""
        tasks, wall_ns = self._records.tasks, self._run.wall_ns
        switches = ((wall_ns(one.start_ns), wall_ns(one.end_ns)) for one in self._rank.switches)
        made_up = tasks.task == UNNAMED_TASK
        return Multiset(self._spans(tasks.take(~tasks.compute & ~made_up))) - Multiset(switches)

    def _ops(self) -> Iterator[tuple[Span, dict[str, Any]]]:
        """A name of HCCL is the same everywhere; others are made by what wrote the file."""
        ops = self._records.ops
        for span, group, name, count in zip(
            self._spans(ops),
            self._spelled(ops.group),
            self._spelled(ops.name),
            ops.count.tolist(),
            strict=True,
        ):
            yield (
                span,
                given(
                    group=group.split(" ")[:2],
                    name=name if name.startswith("hcom_") else None,
                    count=None if count == NO_ID else count,
                ),
            )

    def _planes(self) -> list[tuple[Any, ...]]:
        planes = self._records.planes
        names = [name.replace("_", " ") for name in self._spelled(planes.name)]
        rows = zip(
            self._spans(planes),
            planes.plane.tolist(),
            names,
            planes.size_bytes.tolist(),
            planes.source_rank.tolist(),
            planes.target_rank.tolist(),
            strict=True,
        )
        return list(rows)

    def _steps(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Windows on the host, or what the device marked, of which some run from end to end.

        The steps of tables that only name them last from their first row to their last.
        """
        steps = self._records.steps.shifted(self._offset_ns)
        end_to_end = steps.start_ns[1:].tolist() == steps.end_ns[:-1].tolist()
        for iteration, host, start_ns, end_ns, fp_ns, bp_ns in zip(
            steps.iteration.tolist(),
            steps.host.tolist(),
            steps.start_ns.tolist(),
            steps.end_ns.tolist(),
            steps.fp_start_ns.tolist(),
            steps.bp_end_ns.tolist(),
            strict=True,
        ):
            if host:
                yield iteration, {"window": (start_ns, end_ns)}
            elif fp_ns == NO_TIME:
                yield iteration, {"rows": (start_ns, end_ns)}
            else:
                start = "end of the step before" if end_to_end else "start"
                yield iteration, {"fp": fp_ns, "bp": bp_ns, "end": end_ns, start: start_ns}

    def _parts(self) -> dict[str, Multiset[Span]]:
        parts = self._records.parts
        return {
            kind.name: Multiset(self._spans(parts.take(parts.kind == kind)))
            for kind in StepPart
            if (parts.kind == kind).any()
        }

    def _calls(self) -> dict[str, Multiset[tuple[Any, ...]]]:
        """By layer; exports to text put the level before the names of CANN's calls.

        Executions of a whole model are no calls, and marks of the user are of no other layer.
        """
        host = self._records.host
        found: dict[str, Multiset[tuple[Any, ...]]] = {}
        names = (name.rpartition("@")[2] for name in self._spelled(host.name))
        layers = (MARKS.get(layer, layer) for layer in self._spelled(host.layer))
        for layer, *row in zip(layers, self._spans(host), host.thread.tolist(), names, strict=True):
            shown_layer = MODELS if row[-1] == "Infer" else layer
            found.setdefault(shown_layer, Multiset())[tuple(row)] += 1
        return found

    def _counters(self) -> Iterator[tuple[str, list[tuple[int, float]]]]:
        """Sizes in bytes, by names that differ between layouts in spelling only."""
        series, samples = self._records.series, self._records.samples
        for row, (name, unit) in enumerate(
            zip(self._spelled(series.name), self._spelled(series.unit), strict=True)
        ):
            of_series = samples.take(samples.series == row)
            times = (of_series.time_ns + self._offset_ns).tolist()
            values = (of_series.value * BYTES.get(unit, 1)).tolist()
            words = name.upper().replace("/", " ")
            label = words.replace(" READ ", " ") if "LLC" in words else words
            yield label, sorted(zip(times, values, strict=True))

    def _totals(self) -> dict[int | None, dict[str, int]]:
        request = RankRequest(Selection(layers=DETAIL_LAYERS), draw=False)
        facts = draw_rank_from_records(self._records, request).facts
        whole = dict(facts.overlap_ns)
        found: dict[int | None, dict[str, int]] = {None: whole}
        for row, step in enumerate(facts.steps.iteration.tolist()):
            found[step] = {name: int(getattr(facts.step_totals, name)[row]) for name in whole}
        return found


def given(**attributes: Any) -> dict[str, Any]:
    """Those that are there."""
    return {name: value for name, value in attributes.items() if value not in (None, "")}
