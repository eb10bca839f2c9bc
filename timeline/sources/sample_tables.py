"""The CSV tables of samples that may lie beside a capture, and how each is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["OPERATOR_MEMORY", "SampleTable", "sample_tables"]

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
