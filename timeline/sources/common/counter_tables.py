"""Declarations of the tables of counter samples that profilers write, and of their series.

A counter has up to three names: in CSV files, in the exported database of msprof and torch_npu,
and in msprof's internal databases.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from timeline.records.tables import AI_CORE_FREQUENCY

OPERATOR_MEMORY = "operator_memory"
"""The CSV file of allocations."""


class SampleClock(enum.Enum):
    """The clock of the times in a table of msprof's internal databases."""

    HOST = enum.auto()
    """Times on the clock of the host."""
    COUNTER = enum.auto()
    """Counts of the device's counter."""
    SAMPLER = enum.auto()
    """Times of a sampler on the device."""
    MEMORY_SAMPLER = enum.auto()
    """Times of the sampler of memory."""


class Series(NamedTuple):
    """The name and unit of the values of one column.

    `{}` in the name is replaced by the label of the series. unit: empty if there is none, or the
    file names it. factor: converts values to the unit.
    """

    name: str
    unit: str = ""
    factor: int = 1


@dataclass(frozen=True)
class CounterTable:
    """A table of samples: the names of its columns, and the series that they become.

    table: its name, or that of a CSV file without its stamp and suffix. group: the row of the
    timeline that holds its series. values: the series by column. label: the column of labels of
    series. kind: the column of kinds, whose names follow the label. time: the column of times.
    """

    table: str
    group: str
    values: Mapping[str, Series]
    label: str = ""
    kind: str = ""
    time: str = "timestampNs"
    clock: SampleClock = SampleClock.HOST
    file: str = ""
    """The database that holds the table, if there are several."""
    names: str = ""
    """The table that names kinds, if it is not STRING_IDS."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Names of kinds that the table only numbers."""
    duplicate: str = ""
    """A table with the same samples; if a profile has it, this table is not drawn."""
    duplicates: Mapping[str, str] = field(default_factory=dict)
    """Groups by label: rows with that label repeat samples of a group in the capture itself."""
    skips_idle: bool = False
    """Leave out series that stay zero: the table lists all modules that could hold memory."""


_SERIES = re.compile(r"(.+?): (.+?)(?: \[(.+)\])?(?: x (\d+))?")


def _table(
    table: str, group: str, series: str, label: str = "", kind: str = "", **more: Any
) -> CounterTable:
    """Declare a table; series: `column: name [unit] x factor; ...`, unit and factor optional."""
    values = {}
    for declared in series.split("; "):
        match = _SERIES.fullmatch(declared)
        assert match is not None, declared
        values[match[1]] = Series(match[2], match[3] or "", int(match[4] or 1))
    return CounterTable(table, group, values, label, kind, **more)


def csv_tables() -> tuple[CounterTable, ...]:
    """Return the CSV tables of samples that msprof, torch_npu and MindSpore write.

    Columns are named without the units that follow them in the files.
    """
    network = (
        "Bandwidth: NAME {} Bandwidth; Rx Bandwidth efficiency: NAME {} Rx Bandwidth Efficiency; "
        "rxPacket/s: NAME {} Rx Packets per Second; rxError rate: NAME {} Rx Error Rate; "
        "rxDropped rate: NAME {} Rx Dropped Rate; "
        "Tx Bandwidth efficiency: NAME {} Tx Bandwidth Efficiency; "
        "txPacket/s: NAME {} Tx Packets per Second; txError rate: NAME {} Tx Error Rate; "
        "txDropped rate: NAME {} Tx Dropped Rate"
    )
    allocated = "Total Allocated: {} Allocated; Total Reserved: {} Reserved"
    memory, duplicates = f"{allocated}; Total Active: {{}} Active", {"APP": "NPU MEM"}
    modules, component = "Total Reserved: {} Reserved", "Component"
    channels = (f"{kind} Bandwidth: Channel {{}} {kind}" for kind in ("Max", "Min", "Avg"))
    return (
        _table("npu_mem", "NPU MEM", "ddr: {}/DDR; hbm: {}/HBM; memory: {}/Memory", "event"),
        _table("memory_record", "Framework Memory", memory, component, duplicates=duplicates),
        _table("npu_module_mem", "NPU Module Memory", modules, component, skips_idle=True),
        _table("nic", "NIC", network.replace("NAME", "NIC"), "funcId"),
        _table("roce", "RoCE", network.replace("NAME", "RoCE"), "funcId"),
        _table("aicpu_mi", "Data Queue", "Queue Size: {}", "Node Name"),
        _table("ccu_channel", "CCU Channel", "; ".join(channels), "Channel Id"),
    )


