"""Proves that the tables of memory beside a capture become counters, exactly and once."""

from __future__ import annotations

import csv
import sqlite3
from collections import defaultdict
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.model import RankRun, Run
from simulator.writers.companions.memory import (
    MODULES,
    RESERVED_BYTES,
    allocated,
    allocations,
    application_memory,
    write_memory_tables,
    write_msprof_memory_tables,
)
from tests.support.places import DATA, needs_captures
from tests.support.profile_shelf import Copier, Profile, ProfileShelf, change_events
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.cli.main import main
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Allocations, Omission, OmissionCode, Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS
from timeline.sources.common.counter_tables import CounterTable, csv_tables
from timeline.sources.common.counters import CounterBuilder
from timeline.sources.common.losses import LostRows
from timeline.sources.companions.counters import add_allocations, read_sample_table
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

MEBIBYTE = 1 << 20

Samples = list[tuple[int, float]]
Counters = dict[tuple[str, str, str], Samples]
"""Samples by group, name and unit."""


def counters_of(records: Records) -> Counters:
    """The counters of a rank, in order of time."""
    strings, series, samples = records.strings, records.series, records.samples
    found: Counters = {}
    for row in range(len(series)):
        label = strings[series.group[row]], strings[series.name[row]], strings[series.unit[row]]
        assert label not in found, "one series is one row"
        of_series = samples.series == row
        pairs = zip(
            samples.time_ns[of_series].tolist(), samples.value[of_series].tolist(), strict=True
        )
        found[label] = sorted(pairs)
    return found


def collected(into: CounterBuilder) -> Counters:
    strings = StringPool()
    series, samples = into.tables(strings)
    return counters_of(Records(0, strings, series=series, samples=samples))


def read_all(path: Path) -> list[Records]:
    return [
        drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS)))
        for source in discover(path).sources
    ]


def wall(run: Run, samples: Samples) -> Samples:
    return [(run.wall_ns(time_ns), value) for time_ns, value in samples]


def expected(run: Run, rank: RankRun) -> Counters:
    """What the torch_npu tables of a rank hold and its timeline does not."""
    totals, moments = allocated(rank), application_memory(rank)
    framework = {
        "Allocated": totals,
        "Active": totals,
        "Reserved": [(at, float(RESERVED_BYTES)) for at, _ in totals],
    }
    found = {
        ("Framework Memory", f"PTA {name}", "B"): wall(run, samples)
        for name, samples in framework.items()
    }
    for module in ("HCCL", "RUNTIME"):
        held = [(at, float(MODULES[module])) for at, _ in moments]
        found["NPU Module Memory", f"{module} Reserved", "B"] = wall(run, held)
    found["Operator Memory", "Held by Operators", "B"] = wall(run, allocated(rank, 0))
    return found


GROUPS = ("Framework Memory", "NPU Module Memory", "Operator Memory")


def own_groups(counters: Counters) -> Counters:
    return {label: samples for label, samples in counters.items() if label[0] in GROUPS}


@pytest.fixture
def torch_text(copied: Copier) -> Profile:
    """A torch_npu text profile with its tables of memory."""
    profile = copied("torch-text")
    for rank, capture in zip(profile.run.ranks, profile.captures, strict=True):
        write_memory_tables(profile.run, rank, capture / "ASCEND_PROFILER_OUTPUT")
    return profile


# -- what is drawn -----------------------------------------------------------------------------


def test_what_the_trace_draws_is_not_drawn_again(torch_text: Profile) -> None:
    """The rows of the process repeat the counter of its memory, and are counted, not as a loss."""
    for rank, records in zip(torch_text.run.ranks, read_all(torch_text.path), strict=True):
        counters = counters_of(records)
        assert own_groups(counters) == expected(torch_text.run, rank), "to the byte"
        in_trace = counters["NPU MEM", "APP/HBM", "KB"]
        moments = application_memory(rank)
        assert [time for time, _ in in_trace] == [time for time, _ in wall(torch_text.run, moments)]
        assert not [name for _, name, _ in counters if name.startswith("APP ")]
        reason = "rows of memory_record.csv already drawn from the capture"
        repeated = OmissionCode.REPEATED
        assert Omission(reason, len(moments), rank.rank, code=repeated) in records.omissions
        idle = "samples of npu_module_mem.csv that stay zero all along"
        still = Omission(idle, 2 * len(moments), rank.rank, code=OmissionCode.IDLE_COUNTER)
        assert still in records.omissions


