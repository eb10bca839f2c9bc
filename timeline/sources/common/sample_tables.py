"""Turns the names of a database's sample tables into how each is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["OPERATOR_MEMORY", "CounterTable", "SampleTable", "counter_tables", "sample_tables"]

OPERATOR_MEMORY = "operator_memory"
"""The kind of the table that lists allocations."""


@dataclass(frozen=True)
class SampleTable:
    """How one kind of CSV file is drawn.

    values maps a column, without its unit, to the name of its series; `{}` in the name stands for
    what the column `label` holds. Rows whose label is in `twins` repeat the group named there.
    A series that stays zero is left out where `idle` says so: such a table names every module
    that could hold memory.
    """

    kind: str
    group: str
    values: dict[str, str]
    label: str = ""
    twins: dict[str, str] = field(default_factory=dict)
    idle: bool = False


def sample_tables() -> tuple[SampleTable, ...]:
    """The tables with a column of times that msprof, torch_npu and MindSpore write."""
    sizes = {"Total Allocated": "{} Allocated", "Total Reserved": "{} Reserved"}
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
        SampleTable(
            "npu_mem",
            "NPU MEM",
            {"ddr": "{}/DDR", "hbm": "{}/HBM", "memory": "{}/Memory"},
            "event",
        ),
        SampleTable(
            "memory_record",
            "Framework Memory",
            sizes | {"Total Active": "{} Active"},
            "Component",
            {"APP": "NPU MEM"},
        ),
        SampleTable(
            "npu_module_mem",
            "NPU Module Memory",
            {"Total Reserved": "{} Reserved"},
            "Component",
            idle=True,
        ),
        *(
            SampleTable(
                kind,
                group,
                {key: f"{group} {{}} {name}" for key, name in network.items()},
                "funcId",
            )
            for kind, group in (("nic", "NIC"), ("roce", "RoCE"))
        ),
        SampleTable("aicpu_mi", "Data Queue", {"Queue Size": "{}"}, "Node Name"),
        SampleTable(
            "ccu_channel",
            "CCU Channel",
            {f"{which} Bandwidth": f"Channel {{}} {which}" for which in ("Max", "Min", "Avg")},
            "Channel Id",
        ),
    )


@dataclass(frozen=True)
class CounterTable:
    """How one table is drawn: its group, the columns that tell series apart, and its values.

    values maps a column to (name, unit); `{}` in the name stands for the series' ids.
    """

    table: str
    group: str
    values: dict[str, tuple[str, str]]
    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Columns that hold string ids, such as read or write."""
    time: str = "timestampNs"
    names: str = ""
    """The enumeration that names kinds, where it is not STRING_IDS."""
    twin: str = ""
    """A table that holds the same samples; where it is there, this one is not drawn."""
    idle: bool = False
    """Leave out series that stay zero: the table names every module that could hold memory."""


