"""Painters of the detail, from tasks to arrows, and the drawing of all layers of one rank."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from timeline.analysis.rank_facts import holds_any
from timeline.analysis.scopes import find_scopes
from timeline.analysis.selected_rank import DrawOptions, Missing, SelectedRank
from timeline.analysis.work.code_lines import CodeLines, are_frames, whole_stacks
from timeline.analysis.work.kernel_bounds import LATENCY, bound_of_each
from timeline.analysis.work.operators import task_flops, task_labels
from timeline.columns.chunks import compute_in_chunks
from timeline.columns.columns import Float64, Int64, Rows, take
from timeline.columns.distinct import NO_ROWS, distinct, rows_by_value
from timeline.columns.strings import NO_NAME
from timeline.errors import format_ids
from timeline.layers import LAYERS, Layer, SliceKind
from timeline.records.kernel_metrics import PIPES
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID
from timeline.records.tables import (
    AI_CPU,
    RUNTIME_LAYERS,
    CommunicationOps,
    FlowEnd,
    Omission,
    OmissionCode,
    PlaneTasks,
    Records,
    Tasks,
)
from timeline.tracks import descriptions, summary
from timeline.tracks.model import Samples
from timeline.tracks.painter import (
    NOT_DRAWN,
    ArgColumn,
    LayerDrawing,
    Painter,
    PaintLayer,
    SliceTable,
    integers,
    names,
    numbers,
    sizes,
)
from timeline.tracks.partition import paint_partition
from timeline.tracks.rank_tracks import RankTracks
from timeline.units import format_count


def _paint_hardware(drawing: LayerDrawing) -> None:
    painter, records = drawing.painter, drawing.rank.detail
    parent, tasks = drawing.add_row(records.hardware), records.tasks
    labels = task_labels(records)
    # What a label hides: viewers cut names, of which those of one network begin alike.
    hidden = compute_in_chunks(
        np.int32, lambda name, label: np.where(name == label, NO_NAME, name), tasks.name, labels
    )
    every = SliceTable(
        tasks.start_ns,
        tasks.end_ns,
        labels,
        SliceKind.TASK,
        [
            names("name", hidden),
            *_task_args(tasks),
            *_flop_args(records),
            *_metric_args(painter, records),
        ],
        FlowEnd.TASK,
    )
    for order, (stream, rows) in enumerate(rows_by_value(tasks.stream)):
        label = f"Stream {stream}" if stream != NO_ID else "Stream not given"
        drawn = replace(every, rows=rows)
        painter.add_flat_row(label, parent, order, drawn, descriptions.HARDWARE)


def _task_args(tasks: Tasks) -> list[ArgColumn]:
    return [
        names("task_type", tasks.task_type),
        names("op_type", tasks.op_type),
        names("input_shapes", tasks.input_shapes),
        names("launched_by", tasks.launched_by),
        names("module", tasks.module),
        names("line", tasks.line),
        integers("task_id", tasks.task, NO_ID),
        integers("graph", tasks.graph, NO_GRAPH, default=False),
        integers("stream_id", tasks.stream, NO_ID, default=False),
        integers("batch_id", tasks.batch, NO_ID, default=False),
        integers("context_id", tasks.context, NO_CONTEXT, default=False),
        integers("connection_id", tasks.connection, NO_ID, default=False),
        integers("blocks", np.where(tasks.blocks > 0, tasks.blocks, NO_ID), NO_ID, default=False),
        names("output_shapes", tasks.output_shapes, default=False),
        names("input_types", tasks.input_types, default=False),
        integers("size_bytes", tasks.size_bytes, NO_ID, default=False),
        integers("occupancy_percent", tasks.occupancy, NO_ID, default=False),
    ]


def _flop_args(records: Records) -> list[ArgColumn]:
    """Return args with the floating-point operations of the operators that tasks are named after.

    Rates and shares of the peak are means over the runs of an operator. Empty if not recorded.
    """
    flops, named = task_flops(records), records.tasks.name
    if flops is None:
        return []
    return [
        integers("flop", flops.flop[named], NO_ID),
        integers("flop_per_s", flops.flop_per_s[named], NO_ID),
        numbers("utilization", flops.utilization[named]),
        numbers("cube_utilization", flops.cube_utilization[named]),
        numbers("vector_utilization", flops.vector_utilization[named]),
    ]


def _metric_args(painter: Painter, records: Records) -> list[ArgColumn]:
    """Return what bounds each kernel, and on demand all that the cores measured, if anything."""
    metrics, strings = records.metrics, records.strings
    if not len(metrics):
        return []
    row = records.tasks.metrics
    measured, at = row != NO_ID, np.maximum(row, 0)
    pipe, share = bound_of_each(metrics)
    codes = strings.codes([*PIPES, LATENCY])
    is_bound = measured & ~np.isnan(share[at])
    args = [
        names("bound", np.where(is_bound, codes[pipe[at]], np.int32(NO_NAME))),
        numbers("bound_share", np.where(measured, share[at], np.nan)),
    ]
    if painter.wants(numbers("any", share, default=False)):
        args += [
            _metric_arg(name, np.where(measured, values[at], np.nan))
            for name, values in metrics.recorded().columns.items()
        ]
    return args


LARGEST_EXACT = 1 << 53
"""A float64 holds each whole number below this."""


def _metric_arg(name: str, values: Float64) -> ArgColumn:
    """Return the arg of one metric; whole numbers, such as cycles, are not rounded."""
    given = ~np.isnan(values)
    some = values[given]
    if ((some == np.rint(some)) & (np.abs(some) < LARGEST_EXACT)).all():
        whole = np.where(given, values, NO_ID).astype(np.int64)
        return integers(name, whole, NO_ID, default=False)
    return numbers(name, values, default=False)


def _paint_communication(drawing: LayerDrawing) -> None:
    """Draw the groups: the communication ops of each above its planes."""
    painter, records, parent = drawing.painter, drawing.rank.detail, drawing.add_row()
    ops, planes, strings = records.ops, records.planes, records.strings
    every_op = SliceTable(
        ops.start_ns, ops.end_ns, ops.name, SliceKind.COMMUNICATION_OP, _op_args(ops), FlowEnd.OP
    )
    every_task = SliceTable(
        planes.start_ns,
        planes.end_ns,
        planes.name,
        SliceKind.HCCL_TASK,
        _plane_args(planes),
        FlowEnd.PLANE,
    )
    ops_of, planes_of = dict(rows_by_value(ops.group)), dict(rows_by_value(planes.group))
    groups = sorted(ops_of.keys() | planes_of.keys())
    for order, group in enumerate(sorted(groups, key=lambda code: natural_order(strings[code]))):
        op_rows, plane_rows = ops_of.get(group, NO_ROWS), planes_of.get(group, NO_ROWS)
        label = strings[group]
        inside = {strings[code] for code in distinct(ops.group_name[op_rows]).tolist()} - {""}
        called = descriptions.communication_group(", ".join(sorted(inside)))
        folder = painter.add_group(label, parent, order, called)
        meaning = descriptions.OPS_ABOVE_PLANES if len(plane_rows) else descriptions.OPS
        painter.add_flat_row(
            f"{label} Communication", folder, 0, replace(every_op, rows=op_rows), meaning
        )
        for position, (plane, rows) in enumerate(rows_by_value(planes.plane[plane_rows]), 1):
            drawn = replace(every_task, rows=plane_rows[rows])
            label = f"Plane {plane}" if plane != NO_ID else "Plane not given"
            painter.add_flat_row(label, folder, position, drawn, descriptions.PLANE)


def _op_args(ops: CommunicationOps) -> list[ArgColumn]:
    return [
        integers("count", ops.count, NO_ID),
        names("data_type", ops.data_type),
        names("algorithm", ops.algorithm),
        names("launched_by", ops.launched_by),
        names("module", ops.module),
        names("line", ops.line),
        integers("graph", ops.graph, NO_GRAPH, default=False),
        integers("connection_id", ops.connection, NO_ID, default=False),
    ]


def _plane_args(planes: PlaneTasks) -> list[ArgColumn]:
    moved_at = np.where(planes.size_bytes > 0, planes.bandwidth, np.nan)
    return [
        integers("src_rank", planes.source_rank, NO_ID),
        integers("dst_rank", planes.target_rank, NO_ID),
        sizes("size_bytes", planes.size_bytes),
        numbers("bandwidth_gb_s", moved_at),
        names("link_type", planes.link),
        names("transport_type", planes.transport, default=False),
        names("data_type", planes.data_type, default=False),
        names("op", planes.op, default=False),
        names("notify_id", planes.notify, default=False),
        integers("stream_id", planes.stream, NO_ID, default=False),
        integers("task_id", planes.task, NO_ID, default=False),
        integers("context_id", planes.context, NO_CONTEXT, default=False),
        integers("graph", planes.graph, NO_GRAPH, default=False),
    ]


def _paint_runtime(drawing: LayerDrawing) -> None:
    """Draw the host layers whose calls launch tasks, each on a row of its own."""
    for name, rows in _host_layers(drawing.rank.detail, runtime=True):
        _paint_host_layer(drawing, drawing.add_row(name), rows)


def _paint_framework(drawing: LayerDrawing) -> None:
    """Draw all other host layers, one after another."""
    for position, (name, rows) in enumerate(_host_layers(drawing.rank.detail, runtime=False)):
        description = descriptions.AI_CPU if name == AI_CPU else ""
        _paint_host_layer(drawing, drawing.add_row(name, position, description), rows)


def _host_layers(records: Records, *, runtime: bool) -> list[tuple[str, Rows]]:
    """Return the host layers that are (or are not) runtimes: their names and rows, by name."""
    strings, runtimes = records.strings, {records.strings.find(name) for name in RUNTIME_LAYERS}
    layers = distinct(records.host.layer)
    wanted = layers[np.array([(code in runtimes) is runtime for code in layers.tolist()], bool)]
    rows_of = {strings[code]: rows for code, rows in rows_by_value(records.host.layer, wanted)}
    return [(name, rows_of[name]) for name in sorted(rows_of, key=natural_order)]


def _paint_host_layer(drawing: LayerDrawing, parent: int, layer: Rows) -> None:
    painter, records = drawing.painter, drawing.rank.detail
    host = records.host
    every = SliceTable(
        host.start_ns,
        host.end_ns,
        host.name,
        SliceKind.HOST_CALL,
        [
            names("level", host.level, default=False),
            integers("connection_id", host.connection, NO_ID, default=False),
            integers("process_id", host.process, NO_ID, default=False),
            *_code_args(records, layer),
        ],
        FlowEnd.HOST,
    )
    for order, (thread, calls) in enumerate(rows_by_value(take(host.thread, layer))):
        drawn = replace(every, rows=take(layer, calls))
        painter.add_nested_row(
            f"Thread {thread}" if thread != NO_ID else "Thread not given",
            parent,
            order,
            drawn,
            descriptions.THREAD,
        )


def _code_args(records: Records, rows: Rows) -> list[ArgColumn]:
    """Return the args of host calls at some rows: their code and their inputs."""
    host, strings = records.host, records.strings
    lines = np.full(len(host), NO_NAME, np.int32)
    calls = rows[~are_frames(host, strings)[rows]]
    lines[calls] = CodeLines(host, strings).of(calls)
    return [
        names("line", lines),
        names("call_stack", whole_stacks(host, calls, strings)),
        names("input_shapes", host.shapes, default=False),
        names("input_types", host.input_types, default=False),
        integers("sequence", host.sequence, NO_ID, default=False),
    ]


def _paint_scopes(drawing: LayerDrawing) -> None:
    painter, records, parent = drawing.painter, drawing.rank.detail, drawing.add_row()
    tasks, strings = records.tasks, records.strings
    for order, (stream, rows) in enumerate(rows_by_value(tasks.stream)):
        scoped = rows[np.array(["/" in strings[code] for code in tasks.name[rows].tolist()], bool)]
        if len(scoped):
            scopes = find_scopes(
                tasks.start_ns[scoped], tasks.end_ns[scoped], tasks.name[scoped], strings
            )
            drawn = SliceTable(
                scopes.start_ns,
                scopes.end_ns,
                scopes.name,
                SliceKind.SCOPE,
                [integers("level", scopes.level)],
            )
            label = f"Stream {stream}" if stream != NO_ID else "Stream not given"
            painter.add_nested_row(label, parent, order, drawn, descriptions.SCOPES)


def _paint_missing(drawing: LayerDrawing) -> None:
    """Draw a slice for each stretch of time whose detail was left out, if any."""
    strings, missing = drawing.rank.detail.strings, drawing.rank.missing
    if not missing:
        return

    def column(field: str) -> Int64:
        return np.array([getattr(stretch, field) for stretch in missing], np.int64)

    drawn = SliceTable(
        column("start_ns"),
        column("end_ns"),
        strings.codes(map(_name_missing, missing)),
        SliceKind.NOTE,
        [integers(field, column(field)) for field in ("tasks", "hccl_tasks", "host_calls")],
    )
    drawing.painter.add_flat_row(
        "Detail left out", drawing.add_row(), 0, drawn, descriptions.NOT_IN_THIS_FILE
    )


def _name_missing(missing: Missing) -> str:
    which = f"steps {format_ids(missing.steps)}" if missing.steps else "the rest"
    return f"{which}: {format_count(missing.tasks, 'task')} not in this file"


def _paint_counters(drawing: LayerDrawing) -> None:
    painter, records, parent = drawing.painter, drawing.rank.detail, drawing.add_row()
    series, samples, strings = records.series, records.samples, records.strings
    groups, rows_of = dict(rows_by_value(series.group)), dict(rows_by_value(samples.series))
    for order, group in enumerate(sorted(groups, key=lambda code: natural_order(strings[code]))):
        label = strings[group]
        folder = painter.add_group(label, parent, order, descriptions.counter_group(label))
        named = {row: strings[int(series.name[row])] for row in groups[group].tolist()}
        for place, (family, rows) in enumerate(counter_families(named)):
            above = folder
            if family:
                described = descriptions.counter_family(family, label)
                above = painter.add_group(family, folder, place, described)
            for position, row in enumerate(rows):
                at = rows_of.get(row, NO_ROWS)
                at = at[np.argsort(samples.time_ns[at], kind="stable")]
                content = Samples(
                    samples.time_ns[at], samples.value[at], strings[int(series.unit[row])]
                )
                painter.add_counter(
                    named[row],
                    above,
                    position if family else place,
                    content,
                    descriptions.counter(label, content.unit),
                )


PAINTERS: Mapping[Layer | None, PaintLayer] = {
    Layer.HARDWARE: _paint_hardware,
    Layer.COMMUNICATION: _paint_communication,
    Layer.SCOPES: _paint_scopes,
    Layer.FRAMEWORK: _paint_framework,
    Layer.CANN: _paint_runtime,
    Layer.COUNTERS: _paint_counters,
    None: _paint_missing,
}
"""The painter of each layer of the detail; the key None is the layer that is always drawn."""


def expect_arrows(painter: Painter, records: Records) -> None:
    """Prepare the painter to record the slices of the tables whose rows arrows connect."""
    flows = records.flows
    tables = {
        FlowEnd.HOST: records.host,
        FlowEnd.TASK: records.tasks,
        FlowEnd.OP: records.ops,
        FlowEnd.PLANE: records.planes,
    }
    painter.reserve(
        {
            kind: len(table)
            for kind, table in tables.items()
            if (flows.source_kind == kind).any() or (flows.target_kind == kind).any()
        }
    )


def paint_arrows(painter: Painter, records: Records, first_id: int) -> tuple[int, int]:
    """Draw the arrows whose ends are both drawn; return the next free id and the number left out.

    Each arrow has its own id: viewers would draw more than two ends of one id as a chain.
    """
    flows = records.flows
    source = _slice_numbers(painter, flows.source_kind, flows.source_row)
    target = _slice_numbers(painter, flows.target_kind, flows.target_row)
    drawn = (source != NOT_DRAWN) & (target != NOT_DRAWN)
    if not drawn.all():
        source, target = source[drawn], target[drawn]
    painter.connect(source, target, first_id)
    return first_id + len(source), len(flows) - len(source)


def _slice_numbers(painter: Painter, kinds: Int64, rows: Int64) -> Int64:
    """Return the painter's number of the slice at one end of each arrow."""

    def numbers_of(kinds: Int64, rows: Int64) -> Int64:
        numbers = np.full(len(kinds), NOT_DRAWN, np.int64)
        for kind in FlowEnd:
            here = kinds == kind
            if here.any():
                numbers[here] = painter.slice_numbers(kind, rows[here])
        return numbers

    return compute_in_chunks(np.int64, numbers_of, kinds, rows)


