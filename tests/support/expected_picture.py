"""Everything that a correct picture shows of a run, and of the records that were read of it.

Steps and overlap come from the simulated run; tasks, calls, counters and arrows come from the
records, row by row. Nothing here uses the code that draws.
"""

from __future__ import annotations

import math
from collections import Counter as Multiset
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.model import Iteration, RankRun, Run
from simulator.overlap import (
    COPIES,
    IDLE,
    NOT_OVERLAPPED,
    Segment,
    expected_overlap,
    free_segments,
    overlap_segments,
)
from timeline.analysis.work.code_lines import CodeLines, are_frames, whole_stacks
from timeline.analysis.work.launching_operators import with_launchers
from timeline.analysis.work.operator_names import kernel_type, launched_type, operator_type
from timeline.columns.strings import NO_NAME
from timeline.encoders.drawn_values import round_reals
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID
from timeline.records.tables import (
    GPU,
    CommunicationOps,
    FlowEnd,
    HostEvents,
    PlaneTasks,
    Records,
    Tasks,
)
from timeline.selection import Kind

ALL_RANKS = -1
STEPS = "Steps"
GRAPH_LAYOUTS = frozenset({"mindspore-2.1", "mindstudio", "mindformers"})
"""Layouts whose steps are iterations of graphs; the others have windows on the host."""

DEFAULT_ARGS = {
    "task": "name task_type op_type input_shapes launched_by module line task_id bound bound_share",
    "hccl": "src_rank dst_rank size_bytes bandwidth_gb_s link_type",
    "communication": "count data_type algorithm launched_by module line waited_ns last_rank "
    "transfer_ns "
    "bus_bandwidth_gb_s",
    "overlap": "last_rank op",
    "host": "line call_stack",
}
"""Args that are drawn unless all or none are asked for, by what a slice stands for.

All args of steps are drawn by default.
"""

WAITING = "Waiting"
NO_CODE: Mapping[str, str] = {}
NO_WAITS: Mapping[str, float | None] = {}
WIDTHS = {"FP32": 4}
"""Bytes of the data types that collectives of the run move."""
OVERLAP_ROWS = ["Computing", "Communication", "Exposed communication", "Free"]
OWN_NAMES = {NOT_OVERLAPPED: OVERLAP_ROWS[2]}
"""What the picture calls parts of the overlap, where it is not what the vendor calls them."""


class Arg(NamedTuple):
    """One arg: what its slice stands for, its name and its value."""

    kind: str
    name: str
    value: int | float | str

    def as_drawn(self, *, is_json: bool) -> Arg:
        """The arg as SQL shows it: JSON does not tell what a slice stands for, nor ends lines."""
        if not is_json:
            return self
        value = self.value.replace("\n", "\\n") if isinstance(self.value, str) else self.value
        return self._replace(kind="args", value=value)

    @property
    def default(self) -> bool:
        """Whether it is drawn when nothing is said about args."""
        return self.kind == "step" or self.name in DEFAULT_ARGS[self.kind].split()


class Shown(NamedTuple):
    """One slice: whose, on which row of which layer, when, how long, and its name."""

    rank: int
    layer: str
    row: str
    start_ns: int
    length_ns: int
    name: str
    args: tuple[Arg, ...] = ()

    @property
    def whole_name(self) -> str:
        """The name of the record, of which the slice may show a part."""
        return next((str(arg.value) for arg in self.args if arg.name == "name"), self.name)

    @property
    def bare(self) -> Shown:
        """The slice without its args."""
        return self._replace(args=())


class Wait(NamedTuple):
    """How one rank took part in a collective of several: rows are those of ops, args of its own."""

    rank: int
    row: int
    last_rank: int
    last_row: int
    waited_ns: int
    args: Mapping[str, float | None]


class Counter(NamedTuple):
    """One counter: whose, in which group, its name and unit, and its samples in order of time."""

    rank: int
    group: str
    name: str
    unit: str
    samples: tuple[tuple[int, float], ...]


def rounded(value: float) -> float:
    """A real number as it is drawn."""
    return float(f"{value:.4g}")


