"""Samples of memory, bandwidth and frequency over the span of a collection."""

from __future__ import annotations

from simulator.model import MIB, MILLISECOND_NS, Counter
from simulator.recording import Noise

SAMPLE_EVERY_NS = 2 * MILLISECOND_NS


def sample_counters(
    noise: Noise, start_ns: int, end_ns: int, megahertz: int
) -> tuple[Counter, ...]:
    """Sample every unit regularly, the families a few microseconds out of phase."""
    plans = [
        ("HBM", series, unit, 5_000 * MIB, 0) for unit in (0, 1) for series in ("Read", "Write")
    ]
    plans += [("LLC", "Throughput", unit, 8_000 * MIB, 3_000) for unit in (0, 1)]
    plans += [("LLC", "Hit Rate", unit, 85_000, 3_000) for unit in (0, 1)]
    plans += [
        ("NPU MEM", "APP", 0, 2_160 * MIB, 5_000),
        ("NPU MEM", "Device", 0, 2_402 * MIB, 7_000),
    ]
    counters = []
    for family, series, unit, level, phase_ns in plans:
        times = range(start_ns + 217 + phase_ns, end_ns, SAMPLE_EVERY_NS)
        samples = tuple((time_ns, noise.about(level)) for time_ns in times)
        counters.append(Counter(family, series, unit, samples))
    frequency = ((start_ns + 217, megahertz), (end_ns, megahertz))
    counters.append(Counter("AI Core Freq", "AI Core Freq", 0, frequency))
    return tuple(counters)
