"""Proves what is said of gaps between kernels, of pipes in turn, and of the host outside them."""

from __future__ import annotations

import numpy as np
import pytest

from timeline.analysis.idle.kernel_gaps import CallsOutside, GapSums, KernelGaps
from timeline.analysis.work.kernel_bounds import KernelSums, KernelTotals, PipeTimes
from timeline.records.kernel_metrics import PIPES
from timeline.verdict.kernel_gaps import (
    gap_sentences,
    has_reason,
    host_outside_sentence,
    turns_sentence,
)

US, MS = 1_000, 1_000_000
QUEUED = KernelGaps(
    all=GapSums(100, 400 * US, 4 * US),
    queued=GapSums(100, 400 * US, 4 * US),
    least_ns=3 * US,
    span_ns=MS,
)
LATE = KernelGaps(
    all=GapSums(100, 400 * US, 4 * US),
    queued=GapSums(20, 20 * US, US),
    late=GapSums(80, 380 * US, 5 * US),
    least_ns=US,
    span_ns=MS,
)


def test_the_device_makes_gaps_of_queued_kernels() -> None:
    """Nothing is promised of them; collecting metrics is named only if metrics were collected."""
    (sentence,) = gap_sentences(QUEUED, 6 * US, MS, "")
    assert sentence == (
        "The device makes most gaps between kernels: in 100 of 100, the next kernel was launched "
        "before the device became free, yet it starts 4.00 us later (median, at least 3.00 us)."
    )
    (sentence,) = gap_sentences(QUEUED, 6 * US, MS, "metrics")
    assert sentence.endswith("; collecting metrics for each kernel may be part of that.")
    assert list(gap_sentences(QUEUED, 100 * US, MS, "")) == []


def test_late_launches_bound_by_what_is_above_the_floor() -> None:
    """However large the gain of a replay is, the gaps that the device needs stay."""
    (sentence,) = gap_sentences(LATE, 6 * US, MS, "")
    assert sentence == (
        "Host-bound: in 80 of 100 gaps between kernels, 5.00 us each (median), the next kernel was "
        "launched only after the device became free: 380.0 us of 400.0 us idle; if the host always "
        "launched in time, the run would be at most 30% shorter."
    )
    (sentence,) = gap_sentences(LATE, 6 * US, 100 * US, "")
    assert "at most 10% shorter" in sentence


def test_gaps_that_are_short_beside_kernels_do_not_bind() -> None:
    """They are still said, if they are a share of the run."""
    (sentence,) = gap_sentences(LATE, 11 * US, MS, "")
    assert sentence.startswith("In 80 of 100 gaps between kernels, the next kernel was launched")


def test_waits_that_a_program_makes_may_stay() -> None:
    """They are named, with what is left to win besides them."""
    gaps = KernelGaps(
        all=LATE.all,
        queued=LATE.queued,
        late=LATE.late,
        waited=GapSums(5, 200 * US, 40 * US),
        call="aclrtSynchronizeStream",
        least_ns=US,
        span_ns=MS,
        start_ns=3 * US,
    )
    (sentence,) = gap_sentences(gaps, 6 * US, MS, "")
    assert (
        "200.0 us of that in 5 gaps in which the program waits for the device "
        "(aclrtSynchronizeStream); if the host always launched in time, the run would be at most "
        "30% shorter, 10% if these waits stay, less if the 3.00 us from a launch to the start of "
        "its kernel remain."
    ) in sentence


def test_waits_after_each_kernel_are_a_reason_without_launches() -> None:
    """Unless some kernels follow without a wait, or a gap or two is all there is."""
    waits = GapSums(20, 100 * US, 5 * US)
    gaps = KernelGaps(all=waits, waited=waits, call="aclrtSynchronizeStream", span_ns=MS)
    assert has_reason(gaps)
    (sentence,) = gap_sentences(gaps, 6 * US, 0, "L2 cache metrics")
    assert sentence == (
        "The host waits for the device after each kernel (aclrtSynchronizeStream, in 20 of 20 gaps "
        "between kernels): 5.00 us idle each (median), 10% of the time; collecting L2 cache "
        "metrics for each kernel may be part of that."
    )
    some = KernelGaps(all=waits, waited=GapSums(10, 50 * US, 5 * US), span_ns=MS)
    assert not has_reason(some)
    assert list(gap_sentences(some, 6 * US, 0, "")) == []
    assert not has_reason(KernelGaps())


def test_host_calls_outside_are_said_where_they_are_longer() -> None:
    """Than the time from the first kernel to the last."""
    before = CallsOutside(90 * MS, "aclnnDivGetWorkspaceSize", 88 * MS)
    after = CallsOutside(MS // 2, "aclrtFree", MS // 2)
    assert host_outside_sentence(KernelGaps(span_ns=MS, before=before, after=after)) == (
        "Host calls outside that time: 90.000 ms before the first kernel "
        "(aclnnDivGetWorkspaceSize)."
    )
    assert host_outside_sentence(KernelGaps(span_ns=100 * MS, before=before)) is None


def totals(**busy: float) -> KernelTotals:
    """Kernels of one operator that took 1 ms, with the shares of their pipes on cube cores."""
    sums = KernelSums.of(1, operator=0, measured_ns=MS)
    pipes = PipeTimes.of(
        len(busy),
        operator=0,
        side=0,
        pipe=[PIPES.index(name) for name in busy],
        busy_ns=np.array(list(busy.values())) * MS,
    )
    return KernelTotals(sums, pipes)


@pytest.mark.parametrize(
    ("busy", "in_turn"),
    [
        ({"mte2": 0.4, "fixpipe": 0.3, "scalar": 0.3}, True),
        ({"mte2": 0.4, "fixpipe": 0.3}, False),
        ({"mte2": 0.5, "fixpipe": 0.4, "cube": 0.5}, False),
        ({"scalar": 0.9, "mte2": 0.1}, False),
    ],
)
def test_pipes_in_turn_add_up_to_all_of_the_time(busy: dict[str, float], in_turn: bool) -> None:
    """Less is time in which none is busy, more is overlap; one that leads is what to look at."""
    sentence = turns_sentence(totals(**busy), np.array([True]), {"mte2": "MTE2"})
    assert (sentence is not None) == in_turn
    if sentence is not None:
        assert "add up to 100% (MTE2 40%, " in sentence