def percent(part: int, whole: int) -> int:
    """A share to the nearest percent."""
    return math.floor(part * 100 / whole + 0.5)


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts Plane 2 before Plane 10."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in text.split()]


@dataclass(frozen=True)
class ExpectedPicture:
    """What a picture of a run shows when it is drawn from a profile in one layout."""

    layout: str
    run: Run
    records: Mapping[int, Records]
    kind: Kind

    @cached_property
    def slices(self) -> list[Shown]:
        """All slices, with all args."""
        drawn = [*self._all_ranks()]
        for rank in self.run.ranks:
            drawn += self._iterations(rank) if self._of_graphs else self._host_steps(rank)
            drawn += self._overlap(rank)
            drawn += self._waiting(rank.rank)
            if self.kind is Kind.DETAIL:
                waits = {wait.row: wait.args for wait in self.waits if wait.rank == rank.rank}
                drawn += _detail(with_launchers(self.records[rank.rank]), waits)
        return drawn

    @cached_property
    def waits(self) -> list[Wait]:
        """The waits in all AllReduces that several ranks take part in; they run in one order."""
        met: dict[tuple[str, str, int], dict[int, int]] = {}
        for rank, records in sorted(self.records.items()):
            seen = Multiset[tuple[str, str]]()
            for row in records.ops.start_ns.argsort(kind="stable").tolist():
                name = _name(records, records.ops.name[row])
                key = name, _name(records, records.ops.group_name[row])
                met.setdefault((*key, seen[key]), {})[rank] = row
                seen[key] += 1
        return [wait for rows in met.values() if len(rows) > 1 for wait in self._waits_of(rows)]

    def _waits_of(self, rows: Mapping[int, int]) -> Iterator[Wait]:
        starts = {rank: int(self.records[rank].ops.start_ns[row]) for rank, row in rows.items()}
        last = max(starts, key=starts.__getitem__)
        for rank, row in rows.items():
            ops = self.records[rank].ops
            waited_ns = starts[last] - starts[rank]
            transfer_ns = int(ops.end_ns[row]) - starts[last]
            width = WIDTHS.get(_name(self.records[rank], ops.data_type[row]))
            # In a ring, all but a rank's own part of the data is passed on twice.
            members = _members(self.records[rank])
            moved = 0 if width is None else int(ops.count[row]) * width * 2 * (1 - 1 / members)
            after_ns = starts[rank] - min(starts.values()) if members == len(rows) else None
            args = {
                "waited_ns": waited_ns,
                "last_rank": last,
                "transfer_ns": transfer_ns,
                "arrived_after_first_ns": after_ns,
                "bus_bandwidth_gb_s": rounded(moved / transfer_ns) if moved else None,
            }
            yield Wait(rank, row, last, rows[last], waited_ns, args)

    @cached_property
    def arrows(self) -> list[tuple[Shown, Shown]]:
        """The two ends of each arrow, the earlier one first."""
        if self.kind is Kind.SUMMARY:
            return []
        pairs = [pair for records in self.records.values() for pair in _arrows(records)]
        for wait in self.waits:
            if wait.waited_ns:
                waits = _op(self.records[wait.rank], wait.row).bare
                pairs.append((waits, _op(self.records[wait.last_rank], wait.last_row).bare))
        return pairs

    @cached_property
    def counters(self) -> list[Counter]:
        """All counters with all their samples."""
        if self.kind is Kind.SUMMARY:
            return []
        return [counter for records in self.records.values() for counter in _counters(records)]

    @cached_property
    def first_ns(self) -> int:
        """The earliest moment of the picture."""
        moments = [one.start_ns for one in self.slices]
        return min(moments + [time for one in self.counters for time, _ in one.samples])

    @cached_property
    def rows(self) -> dict[tuple[int, str], list[str]]:
        """The rows of each layer of each rank, everything in drawing order."""
        found: dict[tuple[int, str], list[str]] = {}
        for rank in (rank.rank for rank in self.run.ranks):
            found[rank, "Step Trace"] = (
                ["Iterations", "Data Aug Bound", "Reduce", "GetNext"]
                if self._of_graphs
                else ["ProfilerStep", "Step on device"]
            )
            waited = any(wait.rank == rank and wait.waited_ns for wait in self.waits)
            free = {one.category for one in self._free(rank)}
            parts = [name for name in (COPIES, IDLE) if name in free]
            found[rank, "Overlap Analysis"] = [
                *OVERLAP_ROWS,
                *parts,
                *([WAITING] if waited else []),
            ]
            if self.kind is Kind.DETAIL:
                found |= _detail_rows(self.records[rank])
        return found

    # -- from the run --------------------------------------------------------------------------

    @property
    def _of_graphs(self) -> bool:
        return self.layout in GRAPH_LAYOUTS

    def _time_ns(self, time_ns: int) -> int:
        """A time of the run on the clock of the layout."""
        convert = self.run.monotonic_ns if self.layout == "mindspore-2.1" else self.run.wall_ns
        return convert(time_ns)

    def _all_ranks(self) -> Iterator[Shown]:
        """Each step from the end of the one before to its own on the last rank."""
        stop = 0
        for index, step in enumerate(self.run.ranks[0].steps):
            spans = {rank.rank: self._span(rank, index) for rank in self.run.ranks}
            first = max(stop, min(start for start, _ in spans.values()))
            stop = last = max(end for _, end in spans.values())
            length = {rank: end - start for rank, (start, end) in spans.items()}
            slow, fast = max(length, key=length.__getitem__), min(length, key=length.__getitem__)
            args = {"iteration": step.id}
            if len(spans) > 1:
                args |= {"slowest_rank": slow, "fastest_rank": fast}
                args |= {"slowest_ns": length[slow], "fastest_ns": length[fast]}
                args["spread_percent"] = percent(length[slow] - length[fast], length[fast])
            else:
                args |= self._spent(self.run.ranks[0], step.id)
            begin = self._time_ns(first)
            name = f"Step {step.id}"
            yield Shown(ALL_RANKS, "", STEPS, begin, last - first, name, _args("step", args))

    def _span(self, rank: RankRun, index: int) -> tuple[int, int]:
        return period_of(rank, index, of_graphs=self._of_graphs)

    def _spent(self, rank: RankRun, step: int, graph: int | None = None) -> dict[str, int]:
        """How a step was spent: in nanoseconds, and in percent of its period."""
        parts = expected_overlap(self.run, rank.rank, step, graph)
        span_ns = parts["computing_ns"] + parts["not_overlapped_ns"] + parts["free_ns"]
        free = self._free(rank.rank, step, graph)
        copies_ns = sum(one.duration_ns for one in free if one.category == COPIES)
        if self.records[rank.rank].records_copies:
            parts["copies_ns"] = copies_ns
        parts["idle_ns"] = parts["free_ns"] - copies_ns
        shares = ("not_overlapped", "free", "idle")
        if graph is None:
            at = next(at for at, one in enumerate(rank.steps) if one.id == step)
            begin_ns, end_ns = self._span(rank, at)
        else:
            of_rank = sorted(rank.iterations, key=lambda one: one.end_ns)
            at = next(
                at for at, one in enumerate(of_rank) if (one.number, one.graph) == (step, graph)
            )
            begin_ns, end_ns = (
                of_rank[at - 1].end_ns if at else of_rank[0].start_ns,
                of_rank[at].end_ns,
            )
        period_ns = end_ns - begin_ns
        return {
            "period_ns": period_ns,
            "span_ns": span_ns,
            **parts,
            **{f"{name}_percent": percent(parts[f"{name}_ns"], period_ns) for name in shares},
        }

    def _host_steps(self, rank: RankRun) -> Iterator[Shown]:
        for step in rank.steps:
            ids = {"iteration": step.id, **self._spent(rank, step.id)}
            host, device = "ProfilerStep", "Step on device"
            span = step.host_start_ns, step.host_end_ns
            yield self._step(rank, host, span, f"ProfilerStep#{step.id}", ids)
            span = step.device_start_ns, step.device_end_ns
            yield self._step(rank, device, span, f"Step {step.id}", ids)

    def _iterations(self, rank: RankRun) -> Iterator[Shown]:
        reduces = 0
        for one in rank.iterations:
            ids = {"graph": one.graph, "iteration": one.number}
            totals = self._spent(rank, one.number, one.graph)
            forward, backward = one.forward_start_ns, one.backward_end_ns
            row = "Iterations"
            yield self._step(rank, row, (one.start_ns, one.end_ns), self._name(one), ids | totals)
            yield self._step(rank, row, (forward, backward), "FP/BP", ids)
            yield self._step(rank, row, (backward, one.end_ns), "Iteration Refresh", ids)
            ends = [other.end_ns for other in rank.iterations if other.end_ns < forward]
            if ends:
                row = "Data Aug Bound"
                yield self._step(rank, row, (max(ends), forward), row, ids)
            yield self._step(rank, "GetNext", one.next_data_ns, "GetNext 0", ids)
            if self.layout == "mindspore-2.1":  # numbers the reduces of each iteration anew
                reduces = 0
            for number, collective in enumerate(one.collectives, reduces):
                name = f"Reduce {number}"
                yield self._step(
                    rank, "Reduce", (collective.start_ns, collective.end_ns), name, ids
                )
            reduces += len(one.collectives)

    def _name(self, one: Iteration) -> str:
        name = f"Iteration {one.number}"
        return f"Graph {one.graph} {name}" if len(self.run.graphs) > 1 else name

    def _step(
        self, rank: RankRun, row: str, span: tuple[int, int], name: str, ids: Mapping[str, int]
    ) -> Shown:
        begin, length, args = self._time_ns(span[0]), span[1] - span[0], _args("step", ids)
        return Shown(rank.rank, "Step Trace", row, begin, length, name, args)

    def _overlap(self, rank: RankRun) -> Iterator[Shown]:
        for one in (*overlap_segments(self.run, rank.rank), *self._free(rank.rank)):
            begin, row = self._time_ns(one.start_ns), OWN_NAMES.get(one.category, one.category)
            yield Shown(rank.rank, "Overlap Analysis", row, begin, one.duration_ns, row)

    def _free(self, rank: int, step: int | None = None, graph: int | None = None) -> list[Segment]:
        """What free time consists of, as far as the layout tells."""
        copies = self.records[rank].records_copies
        return free_segments(self.run, rank, step, graph, copies=copies)

    def _waiting(self, rank: int) -> Iterator[Shown]:
        for wait in self.waits:
            if wait.rank == rank and wait.waited_ns:
                op = _op(self.records[rank], wait.row)
                yield Shown(
                    rank,
                    "Overlap Analysis",
                    WAITING,
                    op.start_ns,
                    wait.waited_ns,
                    f"Waiting for rank {wait.last_rank}",
                    _args("overlap", {"last_rank": wait.last_rank}, {"op": op.name}),
                )


