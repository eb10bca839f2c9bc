"""Proves that of broken raw data all whole records are read, and the others are counted."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from simulator.writers.cann_raw import change_device_info
from tests.support.profile_shelf import change_fields
from tests.support.raw_device import Device, read
from tests.support.read_profiles import lost_rows
from timeline.errors import SourceError
from timeline.sources.cann_raw.source import read_device_clock, read_device_info
from timeline.sources.common.device_clock import read_device_clocks


def test_a_truncated_record_is_counted_with_its_place(device: Device) -> None:
    """A capture that broke off keeps all whole records; the rest is named by file and byte."""
    log = device.task(1) + device.task(2, at=2000)
    device.write("stars_soc", log[:100], log[100:-7])
    records = device.read()
    assert records.tasks.task.tolist() == [1]
    assert lost_rows(records) == {
        "stars_soc.data.0.slice_1: parts of records, the first at byte 92": 1,
        "device tasks that started but never ended": 1,
    }


def test_a_log_whose_first_slices_are_gone(device: Device) -> None:
    """The rest of a record that began in a slice that was dropped is skipped and counted."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 6))
    device.write("stars_soc", log[100:300], log[300:], first=7)
    records = device.read()
    assert records.tasks.task.tolist() == [2, 3, 4, 5]
    assert lost_rows(records) == {
        "stars_soc.data.0.slice_7: parts of records, the first at byte 0": 1
    }
    assert "slices are missing: stars_soc.data.0.slice_0 to 6." in " ".join(records.warnings)


@pytest.mark.parametrize("cut", [300, 320])
def test_a_missing_slice_costs_only_its_records(device: Device, cut: int) -> None:
    """Behind a gap the next whole record is found; the gap is named."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 11))
    device.write("stars_soc", log[:cut], log[cut : 2 * cut], log[2 * cut :])
    (device.data / "stars_soc.data.0.slice_1").unlink()
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2, *range(-(-2 * cut // 128) + 1, 11)]
    assert any("stars_soc.data.0.slice_1." in text for text in records.warnings)
    assert lost_rows(records)


def test_a_gap_of_whole_records(device: Device) -> None:
    """A record that begins before a gap does not go on behind it, however well both parts fit."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 11))
    device.write("stars_soc", log[:300], log[300:940], log[940:])
    (device.data / "stars_soc.data.0.slice_1").unlink()
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2, 9, 10]
    assert lost_rows(records) == {
        "stars_soc.data.0.slice_0: parts of records, the first at byte 256": 1,
        "stars_soc.data.0.slice_2: parts of records, the first at byte 0": 1,
        "ends of device tasks without a start": 1,
    }


def test_a_slice_that_lost_its_end(device: Device) -> None:
    """Where a slice in the middle is short, the next one is read from its own first record."""
    first = b"".join(device.task(number, at=1000 * number) for number in range(1, 4))
    second = b"".join(device.task(number, at=1000 * number) for number in range(4, 8))
    device.write("stars_soc", first[:-30], second)
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2, 4, 5, 6, 7]
    assert lost_rows(records) == {
        "stars_soc.data.0.slice_0: parts of records, the first at byte 320": 1,
        "device tasks that started but never ended": 1,
    }