def test_rows_of_the_process_are_drawn_where_the_trace_lacks_them(torch_text: Profile) -> None:
    run, rank = torch_text.run, torch_text.run.ranks[0]
    trace = torch_text.captures[0] / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    change_events(trace, lambda event: None if event["ph"] == "C" else event)
    counters = counters_of(read_all(torch_text.path)[0])
    moments = wall(run, application_memory(rank))
    assert counters["Framework Memory", "APP Reserved", "B"] == moments


def test_tables_are_left_alone_where_counters_are_not_wanted(torch_text: Profile) -> None:
    for source in discover(torch_text.path).sources:
        for layers in (SUMMARY_LAYERS, DETAIL_LAYERS - {Layer.COUNTERS}):
            records = source.read(ReadRequest(layers))
            assert not len(records.samples)
            assert not [one for one in records.omissions if ".csv" in one.reason]
        names = {path.name for path in source.files}
        assert {"memory_record.csv", "operator_memory.csv", "npu_module_mem.csv"} <= names


def test_each_device_of_an_export_has_its_own_rows(copied: Copier) -> None:
    """msprof writes one table for all devices, sizes in KB, and a duration for a release."""
    profile = copied("mindstudio")
    run, (first, second) = profile.run, profile.run.ranks
    output = profile.captures[0] / "mindstudio_profiler_output"
    (stamp,) = {path.stem.rpartition("_")[2] for path in output.glob("op_summary_*.csv")}
    write_msprof_memory_tables(run, [first, second], output, stamp)
    (profile.captures[0] / "device_1").mkdir()
    main_device = discover(profile.captures[0], {f"{profile.captures[0].name}/device_1": 7})
    for source, rank in zip(main_device.sources, (first, second), strict=True):
        counters = own_groups(
            counters_of(drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS))))
        )
        assert counters == {
            ("Framework Memory", "GE Allocated", "B"): wall(run, allocated(rank)),
            ("Framework Memory", "GE Reserved", "B"): [
                (run.wall_ns(at), float(RESERVED_BYTES)) for at, _ in allocated(rank)
            ],
            ("Operator Memory", "Held by Operators", "B"): wall(run, allocated(rank, 0)),
        }