# -- from the records --------------------------------------------------------------------------


def _members(records: Records) -> int:
    """How many ranks are in the one group of a run: its HCCL tasks talk to all of them."""
    return int(records.planes.target_rank.max()) + 1


def _detail(records: Records, waits: Mapping[int, Mapping[str, float | None]]) -> Iterator[Shown]:
    """All slices of a rank's records; waits are args of its ops, by their row."""
    for draw, table in ((_task, records.tasks), (_plane, records.planes)):
        for row in range(len(table)):
            yield draw(records, row)
    code = _code_of_calls(records)
    for row in range(len(records.host)):
        yield _call(records, row, code[row])
    for row in range(len(records.ops)):
        yield _op(records, row, waits.get(row, {}))


def _task(records: Records, row: int) -> Shown:
    table = records.tasks
    name = _name(records, table.name[row])
    is_gpu = records.hardware == GPU
    kind = _name(records, table.op_type[row])
    kind = (launched_type(kind) if is_gpu else kind) or (kernel_type if is_gpu else operator_type)(
        name
    )
    called = kind if table.compute[row] and kind else name
    names = {
        "name": name if name != called else "",
        "task_type": _name(records, table.task_type[row]),
        "op_type": _name(records, table.op_type[row]),
        "input_shapes": _name(records, table.input_shapes[row]),
        "launched_by": _name(records, table.launched_by[row]),
        "module": _name(records, table.module[row]),
        "line": _name(records, table.line[row]),
        "output_shapes": _name(records, table.output_shapes[row]),
        "input_types": _name(records, table.input_types[row]),
    }
    numbers = {
        "task_id": _given(table.task[row]),
        "graph": _given(table.graph[row], NO_GRAPH),
        "stream_id": _given(table.stream[row]),
        "batch_id": _given(table.batch[row]),
        "context_id": _given(table.context[row], NO_CONTEXT),
        "connection_id": _given(table.connection[row]),
        "blocks": _given(table.blocks[row]),
        **_metrics(records, int(table.metrics[row])),
    }
    label, args = f"Stream {table.stream[row]}", _args("task", numbers, names)
    return _shown(records, "Ascend Hardware", label, table, row, args)._replace(name=called)


