"""Proves that a one-off cost is said once, with what counts it and what leaves it out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timeline
from tests.support.made_launches import Call, Task, made_records
from timeline.analysis.idle.idle_sums import IdleCause
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.selection import Selection
from timeline.tables.calls import HOST_CALLS_BY_NAME, IDLE_GAPS
from timeline.tables.idle import IDLE, IDLE_CALLS
from timeline.tables.table import Table
from timeline.verdict.figures import Figures
from timeline.verdict.one_off import one_off_sentence
from timeline.verdict.words import idle_sentence, mean_idle

US = 1_000


def facts_of(first_us: int, calls: int = 6) -> RankFacts:
    """A rank whose kernels wait for a call each, the first of which takes so long."""
    host, tasks, now = list[Call](), [Task(0, 10 * US)], 10 * US
    for at in range(calls):
        length = (100 if at else first_us) * US
        host.append(Call(now, now + length, "AscendCL@aclnnAddGetWorkspaceSize", "Python"))
        host.append(Call(now + length, now + length + US, "launch", connection=at))
        now += length + US
        tasks.append(Task(now, now + 10 * US, connection=at))
        now += 10 * US
    made = made_records(calls=host, tasks=tasks)
    request = RankRequest(Selection(), draw=False, questions=Questions(causes=True, calls=True))
    return draw_rank_from_records(made, request).facts


def test_a_first_call_is_said_once_and_not_counted() -> None:
    """What is left of the idle time is what the other calls cause."""
    facts = facts_of(79_000)
    figures = Figures({"steps": Table({})}, facts=[facts])
    idle = mean_idle(figures)
    assert idle is not None
    assert one_off_sentence([facts], idle.left_out) == (
        "One call of aclnnAddGetWorkspaceSize took 79.0 ms, 99% of the idle time there (median "
        "100 us): a one-off cost, in the shares of time, but in no cause of idle time."
    )
    assert idle.total_ns == (5 * 100 + 6) * US
    assert idle.calls["host_not_asked"][0][1] == 500 * US
    said = idle_sentence(idle, steps=0, span_ns=idle.total_ns)
    assert said is not None
    assert "79" not in said


def test_of_several_ranks_the_largest_is_named() -> None:
    """A rank without such a call is not among the others."""
    first, second, third = facts_of(79_000), facts_of(60_000), facts_of(100)
    ranks = [
        replace(facts, profile=replace(facts.profile, rank=rank))
        for rank, facts in enumerate((second, first, third))
    ]
    said = one_off_sentence(ranks, {})
    assert said is not None
    assert "79.0 ms on rank 1, " in said
    assert said.endswith("in none of the averaged steps; so on 1 other rank.")
    assert one_off_sentence(ranks[2:], {}) is None


def steps_of_kernels(slow: int, *, steps: bool = True, crossing: bool = False) -> Iterator[Any]:
    """Events of ten steps of ten kernels, each asked for by a call; one call takes 50 ms.

    crossing: the step ends within that call.
    """
    now, begin = 1000, 1000
    for at in range(100):
        length = 50_000 if at == slow else 20
        for name, start, lasts, args in (
            ("cudaMalloc", now, length, {}),
            ("cudaLaunchKernel", now + length, 3, {"correlation": at + 1}),
        ):
            yield event(name, "cuda_runtime", start, lasts, tid=1, args=args)
        args = {"correlation": at + 1, "device": 0, "stream": 7}
        yield event("kernel", "kernel", now + length + 6, 10, tid=7, args=args)
        if crossing and at == slow:
            yield step(begin, now + length // 2, 90)
            begin = now + length // 2
        now += length + 60
        if steps and at % 10 == 9:
            yield step(begin, now, at // 10)
            begin = now


def event(name: str, cat: str, ts: int, dur: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    """An event of a trace of PyTorch, in microseconds."""
    shared = {"ph": "X", "pid": 0, "name": name, "cat": cat}
    return {**shared, "ts": ts, "dur": dur, "tid": tid, "args": args}


def step(start_us: int, end_us: int, number: int) -> dict[str, Any]:
    """A marked step of a trace of PyTorch."""
    name, length_us = f"ProfilerStep#{number}", end_us - start_us
    return event(name, "user_annotation", start_us, length_us, tid=2, args={})


@pytest.mark.parametrize(
    ("made", "left_out", "clause"),
    [
        ({"slow": 50, "steps": False}, True, "in the shares of time, but in no cause of idle time"),
        ({"slow": 55}, True, "in the shares of time, but in no cause of idle time"),
        ({"slow": 3}, False, "in none of the averaged steps"),
        ({"slow": 55, "crossing": True}, False, "in the shares of time and in the causes of idle"),
    ],
)
def test_the_lines_beside_it_say_the_same(
    made: dict[str, Any], left_out: bool, clause: str, tmp_path: Path
) -> None:
    """The shares count it where its step does, and the causes only if it cannot be taken out."""
    document = {"schemaVersion": 1, "traceEvents": list(steps_of_kernels(**made))}
    (tmp_path / "a_rank0.pt.trace.json").write_text(json.dumps(document), encoding="utf-8")
    said = timeline.find_verdict(tmp_path).sentences
    (one_off,) = (line for line in said if line.startswith("One call of cudaMalloc took 50.0 ms"))
    assert f"a one-off cost, {clause}" in one_off
    (idle,) = (line for line in said if line.startswith("Idle "))
    assert (" without one-off costs: " in idle) == left_out


def test_tables_have_every_call_and_gap() -> None:
    """The tables keep what the sentence leaves out."""
    figures = Figures(facts=[facts_of(79_000)])
    calls = HOST_CALLS_BY_NAME.of_run(figures).to_dicts()
    assert [(row["layer"], row["name"], row["count"], row["total_ns"]) for row in calls] == [
        ("Python", "aclnnAddGetWorkspaceSize", 6, 79_500 * US),
        ("CANN", "launch", 6, 6 * US),
    ]
    idle = IDLE.of_run(figures)
    idle_ns = int(idle["total_ns"][np.ma.getmaskarray(idle["step"])].sum())
    assert sum(row["idle_ns"] for row in calls) == idle_ns
    assert sum(row["idle_share"] for row in calls) == 1
    by_call = IDLE_CALLS.of_run(figures)
    assert int(by_call["total_ns"][np.ma.getmaskarray(by_call["step"])].sum()) == idle_ns
    first, *others = IDLE_GAPS.of_run(figures).to_dicts()
    assert first == {
        "rank": 0,
        "graph": None,
        "step": None,
        "start_ns": 10 * US,
        "duration_ns": 79_001 * US,
        "idle_ns": 79_001 * US,
        "cause": IdleCause.HOST_NOT_ASKED.value,
        "cause_ns": 79_000 * US,
        "call": "aclnnAddGetWorkspaceSize",
        "previous": "task 0",
        "next": "task 1",
    }
    assert [row["duration_ns"] for row in others] == [101 * US] * 5


def test_a_report_counts_names_beyond_its_limit() -> None:
    """Of each rank the names with the longest own times, and a row with the sums of all others."""
    facts = facts_of(79_000)
    names = [Call(at, at + 2, f"call {at:04}") for at in range(0, 900, 3)]
    made = made_records(calls=names, tasks=[Task(0, 10)])
    request = RankRequest(Selection(), draw=False, questions=Questions(causes=True, calls=True))
    many = draw_rank_from_records(made, request).facts
    many = replace(many, profile=replace(many.profile, rank=1))
    figures = Figures(facts=[facts, many])
    assert HOST_CALLS_BY_NAME.json is not None
    rows = HOST_CALLS_BY_NAME.json.shape(figures, HOST_CALLS_BY_NAME.of_run(figures))
    *named, rest = [row for row in rows if row["rank"] == 1]
    assert (len(rows), len(named)) == (2 + 201, 200)
    assert (rest["layer"], rest["name"], rest["median_ns"]) == (None, None, None)
    assert (rest["count"], rest["total_ns"], rest["self_ns"]) == (100, 200, 200)