def test_several_devices_that_nothing_tells_apart_have_rows_of_their_own(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    run = shelf.get("torch-text").run
    write_msprof_memory_tables(run, run.ranks, tmp_path, "20250109120100")
    paths = [tmp_path / "memory_record_20250109120100.csv"]
    into = CounterBuilder()
    left_out = LostRows(0)
    read_sample_table(table_of("memory_record"), paths, set(), None, left_out, into)
    assert left_out.omissions == []
    names = {name for _, name, _ in collected(into)}
    assert names == {f"GE {what}, {at}" for what in ("Allocated", "Reserved") for at in (0, 1)}


def table_of(kind: str) -> CounterTable:
    (found,) = (table for table in csv_tables() if table.table == kind)
    return found


# -- databases ---------------------------------------------------------------------------------

DATABASE = """
CREATE TABLE ENUM_MODULE (id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO ENUM_MODULE VALUES (3, 'HCCL'), (4, 'SLOG');
CREATE TABLE NPU_MODULE_MEM (moduleId, timestampNs, totalReserved NUMERIC, deviceId);
INSERT INTO NPU_MODULE_MEM VALUES (3, 1700000000000000100, 4096, 0),
    (4, 1700000000000000100, 0, 0), (3, 1700000000000000300, 8192, 0);
INSERT INTO STRING_IDS VALUES (9000001, 'GE'), (9000002, 'allocate'), (9000003, 'AI_CORE');
CREATE TABLE NPU_OP_MEM (operatorName, addr, type, size, timestampNs, globalTid,
    totalAllocate NUMERIC, totalReserve NUMERIC, component, deviceId);
INSERT INTO NPU_OP_MEM VALUES (9000002, 1, 9000002, 512, 1700000000000000100, 0, 512, 9,
    9000001, 0);
CREATE TABLE OP_MEMORY (name, size, allocationTime, releaseTime, deviceId);
INSERT INTO OP_MEMORY VALUES (9000002, 512, 1700000000000000100, 1700000000000000900, 0),
    (9000002, 1024, 1700000000000000200, NULL, 0), (9000002, 7, NULL, 1700000000000000900, 0);
CREATE TABLE SAMPLE_PMU_TIMELINE (deviceId, timestampNs, totalCycle, usage REAL, freq, coreId,
    coreType);
INSERT INTO SAMPLE_PMU_TIMELINE VALUES (0, 1700000000000000100, 77, 12.5, 1800, 5, 9000003);
"""


@pytest.mark.parametrize("with_totals", [False, True])
def test_tables_of_a_database(copied: Copier, with_totals: bool) -> None:
    """Samples of memory and of cores; those of the graph engine come from one of two tables."""
    profile = copied("torch-db")
    (path,) = profile.captures[0].rglob("ascend_pytorch_profiler_*.db")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(DATABASE)
        if with_totals:
            database.executescript(
                "CREATE TABLE MEMORY_RECORD (component, timestamp, totalAllocated);"
                "INSERT INTO MEMORY_RECORD VALUES (9000001, 1700000000000000100, 512);"
            )
    records = read_all(profile.path)[0]
    counters = counters_of(records)
    first, second = 1_700_000_000_000_000_100, 1_700_000_000_000_000_200
    assert counters["NPU Module Memory", "HCCL Reserved", "B"] == [
        (first, 4096.0),
        (first + 200, 8192.0),
    ]
    assert counters["Operator Memory", "Held by Operators", "B"] == [
        (first, 512.0),
        (second, 1536.0),
        (first + 800, 1024.0),
    ]
    assert counters["Core Utilisation", "5 AI_CORE Usage", "%"] == [(first, 12.5)]
    assert counters["Core Utilisation", "5 AI_CORE Freq", "MHz"] == [(first, 1800.0)]
    assert counters["Framework Memory", "GE Allocated", "B"] == [(first, 512.0)]
    assert (("Framework Memory", "GE Reserved", "B") in counters) != with_totals
    reasons = {one.reason: (one.rows, one.loss) for one in records.omissions}
    assert reasons["samples of NPU_MODULE_MEM that stay zero all along"] == (1, False)
    bad = "rows of OP_MEMORY without a valid time or size of the allocation"
    assert reasons[bad] == (1, True)
    twin = "rows of NPU_OP_MEM, which are in MEMORY_RECORD too"
    assert reasons.get(twin) == ((1, False) if with_totals else None)


SAMPLED = {
    "PCIE": ("PCIe", "txPostMin txPostMax txPostAvg txNonpostLatencyMax rxNonpostAvg rxCplMin"),
    "NIC": ("NIC", "bandwidth rxPacketRate rxByteRate rxPackets rxBytes rxErrors txDropped"),
    "ROCE": ("RoCE", "bandwidth txPacketRate txByteRate txPackets txBytes txErrors rxDropped"),
    "NETDEV_STATS": (
        "Network Device",
        "macTxPfcPkt macRxPfcPkt macTxByte macTxBandwidth macRxByte macRxBandwidth macTxBadByte"
        " macRxBadByte roceTxPkt roceRxPkt roceTxErrPkt roceRxErrPkt roceTxCnpPkt roceRxCnpPkt"
        " roceNewPktRty nicTxByte nicTxBandwidth nicRxByte nicRxBandwidth",
    ),
    "UB": ("Ub", "rxUdmaBind txUdmaBind"),
    "SIO": ("SIO", "rxReq rxRsp rxSnp rxDat txReq txRsp txSnp txDat"),
}
"""The group of each table, and columns that msprof documents."""


@pytest.mark.parametrize("table", SAMPLED)
def test_every_column_of_a_sampled_table_is_a_series(copied: Copier, table: str) -> None:
    group, names = SAMPLED[table]
    columns = names.split()
    profile = copied("torch-db")
    (path,) = profile.captures[0].rglob("ascend_pytorch_profiler_*.db")
    cells = ", ".join(map(str, range(1, len(columns) + 1)))
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"CREATE TABLE {table} (timestampNs INTEGER, deviceId, {', '.join(columns)});"
            f"INSERT INTO {table} VALUES (1700000000000000100, 0, {cells});"
        )
    counters = counters_of(read_all(profile.path)[0])
    of_group = {name: samples for (held, name, _), samples in counters.items() if held == group}
    values = sorted(value for samples in of_group.values() for _, value in samples)
    assert values == [float(place) for place in range(1, len(columns) + 1)]
    assert all(len(samples) == 1 for samples in of_group.values())
    bandwidths = [unit for held, name, unit in counters if held == group and "Bandwidth" in name]
    assert set(bandwidths) <= {"B/s"}


def test_tables_beside_a_database_add_what_it_lacks(copied: Copier) -> None:
    """A group that the database has is not drawn again from text."""
    profile = copied("torch-db")
    run, rank = profile.run, profile.run.ranks[0]
    output = profile.captures[0] / "ASCEND_PROFILER_OUTPUT"
    write_memory_tables(run, rank, output)
    text = "event,ddr(KB),hbm(KB),memory(KB),timestamp(us)\nAPP,0,1,1,1736424000123456.789\n"
    (output / "npu_mem.csv").write_text(text, encoding="utf-8")
    records = read_all(profile.path)[0]
    assert own_groups(counters_of(records)) == expected(run, rank)
    reason = "rows of npu_mem.csv already drawn from the capture"
    assert Omission(reason, 1, 0, code=OmissionCode.REPEATED) in records.omissions