def parsed_tables() -> tuple[CounterTable, ...]:
    """Return the tables of samples in msprof's internal databases."""
    sampled: dict[str, Any] = {"time": "timestamp", "clock": SampleClock.SAMPLER}
    memory: dict[str, Any] = {"time": "timestamp", "clock": SampleClock.MEMORY_SAMPLER}
    counted: dict[str, Any] = {"time": "syscnt", "clock": SampleClock.COUNTER}
    network = (
        "bandwidth: NAME {} Bandwidth [MB/s]; rxbyte: NAME {} Rx Rate [B/s]; "
        "txbyte: NAME {} Tx Rate [B/s]"
    )
    ddr = "flux_read: Read [MB/s]; flux_write: Write [MB/s]"
    # The hit rate is a fraction in the table, but a percentage in what msprof exports.
    llc = "throughput: LLC {} Throughput [MB/s]; hitrate: LLC {} Hit Rate [%] x 100"
    hccs = "txthroughput: Tx Throughput [MB/s]; rxthroughput: Rx Throughput [MB/s]"
    acc = (
        "read_bandwidth: Read Bandwidth Level, acc {}; "
        "write_bandwidth: Write Bandwidth Level, acc {}; "
        "read_ost: Read Outstanding Level, acc {}; write_ost: Write Outstanding Level, acc {}"
    )
    soc = "l2_buffer_bw_level: L2 Buffer Bw Level; mata_bw_level: Mata Bw Level"
    bandwidth, processes = "bandwidth: HBM {} [MB/s]", {"0": "APP", "1": "Device"}
    frequency, used = f"freq: {AI_CORE_FREQUENCY} [MHz]", "ddr: {} DDR [B]; hbm: {} HBM [B]"
    nic, roce = (network.replace("NAME", name) for name in ("NIC", "RoCE"))
    return (
        _table("FreqParse", AI_CORE_FREQUENCY, frequency, file="freq.db", **counted),
        _table("HBMbwData", "HBM", bandwidth, "hbmid", "event_type", file="hbm.db", **sampled),
        _table("DDRMetricData", "DDR", ddr, file="ddr.db", **sampled),
        _table("LLCMetrics", "LLC", llc, "l3tid", file="llc.db", **sampled),
        _table(
            "NpuMem", "NPU MEM", used, kind="event", file="npu_mem.db", words=processes, **memory
        ),
        _table("HCCSEventsData", "HCCS", hccs, file="hccs.db", **sampled),
        _table("AccPmu", "Acc PMU", acc, "acc_id", time="timestamp", file="acc_pmu.db"),
        _table("InterSoc", "Stars Soc Info", soc, time="sys_time", file="soc_profiler.db"),
        _table("NicOriginalData", "NIC", nic, "funcid", file="nic.db", **sampled),
        _table("RoceOriginalData", "RoCE", roce, "funcid", file="roce.db", **sampled),
    )