def test_slices_are_read_in_order_of_their_numbers(device: Device) -> None:
    """Slice 2 comes before slice 10, and markers beside slices are none."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 13))
    device.write("stars_soc", *(log[at : at + 100] for at in range(0, len(log), 100)))
    (device.data / "stars_soc.data.0.slice_3.done").write_text("filesize:100\n")
    records = device.read()
    assert records.tasks.task.tolist() == list(range(1, 13))
    assert lost_rows(records) == {}


def test_other_logs_are_named(device: Device) -> None:
    """What lies beside and is not read is said, by log."""
    device.write("stars_soc", device.task(1))
    device.write("hwts", b"")
    for name in ("hbm.data.0.slice_0", "hbm.data.0.slice_1", "hwts.aiv_data.0.slice_0", "x.done"):
        (device.data / name).write_bytes(b"x")
    assert device.read().warnings[-1].endswith("not read: hbm.data, hwts.aiv_data.")


def test_starts_and_ends_alone_are_counted(device: Device) -> None:
    """An end belongs to the start right before it; everything else has lost its other half."""
    runs = [device.task(1, at=1000 * number) for number in range(1, 4)]
    # The first lost its end, the last one its start; records of other tasks lie between.
    log = runs[0][:64] + device.task(9, at=1500) + runs[1] + runs[2][64:]
    device.write("stars_soc", log)
    records = device.read()
    assert records.tasks.start_ns.tolist() == [device.ns(2000), device.ns(1500)]
    assert lost_rows(records) == {
        "device tasks that started but never ended": 1,
        "ends of device tasks without a start": 1,
    }


def test_records_that_are_none_are_counted(device: Device) -> None:
    """What lacks the mark of the log is left out, with the place of the first."""
    device.write("stars_soc", device.task(1) + b"\xff" * 64 + device.task(2, at=2000))
    device.write("ts_track", device.tag(0, 0) + bytes(40) + device.tag(4, 5000))
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2]
    assert lost_rows(records) == {
        "stars_soc.data.0.slice_0: records of an unknown kind, the first at byte 128": 1,
        "ts_track.data.0.slice_0: records of an unknown kind, the first at byte 40": 1,
    }


def test_types_that_nobody_knows(device: Device) -> None:
    """A task of a type that is not in the tables is drawn, by its number, and computes nothing."""
    start, end = (bytearray(half) for half in (device.task(1)[:64], device.task(1)[64:]))
    for half in (start, end):
        (head,) = struct.unpack_from("<H", half)
        struct.pack_into("<H", half, 0, head | 63 << 10)
    device.write("stars_soc", bytes(start + end))
    records = device.read()
    assert records.strings[int(records.tasks.name[0])] == "stream 2 task 1 (type 63)"
    assert not records.tasks.compute.any()


def test_without_a_frequency(device: Device) -> None:
    """Ticks without a frequency have no time: an error that names the file and the way out."""
    device.write("stars_soc", device.task(1))
    info = device.directory / "info.json.0"
    for text in ("", "0", "0.000", "nan", "-1", "1e3", "1_0", "100 MHz", "9" * 30):
        change_device_info(info, text, "5")
        with pytest.raises(SourceError, match=r"frequency.*msprof --export=on") as caught:
            device.read()
        assert caught.value.path == info
    change_fields(info, {"DeviceInfo": None})
    with pytest.raises(SourceError, match="frequency"):
        device.read()


@pytest.mark.parametrize("name", ["dev_start.log.0", "host_start.log.0"])
@pytest.mark.parametrize(
    "broken", [b"", b"cntvct: many\nclock_monotonic_raw: soon\n", b"\xff\x00:"]
)
def test_without_a_moment_on_both_clocks(device: Device, name: str, broken: bytes) -> None:
    """Then times count from the start of the device, and that clock is nobody else's."""
    device.write("stars_soc", device.task(1))
    assert device.source().clock.host
    (device.directory / name).write_bytes(broken)
    source = device.source()
    records = read(source)
    assert records.tasks.start_ns.tolist() == [(device.zero + 1000) * 10]
    assert any("start of the device" in text for text in records.warnings)
    assert source.clock.host == "" and source.clock.wall_offset_ns is None


@pytest.mark.parametrize(
    ("processors", "late_ns"),
    [([{"Frequency": "100.000000"}], 2500), ([{"Frequency": ""}], 250), ([], 250), (None, 250)],
)
def test_raw_and_parsed_data_are_on_one_clock(
    device: Device, processors: list[dict[str, str]] | None, late_ns: int
) -> None:
    """Both readers relate the counter to the host alike; a host of no frequency has 1000 MHz."""
    path = device.directory / "host_start.log.0"
    path.write_text(path.read_text().replace("cntvct_diff: 0", "cntvct_diff: 250"))
    change_fields(device.directory / "info.json.0", {"CPU": processors})
    ticks = device.zero + np.arange(0, 5000, 7)
    raw = read_device_clock(device.directory, *read_device_info(device.directory))
    parsed = read_device_clocks(device.directory, device.directory.parent / "host", None)
    assert raw == parsed.counter
    assert raw.times_ns(ticks).tolist() == parsed.counted_ns(ticks).tolist()
    assert raw.times_ns(ticks)[0] == device.zero_ns + late_ns
    assert parsed.host_ns == device.zero_ns + late_ns


@pytest.mark.parametrize("name", ["dev_start.log.0", "host_start.log.0"])
def test_a_log_of_a_clock_that_cannot_be_read(device: Device, name: str) -> None:
    """It is an error that names the file: without it all times would be wrong in silence."""
    device.write("stars_soc", device.task(1))
    (device.directory / name).unlink()
    (device.directory / name).mkdir()
    with pytest.raises(SourceError, match=name):
        read_device_clock(device.directory, *read_device_info(device.directory))


def test_no_whole_task(device: Device) -> None:
    """Slices in which nothing is whole give the command that exports them."""
    device.write("stars_soc", device.task(1)[:64])
    with pytest.raises(SourceError, match=r"no whole task.*msprof --export=on"):
        device.read()


def test_empty_slices_are_none(device: Device) -> None:
    """A capture whose slices are all empty is raw data that cannot be read."""
    device.write("stars_soc", b"")
    with pytest.raises(SourceError, match="holds raw profiling data only"):
        device.read()


def test_counters_that_no_clock_shows(device: Device) -> None:
    """A tick years away is no time; its task is counted and does not stretch the picture."""
    device.write("stars_soc", device.task(1) + device.task(2, at=2**61))
    records = device.read()
    assert records.tasks.task.tolist() == [1]
    assert lost_rows(records) == {"device tasks without a valid time": 1}
