"""Advice on a run: numbers beyond thresholds, with sentences on what to try."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from timeline.analysis.gains.findings import Cause, Finding, FindingKind
from timeline.columns.columns import Bool
from timeline.columns.distinct import distinct_values
from timeline.tables.data import (
    FULLER_BY,
    OFTEN_EMPTY,
    SLOW_SOURCE,
    USED_UP,
    Bottleneck,
    Limit,
)
from timeline.tables.parallel import OF_FILE, OF_STEPS, stage_of
from timeline.tables.table import Json, Method, Run, Spec, Table, sum_rows
from timeline.units import format_duration, format_flop, format_rate, format_short

ADVICE: Spec = Spec(
    "advice",
    "number beyond its threshold, the worst first",
    """
    text about: its subject, see [there](definitions.md#how-data-is-prepared)
    rank, stage, source_rank, target_rank
    text link
    op: what it concerns, as the five columns before
    real value: in unit
    text unit: None for a share
    real mean: of its kind, if the value is compared with it
    real share: the number compared with the threshold; if masked, the value is compared
    real threshold
    text text: a sentence, with what to do about it
    """,
    lambda run: ADVICE.of_rows(_rows(advice_of(run))),
    Json("advice"),
    Method("advice"),
)
NOT_SHOWN = 0.0
"""Severity of advice that is only in tables, not in the verdict."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A number beyond its threshold, and a sentence on what it means or what to try.

    about: its subject, such as data processing. rank, stage, source_rank, target_rank, link, op:
    what it concerns, None if not applicable. value, mean: the number, and the mean of its kind if
    it is compared with that. unit: of both: ns, GB/s, flop/s, flop, batches, None for a share.
    share: the number compared with the threshold: a share of a whole, or the distance from the mean
    as a share of the mean; if None, the value is compared. severity: multiple of the threshold, by
    which advice is sorted.
    """

    about: str
    rank: int | None = None
    stage: int | None = None
    source_rank: int | None = None
    target_rank: int | None = None
    link: str | None = None
    op: int | None = None
    value: float | None = None
    unit: str | None = None
    mean: float | None = None
    share: float | None = None
    threshold: float | None = None
    text: str
    severity: float = NOT_SHOWN


def advice_of(run: Run) -> tuple[Advice, ...]:
    """Return the advice that follows from the tables of a run, unsorted."""
    return (
        *data_advice(
            *(run["data_preparation"], run["data_queues"], run["data_pipeline"], run["step_trace"])
        ),
        *cluster_advice(
            *(run["step_trace"], run["flops"], run["links"]),
            *(run["parallel"], run["parallel_times"]),
        ),
    )


def _rows(advice: Iterable[Advice]) -> list[tuple[Any, ...]]:
    return [astuple(one)[: len(ADVICE.columns)] for one in _sorted(advice)]


def worst_of_each(advice: Iterable[Advice], rank: int | None = None) -> Iterator[Advice]:
    """Yield the worst advice on each subject, the worst subject first.

    rank: preferred rank, if there is advice on several.
    """
    worst: dict[str, Advice] = {}
    for one in worst_first(advice):
        worse = worst.setdefault(one.about, one)
        if one.rank == rank != worse.rank:
            worst[one.about] = one
    yield from worst.values()


def worst_first(advice: Iterable[Advice]) -> list[Advice]:
    """Return the advice to show to people, the worst first."""
    return [one for one in _sorted(advice) if one.severity > NOT_SHOWN]


def _sorted(advice: Iterable[Advice]) -> list[Advice]:
    return sorted(advice, key=lambda one: -one.severity)


DATA_PROCESSING = "data processing"
DATA_SENDING = "data sending"
DATA_OPERATION = "data operation"
PROCESSORS = "processors"
STEP_INTERVAL = "step interval"
STEP_INTERVAL_OF_RANKS = "step interval of ranks"
ABOUT_DATA = (DATA_PROCESSING, DATA_SENDING, DATA_OPERATION, PROCESSORS)
"""Subjects of advice on data preparation."""
MOST_BUSY = 0.8
"""Load of the host's processors above which more workers do not help."""
LONG_INTERVAL_NS = 500_000
"""Step interval above which there is advice."""
_THRESHOLDS = {
    Limit.FULLER_INPUT: FULLER_BY,
    Limit.SLOW_SOURCE: SLOW_SOURCE,
    Limit.SLOW_SINK: USED_UP,
}

Row = dict[str, Any]


def data_advice(
    preparation: Table, queues: Table, pipeline: Table, step_trace: Table
) -> Iterator[Advice]:
    """Yield advice on data processing, sending, pipeline operations, processors and intervals.

    Args:
        preparation, queues, pipeline, step_trace: the tables data_preparation, data_queues,
            data_pipeline and step_trace.
    """
    counts = {(row["rank"], row["queue"]): row for row in queues.to_dicts()}
    operations: dict[int, list[Row]] = {}
    for row in pipeline.to_dicts():
        operations.setdefault(row["rank"], []).append(row)
    rows = preparation.to_dicts()
    for row in rows:
        rank = row["rank"]
        host, device = (counts.get((rank, queue)) for queue in ("host", "device"))
        # Without a recorded queue, the pipeline may be too slow; with a full queue, it is not.
        severity = 1.0 if row["bottleneck"] is None else NOT_SHOWN
        if row["bottleneck"] == Bottleneck.PROCESSING.value and host is not None:
            severity = row["empty_share"] / OFTEN_EMPTY
            yield _processing(rank, host, severity)
        elif row["bottleneck"] == Bottleneck.SENDING.value and host and device:
            yield _sending(rank, host, device)
        for one, share in sorted(_shares(operations.get(rank, [])), key=_worst):
            text = _operation_text(
                one,
                is_known=row["bottleneck"] == Bottleneck.PROCESSING.value,
                several=len(rows) > 1,
            )
            yield _operation(one, share, severity, text)
        if row["cpu_busy"] is not None and row["cpu_busy"] > MOST_BUSY:
            yield _processors(rank, row["cpu_busy"])
    yield from _intervals(step_trace)


def _processing(rank: int, host: Row, severity: float) -> Advice:
    empty, records = host["empty"], host["records"]
    return Advice(
        about=DATA_PROCESSING,
        rank=rank,
        value=empty,
        unit="batches",
        share=empty / records,
        threshold=OFTEN_EMPTY,
        text=f"Data processing of rank {rank} is too slow: its host queue was empty for {empty} of "
        f"{records} batches, more than {OFTEN_EMPTY:.0%}.",
        severity=severity,
    )


def _sending(rank: int, host: Row, device: Row) -> Advice:
    share = device["empty"] / device["records"]
    return Advice(
        about=DATA_SENDING,
        rank=rank,
        value=device["empty"],
        unit="batches",
        share=share,
        threshold=0.0,
        text=f"Sending data to rank {rank} may be slow: its device queue was empty for "
        f"{device['empty']} of {device['records']} steps, the host's for {host['empty']} of "
        f"{host['records']}.",
        severity=1 + share,
    )


def _shares(operations: list[Row]) -> Iterator[tuple[Row, float]]:
    """Yield the operations that limit their pipeline, with the share compared with the threshold.

    The share is the excess fill of the input queue, or the fill of the emptiest queue before a slow
    root, or the fill of the own queue of a slow source.
    """
    use = {row["op"]: row["usage"] or 0.0 for row in operations}
    for one in operations:
        own = use[one["op"]]
        match one["bottleneck"]:
            case Limit.FULLER_INPUT.value:
                yield one, max(use[child] for child in one["children"]) - own
            case Limit.SLOW_SINK.value:
                others = [share for op, share in use.items() if op != one["op"]]
                yield one, min(others, default=own)
            case Limit.SLOW_SOURCE.value:
                yield one, own


def _worst(operation: tuple[Row, float]) -> tuple[bool, float]:
    """Return a sort key: operations with fuller inputs by the excess, then all others by share."""
    one, share = operation
    is_fuller = one["bottleneck"] == Limit.FULLER_INPUT.value
    return not is_fuller, -share if is_fuller else share


def _operation(one: Row, share: float, severity: float, text: str) -> Advice:
    return Advice(
        about=DATA_OPERATION,
        rank=one["rank"],
        op=one["op"],
        value=one["usage"],
        share=share,
        threshold=_THRESHOLDS[Limit(one["bottleneck"])],
        text=text,
        severity=severity,
    )


def _operation_text(one: Row, *, is_known: bool, several: bool) -> str:
    """Return the sentence on an operation that likely limits the pipeline.

    is_known: whether other advice already says that data come late. several: whether there are
    several ranks.
    """
    rank, fills = one["rank"], ""
    if one["usage"] is not None:
        fills = f", which fills {one['usage']:.0%} of its queue"
    named, advice = f"{one['type']} {one['op']}", one["advice"]
    if not is_known:
        return f"The data pipeline of rank {rank} is likely limited by {named}{fills}: {advice}."
    return f"Likely {named}{f' of rank {rank}' if several else ''}{fills}: {advice}."


def _processors(rank: int, busy: float) -> Advice:
    return Advice(
        about=PROCESSORS,
        rank=rank,
        value=busy,
        share=busy,
        threshold=MOST_BUSY,
        text=f"Processors of rank {rank}'s host are {busy:.0%} busy.",
        severity=busy / MOST_BUSY,
    )


def mean_intervals(step_trace: Table) -> list[Row]:
    """Return the mean step trace of each rank and graph, that of the file if it has one.

    Means with a total of 0 are left out: a file with a single step has a mean of no steps.
    """
    if not len(step_trace):
        return []
    means: dict[tuple[int, int | None], Row] = {}
    is_mean = np.ma.getmaskarray(step_trace["step"]) & (np.ma.filled(step_trace["total_ns"], 1) > 0)
    for row in step_trace.take(is_mean).to_dicts():
        key = (row["rank"], row["graph"])
        if key not in means or row["of"] == OF_FILE:
            means[key] = row
    return list(means.values())


def _intervals(step_trace: Table) -> Iterator[Advice]:
    for row in mean_intervals(step_trace):
        interval_ns = row["interval_ns"]
        if interval_ns is not None and interval_ns > LONG_INTERVAL_NS:
            yield Advice(
                about=STEP_INTERVAL,
                rank=row["rank"],
                value=interval_ns,
                unit="ns",
                threshold=LONG_INTERVAL_NS,
                text=f"The mean step interval of rank {row['rank']} is "
                f"{format_short(interval_ns)}, more than {format_short(LONG_INTERVAL_NS)}.",
                severity=1.0,
            )


NOTABLE_SIZE = 0.01
"""Minimum data moved by a link to judge its speed, as a share of the data of the busiest one."""
FROM_MEAN = 0.2
"""Minimum distance of a rank, stage or link from the mean of its kind, as a share of the mean."""
COMMUNICATING = 0.1
"""Minimum share of communication alone in computing and communication."""
_PIPELINE = "pipeline-parallel"


def cluster_advice(
    step_trace: Table, flops: Table, links: Table, parallel: Table, parallel_times: Table
) -> Iterator[Advice]:
    """Yield advice on step intervals and FLOP/s of ranks, links, communication and stages.

    Args:
        step_trace, flops, links, parallel, parallel_times: the tables of these names.
    """
    yield from _step_intervals(step_trace)
    yield from _rates(flops)
    yield from _links(links)
    yield from _communication(parallel, parallel_times)
    yield from _stage_work(flops, parallel)


def mean_rows(table: Table) -> list[Row]:
    """Return the mean step of each rank: from the file, else of its steps, else its only step.

    table: rows with the columns rank, step and of.
    """
    by_rank: dict[int, dict[str | None, list[Row]]] = {}
    for row in table.take(_means_and_only_steps(table)).to_dicts():
        by_rank.setdefault(row["rank"], {}).setdefault(row["of"], []).append(row)
    means = []
    for rows in by_rank.values():
        steps = rows.get(None, [])
        chosen = rows.get(OF_FILE) or rows.get(OF_STEPS) or (steps if len(steps) == 1 else [])
        means += chosen[:1]
    return means


def _means_and_only_steps(table: Table) -> Bool:
    """Return a mask of rows that are means, or the only step of their rank."""
    if not len(table):
        return np.zeros(0, np.bool_)
    is_step = table["of"] == None  # noqa: E711 - row by row
    _, which = distinct_values(np.ma.getdata(table["rank"]))
    steps = np.bincount(which[is_step], minlength=int(which.max()) + 1)
    chosen: Bool = ~is_step | (steps[which] == 1)
    return chosen


def _furthest(values: Sequence[float], *, above: bool) -> Iterator[tuple[int, float, float]]:
    """Yield the value furthest above, or below, the mean of its kind: position, share and mean.

    Of equal values it is the first; nothing is yielded if none is beyond `FROM_MEAN`.
    """
    mean = sum(values) / max(len(values), 1)
    if mean <= 0:
        return
    shares = [value / mean - 1 if above else (mean - value) / mean for value in values]
    share = max(shares)
    if share > FROM_MEAN:
        yield shares.index(share), share, mean


def _step_intervals(step_trace: Table) -> Iterator[Advice]:
    rows = [row for row in mean_rows(step_trace) if row["interval_ns"] is not None]
    for at, share, mean in _furthest([row["interval_ns"] for row in rows], above=True):
        rank, interval_ns = rows[at]["rank"], rows[at]["interval_ns"]
        yield Advice(
            about=STEP_INTERVAL_OF_RANKS,
            rank=rank,
            value=interval_ns,
            unit="ns",
            mean=mean,
            share=share,
            threshold=FROM_MEAN,
            text=f"The step interval of rank {rank} is {format_duration(interval_ns)}, {share:.0%} "
            "above the mean.",
            severity=share / FROM_MEAN,
        )


def _of_ranks(flops: Table, name: str) -> dict[int, float]:
    """Return a column's value for each rank; the sum over units if files separate them."""
    by_unit: dict[int, dict[str, float]] = {}
    for row in flops.to_dicts():
        if row["level"] == "rank" and row[name] is not None:
            by_unit.setdefault(row["rank"], {})[row["unit"]] = row[name]
    return {
        rank: values.get("all", sum(values.values())) for rank, values in sorted(by_unit.items())
    }


def _rates(flops: Table) -> Iterator[Advice]:
    rates = _of_ranks(flops, "flop_per_s")
    ranks = list(rates)
    for at, share, mean in _furthest(list(rates.values()), above=False):
        rate = rates[ranks[at]]
        yield Advice(
            about="flop/s of ranks",
            rank=ranks[at],
            value=rate,
            unit="flop/s",
            mean=mean,
            share=share,
            threshold=FROM_MEAN,
            text=f"Operators of rank {ranks[at]} compute at {format_flop(rate)}/s, {share:.0%} "
            "below the mean of ranks.",
            severity=share / FROM_MEAN,
        )


def _links(links: Table) -> Iterator[Advice]:
    """Yield advice on the slowest link of each kind between two ranks.

    Short messages are slow on any link, so links that moved little data are not compared.
    """
    if not len(links):
        return
    kinds: dict[str, list[Row]] = {}
    for row in links.to_dicts():
        if row["source_rank"] != row["target_rank"] and row["size_bytes"] and row["total_ns"]:
            kinds.setdefault(row["link"], []).append(row)
    for kind, every in kinds.items():
        least_bytes = NOTABLE_SIZE * max(row["size_bytes"] for row in every)
        rows = [row for row in every if row["size_bytes"] >= least_bytes]
        for at, share, mean in _furthest([row["bandwidth_gb_s"] for row in rows], above=False):
            yield _slow_link(kind, rows[at], share, mean)


def _slow_link(kind: str, row: Row, share: float, mean: float) -> Advice:
    ends = f"{row['source_rank']}-{row['target_rank']}"
    in_group = row["numbered_in"] == "group"
    inside = ", numbered inside its group," if in_group else ""
    named = f"{kind} link" if kind else "link"
    return Advice(
        about="link",
        rank=row["rank"],
        source_rank=row["source_rank"],
        target_rank=row["target_rank"],
        link=kind,
        value=row["bandwidth_gb_s"],
        unit="GB/s",
        mean=mean,
        share=share,
        threshold=FROM_MEAN,
        text=f"The {named} {ends} of rank {row['rank']}{inside} moves "
        f"{format_rate(row['bandwidth_gb_s'])}, {share:.0%} below {format_rate(mean)}, the mean of "
        f"{named}s that move much.",
        # Findings report the cost of links between known ranks.
        severity=share / FROM_MEAN if in_group else 0.0,
    )


def _communication(parallel: Table, parallel_times: Table) -> Iterator[Advice]:
    """Yield advice on communication alone; in pipelines separately between and within stages."""
    split = next(iter(parallel.to_dicts()), {"mode": None, "stages": None})
    rows = [
        row
        for row in mean_rows(parallel_times)
        if row["computing_ns"] is not None and row["communication_alone_ns"] is not None
    ]
    if not rows:
        return
    if split["mode"] != _PIPELINE and (split["stages"] or 1) <= 1:
        share = _share(rows, "communication_alone_ns")
        who = "Ranks communicate" if len(rows) > 1 else f"Rank {rows[0]['rank']} communicates"
        text = f"{who} without computing for {share:.0%} of the time that both take."
        yield from _communicating("communication", share, text)
        return
    share = _share(rows, "receive_alone_ns")
    text = f"Pipeline stages wait for each other for {share:.0%} of computing and communication."
    yield from _communicating("communication between stages", share, text)
    for stage in sorted({row["stage"] for row in rows if row["stage"] is not None}):
        share = _share([row for row in rows if row["stage"] == stage], "collective_alone_ns")
        text = (
            f"Ranks of stage {stage} of the pipeline communicate with each other without computing "
            f"for {share:.0%} of computing and communication."
        )
        yield from _communicating("communication within a stage", share, text, stage)


def _communicating(
    about: str, share: float, text: str, stage: int | None = None
) -> Iterator[Advice]:
    if share > COMMUNICATING:
        yield Advice(
            about=about,
            stage=stage,
            share=share,
            threshold=COMMUNICATING,
            text=text,
            severity=share / COMMUNICATING,
        )


def _share(rows: Sequence[Row], name: str) -> float:
    """Return a part as a share of all computing and communication of the ranks that record both."""
    known = [row for row in rows if row[name] is not None]
    whole_ns = sum(row["computing_ns"] + row["communication_alone_ns"] for row in known)
    return float(sum(row[name] for row in known) / whole_ns) if whole_ns > 0 else 0.0


def _stage_work(flops: Table, parallel: Table) -> Iterator[Advice]:
    """Yield advice on the stage whose ranks compute most, if it is far above the mean of stages."""
    stages: dict[int, list[float]] = {}
    for rank, flop in _of_ranks(flops, "flop").items():
        stage = stage_of(rank, parallel)
        if stage is not None:
            stages.setdefault(stage, []).append(flop)
    means = {stage: sum(of_ranks) / len(of_ranks) for stage, of_ranks in sorted(stages.items())}
    numbers = list(means)
    for at, share, mean in _furthest(list(means.values()), above=True):
        flop = means[numbers[at]]
        yield Advice(
            about="work of stages",
            stage=numbers[at],
            value=flop,
            unit="flop",
            mean=mean,
            share=share,
            threshold=FROM_MEAN,
            text=f"Stage {numbers[at]} of the pipeline computes {format_flop(flop)} on each rank, "
            f"{share:.0%} above the mean of stages: move layers to others.",
            severity=share / FROM_MEAN,
        )


# -- remedies --------------------------------------------------------------------------------------


LEAST_SHARE = 0.05
"""Share of ordinary steps from which time in the allocator of the device has a remedy, and share of
the idle time during host calls from which compiling and reading values have one.
"""
MOST_SMALL = 0.2
"""Share of small transfers above which communication has a remedy."""
_COMPILES = re.compile(r"aclop\w*compile", re.I)
"""Calls of torch_npu that compile an operator of unknown shapes before they launch it."""
_READS_VALUE = re.compile(r"(?:^|::|@|\b)(?:_?local_scalar_dense|item|tolist|nonzero|is_nonzero)\b")
"""Operators that copy values from the device to Python, and wait for them."""
_ONE_PROCESS = re.compile(r"SingleProcessDataLoader")
_WORKERS = re.compile(r"MultiProcessingDataLoader")

COMPILE = "try torch.npu.set_compile_mode(jit_compile=False)"
ALLOCATE = (
    "the allocator's cache is too small: try a smaller batch or expandable_segments, and no "
    "empty_cache() in the loop"
)
NO_WORKERS = "the training process loads them itself: try num_workers > 0 and pinned memory"
MORE_WORKERS = "try more workers of the DataLoader, or less work for each sample"
READ_LESS = "read values from the device less often (.item(), .cpu(), tolist())"
WARM_UP = "warm up before the recording: schedule(wait, warmup, active)"
PACKETS = "transfers are small: try larger buckets (bucket_cap_mb, HCCL_BUFFSIZE)"
AI_CPU = "it runs on AI CPUs: a type that the AI Core supports, not int64 or double, is faster"


def find_remedy(
    finding: Finding,
    cause: Cause,
    *,
    call: str,
    share: float,
    waits: Collection[str],
    on_ai_cpu: bool,
    first_steps: Sequence[int],
    idle_calls: Table,
    small: float,
) -> str:
    """Return what to try against a loss, empty if nothing in the recording points at it.

    Args:
        finding: the loss.
        cause: its cause, as it is reported.
        call: host call that takes most of it, empty if unknown.
        share: of ordinary steps in which hosts allocate or free memory of the device.
        waits: names of the calls on the critical path that wait for data.
        on_ai_cpu: whether the operator of the finding runs on AI CPUs.
        first_steps: the first steps of the recording.
        idle_calls: rows of IDLE_CALLS of the whole selection, or none.
        small: share of transfers between ranks that are small, see `LinkTimes`.
    """
    if finding.steps is not None and set(finding.steps) == set(first_steps):
        return WARM_UP if cause in (Cause.HOST, Cause.MEMORY, Cause.UNKNOWN) else ""
    if _COMPILES.search(call):
        return COMPILE
    if cause is Cause.MEMORY:
        return ALLOCATE if share >= LEAST_SHARE else ""
    if cause is Cause.INPUT:
        return _loader_remedy(waits)
    if cause is Cause.HOST and _READS_VALUE.search(call):
        return READ_LESS
    if finding.kind in (FindingKind.EXPOSED_COMMUNICATION, FindingKind.SLOW_LINK):
        return PACKETS if small > MOST_SMALL else ""
    if finding.kind is FindingKind.SLOW_HOSTS:
        return _idle_remedy(idle_calls)
    return AI_CPU if finding.kind is FindingKind.SLOW_OPERATOR and on_ai_cpu else ""


def _idle_remedy(idle_calls: Table) -> str:
    """Return the remedy against the calls that take most of the idle time, empty for none."""
    if not len(idle_calls):
        return ""
    total_ns = int(idle_calls["total_ns"].sum())
    shares = {COMPILE: 0.0, READ_LESS: 0.0}
    of_calls = sum_rows(idle_calls, ("call",), ("total_ns",))
    for call, call_ns in zip(of_calls["call"].tolist(), of_calls["total_ns"].tolist(), strict=True):
        for pattern, remedy in ((_COMPILES, COMPILE), (_READS_VALUE, READ_LESS)):
            if pattern.search(call):
                shares[remedy] += call_ns / total_ns
    remedy, share = max(shares.items(), key=lambda one: one[1])
    return remedy if share >= LEAST_SHARE else ""


def _loader_remedy(waits: Collection[str]) -> str:
    names = " ".join(waits)
    if _ONE_PROCESS.search(names):
        return NO_WORKERS
    return MORE_WORKERS if _WORKERS.search(names) else ""
