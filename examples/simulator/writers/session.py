"""What surrounds the measurements of a run: directory names, clocks and environments."""

from __future__ import annotations

import random
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from simulator.model import RankRun, Run
from simulator.writers.events import write_json

HOST_NAME = "host"
HOST_UID = "3538958389648580163"


def stamp(run: Run, time_ns: int, milliseconds: bool = False) -> str:
    """A time as directory names show it, `20250109120000` with or without its milliseconds."""
    wall_ns = run.wall_ns(time_ns)
    moment = datetime.fromtimestamp(wall_ns // 1_000_000_000, tz=timezone.utc)
    tail = f"{wall_ns // 1_000_000 % 1000:03d}" if milliseconds else ""
    return moment.strftime("%Y%m%d%H%M%S") + tail


def worker_name(run: Run, rank: RankRun) -> str:
    """A torch_npu directory: it names the host and the process, never the rank."""
    return f"{HOST_NAME}_{rank.os_pid}_{stamp(run, rank.start_ns, milliseconds=True)}_ascend_pt"


def session_name(run: Run, rank: RankRun) -> str:
    """An msprof directory, ending in sixteen letters that say nothing."""
    letters = random.Random(f"session {rank.rank}").choices("ABCDEFGHIJKLMNOPQR", k=16)
    return f"PROF_000001_{stamp(run, rank.start_ns, milliseconds=True)}_{''.join(letters)}"


def write_profiler_info(run: Run, rank: RankRun, worker: Path, export_type: str) -> None:
    """Write what torch_npu says of its own session, clocks of both ends included."""
    end_ns = run.wall_ns(rank.end_ns)
    monotonic_end_ns = run.monotonic_ns(rank.end_ns)
    start_ns = run.monotonic_ns(rank.start_ns)
    last_step = len(rank.steps)
    document = {
        "config": {
            "common_config": {
                "activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"],
                "schedule": {
                    "wait": 0,
                    "active": last_step,
                    "warmup": 0,
                    "repeat": 1,
                    "skip_first": rank.steps[0].id,
                },
                "record_shapes": True,
                "profile_memory": True,
                "with_stack": True,
                "with_flops": False,
                "with_modules": True,
            },
            "experimental_config": {
                "_profiler_level": "Level1",
                "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION",
                "_l2_cache": True,
                "_msprof_tx": False,
                "_data_simplification": True,
                "record_op_args": False,
                "_export_type": export_type,
                "_op_attr": False,
                "_gc_detect_threshold": None,
            },
        },
        "start_info": {
            "syscnt_enable": True,
            "freq": 100,
            "start_cnt": start_ns // 10,
            "start_monotonic": start_ns,
        },
        "end_info": {"collectionTimeEnd": end_ns, "MonotonicTimeEnd": monotonic_end_ns},
        "rank_id": rank.rank,
    }
    write_json(worker / f"profiler_info_{rank.rank}.json", document, indent=4)


def parallel_group_info(run: Run, rank: RankRun) -> dict[str, Any]:
    """What torch_npu tells of the groups of a rank, by the names that HCCL gives them."""
    return {
        group.name: {
            "group_name": group.label,
            "group_rank": group.members.index(rank.rank),
            "global_ranks": list(group.members),
        }
        for group in run.truth.groups
        if rank.rank in group.members
    }


def write_profiler_metadata(run: Run, rank: RankRun, worker: Path) -> None:
    """Write the groups of a rank, of a run that has more than one."""
    if run.truth.named:
        document = {"parallel_group_info": parallel_group_info(run, rank)}
        write_json(worker / "profiler_metadata.json", document, indent=4)


def write_device_info(run: Run, rank: RankRun, session: Path, *, distributed: bool = True) -> None:
    """Write identity and clock samples of `device_N`, each with its `.done` marker.

    What is not `distributed` has no rank.
    """
    device = session / f"device_{rank.device}"
    documents = {
        "info.json": _host_document(run, rank)
        | {"rank_id": rank.rank if distributed else -1, "pid_name": "python"},
        "start_info": clock_sample(run, rank.start_ns, "Begin"),
        "end_info": clock_sample(run, rank.end_ns, "End"),
    }
    for name, document in documents.items():
        path = device / f"{name}.{rank.device}"
        write_json(path, document)
        done = f"filesize:{path.stat().st_size}\n"
        path.with_name(f"{path.name}.done").write_text(done, encoding="utf-8", newline="")


def write_host_info(run: Run, rank: RankRun, session: Path, *, distributed: bool = True) -> None:
    """Write what newer msprof says of the host process."""
    rank_id = rank.rank if distributed else -1
    document = _host_document(run, rank) | {"rank_id": rank_id, "pid_name": "python3"}
    document |= {"hostUid": HOST_UID, "devices": str(rank.device), "DeviceInfo": []}
    write_json(session / "host" / "info.json", document)
    write_json(session / "host" / "start_info", clock_sample(run, rank.start_ns, "Begin"))
    write_json(session / "host" / "end_info", clock_sample(run, rank.end_ns, "End"))


def clock_sample(run: Run, time_ns: int, end: str) -> dict[str, str]:
    """One reading of the wall clock in microseconds beside one of the monotonic clock in ns."""
    wall_us = run.wall_ns(time_ns) // 1000
    moment = datetime.fromtimestamp(wall_us // 1_000_000, tz=timezone.utc)
    return {
        f"collectionDate{end}": f"{moment:%Y-%m-%d %H:%M:%S}.{wall_us % 1_000_000:06d}",
        f"collectionTime{end}": str(wall_us),
        "clockMonotonicRaw": str(run.monotonic_ns(time_ns)),
    }


def _host_document(run: Run, rank: RankRun) -> dict[str, Any]:
    up_time_ns = run.monotonic_ns(rank.start_ns)
    return {
        "jobInfo": "NA",
        "version": "1.0",
        "mac": "02-00-00-00-00-01",
        "OS": "Linux-5.10.0-aarch64-#1 SMP Mon Jan 6 00:00:00 UTC 2025",
        "cpuCores": 1,
        "hostname": HOST_NAME,
        "hwtype": "aarch64",
        "devices": str(rank.device),
        "platform": "",
        "CPU": [
            {
                "Id": 0,
                "Name": "HiSilicon",
                "Frequency": 1000,
                "Logical_CPU_Count": 1,
                "Type": "TaishanV110",
            }
        ],
        "DeviceInfo": [
            {
                "id": rank.device,
                "env_type": 3,
                "ctrl_cpu_id": "ARMv8_Cortex_A55",
                "ctrl_cpu_core_num": 1,
                "ctrl_cpu_endian_little": 1,
                "ts_cpu_core_num": 4,
                "ai_cpu_core_num": 14,
                "ai_core_num": 32,
                "ai_cpu_core_id": 2,
                "ai_core_id": 0,
                "aicpu_occupy_bitmap": 65532,
                "ctrl_cpu": "0",
                "ai_cpu": "2,3,4,5,6,7,8,9,10,11,12,13,14",
                "aiv_num": 0,
                "hwts_frequency": "100",
                "aic_frequency": "1000",
                "aiv_frequency": "1000",
            }
        ],
        "platform_version": "1",
        "pid": str(rank.os_pid),
        "memoryTotal": 791_800_000,
        "cpuNums": 192,
        "sysClockFreq": 100,
        "upTime": f"{up_time_ns // 1_000_000_000}.{up_time_ns // 10_000_000 % 100:02d} 0.00",
        "netCardNums": 0,
        "netCard": [{"netCardName": "enp189s0f0", "speed": 1000}],
    }