def _metrics(records: Records, row: int) -> dict[str, float | None]:
    """What the cores measured of a kernel; the profiles made here hold no ratios of pipes."""
    if row == NO_ID:
        return {}
    shown = dict[str, float | None]()
    for name, values in records.metrics.columns.items():
        value = float(values[row])
        is_whole = all(one == int(one) for one in values[~np.isnan(values)].tolist())
        if math.isnan(value):
            shown[name] = None
        else:
            shown[name] = int(value) if is_whole else float(round_reals(np.array([value]))[0])
    return shown


def _op(records: Records, row: int, waits: Mapping[str, float | None] = NO_WAITS) -> Shown:
    table = records.ops
    names = {
        "data_type": _name(records, table.data_type[row]),
        "algorithm": _name(records, table.algorithm[row]),
        "launched_by": _name(records, table.launched_by[row]),
        "module": _name(records, table.module[row]),
        "line": _name(records, table.line[row]),
    }
    numbers = {
        "count": _given(table.count[row]),
        "graph": _given(table.graph[row], NO_GRAPH),
        "connection_id": _given(table.connection[row]),
        **waits,
    }
    label = f"{_name(records, table.group[row])} Communication"
    args = _args("communication", numbers, names)
    return _shown(records, "Communication", label, table, row, args)


