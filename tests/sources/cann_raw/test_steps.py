"""Proves that steps are those that the tags of a step trace tell of."""

from __future__ import annotations

from tests.support.raw_device import Device
from tests.support.read_profiles import lost_rows
from timeline.records.not_given import NO_GRAPH, NO_TIME
from timeline.records.tables import Records


def steps_of(records: Records) -> list[tuple[int, int, int, int]]:
    steps = records.steps
    columns = (steps.graph, steps.iteration, steps.start_ns, steps.end_ns)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_a_run_of_several_iterations(device: Device) -> None:
    """A graph that is started once and iterates: each next iteration begins at the last end."""
    tags = [(0, 0), (2, 10), (3, 20), (4, 30), (20_000, 32), (20_001, 33), (2, 40), (3, 50)]
    tags += [(10_000, 45), (10_001, 55), (4, 60), (1, 61)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [
        (1, 1, device.ns(0), device.ns(30)),
        (1, 2, device.ns(30), device.ns(60)),
    ]
    assert records.parts.iteration.tolist() == [2, 2]
    assert records.steps.fp_start_ns.tolist() == [device.ns(10), device.ns(40)]
    assert lost_rows(records) == {}


def test_runs_of_one_graph_that_overlap(device: Device) -> None:
    """A tag belongs to the oldest iteration that it can follow, as in a pipeline."""
    tags = [(0, 0), (2, 10), (0, 15), (2, 20), (3, 30), (3, 35), (4, 40), (1, 41), (4, 50), (1, 51)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    assert steps_of(device.read()) == [
        (1, 1, device.ns(0), device.ns(40)),
        (1, 2, device.ns(15), device.ns(50)),
    ]


def test_a_graph_that_is_only_run(device: Device) -> None:
    """Inference has a start and an end, and neither forward nor backward."""
    device.write("ts_track", device.tag(0, 0) + device.tag(1, 70))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(0), device.ns(70))]
    assert records.steps.fp_start_ns.tolist() == [NO_TIME]


def test_steps_without_a_graph(device: Device) -> None:
    """Marks of steps (60000, 60001) are steps of no graph, by their own number."""
    tags = [(60_000, 0, 7), (60_001, 90, 7), (60_000, 100, 8), (60_001, 190, 8), (60_000, 200, 9)]
    log = b"".join(device.tag(tag, at, graph=NO_GRAPH, index=index) for tag, at, index in tags)
    device.write("ts_track", log)
    device.write("stars_soc", device.task(1, at=110))
    records = device.read()
    assert steps_of(records) == [
        (NO_GRAPH, 7, device.ns(0), device.ns(90)),
        (NO_GRAPH, 8, device.ns(100), device.ns(190)),
    ]
    assert lost_rows(records) == {"steps that started but never ended": 1}


def test_tags_that_are_there_twice(device: Device) -> None:
    """A tag that repeats the one before it is read once, and nothing is lost."""
    tags = [(0, 0), (2, 10), (3, 20), (4, 30), (1, 31)]
    device.write("ts_track", b"".join(2 * device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(0), device.ns(30))]
    assert lost_rows(records) == {}
    assert [one.rows for one in records.omissions] == [len(tags)]


def test_a_run_without_a_start(device: Device) -> None:
    """Tags of a run that began before the capture are no step, whatever of it is there."""
    tags = [(2, 1), (3, 2), (1, 3), (0, 20), (4, 30), (1, 31), (2, 40), (3, 41)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(20), device.ns(30))]
    assert lost_rows(records) == {"steps without a start": 2}


def test_a_step_trace_cut_at_both_ends(device: Device) -> None:
    """What began before the capture or ended after it is no step, and is counted."""
    tags = [(3, 5), (4, 10), (1, 11), (0, 20), (2, 21), (4, 30), (1, 31), (0, 40), (10_000, 41)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(20), device.ns(30))]
    assert lost_rows(records) == {
        "steps without a start": 1,
        "steps that started but never ended": 1,
        "step trace records of no step": 1,
    }
