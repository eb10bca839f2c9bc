"""Proves that tasks are made of the starts and ends that belong together."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.writers.cann_raw import RawTask, hwts_record
from tests.support.raw_device import Device
from tests.support.read_profiles import lost_rows
from timeline.records.not_given import NO_CONTEXT
from timeline.sources.common.raw_logs import TaskMarks, match_marks


def test_back_to_back_runs_of_one_task(device: Device) -> None:
    """An end and the next start of the same ids in one tick are two runs, not one of no length."""
    device.write("stars_soc", device.task(1, at=1000) + device.task(1, at=1010))
    tasks = device.read().tasks
    assert tasks.start_ns.tolist() == [device.ns(1000), device.ns(1010)]
    assert tasks.end_ns.tolist() == [device.ns(1010), device.ns(1020)]


@pytest.mark.parametrize(
    ("stream", "task", "expanded", "found"),
    [
        (5, 70, False, (5, 70)),
        (5 + 2048, 70, False, (5, 70)),
        (0x1000 | 0x4000 | 5, 0xF007, False, (5, 0x5007)),
        (0x2000 | 0x0123, 0xA000 | 0x0807, False, (7, 0xA123)),
        (0x3000 | 5, 0xF007, False, (5, 0x3007)),
        (4097, 70, True, (4097, 70)),
        (0x8000 | 0x0123, 0x8000 | 4097, True, (4097, 0x8123)),
    ],
)
def test_ids_that_share_their_bits(
    device: Device, stream: int, task: int, expanded: bool, found: tuple[int, int]
) -> None:
    """Stream and task are taken apart as the chip put them, also where streams have 15 bits."""
    if expanded:
        host = device.profile.captures[0] / "host" / "data"
        host.mkdir()
        spec = struct.pack("<2H3IQ4B9I", 0x5A5A, 1, 2, 3, 4, 5, 1, 0, 0, 0, *[0] * 9)
        (host / "unaging.compact.expand_stream_spec.slice_0").write_bytes(spec)
    device.write("stars_soc", device.task(task, stream=stream))
    tasks = device.read().tasks
    assert (tasks.stream.tolist(), tasks.task.tolist()) == ([found[0]], [found[1]])


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), st.booleans()), unique_by=lambda m: m[:2]
    )
)
def test_starts_and_ends_match_as_in_msprof(marks: list[tuple[int, int, bool]]) -> None:
    """The rule equals that of msprof: an end is of the last start before it, if that is open."""
    key, ticks, is_end = zip(*marks, strict=True) if marks else ((), (), ())
    found = match_marks(
        TaskMarks(
            np.array(key, np.uint64),
            np.array(ticks, np.uint64),
            np.zeros(len(marks), np.uint8),
            np.array(is_end, np.bool_),
        )
    )
    pairs = zip(
        found.key.tolist(), found.start_ticks.tolist(), found.end_ticks.tolist(), strict=True
    )
    wanted = []
    for task in set(key):
        starts = sorted(m[1] for m in marks if m[0] == task and not m[2])
        ends = sorted(m[1] for m in marks if m[0] == task and m[2])
        while starts and ends:
            if ends[0] < starts[0]:
                ends.pop(0)
            elif len(starts) == 1 or ends[0] < starts[1]:
                wanted.append((task, starts.pop(0), ends.pop(0)))
            else:
                starts.pop(0)
    assert sorted(pairs) == sorted(wanted)
    assert found.unfinished + len(wanted) == sum(not end for end in is_end)
    assert found.unstarted + len(wanted) == sum(is_end)


def test_logs_longer_than_a_block(device: Device) -> None:
    """A hundred thousand tasks, read in many blocks and cut anywhere, are all there."""
    count = 100_000
    pattern = np.frombuffer(device.task(1), np.uint8)
    log = np.tile(pattern, count).reshape(2 * count, 64)
    number = np.repeat(np.arange(count), 2)
    log[:, 6:8] = (number % 65_536).astype("<u2").view(np.uint8).reshape(-1, 2)
    ticks = device.zero + np.arange(2 * count)
    log[:, 8:16] = ticks.astype("<u8").view(np.uint8).reshape(-1, 8)
    data = log.tobytes()
    device.write("stars_soc", data[:9_000_001], data[9_000_001:])
    records = device.read()
    order = np.argsort(records.tasks.start_ns)
    assert records.tasks.task[order].tolist() == (np.arange(count) % 65_536).tolist()
    assert (records.tasks.end_ns - records.tasks.start_ns == 10).all()
    assert lost_rows(records) == {}


def test_hwts_records_stand_for_themselves(device: Device) -> None:
    """A record of HWTS, byte by byte as documented: start and end of task 5 on stream 3."""
    head = bytes.fromhex("6000d36b00000500") + struct.pack("<Q", device.zero + 7)
    start = head + bytes.fromhex("03000000") + bytes(44)
    end = bytes.fromhex("71") + start[1:8] + struct.pack("<Q", device.zero + 9) + start[16:]
    task = RawTask(3, 5, NO_CONTEXT, "AI_CORE", 0, 0)
    assert hwts_record(device.zero + 7, 0, task, 6)[:16] == start[:16]
    device.write("hwts", start + end)
    records = device.read()
    assert records.tasks.stream.tolist() == [3]
    assert records.tasks.task.tolist() == [5]
    assert records.tasks.start_ns.tolist() == [device.ns(7)]
    assert records.tasks.end_ns.tolist() == [device.ns(9)]
