"""Step traces of the iterations of a rank, as CANN draws them before and since 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.model import Iteration, RankRun
from simulator.writers.events import Clock, Event

Arguments = dict[str, Any]

FIRST_MODEL_TID = 70_000


def wait_for_data_ns(rank: RankRun, iteration: Iteration) -> int | None:
    """The data aug bound: from the last end of any iteration of any graph to this forward start."""
    start_ns = iteration.forward_start_ns
    ends_ns = [one.end_ns for one in rank.iterations if one.end_ns < start_ns]
    return start_ns - max(ends_ns) if ends_ns else None


def float_step_trace(
    rank: RankRun, iterations: Sequence[Iteration], pid: int, clock: Clock
) -> list[Event]:
    """Step traces of MindSpore 2.0 to 2.2: ts and dur are floats, so differences carry noise."""
    tid = rank.os_pid
    events: list[Event] = []
    for one in iterations:
        start, end = float(clock(one.start_ns)), float(clock(one.end_ns))
        forward = float(clock(one.forward_start_ns))
        backward = float(clock(one.backward_end_ns))
        fetch = [float(clock(time_ns)) for time_ns in one.next_data_ns]
        number: Arguments = {"Iteration ID": one.number}
        both = number | {"FP Start": forward, "BP End": backward}
        time_ns = float(one.end_ns - one.start_ns)
        spans: list[tuple[str, tuple[float, float], Arguments, str]] = [
            (
                f"Iteration {one.number}",
                (start, time_ns / 1000),
                both | {"Iteration End": end, "Iteration Time(ns)": time_ns},
                "Iteration Time",
            ),
            (
                f"FP_BP Time {one.number}",
                (forward, backward - forward),
                both | {"FP_BP Time(ns)": float(one.backward_end_ns - one.forward_start_ns)},
                "FP_BP Time",
            ),
            (
                f"Iteration Refresh {one.number}",
                (backward, end - backward),
                number
                | {"BP End": backward, "Iteration End": end}
                | {"Iteration Refresh(ns)": float(one.end_ns - one.backward_end_ns)},
                "Iteration Refresh",
            ),
            (
                f"GetNext {one.number}_0",
                (fetch[0], fetch[1] - fetch[0]),
                {"GetNext Start": fetch[0], "GetNext End": fetch[1]}
                | {"GetNext Time(ns)": float(one.next_data_ns[1] - one.next_data_ns[0])},
                "GetNext Time",
            ),
        ]
        for index, reduce in enumerate(one.collectives):
            begin, finish = float(clock(reduce.start_ns)), float(clock(reduce.end_ns))
            ends = {f"Reduce Start {index}": begin, f"Reduce End {index}": finish}
            name = f"Reduce_{one.number}_{index}"
            spans.append((name, (begin, finish - begin), number | ends, "Reduce"))
        for name, (ts, dur), args, category in spans:
            place: Event = {"name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
            events.append({**place, "args": args, "cat": category, "ph": "X"})
        # The flow is drawn one iteration late: it leaves this end with the wait before this start.
        bound_ns = wait_for_data_ns(rank, one)
        bound: float = 0 if bound_ns is None else bound_ns / 1000
        name = f"Data_aug Bound {one.number}"
        late = float(clock(one.end_ns + (bound_ns or 0)))
        for phase, ts, args in (
            ("s", end, number),
            ("t", late, {"Data_aug Bound(us)": bound}),
        ):
            place = {"name": name, "cat": "Data_aug Bound", "ph": phase, "ts": ts}
            events.append({**place, "pid": pid, "tid": tid, "id": name, "args": args})
    return sorted(events, key=lambda event: float(event["ts"]))


def text_step_trace(rank: RankRun, pid: int, clock: Clock) -> list[Event]:
    """Step traces of CANN 7 and later: microseconds, one thread per model, reduces counted on."""
    events: list[Event] = []
    for one in rank.iterations:
        events += _iteration_events(rank, one, pid, clock)
    reduces = [(one, collective) for one in rank.iterations for collective in one.collectives]
    for index, (one, reduce) in enumerate(reduces):
        # Unlike every other time these are whole nanoseconds.
        raw = [str(clock(time_ns)).replace(".", "") for time_ns in (reduce.start_ns, reduce.end_ns)]
        args: Arguments = {"Iteration ID": one.number}
        args |= {f"Reduce End {index}": raw[1], f"Reduce Start {index}": raw[0]}
        name = f"Reduce_{one.number}_{index}"
        span = (clock(reduce.start_ns), reduce.duration_ns)
        events.append(_model_event(name, pid, one, span, "Reduce", args))
    for one in rank.iterations:
        start_ns, end_ns = one.next_data_ns
        args = {"GetNext Start": clock(start_ns), "GetNext End": clock(end_ns)}
        args["GetNext Time(us)"] = (end_ns - start_ns) / 1000
        span = (clock(start_ns), end_ns - start_ns)
        events.append(_model_event(f"GetNext {one.number}_0", pid, one, span, "GetNext Time", args))
    return events


def _iteration_events(rank: RankRun, one: Iteration, pid: int, clock: Clock) -> list[Event]:
    number: Arguments = {"Iteration ID": one.number}
    forward, backward = clock(one.forward_start_ns), clock(one.backward_end_ns)
    both = number | {"FP Start": forward, "BP End": backward}
    end = clock(one.end_ns)
    spans = (
        (
            f"Iteration {one.number}",
            (clock(one.start_ns), one.end_ns - one.start_ns),
            "Iteration Time",
            both | {"Iteration End": end},
        ),
        (
            f"FP_BP Time {one.number}",
            (forward, one.backward_end_ns - one.forward_start_ns),
            "FP_BP Time",
            both,
        ),
        (
            f"Iteration Refresh {one.number}",
            (backward, one.end_ns - one.backward_end_ns),
            "Iteration Refresh",
            number | {"BP End": backward, "Iteration End": end},
        ),
    )
    events = []
    for name, span, category, args in spans:
        timed = args | {f"{category}(us)": span[1] / 1000}
        events.append(_model_event(name, pid, one, span, category, timed))
    bound_ns = wait_for_data_ns(rank, one) or 0
    tid = FIRST_MODEL_TID + one.graph
    middle = clock(one.backward_end_ns + bound_ns // 20 * 10)
    for number_drawn, phase, ts, args in (
        (one.number - 1, "t", forward, number),
        (one.number, "s", middle, {"Data_aug Bound(us)": bound_ns / 1000}),
    ):
        event: Event = {"name": f"Data_aug Bound {number_drawn}", "pid": pid, "tid": tid}
        event |= {"ph": phase, "cat": "Data_aug Bound", "id": f"Data_aug Bound {pid}_{tid}"}
        events.append({**event, "ts": ts, "args": args})
    return events


def _model_event(
    name: str,
    pid: int,
    one: Iteration,
    span: tuple[float | str, int],
    category: str,
    args: Arguments,
) -> Event:
    ts, duration_ns = span
    tid = FIRST_MODEL_TID + one.graph
    event: Event = {"name": name, "pid": pid, "tid": tid, "ts": ts, "dur": duration_ns / 1000}
    return event | {"ph": "X", "cat": category, "args": args}
