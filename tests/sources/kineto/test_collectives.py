"""Proves which kernels communicate, what, in which group and how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.kineto_traces import CALL, KERNEL, Write, read, spelled
from tests.support.profile_shelf import Event
from timeline.analysis.waits.collectives import rank_collectives
from timeline.analysis.waits.group_members import find_groups
from timeline.columns.strings import StringPool
from timeline.layers import Layer
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.task_kinds import collective_kind
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS
from timeline.sources.kineto.header import read_header
from timeline.sources.kineto.source import read_kineto
from timeline.sources.source import ReadRequest


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", True),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32(ncclSymkDevWorkArgs4K)", True),
        ("void at::native::elementwise_kernel<128, 4>(nccl)", False),
        ("ampere_sgemm_128x64_nn", False),
    ],
)
def test_kernels_of_nccl_are_known_by_name(write: Write, name: str, communicates: bool) -> None:
    """Of all its versions and of RCCL; without args they are of a group of no name."""
    records = read(write([KERNEL | {"name": name}]))
    assert records.tasks.compute.tolist() == [not communicates]
    assert spelled(records, records.ops.group) == ["NCCL"] * communicates


def around(name: str, category: str = "cpu_op", **args: Any) -> Event:
    """An operator or annotation around the call that launches KERNEL."""
    return CALL | {"cat": category, "name": name, "ts": 0.5, "dur": 3, "args": args}


SEND_RECEIVE = KERNEL | {"name": "ncclDevKernel_SendRecv(ncclDevComm*)"}
RECORD = "record_param_comms"


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("void ep::internode::dispatch<true, 8>(int4*, float*)", "dispatch"),
        ("void ep::intranode::combine<__nv_bfloat16, 8, 768>(int4*)", "combine"),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*)", "notify_dispatch"),
        ("void ep::cuda::get_dispatch_layout<256, 32, 8>(long const*)", ""),
        ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", ""),
        (
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16>(c10::BFloat16*)",
            "multimem_all_reduce_kernel",
        ),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce"),
        (
            "_ZN5aiter26cross_device_reduce_2stageI14__hip_bfloat16Li8EEvPNS_8RankDataE",
            "all_reduce",
        ),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<1>()",
            "allreduce_fusion_kernel_twoshot_sync",
        ),
        ("void mscclpp::executionKernel<int, mscclpp::LL16Packet>(int)", "collective"),
        ("mscclKernel_Sum_half_Simple(ncclDevComm*)", "collective"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("rccl_main_kernel", "collective"),
        (
            "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<(unsigned char)"
            "2, __nv_bfloat16, true, float4>(__nv_bfloat16*, __nv_bfloat16 const*)",
            "oneshotAllreduceFusionKernel",
        ),
        (
            "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 2, true>(AllReduceParams)",
            "twoShotAllReduceKernel",
        ),
        ("pcclKernel_SendRecv(pcclWorkElem)", "pcclKernel_SendRecv"),
        ("pcclKernel_Main(pcclWorkElem)", "collective"),
        ("c10d::nvshmem_extension::allToAllV(void*, void*, long*)", "allToAllV"),
        ("void pplx::a2a_kernels::dispatchKernel<8>(int)", "all_to_all"),
        ("void vllm::barrier_kernel<4>(vllm::RankSignals)", "barrier_kernel"),
        ("allToAllV(void*, void*, long*)", ""),
        ("void dispatchKernel<8>(int)", ""),
        ("void barrier_kernel<128>(unsigned int*)", ""),
        ("void BlockAllReduceSoftmax<float, 4>(float*)", ""),
        ("void oneflow::cuda::softmax::warpAllReduce<float>(float*)", ""),
        ("void ns::grid_wide_all_reduce(float*)", ""),
        ("void ns::ThreadAllReduce<float>(float*)", ""),
        ("void ns::ClusterAllReduceKernel<float>(float*)", ""),
        ("void cutlass::GemmAllReduceFusion<float>(float*)", ""),
        ("sm100_gemm_allreduce_tma_warpspecialized", ""),
        ("triton_poi_fused_add_all_reduce_mul_3", ""),
        ("void fused::gemm_all_gather_kernel<float>(float*)", ""),
        ("void at::native::reduce_kernel<512, 1>(at::native::ReduceOp)", ""),
    ],
)
def test_communication_is_known_by_the_function(write: Write, name: str, op: str) -> None:
    """Of all libraries; what only prepares it, or was fused with it, computes."""
    records = read(write([KERNEL | {"name": name}, CALL]))
    assert records.tasks.compute.tolist() == [not op]
    assert spelled(records, records.ops.name) == [op] * bool(op)
    assert len(records.ops) == bool(op)


@pytest.mark.parametrize(
    ("operator", "op"),
    [
        ("symm_mem::two_shot_all_reduce_", "two_shot_all_reduce_"),
        ("_C_custom_ar::all_reduce", "all_reduce"),
        ("symm_mem::fused_all_gather_matmul", ""),
        ("aten::all", ""),
        ("my_library::all_gather_matmul", ""),
    ],
)
def test_communication_is_known_by_the_operator(write: Write, operator: str, op: str) -> None:
    """Whatever its kernels are called."""
    records = read(write([KERNEL | {"name": "kernel_0d1d2"}, CALL, around(operator)]))
    assert records.tasks.compute.tolist() == [not op]
    assert spelled(records, records.ops.name) == [op] * bool(op)


@pytest.mark.parametrize(
    "said",
    [
        [around("nccl:all_to_all", "user_annotation")],
        [around(RECORD), around("c10d::alltoall_base_")],
        [around(RECORD, **{"Collective name": "all_to_all"})],
    ],
)
@pytest.mark.parametrize("layers", [DETAIL_LAYERS, SUMMARY_LAYERS])
def test_an_all_to_all_is_no_send(
    write: Write, said: list[Event], layers: frozenset[Layer]
) -> None:
    """NCCL runs it as sends and receives; one whose launch is not recorded did as all others."""
    running = SEND_RECEIVE | {"ts": 3, "args": {"stream": 7}}
    records = read(write([running, SEND_RECEIVE, CALL, *said]), layers=layers)
    kinds = [collective_kind(name) for name in spelled(records, records.ops.name)]
    assert kinds == ["AlltoAll", "AlltoAll"]
    assert records.ops.launch_ns.tolist() == [NO_TIME, 1000]


def test_sends_stay_sends(write: Write) -> None:
    """Where nothing says what a kernel was, or where it was one; others are not told by it."""
    send = around("nccl:send 0->1", "user_annotation")
    alone = read(write([SEND_RECEIVE, CALL]))
    told = read(write([SEND_RECEIVE | {"ts": 3, "args": {"stream": 7}}, SEND_RECEIVE, CALL, send]))
    assert spelled(alone, alone.ops.name) == ["ncclDevKernel_SendRecv"]
    assert spelled(told, told.ops.name) == ["ncclDevKernel_SendRecv", "send"]


def test_what_a_graph_launches_is_of_no_operator(write: Write) -> None:
    """Its collectives were announced when it was captured."""
    launch = CALL | {"name": "cudaGraphLaunch"}
    records = read(write([SEND_RECEIVE, launch, around("nccl:all_reduce", "user_annotation")]))
    assert spelled(records, records.ops.name) == ["ncclDevKernel_SendRecv"]


GROUP: Event = {
    "Collective name": "allreduce",
    "In msg nelems": 1000,
    "dtype": "Float",
    "Process Group Name": "3",
    "Process Group Description": "undefined",
    "Process Group Ranks": "[2, 3]",
    "Seq": 41,
}


def test_a_group_is_its_name_and_members(write: Write) -> None:
    """As the kernel says, or what announced it; kernels of unknown launch go by their stream."""
    generic = KERNEL | {"name": "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"}
    other = KERNEL["args"] | {"stream": 9, "correlation": 99}
    events = [
        generic | {"ts": 3, "args": {"stream": 7}},
        generic,
        generic | {"ts": 30, "args": other | GROUP | {"Process Group Ranks": "[0, 1]"}},
        CALL,
        around(RECORD, **GROUP),
    ]
    records = read(write(events))
    ops = records.ops
    assert spelled(records, ops.group) == ["Group 3"] * 3
    assert spelled(records, ops.group_name) == ["3 [2, 3]", "3 [2, 3]", "3 [0, 1]"]
    assert spelled(records, ops.name) == ["allreduce"] * 3
    assert ops.sequence.tolist() == [NO_ID, 41, 41]
    assert ops.count.tolist() == [NO_ID, 1000, 1000]


def test_streams_are_labels_where_no_group_is_told(write: Write) -> None:
    """Every communicator of NCCL has a stream, which names nothing: other ranks number theirs."""
    events = [SEND_RECEIVE | {"args": KERNEL["args"] | {"stream": one}} for one in (84, 203, 84)]
    records = read(write(events))
    assert spelled(records, records.ops.group) == [
        "NCCL stream 84", "NCCL stream 203", "NCCL stream 84",
    ]  # fmt: skip
    assert set(spelled(records, records.ops.group_name)) == {""}


@pytest.mark.parametrize(
    ("data_type", "width"),
    [
        ("BFloat16", 2), ("Float", 4), ("Half", 2), ("Long", 8), ("Double", 8), ("Int", 4),
        ("Byte", 1), ("Char", 1), ("Short", 2), ("Bool", 1), ("Float8_e4m3fn", 1),
        ("Float8_e5m2", 1), ("ComplexFloat", 8), ("ComplexDouble", 16), ("UInt64", 8),
        ("FP32", 4), ("int8", 1), ("bfp16", 2), ("INT64", 8), ("QuantizedWhatever", None),
    ],
)  # fmt: skip
def test_bytes_of_collectives_of_all_data_types(
    write: Write, data_type: str, width: int | None
) -> None:
    """PyTorch's types do not name their bits; CANN's do."""
    args = KERNEL["args"] | GROUP | {"dtype": data_type}
    records = read(write([KERNEL | {"name": "ncclDevKernel_AllReduce_Sum", "args": args}]))
    (size,) = rank_collectives(records, np.array([NO_ID])).ops.size_bytes.tolist()
    assert size == (NO_ID if width is None else 1000 * width)


KNOWN = {"pg_name": "3", "pg_desc": "tp", "pg_size": 3, "ranks": [1, 4, 6]}


@pytest.mark.parametrize(
    ("told", "head", "expected"),
    [
        ({"Process Group Ranks": "[1, 4]", "Group size": 2}, {}, ((1, 4), 2)),
        ({"Process Group Ranks": [4, 1]}, {}, ((1, 4), 2)),
        ({"Process Group Ranks": "[1, 4, ..."}, {"pg_config": [KNOWN]}, ((1, 4, 6), 3)),
        ({"Process Group Ranks": "[1, 4, ...", "Group size": 3}, {}, ((), 3)),
        ({"Group size": 5}, {"pg_config": [KNOWN]}, ((), 5)),
        ({}, {"pg_config": "none"}, ((), 0)),
    ],
)
def test_members_of_process_groups(
    write: Write, told: dict[str, Any], head: dict[str, Any], expected: tuple[Any, int]
) -> None:
    """By the args of a collective, or where these are cut short by the head of the trace."""
    bare = {key: value for key, value in GROUP.items() if key != "Process Group Ranks"}
    args = KERNEL["args"] | bare | told
    kernel = KERNEL | {"name": "ncclDevKernel_AllReduce_Sum", "args": args}
    path = write([kernel], distributedInfo={"rank": 0, "world_size": 8, **head})
    wanted = ReadRequest(DETAIL_LAYERS)
    records = read_kineto(path, 0, read_header(path), StringPool(), wanted)
    (group,) = find_groups(records).values()
    assert (group.members, group.size) == expected
    assert group.most == 8


OF_MSPTI = {"ph": "X", "cat": "collective_comm", "pid": 0, "tid": 53}


def recorded(name: str, ts: float, group: str) -> Event:
    """A collective as mspti records it, 3 us long."""
    args = {"commName": group, "streamId": 53}
    return OF_MSPTI | {"name": name, "ts": ts, "dur": 3, "args": args}


@pytest.mark.parametrize("layers", [DETAIL_LAYERS, SUMMARY_LAYERS])
def test_collectives_that_are_recorded_as_such(write: Write, layers: frozenset[Layer]) -> None:
    """They communicate and compute nothing, in the group that they name, on their stream."""
    events = [recorded("HcclAllReduce", 1, "hcom_0"), recorded("hcom_broadcast__03_1_1", 5, "b")]
    records = read(write([*events, KERNEL | {"ts": 9}]), layers=layers)
    assert records.tasks.compute.sum() == 1
    assert records.tasks.stream[~records.tasks.compute].tolist() == [53, 53]
    assert spelled(records, records.ops.name) == ["HcclAllReduce", "hcom_broadcast__03_1_1"]
    assert spelled(records, records.ops.group) == ["Group hcom_0", "Group b"]
    assert (records.ops.end_ns - records.ops.start_ns).tolist() == [3000, 3000]
    assert not records.warnings


def test_calls_of_a_library_of_collectives_are_on_the_host(write: Write) -> None:
    """XPUs record what oneCCL did on the host, on a thread, in the category of collectives."""
    host = CALL | {"cat": "collective_comm", "name": "xccl::allreduce"}
    events = [host | {"ts": 4, "args": {"Communicator_id": 4403}}, KERNEL, CALL]
    records = read(write(events))
    assert not len(records.ops)
    assert len(records.tasks) == 1
    assert "xccl::allreduce" in spelled(records, records.host.name)
