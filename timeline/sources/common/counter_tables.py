"""The tables of samples that profilers write, and how the counters of each are drawn.

One counter is spelled in up to three ways: in CSV files, in the database of msprof and torch_npu,
and in the databases that msprof keeps for itself. Its names are declared once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from timeline.records.tables import AI_CORE_FREQUENCY

OPERATOR_MEMORY = "operator_memory"
"""The CSV file that lists allocations."""


class SampleClock(enum.Enum):
    """The clock of a table's times, where msprof keeps it for itself."""

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

    `{}` in the name stands for what tells the series of the column apart. unit: empty where there
    is none, or the file names it. factor: what turns values into the unit.
    """

    name: str
    unit: str = ""
    factor: int = 1


@dataclass(frozen=True)
class CounterTable:
    """One table of samples: where its columns are, and how they are drawn.

    table: the name of the table, of a CSV file without its stamp and suffix. group: the row that
    holds its series. values: by column. ids: columns whose values are put into the names of series
    as they are. kinds: columns of words that are put behind those. time: the column of times.
    """

    table: str
    group: str
    values: Mapping[str, Series]
    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    time: str = "timestampNs"
    clock: SampleClock = SampleClock.HOST
    file: str = ""
    """The database that holds it, where there are several."""
    names: str = ""
    """The enumeration that names kinds, where it is not STRING_IDS."""
    words: Mapping[str, str] = field(default_factory=dict)
    """What kinds are called that the table only numbers."""
    twin: str = ""
    """A table that holds the same samples; where it is there, this one is not drawn."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """Groups by id: where a capture draws the group itself, rows of the id repeat it."""
    skips_idle: bool = False
    """Leave out series that stay zero: the table names every module that could hold memory."""


def _columns(names: str, series: Sequence[Series], unit: str | None = None) -> dict[str, Series]:
    """Return series by column; with a unit, that of all of them."""
    given = [one if unit is None else one._replace(unit=unit) for one in series]
    return dict(zip(names.split(), given, strict=True))


_RATE = "B/s"
_PARSED_RATE = "MB/s"
"""The unit of bandwidths in the databases that msprof keeps for itself."""

_HBM = (Series("HBM {}", _RATE),)
_DDR = (Series("Read", _RATE), Series("Write", _RATE))
_HCCS = (Series("Tx Throughput", _RATE), Series("Rx Throughput", _RATE))
_LLC_THROUGHPUT = (Series("LLC {} Throughput", _RATE),)
_LLC_HIT_RATE = Series("LLC {} Hit Rate", "%")
_NPU_MEM = (Series("{} DDR", "B"), Series("{} HBM", "B"))
_ACC_PMU = tuple(
    Series(f"{what} Level, acc {{}}")
    for what in ("Read Bandwidth", "Write Bandwidth", "Read Outstanding", "Write Outstanding")
)
_SOC_LEVELS = (Series("L2 Buffer Bw Level"), Series("Mata Bw Level"))


def _network_rates(name: str) -> tuple[Series, ...]:
    return tuple(
        Series(f"{name} {{}} {what}", _RATE) for what in ("Bandwidth", "Rx Rate", "Tx Rate")
    )


def csv_tables() -> tuple[CounterTable, ...]:
    """Return the CSV files with a column of times that msprof, torch_npu and MindSpore write.

    Their columns are named here without units, which the files name.
    """
    allocated = {"Total Allocated": Series("{} Allocated"), "Total Reserved": Series("{} Reserved")}
    network = {
        "Bandwidth": "Bandwidth",
        "Rx Bandwidth efficiency": "Rx Bandwidth Efficiency",
        "rxPacket/s": "Rx Packets per Second",
        "rxError rate": "Rx Error Rate",
        "rxDropped rate": "Rx Dropped Rate",
        "Tx Bandwidth efficiency": "Tx Bandwidth Efficiency",
        "txPacket/s": "Tx Packets per Second",
        "txError rate": "Tx Error Rate",
        "txDropped rate": "Tx Dropped Rate",
    }
    return (
        CounterTable(
            "npu_mem",
            "NPU MEM",
            {"ddr": Series("{}/DDR"), "hbm": Series("{}/HBM"), "memory": Series("{}/Memory")},
            ("event",),
        ),
        CounterTable(
            "memory_record",
            "Framework Memory",
            allocated | {"Total Active": Series("{} Active")},
            ("Component",),
            twins={"APP": "NPU MEM"},
        ),
        CounterTable(
            "npu_module_mem",
            "NPU Module Memory",
            {"Total Reserved": Series("{} Reserved")},
            ("Component",),
            skips_idle=True,
        ),
        *(
            CounterTable(
                table,
                group,
                {column: Series(f"{group} {{}} {name}") for column, name in network.items()},
                ("funcId",),
            )
            for table, group in (("nic", "NIC"), ("roce", "RoCE"))
        ),
        CounterTable("aicpu_mi", "Data Queue", {"Queue Size": Series("{}")}, ("Node Name",)),
        CounterTable(
            "ccu_channel",
            "CCU Channel",
            {
                f"{which} Bandwidth": Series(f"Channel {{}} {which}")
                for which in ("Max", "Min", "Avg")
            },
            ("Channel Id",),
        ),
    )


def parsed_tables() -> tuple[CounterTable, ...]:
    """Return the tables of samples in the databases that msprof keeps for itself."""
    return (
        CounterTable(
            "FreqParse",
            AI_CORE_FREQUENCY,
            {"freq": Series(AI_CORE_FREQUENCY, "MHz")},
            time="syscnt",
            clock=SampleClock.COUNTER,
            file="freq.db",
        ),
        _parsed(
            "hbm.db",
            "HBMbwData",
            "HBM",
            _columns("bandwidth", _HBM, _PARSED_RATE),
            ("hbmid",),
            ("event_type",),
        ),
        _parsed(
            "ddr.db", "DDRMetricData", "DDR", _columns("flux_read flux_write", _DDR, _PARSED_RATE)
        ),
        _parsed(
            "llc.db",
            "LLCMetrics",
            "LLC",
            _columns("throughput", _LLC_THROUGHPUT, _PARSED_RATE)
            # A fraction in the table, a percentage wherever msprof shows it.
            | {"hitrate": _LLC_HIT_RATE._replace(factor=100)},
            ("l3tid",),
        ),
        CounterTable(
            "NpuMem",
            "NPU MEM",
            _columns("ddr hbm", _NPU_MEM),
            kinds=("event",),
            time="timestamp",
            clock=SampleClock.MEMORY_SAMPLER,
            file="npu_mem.db",
            words={"0": "APP", "1": "Device"},
        ),
        _parsed(
            "hccs.db",
            "HCCSEventsData",
            "HCCS",
            _columns("txthroughput rxthroughput", _HCCS, _PARSED_RATE),
        ),
        CounterTable(
            "AccPmu",
            "Acc PMU",
            _columns("read_bandwidth write_bandwidth read_ost write_ost", _ACC_PMU),
            ("acc_id",),
            time="timestamp",
            file="acc_pmu.db",
        ),
        CounterTable(
            "InterSoc",
            "Stars Soc Info",
            _columns("l2_buffer_bw_level mata_bw_level", _SOC_LEVELS),
            time="sys_time",
            file="soc_profiler.db",
        ),
        _parsed("nic.db", "NicOriginalData", "NIC", _parsed_network("NIC"), ("funcid",)),
        _parsed("roce.db", "RoceOriginalData", "RoCE", _parsed_network("RoCE"), ("funcid",)),
    )


def _parsed(
    file: str,
    table: str,
    group: str,
    values: Mapping[str, Series],
    ids: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
) -> CounterTable:
    clock = SampleClock.SAMPLER
    return CounterTable(table, group, values, ids, kinds, "timestamp", clock, file)


def _parsed_network(name: str) -> dict[str, Series]:
    series = _columns("bandwidth rxbyte txbyte", _network_rates(name))
    return series | {"bandwidth": series["bandwidth"]._replace(unit=_PARSED_RATE)}


def database_tables() -> tuple[CounterTable, ...]:
    """Return all tables of samples in a database that msprof or torch_npu exports."""
    return (
        CounterTable(
            "AICORE_FREQ",
            AI_CORE_FREQUENCY,
            {"freq": Series(f"{AI_CORE_FREQUENCY} {{}}", "MHz")},
            ("dieId",),
        ),
        CounterTable("HBM", "HBM", _columns("bandwidth", _HBM), ("hbmId",), ("type",)),
        CounterTable("DDR", "DDR", _columns("read write", _DDR)),
        CounterTable(
            "LLC",
            "LLC",
            _columns("throughput", _LLC_THROUGHPUT) | {"hitRate": _LLC_HIT_RATE},
            ("llcId",),
            ("mode",),
        ),
        CounterTable("NPU_MEM", "NPU MEM", _columns("ddr hbm", _NPU_MEM), kinds=("type",)),
        CounterTable(
            "ACC_PMU",
            "Acc PMU",
            _columns("readBwLevel writeBwLevel readOstLevel writeOstLevel", _ACC_PMU),
            ("accId",),
        ),
        CounterTable(
            "SOC_BANDWIDTH_LEVEL",
            "Stars Soc Info",
            _columns("l2BufferBwLevel mataBwLevel", _SOC_LEVELS),
        ),
        CounterTable("HCCS", "HCCS", _columns("txThroughput rxThroughput", _HCCS)),
        CounterTable("NIC", "NIC", _network("NIC"), ("funcId",)),
        CounterTable("ROCE", "RoCE", _network("RoCE"), ("funcId",)),
        CounterTable("PCIE", "PCIe", _pcie()),
        CounterTable(
            "QOS", "QoS", {"bandwidth": Series("QoS {}", _RATE)}, ("dieId",), ("eventName",)
        ),
        CounterTable("CPU_USAGE", "CPU Usage", {"usage": Series("CPU {}", "%")}, ("cpuId",)),
        CounterTable("HOST_MEM_USAGE", "Memory Usage", {"usage": Series("Memory Usage", "%")}),
        CounterTable(
            "HOST_DISK_USAGE",
            "Disk Usage",
            {
                "readRate": Series("Read", _RATE),
                "writeRate": Series("Write", _RATE),
                "usage": Series("Usage", "%"),
            },
        ),
        CounterTable(
            "HOST_NETWORK_USAGE",
            "Network Usage",
            {"usage": Series("Usage", "%"), "speed": Series("Speed", _RATE)},
        ),
        CounterTable(
            "MEMORY_RECORD",
            "Framework Memory",
            {
                "totalAllocated": Series("{} Allocated", "B"),
                "totalReserved": Series("{} Reserved", "B"),
                "totalActive": Series("{} Active", "B"),
            },
            kinds=("component",),
            time="timestamp",
        ),
        CounterTable(
            "NPU_OP_MEM",
            "Framework Memory",
            {
                "totalAllocate": Series("{} Allocated", "B"),
                "totalReserve": Series("{} Reserved", "B"),
            },
            kinds=("component",),
            twin="MEMORY_RECORD",
        ),
        CounterTable(
            "NPU_MODULE_MEM",
            "NPU Module Memory",
            {"totalReserved": Series("{} Reserved", "B")},
            kinds=("moduleId",),
            names="ENUM_MODULE",
            skips_idle=True,
        ),
        CounterTable(
            "SAMPLE_PMU_TIMELINE",
            "Core Utilisation",
            {
                "usage": Series("{} Usage", "%"),
                "freq": Series("{} Freq", "MHz"),
                "totalCycle": Series("{} Cycles"),
            },
            ("coreId",),
            ("coreType",),
        ),
        CounterTable("NETDEV_STATS", "Network Device", _device_network()),
        CounterTable(
            "UB",
            "Ub",
            {"rxUdmaBind": Series("Port {} Rx", _RATE), "txUdmaBind": Series("Port {} Tx", _RATE)},
            ("portId",),
        ),
        CounterTable(
            "SIO",
            "SIO",
            {
                f"{side}{kind}": Series(f"{{}} {side.capitalize()} {kind}", _RATE)
                for side in ("rx", "tx")
                for kind in ("Req", "Rsp", "Snp", "Dat")
            },
            kinds=("name",),
        ),
    )


def _pcie() -> dict[str, Series]:
    bandwidths = {
        f"{side}{kind}{which}": Series(f"{side.capitalize()} {kind} {which}", _RATE)
        for side in ("tx", "rx")
        for kind in ("Post", "Nonpost", "Cpl")
        for which in ("Min", "Max", "Avg")
    }
    return bandwidths | {
        f"txNonpostLatency{which}": Series(f"Tx Nonpost Latency {which}")
        for which in ("Min", "Max", "Avg")
    }


def _network(name: str) -> dict[str, Series]:
    return _columns("bandwidth rxByteRate txByteRate", _network_rates(name)) | {
        f"{side}{kind}": Series(f"{name} {{}} {side.capitalize()} {label}", unit)
        for side in ("rx", "tx")
        for kind, label, unit in (
            ("PacketRate", "Packet Rate", "1/s"),
            ("Packets", "Packets", ""),
            ("Bytes", "Bytes", "B"),
            ("Errors", "Errors", ""),
            ("Dropped", "Dropped", ""),
        )
    }


def _device_network() -> dict[str, Series]:
    layers = {
        "mac": ("PfcPkt", "Byte", "Bandwidth", "BadByte"),
        "roce": ("Pkt", "ErrPkt", "CnpPkt"),
        "nic": ("Byte", "Bandwidth"),
    }
    units = {"Byte": "B", "BadByte": "B", "Bandwidth": _RATE}
    labels = {"Pkt": "Packets", "ErrPkt": "Error Packets", "CnpPkt": "CNP Packets"}
    labels |= {"PfcPkt": "PFC Packets", "Byte": "Bytes", "BadByte": "Bad Bytes"}
    named = {
        f"{layer}{side}{kind}": Series(
            f"{layer.upper()} {side} {labels.get(kind, kind)}", units.get(kind, "")
        )
        for layer, kinds in layers.items()
        for side in ("Tx", "Rx")
        for kind in kinds
    }
    return named | {"roceNewPktRty": Series("ROCE Repeated Packets")}