def test_tables_beside_tables_of_kernels_are_drawn(copied: Copier) -> None:
    """Where no trace is left, the tables of memory are all the counters that there are."""
    profile = copied("kernel-details")
    for rank, capture in zip(profile.run.ranks, profile.captures, strict=True):
        write_memory_tables(profile.run, rank, capture / "ASCEND_PROFILER_OUTPUT")
    for rank, records in zip(profile.run.ranks, read_all(profile.path), strict=True):
        found = counters_of(records)
        used = wall(profile.run, application_memory(rank))
        application = {("Framework Memory", "APP Reserved", "B"): used}
        by_label = {label: [*map(tuple, samples)] for label, samples in found.items()}
        assert {label for label in by_label if "APP" not in label[1]} == set(
            expected(profile.run, rank)
        )
        assert expected(profile.run, rank).items() <= by_label.items()
        for label, samples in application.items():
            assert [time for time, _ in by_label[label]] == [time for time, _ in samples]


# -- broken tables -----------------------------------------------------------------------------

HEADER = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB)"
START_NS = 1_736_408_883_694_238_150
START = "1736408883694238.150"


@pytest.mark.parametrize(
    ("text", "values", "lost"),
    [
        (f"{HEADER}\nPTA,{START}\t,1,2,3\n".encode(), [1, 2, 3], 0),
        (f"\ufeff{HEADER}\r\n PTA\t,{START}\t,1,2,3\r\n".encode(), [1, 2, 3], 0),
        (f"{HEADER}\nPTA,{START},1,2,3\n\nPTA,{START}".encode(), [1, 2, 3], 1),
        (f"{HEADER}\nPTA,{START},1,2,3\n{HEADER}\n".encode(), [1, 2, 3], 0),
        (f"{HEADER}\nPTA,{START},N/A,2,\n".encode(), [2], 0),
        (f"{HEADER}\nPTA,{START},nan,inf,3\n".encode(), [3], 2),
        (f"{HEADER}\nPTA,{START},1,2,many\n".encode(), [1, 2], 1),
        (f"{HEADER}\nPTA,N/A,1,2,3\nPTA,{START},1,2,3\n".encode(), [1, 2, 3], 1),
        (f"{HEADER}\nPTA,{'9' * 30},1,2,3\n".encode(), [], 1),
        (f"{HEADER}\n\xff,{START},1,2,3\n".encode("latin-1"), [1, 2, 3], 0),
        (f"Timestamp(us),Total Reserved(MB)\n{START},2\n".encode(), [2], 0),
        (f"{HEADER}\n".encode(), [], 0),
    ],
)
def test_what_is_readable_is_read_and_the_rest_counted(
    tmp_path: Path, text: bytes, values: list[int], lost: int
) -> None:
    path = tmp_path / "memory_record.csv"
    path.write_bytes(text)
    into = CounterBuilder()
    left_out = LostRows(0)
    read_sample_table(table_of("memory_record"), [path], set(), None, left_out, into)
    found = [sample for samples in collected(into).values() for sample in samples]
    assert sorted(found) == [(START_NS, float(value * MEBIBYTE)) for value in values]
    assert sum(one.rows for one in left_out.omissions if one.loss) == lost
    assert all(path.name in one.reason for one in left_out.omissions)


def test_a_cut_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memory_record.csv"
    path.write_text(f"{HEADER}\nPTA,{START},1,2,3\nPTA,17364\n", encoding="utf-8")
    table = table_of("memory_record")
    left_out = LostRows(3)
    read_sample_table(table, [path], set(), None, left_out, CounterBuilder())
    reason = "memory_record.csv: rows with too few or many cells, the first at line 3"
    assert left_out.omissions == [Omission(reason, 1, 3, loss=True, code=OmissionCode.DAMAGED)]


@pytest.mark.parametrize(("text", "found"), [("", "is empty"), ("a,b\n1,2\n", "Timestamp")])
def test_an_unusable_table_is_left_out_and_named(
    torch_text: Profile, text: str, found: str
) -> None:
    """The capture itself is read all the same, and --strict still stops."""
    output = torch_text.captures[0] / "ASCEND_PROFILER_OUTPUT"
    (output / "memory_record.csv").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=found):
        paths = [output / "memory_record.csv"]
        table = table_of("memory_record")
        read_sample_table(table, paths, set(), None, LostRows(0), CounterBuilder())
    records = read_all(torch_text.path)[0]
    assert len(records.tasks)
    (omission,) = (one for one in records.omissions if one.loss)
    assert found in omission.reason
    assert "memory_record.csv" in omission.reason
    target = torch_text.path / "timeline.pftrace"
    command = [str(torch_text.path), "--kind", "detail", "-o", str(target), "--strict", "-q"]
    assert main(command) == 4


