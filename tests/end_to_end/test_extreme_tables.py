"""Proves that numbers no profiler writes are counted, and neither end the program nor wrap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.run_command import Command

LONG_MS = "9223372036854"
"""Milliseconds that 64 bits hold as nanoseconds once, and not twice."""
MANY = 1 << 62
HCCL = (
    "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"
    '1,1,1,"{""0-1"": {""SDMA"": [9007199254,9007199254740,1]}}","{""a"":[1,9007199254,1,{}]}"\n'
)
TABLES = {
    "flops_utilization_step_0.json": "steps, FLOPS_Utilization %\n1,3.2\n9e999999,1e1000000\n",
    "flops_0.txt": "name, MFLOPs, GFLOPS, %\nDefault/Add-op1, 1_000, 2, 3\n",
    "aicore_intermediate_0_type.csv": "kernel_type,total_time,execution_frequency\n"
    f"X,{LONG_MS},1\n",
    "aicore_intermediate_0_detail.csv": "full_kernel_name,execution_time,execution_frequency\n"
    f"Default/X-op1,1.5,{MANY}\nDefault/Y-op1,200000000,200\n",
    "aicpu_intermediate_0.csv": "serial_number,kernel_type,total_time,dispatch_time,run_start,"
    f"run_end\n1,X,{LONG_MS},1,0,1\n2,X,1,1,-4000000000000000,4000000000000000\n",
    "ascend_cluster_analyse_model-parallel_1_2_0.csv": "computation_time,"
    f"communication_alone_time\n{LONG_MS},{LONG_MS}\n-1,1\n",
    "hccl_raw_0.csv": HCCL,
    "device_queue_profiling_0.txt": f"0 0 1 {LONG_MS} 1\n0 0 2 {LONG_MS} 1\n1 64 1 1 1\n",
    "minddata_getnext_profiling_0.txt": "GetNext_1 -9223372036854775807 9223372036854775807 1\n"
    "GetNext_1 9 2 1\n",
    "dynamic_shape_info_0.json": '{"operator": {"1": [{"op_type": "A", "op_name": "a", "dur": 1e12}'
    ']}, "operator_type": {"2": {"A": [1, 1e300, 1]}}}',
    "DATA_PREPROCESS.dev.AICPU.0.slice_0": "[1] Node:Default/GetNext-op1, Run start:1, "
    "Run end:999999999999999999\0[1] Thread[0], tickBeforeRun=1,tickAfterRun=999999999999999999, "
    "dispatchTime=999999999999999 us, totalTime=999999999999999 us.",
    "Framework.host.vm.graph_desc_info.0.slice_0": "op_name:Default/Add-op1 op_type:Add input_id:0 "
    'input_format:NCHW input_data_type:40 input_shape:"1,18446744073709551616"',
    "step_trace_raw_0_detail_time.csv": "step_num,start_point,end_point,total,fp_point,bp_point,"
    "iteration_interval,fp_and_bp,tail\n1,100,200,100,190,110,90,-80,90\n"
    "2,200,300,100,220,280,20,60,20\n",
}


def numbers_in(value: Any) -> Iterator[int | float]:
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


@pytest.mark.parametrize("name", TABLES)
def test_numbers_beyond_those_of_any_run(name: str, command: Command) -> None:
    """The report holds no number that wrapped, the page is drawn, and something is left out."""
    (command.directory / "run").mkdir()
    (command.directory / "run" / name).write_text(TABLES[name])
    report = command.report("run", "--report", "page.html")
    keys = ("flops", "operators", "operator_steps", "step_trace", "parallel_times", "links")
    more = ("collectives", "data_queues", "data_preparation")
    for key in (*keys, *more):
        assert all(0 <= number < 1 << 63 for number in numbers_in(report[key])), key
    framework = list(numbers_in(report["framework"]))
    assert all(-1 <= number < 1 << 63 for number in framework)
    assert report["omitted"] or name.startswith("Framework")
    assert "</html>" in (command.directory / "page.html").read_text()