def database_tables() -> tuple[CounterTable, ...]:
    """Return the tables of samples in databases that msprof or torch_npu exports."""
    memory = "Framework Memory"
    llc = "throughput: LLC {} Throughput [B/s]; hitRate: LLC {} Hit Rate [%]"
    acc = (
        "readBwLevel: Read Bandwidth Level, acc {}; writeBwLevel: Write Bandwidth Level, acc {}; "
        "readOstLevel: Read Outstanding Level, acc {}; "
        "writeOstLevel: Write Outstanding Level, acc {}"
    )
    soc = "l2BufferBwLevel: L2 Buffer Bw Level; mataBwLevel: Mata Bw Level"
    hccs = "txThroughput: Tx Throughput [B/s]; rxThroughput: Rx Throughput [B/s]"
    disk = "readRate: Read [B/s]; writeRate: Write [B/s]; usage: Usage [%]"
    record = (
        "totalAllocated: {} Allocated [B]; totalReserved: {} Reserved [B]; "
        "totalActive: {} Active [B]"
    )
    operators = "totalAllocate: {} Allocated [B]; totalReserve: {} Reserved [B]"
    modules: dict[str, Any] = {"names": "ENUM_MODULE", "skips_idle": True}
    cores = "usage: {} Usage [%]; freq: {} Freq [MHz]; totalCycle: {} Cycles"
    ports = "rxUdmaBind: Port {} Rx [B/s]; txUdmaBind: Port {} Tx [B/s]"
    links = (
        f"{side.lower()}{kind}: {{}} {side} {kind} [B/s]"
        for side in ("Rx", "Tx")
        for kind in ("Req", "Rsp", "Snp", "Dat")
    )
    frequency = f"freq: {AI_CORE_FREQUENCY} {{}} [MHz]"
    return (
        _table("AICORE_FREQ", AI_CORE_FREQUENCY, frequency, "dieId"),
        _table("HBM", "HBM", "bandwidth: HBM {} [B/s]", "hbmId", "type"),
        _table("DDR", "DDR", "read: Read [B/s]; write: Write [B/s]"),
        _table("LLC", "LLC", llc, "llcId", "mode"),
        _table("NPU_MEM", "NPU MEM", "ddr: {} DDR [B]; hbm: {} HBM [B]", kind="type"),
        _table("ACC_PMU", "Acc PMU", acc, "accId"),
        _table("SOC_BANDWIDTH_LEVEL", "Stars Soc Info", soc),
        _table("HCCS", "HCCS", hccs),
        _table("NIC", "NIC", _network("NIC"), "funcId"),
        _table("ROCE", "RoCE", _network("RoCE"), "funcId"),
        _table("PCIE", "PCIe", _pcie()),
        _table("QOS", "QoS", "bandwidth: QoS {} [B/s]", "dieId", "eventName"),
        _table("CPU_USAGE", "CPU Usage", "usage: CPU {} [%]", "cpuId"),
        _table("HOST_MEM_USAGE", "Memory Usage", "usage: Memory Usage [%]"),
        _table("HOST_DISK_USAGE", "Disk Usage", disk),
        _table("HOST_NETWORK_USAGE", "Network Usage", "usage: Usage [%]; speed: Speed [B/s]"),
        _table("MEMORY_RECORD", memory, record, kind="component", time="timestamp"),
        _table("NPU_OP_MEM", memory, operators, kind="component", duplicate="MEMORY_RECORD"),
        _table(
            "NPU_MODULE_MEM",
            "NPU Module Memory",
            "totalReserved: {} Reserved [B]",
            kind="moduleId",
            **modules,
        ),
        _table("SAMPLE_PMU_TIMELINE", "Core Utilisation", cores, "coreId", "coreType"),
        _table("NETDEV_STATS", "Network Device", _device_network()),
        _table("UB", "Ub", ports, "portId"),
        _table("SIO", "SIO", "; ".join(links), kind="name"),
    )


_LIMITS = ("Min", "Max", "Avg")


def _pcie() -> str:
    bandwidths = (
        f"{side.lower()}{kind}{which}: {side} {kind} {which} [B/s]"
        for side in ("Tx", "Rx")
        for kind in ("Post", "Nonpost", "Cpl")
        for which in _LIMITS
    )
    latencies = (f"txNonpostLatency{which}: Tx Nonpost Latency {which}" for which in _LIMITS)
    return "; ".join((*bandwidths, *latencies))


def _network(name: str) -> str:
    counted = ("PacketRate: Packet Rate [1/s]", "Packets: Packets", "Bytes: Bytes [B]")
    rest = (
        f"{side.lower()}{column}: {name} {{}} {side} {label}"
        for side in ("Rx", "Tx")
        for column, _, label in (
            series.partition(": ") for series in (*counted, "Errors: Errors", "Dropped: Dropped")
        )
    )
    rates = (
        f"bandwidth: {name} {{}} Bandwidth [B/s]; rxByteRate: {name} {{}} Rx Rate [B/s]; "
        f"txByteRate: {name} {{}} Tx Rate [B/s]"
    )
    return "; ".join((rates, *rest))


def _device_network() -> str:
    layers = {
        "mac": (
            *("PfcPkt: PFC Packets", "Byte: Bytes [B]", "Bandwidth: Bandwidth [B/s]"),
            "BadByte: Bad Bytes [B]",
        ),
        "roce": ("Pkt: Packets", "ErrPkt: Error Packets", "CnpPkt: CNP Packets"),
        "nic": ("Byte: Bytes [B]", "Bandwidth: Bandwidth [B/s]"),
    }
    counted = (
        f"{layer}{side}{column}: {layer.upper()} {side} {label}"
        for layer, columns in layers.items()
        for side in ("Tx", "Rx")
        for column, _, label in (series.partition(": ") for series in columns)
    )
    return "; ".join((*counted, "roceNewPktRty: ROCE Repeated Packets"))