def counter_tables() -> tuple[CounterTable, ...]:
    """All sample tables that msprof and torch_npu write."""
    return (
        CounterTable(
            "AICORE_FREQ", "AI Core Freq", {"freq": ("AI Core Freq {}", "MHz")}, ("dieId",)
        ),
        CounterTable("HBM", "HBM", {"bandwidth": ("HBM {}", "B/s")}, ("hbmId",), ("type",)),
        CounterTable("DDR", "DDR", {"read": ("Read", "B/s"), "write": ("Write", "B/s")}),
        CounterTable(
            "LLC",
            "LLC",
            {
                "throughput": ("LLC {} Throughput", "B/s"),
                "hitRate": ("LLC {} Hit Rate", "%"),
            },
            ("llcId",),
            ("mode",),
        ),
        CounterTable(
            "NPU_MEM",
            "NPU MEM",
            {
                "ddr": ("{} DDR", "B"),
                "hbm": ("{} HBM", "B"),
            },
            (),
            ("type",),
        ),
        CounterTable(
            "ACC_PMU",
            "Acc PMU",
            {
                "readBwLevel": ("Read Bandwidth Level, acc {}", ""),
                "writeBwLevel": ("Write Bandwidth Level, acc {}", ""),
                "readOstLevel": ("Read Outstanding Level, acc {}", ""),
                "writeOstLevel": ("Write Outstanding Level, acc {}", ""),
            },
            ("accId",),
        ),
        CounterTable(
            "SOC_BANDWIDTH_LEVEL",
            "Stars Soc Info",
            {
                "l2BufferBwLevel": ("L2 Buffer Bw Level", ""),
                "mataBwLevel": ("Mata Bw Level", ""),
            },
        ),
        CounterTable(
            "HCCS",
            "HCCS",
            {
                "txThroughput": ("Tx Throughput", "B/s"),
                "rxThroughput": ("Rx Throughput", "B/s"),
            },
        ),
        CounterTable("NIC", "NIC", _network("NIC"), ("funcId",)),
        CounterTable("ROCE", "RoCE", _network("RoCE"), ("funcId",)),
        CounterTable(
            "PCIE",
            "PCIe",
            {
                f"{side}{kind}{which}": (f"{side.capitalize()} {kind} {which}", "B/s")
                for side in ("tx", "rx")
                for kind in ("Post", "Nonpost", "Cpl")
                for which in ("Min", "Max", "Avg")
            }
            | {
                f"txNonpostLatency{which}": (f"Tx Nonpost Latency {which}", "")
                for which in ("Min", "Max", "Avg")
            },
        ),
        CounterTable("QOS", "QoS", {"bandwidth": ("QoS {}", "B/s")}, ("dieId",), ("eventName",)),
        CounterTable("CPU_USAGE", "CPU Usage", {"usage": ("CPU {}", "%")}, ("cpuId",)),
        CounterTable("HOST_MEM_USAGE", "Memory Usage", {"usage": ("Memory Usage", "%")}),
        CounterTable(
            "HOST_DISK_USAGE",
            "Disk Usage",
            {
                "readRate": ("Read", "B/s"),
                "writeRate": ("Write", "B/s"),
                "usage": ("Usage", "%"),
            },
        ),
        CounterTable(
            "HOST_NETWORK_USAGE",
            "Network Usage",
            {
                "usage": ("Usage", "%"),
                "speed": ("Speed", "B/s"),
            },
        ),
        CounterTable(
            "MEMORY_RECORD",
            "Framework Memory",
            {
                "totalAllocated": ("{} Allocated", "B"),
                "totalReserved": ("{} Reserved", "B"),
                "totalActive": ("{} Active", "B"),
            },
            (),
            ("component",),
            "timestamp",
        ),
        CounterTable(
            "NPU_OP_MEM",
            "Framework Memory",
            {"totalAllocate": ("{} Allocated", "B"), "totalReserve": ("{} Reserved", "B")},
            (),
            ("component",),
            twin="MEMORY_RECORD",
        ),
        CounterTable(
            "NPU_MODULE_MEM",
            "NPU Module Memory",
            {"totalReserved": ("{} Reserved", "B")},
            (),
            ("moduleId",),
            names="ENUM_MODULE",
            idle=True,
        ),
        CounterTable(
            "SAMPLE_PMU_TIMELINE",
            "Core Utilisation",
            {
                "usage": ("{} Usage", "%"),
                "freq": ("{} Freq", "MHz"),
                "totalCycle": ("{} Cycles", ""),
            },
            ("coreId",),
            ("coreType",),
        ),
        CounterTable("NETDEV_STATS", "Network Device", _device_network()),
        CounterTable(
            "UB",
            "Ub",
            {"rxUdmaBind": ("Port {} Rx", "B/s"), "txUdmaBind": ("Port {} Tx", "B/s")},
            ("portId",),
        ),
        CounterTable(
            "SIO",
            "SIO",
            {
                f"{side}{kind}": (f"{{}} {side.capitalize()} {kind}", "B/s")
                for side in ("rx", "tx")
                for kind in ("Req", "Rsp", "Snp", "Dat")
            },
            (),
            ("name",),
        ),
    )


def _network(name: str) -> dict[str, tuple[str, str]]:
    return {
        "bandwidth": (f"{name} {{}} Bandwidth", "B/s"),
        "rxByteRate": (f"{name} {{}} Rx Rate", "B/s"),
        "txByteRate": (f"{name} {{}} Tx Rate", "B/s"),
    } | {
        f"{side}{kind}": (f"{name} {{}} {side.capitalize()} {label}", unit)
        for side in ("rx", "tx")
        for kind, label, unit in (
            ("PacketRate", "Packet Rate", "1/s"),
            ("Packets", "Packets", ""),
            ("Bytes", "Bytes", "B"),
            ("Errors", "Errors", ""),
            ("Dropped", "Dropped", ""),
        )
    }


def _device_network() -> dict[str, tuple[str, str]]:
    """Running totals of the ports of a device, and their bandwidths."""
    layers = {
        "mac": ("PfcPkt", "Byte", "Bandwidth", "BadByte"),
        "roce": ("Pkt", "ErrPkt", "CnpPkt"),
        "nic": ("Byte", "Bandwidth"),
    }
    units = {"Byte": "B", "BadByte": "B", "Bandwidth": "B/s"}
    labels = {"Pkt": "Packets", "ErrPkt": "Error Packets", "CnpPkt": "CNP Packets"}
    labels |= {"PfcPkt": "PFC Packets", "Byte": "Bytes", "BadByte": "Bad Bytes"}
    named = {
        f"{layer}{side}{kind}": (
            f"{layer.upper()} {side} {labels.get(kind, kind)}",
            units.get(kind, ""),
        )
        for layer, kinds in layers.items()
        for side in ("Tx", "Rx")
        for kind in kinds
    }
    return named | {"roceNewPktRty": ("ROCE Repeated Packets", "")}