def test_sizes_too_coarse_for_bytes_keep_their_unit(tmp_path: Path) -> None:
    """935.995 MB is no whole number of bytes, so no bytes are made up."""
    path = tmp_path / "memory_record.csv"
    path.write_text(f"{HEADER}\nPTA,{START},935.995,2,3\n", encoding="utf-8")
    into = CounterBuilder()
    read_sample_table(table_of("memory_record"), [path], set(), None, LostRows(0), into)
    counters = collected(into)
    assert counters["Framework Memory", "PTA Allocated", "MB"] == [(START_NS, 935.995)]
    assert counters["Framework Memory", "PTA Reserved", "B"] == [(START_NS, 2.0 * MEBIBYTE)]


# -- what operators hold -----------------------------------------------------------------------

ALLOCATION = st.tuples(st.integers(0, 1 << 40), st.integers(0, 50), st.none() | st.integers(0, 50))


@given(st.lists(ALLOCATION, max_size=30))
def test_held_memory_is_what_was_taken_and_not_given_back(
    rows: list[tuple[int, int, int | None]],
) -> None:
    """At every moment it is the sum over allocations that began and did not end, never less."""
    columns = {
        "size_bytes": [size for size, *_ in rows],
        "start_ns": [start for _, start, _ in rows],
        "end_ns": [NO_TIME if length is None else start + length for _, start, length in rows],
    }
    into = CounterBuilder()
    add_allocations(Allocations.of(len(rows), columns), into)
    (samples,) = collected(into).values() or ([],)
    times = [time for time, _ in samples]
    assert times == sorted(set(times))
    for time, value in samples:
        assert value == sum(
            size
            for size, start, length in rows
            if start <= time and (length is None or start + length > time)
        )


def test_the_run_gives_memory_back(shelf: ProfileShelf) -> None:
    """The fixtures above would prove nothing if all memory, or none, were given back."""
    ends = {one.given_back_ns is None for one in allocations(shelf.get("torch-text").run.ranks[0])}
    assert ends == {True, False}


# -- a real capture ----------------------------------------------------------------------------


@needs_captures
@pytest.mark.parametrize("rank", [0, 1])
def test_real_tables_are_drawn_to_the_byte(rank: int) -> None:
    """What is wanted is read with plain csv and fractions."""
    capture = DATA / "torch-npu-text" / f"rank{rank}_ascend_pt"
    output = capture / "ASCEND_PROFILER_OUTPUT"
    wanted: dict[tuple[str, str, str], Samples] = defaultdict(list)
    repeated: Samples = []
    for row in rows_of(output / "memory_record.csv"):
        time_ns = int(Fraction(row["Timestamp(us)"].strip()) * 1000)
        for what in ("Allocated", "Reserved", "Active"):
            if text := row[f"Total {what}(MB)"]:
                size = Fraction(text) * MEBIBYTE
                assert size.denominator == 1
                name = f"{row['Component']} {what}"
                wanted["Framework Memory", name, "B"].append((time_ns, float(size)))
    repeated = wanted.pop(("Framework Memory", "APP Reserved", "B"))
    for row in rows_of(output / "npu_module_mem.csv"):
        time_ns = int(Fraction(row["Timestamp(us)"].strip()) * 1000)
        name = f"{row['Component']} Reserved"
        size = Fraction(row["Total Reserved(MB)"]) * MEBIBYTE
        wanted["NPU Module Memory", name, "B"].append((time_ns, float(size)))
    held = {label: sorted(found) for label, found in wanted.items() if any(v for _, v in found)}
    (records,) = read_all(capture)
    counters = counters_of(records)
    found = own_groups(counters)
    operators = found.pop(("Operator Memory", "Held by Operators", "B"))
    assert found == held
    assert len(held) == 8 + 4
    in_trace = counters["NPU MEM", "APP/Memory", "KB"]
    assert [(time, value * 1024) for time, value in in_trace] == repeated
    assert len(operators) == 344
    kept = [row for row in rows_of(output / "operator_memory.csv") if not row["Release Time(us)"]]
    assert operators[-1][1] == sum(float(row["Size(KB)"]) * 1024 for row in kept)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