MANY = 20
"""Number of counters in a group from which families of counters get their own rows."""
_NUMBER = re.compile(r"([0-9]+)")


def counter_families(named: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Group the counters whose names differ in numbers alone, if there are at least MANY.

    A single counter has an empty family name, since it needs no row above it; with fewer counters,
    all are single.

    Args:
        named: the names of counters by number.
    """
    rows = sorted(named, key=lambda row: natural_order(named[row]))
    if len(rows) < MANY:
        return [("", [row]) for row in rows]
    families: dict[str, list[int]] = {}
    for row in rows:
        families.setdefault(_family(named[row]), []).append(row)
    return [(family if len(members) > 1 else "", members) for family, members in families.items()]


def _family(name: str) -> str:
    """Return the family of a counter: its name without numbers and trailing separators."""
    words = _NUMBER.sub("", name).replace(" /", "/").split()
    return " ".join(words).rstrip(" ,_/")


def natural_order(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders numbers in names by value: Stream 2 before Stream 10.

    Numbers stay strings, compared by length first: they may have any number of digits.
    """
    return tuple(
        (len(number), number) if at % 2 else (-1, part)
        for at, part in enumerate(_NUMBER.split(text))
        if part
        for number in [part.lstrip("0")]
    )


ALL_PAINTERS: Mapping[Layer | None, PaintLayer] = {**summary.PAINTERS, **PAINTERS}
"""The painter of each row of LAYERS, by its option."""


def draw_rank(
    rank: SelectedRank, options: DrawOptions, wanted: Callable[[ArgColumn], bool]
) -> RankTracks:
    """Draw the selected layers of one rank, with the args for which `wanted` returns True."""
    records = rank.detail
    painter = Painter(strings=records.strings, rank=records.rank, wanted=wanted)
    idle = None if rank.idle is None else rank.idle.parts
    computes = not rank.records.tables_only
    paint_partition(painter, rank.overlap, idle, computes=computes)
    if Layer.ARROWS in options.layers:
        expect_arrows(painter, records)
    for layer in LAYERS:
        drawn = rank.records if layer.in_summary else records
        is_wanted = layer.option is None or layer.option in options.layers
        if is_wanted and holds_any(drawn, layer):
            ALL_PAINTERS[layer.option](LayerDrawing(painter, layer, rank, options))
    arrows, omissions = 0, list[Omission]()
    if Layer.ARROWS in options.layers:
        next_id, lost = paint_arrows(painter, records, 1)
        arrows = next_id - 1
        cut = len(rank.records.flows) - len(records.flows)
        for reason, count in (
            ("arrows with an end in a layer that is not drawn", lost),
            ("arrows with an end for which the size limit left no room", cut),
        ):
            if count:
                omissions.append(Omission(reason, count, records.rank, code=OmissionCode.ARROW_CUT))
    tracks = tuple(painter.tracks)
    lacks_ops = Layer.COMMUNICATION in options.layers and len(records.ops) < len(rank.records.ops)
    return RankTracks(records.rank, tracks, arrows, tuple(omissions), lacks_ops=lacks_ops)