def _plane(records: Records, row: int) -> Shown:
    table = records.planes
    moves = bool(table.size_bytes[row] > 0)
    bandwidth = float(table.bandwidth[row])
    names = {
        "link_type": _name(records, table.link[row]),
        "transport_type": _name(records, table.transport[row]),
        "data_type": _name(records, table.data_type[row]),
        "op": _name(records, table.op[row]),
        "notify_id": _name(records, table.notify[row]),
    }
    numbers = {
        "src_rank": _given(table.source_rank[row]),
        "dst_rank": _given(table.target_rank[row], NO_ID),
        "size_bytes": int(table.size_bytes[row]) if moves else None,
        "bandwidth_gb_s": rounded(bandwidth) if moves and not math.isnan(bandwidth) else None,
        "stream_id": _given(table.stream[row]),
        "task_id": _given(table.task[row]),
        "context_id": _given(table.context[row], NO_CONTEXT),
        "graph": _given(table.graph[row], NO_GRAPH),
    }
    label = f"{_name(records, table.group[row])} Plane {table.plane[row]}"
    return _shown(records, "Communication", label, table, row, _args("hccl", numbers, names))


def _code_of_calls(records: Records) -> list[dict[str, str]]:
    """The line and the stack of each host call; tests of those prove them by themselves."""
    host, strings = records.host, records.strings
    rows = np.arange(len(host))
    calls = rows[~are_frames(host, strings)]
    lines = np.full(len(host), NO_NAME, np.int32)
    lines[calls] = CodeLines(host, strings).of(calls)
    stacks = whole_stacks(host, calls, strings)
    return [
        {"line": strings[line], "call_stack": strings[stack]}
        for line, stack in zip(lines.tolist(), stacks.tolist(), strict=True)
    ]


