"""Proves that counters are those that a plain loop over all events finds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trace_json_reading import (
    ALL_LAYERS,
    HELD_COUNTS,
    STREAM,
    EventObject,
    SeriesName,
    Writer,
    content,
    pieces,
    process,
    read,
    run_on,
    samples_of,
)
from timeline.layers import Layer
from timeline.sources.common.counters import name_and_unit

values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(-1e12, 1e12),
    st.booleans(),
    st.none(),
    st.sampled_from(["", "7", "N/A", "0.254906", "-1e3", "idle", "1_0", "nan"]),
    st.sampled_from([2**63, 2**64 + 1, [1], [], [[2]], {"a": 1}]),
)
TEXTS = ("7", "0.254906", "-1e3")
counter_ids = st.sampled_from([0, 1, "1", 2, "x", 2**70])
readings = st.builds(
    lambda pid, name, time_us, held, told: {
        "ph": "C",
        "pid": pid,
        "name": name,
        "ts": time_us,
        "args": {**told, **held},
    },
    st.sampled_from([20, 21, 22, "20"]),
    st.sampled_from(["HBM 0/Read", "DDR"]),
    st.integers(0, 5),
    st.dictionaries(st.sampled_from(["Read(MB/s)", "KB", "paid"]), values, max_size=3),
    st.dictionaries(st.sampled_from(["core_id", "hccs_id"]), counter_ids, max_size=2),
)
COUNTER_NAMES = [process(20, "HBM"), process(21, "HBM")]


@given(st.lists(readings, max_size=10), st.sampled_from(HELD_COUNTS))
def test_counters_are_those_that_a_plain_loop_finds(
    write: Writer, found: list[EventObject], held_events: int
) -> None:
    """Numbers count, in quotes too, processes of one name share series, ids tell series apart."""
    with pieces(held_events):
        records = read(write(found + COUNTER_NAMES))
    assert records.samples.value.ndim == 1
    assert samples_of(records) == expected_samples(found)
    told = [omission.rows for omission in records.omissions if "not numbers" in omission.reason]
    assert sum(told) == sum(
        value not in (None, "", "N/A") and number_of(value) is None
        for event in found
        for name, value in event["args"].items()
        if not name.endswith("_id")
    )


def expected_samples(found: Sequence[EventObject]) -> dict[SeriesName, list[tuple[int, float]]]:
    """The samples of each series, one event after the other."""
    made: dict[SeriesName, list[tuple[int, float]]] = defaultdict(list)
    for event in found:
        group = "HBM" if event["pid"] in (20, 21) else f"Process {event['pid']}"
        args: EventObject = event["args"]
        held = {name: value for name, value in args.items() if not name.endswith("_id")}
        label = "".join(f" {name[:-3]} {value}" for name, value in args.items() if name not in held)
        for arg, value in held.items():
            if (number := number_of(value)) is not None:
                name, unit = name_and_unit(event["name"], arg, len(held))
                made[group, name + label, unit].append((event["ts"] * 1000, number))
    return {name: sorted(samples) for name, samples in made.items()}


def number_of(value: Any) -> float | None:
    """As a plain loop takes it; what else Python reads as a number is none."""
    if isinstance(value, (int, float)):
        return float(value)
    return float(value) if value in TEXTS else None


def reading(args: EventObject, pid: object = 20) -> EventObject:
    return {"ph": "C", "pid": pid, "name": "Read", "ts": 1, "args": args}


NO_NUMBERS: tuple[Any, ...] = (
    None,
    "N/A",
    "idle",
    "7 MB",
    "1_0",
    [1],
    [1, 2],
    [],
    [[2]],
    {"a": 1},
    {},
)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=json.dumps)
@pytest.mark.parametrize("beside", [[], [2, True]], ids=["alone", "beside numbers"])
def test_what_is_no_number_is_no_sample(write: Writer, value: Any, beside: list[Any]) -> None:
    """Each kind of value alone, and in one piece with a number; what says that there is none too.

    What else is no number is told as left out.
    """
    found = [reading({"value": one}) for one in [value, *beside]]
    records = read(write(found + COUNTER_NAMES))
    assert samples_of(records) == (
        {("HBM", "Read", ""): [(1000, 1.0), (1000, 2.0)]} if beside else {}
    )
    told = [(omission.reason, omission.rows) for omission in records.omissions]
    assert told == (
        [] if value in (None, "N/A") else [("samples of counters that are not numbers", 1)]
    )


def test_an_id_may_be_a_number_or_its_text(write: Writer) -> None:
    """Both give one series, also for processes that only share their name."""
    found = [
        reading({"core_id": 1, "value": 5}),
        reading({"core_id": "1", "value": 6}),
        reading({"core_id": 1, "value": 7}, pid=21),
        reading({"core_id": 2, "value": 8}),
    ]
    assert samples_of(read(write(found + COUNTER_NAMES))) == {
        ("HBM", "Read core 1", ""): [(1000, 5.0), (1000, 6.0), (1000, 7.0)],
        ("HBM", "Read core 2", ""): [(1000, 8.0)],
    }


@pytest.mark.parametrize("core", [[1], {"a": 1}, None], ids=json.dumps)
def test_an_id_of_any_shape_tells_series_apart(write: Writer, core: Any) -> None:
    """An id is only a part of a label, so nothing about it can be wrong."""
    records = read(write([reading({"core_id": core, "value": 5}), *COUNTER_NAMES]))
    assert samples_of(records) == {("HBM", f"Read core {core}", ""): [(1000, 5.0)]}


@pytest.mark.parametrize("held_events", HELD_COUNTS)
def test_ids_that_only_compare_equal_stay_apart(write: Writer, held_events: int) -> None:
    """Whichever of them are read in one piece."""
    cores = [1, True, 1.0, 0, False]
    found = [reading({"core_id": core, "value": place}) for place, core in enumerate(cores)]
    with pieces(held_events):
        records = read(write(found + COUNTER_NAMES))
    assert samples_of(records) == {
        ("HBM", f"Read core {core}", ""): [(1000, float(place))] for place, core in enumerate(cores)
    }


def test_counters_that_are_not_asked_for_are_not_read(write: Writer) -> None:
    path = write([reading({"value": 5}), *COUNTER_NAMES, *STREAM.names(), *run_on(1, 2)])
    records = read(path, layers=ALL_LAYERS - {Layer.COUNTERS})
    assert (len(records.series), len(records.samples)) == (0, 0)
    assert content(records).tables == content(read(path)).tables
