"""Proves that what is said of memory comes of the samples that a memory can have."""

from __future__ import annotations

import numpy as np
import pytest

from timeline.analysis.memory import allocated_memory, memory_peaks
from timeline.columns.strings import StringPool
from timeline.records.tables import CounterSamples, CounterSeries, Records


def _sampled(*values: float) -> Records:
    """A rank with samples of what all allocators hold, in MB."""
    strings = StringPool()
    codes = strings.codes(["Framework Memory", "PTA Allocated", "MB"])
    series = CounterSeries(codes[:1], codes[1:2], codes[2:])
    samples = CounterSamples.of(
        len(values),
        {
            "time_ns": np.arange(len(values)),
            "series": np.zeros(len(values), np.int64),
            "value": np.array(values),
        },
    )
    return Records(0, strings, series=series, samples=samples)


@pytest.mark.parametrize("odd", [1e308, float(1 << 62), np.inf, np.nan, -1e308, -np.inf])
def test_samples_that_no_memory_can_have_are_none(odd: float) -> None:
    records = _sampled(1.5, odd, 2.0)
    assert memory_peaks(records).table.peak_bytes.tolist() == [2 << 20]
    assert allocated_memory(records, 10).peak_bytes == 2 << 20


def test_without_any_other_samples_nothing_is_told() -> None:
    records = _sampled(np.inf, 1e300)
    assert not len(memory_peaks(records).table)
    assert allocated_memory(records, 10).peak_bytes < 0