def _call(records: Records, row: int, code: Mapping[str, str] = NO_CODE) -> Shown:
    table = records.host
    numbers = {
        "connection_id": _given(table.connection[row]),
        "process_id": _given(table.process[row]),
        "sequence": _given(table.sequence[row]),
    }
    layer, label = _name(records, table.layer[row]), f"Thread {table.thread[row]}"
    names = {
        "level": _name(records, table.level[row]),
        "input_shapes": _name(records, table.shapes[row]),
        "input_types": _name(records, table.input_types[row]),
        **code,
    }
    args = _args("host", numbers, names)
    return _shown(records, layer, label, table, row, args)


def _shown(
    records: Records,
    layer: str,
    label: str,
    table: Tasks | CommunicationOps | PlaneTasks | HostEvents,
    row: int,
    args: tuple[Arg, ...],
) -> Shown:
    start, end = int(table.start_ns[row]), int(table.end_ns[row])
    name = _name(records, table.name[row])
    return Shown(records.rank, layer, label, start, end - start, name, args)


def _name(records: Records, code: int) -> str:
    return records.strings[int(code)]


def _given(value: int, absent: int = NO_ID) -> int | None:
    return None if value == absent else int(value)


def _args(
    kind: str, numbers: Mapping[str, float | None], names: Mapping[str, str] | None = None
) -> tuple[Arg, ...]:
    """Args in order of their names, without those that are not given."""
    held: dict[str, float | str | None] = {**numbers, **(names or {})}
    return tuple(
        Arg(kind, name, value) for name, value in sorted(held.items()) if value not in (None, "")
    )


def _arrows(records: Records) -> Iterator[tuple[Shown, Shown]]:
    flows = records.flows
    for ends in zip(
        flows.source_kind.tolist(),
        flows.source_row.tolist(),
        flows.target_kind.tolist(),
        flows.target_row.tolist(),
        strict=True,
    ):
        pair = _arrow_end(records, *ends[:2]).bare, _arrow_end(records, *ends[2:]).bare
        yield pair if pair[0].start_ns <= pair[1].start_ns else pair[::-1]


def _arrow_end(records: Records, kind: int, row: int) -> Shown:
    draw = {FlowEnd.HOST: _call, FlowEnd.TASK: _task, FlowEnd.OP: _op, FlowEnd.PLANE: _plane}
    return draw[FlowEnd(kind)](records, row)


def _counters(records: Records) -> Iterator[Counter]:
    series, samples = records.series, records.samples
    held: dict[int, list[tuple[int, float]]] = {}
    for row, time, value in zip(
        samples.series.tolist(), samples.time_ns.tolist(), samples.value.tolist(), strict=True
    ):
        held.setdefault(row, []).append((time, value))
    for row in range(len(series)):
        label = (_name(records, series.group[row]), _name(records, series.name[row]))
        unit = _name(records, series.unit[row])
        yield Counter(records.rank, *label, unit, tuple(sorted(held.get(row, []))))


def _detail_rows(records: Records) -> dict[tuple[int, str], list[str]]:
    drawn = list(_detail(records, {}))
    layers = {one.layer for one in drawn}
    above, below = ["Ascend Hardware", "Communication"], ["CANN"]
    found = {
        (records.rank, layer): sorted({one.row for one in drawn if one.layer == layer}, key=natural)
        for layer in [*above, *sorted(layers - {*above, *below}), *below]
        if layer in layers
    }
    counters = sorted(_counters(records), key=_place_of_counter)
    if counters:
        found[records.rank, "Counters"] = [f"{one.group} / {one.name}" for one in counters]
    return found


def _place_of_counter(one: Counter) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    return natural(one.group), natural(one.name)


def period_of(rank: RankRun, index: int, *, of_graphs: bool) -> tuple[int, int]:
    """The period of a step of a rank, by its place: from the end of the one before to its own.

    of_graphs: whether the device marks its iterations, and not the host its steps.
    """
    step = rank.steps[index]
    if of_graphs:
        start_ns, end_ns = step.iterations[0].start_ns, step.iterations[-1].end_ns
    else:
        start_ns = min(step.host_start_ns, step.device_start_ns)
        end_ns = max(step.host_end_ns, step.device_end_ns)
    return period_of(rank, index - 1, of_graphs=of_graphs)[1] if index else start_ns, end_ns
