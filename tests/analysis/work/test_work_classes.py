"""Proves of which type any name is, and of which class operators and tasks are."""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.deadline import deadline
from tests.support.made_tables import table_of
from tests.support.places import DATA
from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.work.operator_names import kernel_type, launched_type, operator_type
from timeline.analysis.work.work_classes import (
    CLASSES,
    WorkClass,
    computing_class,
    distinguish_vector,
    sum_classes,
    with_work_classes,
)
from timeline.columns.strings import StringPool
from timeline.layers import Layer
from timeline.profile import open_profile
from timeline.records.tables import GPU, FlowEnd, Flows, HostEvents, Records, Tasks
from timeline.sources.files.opened import open_profile_file
from timeline.sources.source import ReadRequest

# -- classes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "core", "expected"),
    [
        ("FlashAttentionScoreGrad", "", "MIX_AIC", "flash attention"),
        ("Conv2DBackpropInput", "", "AI_CORE", "convolution"),
        ("BatchMatMulV2", "", "AI_CORE", "matmul"),
        ("GroupedMatmul", "", "MIX_AIC", "matmul"),
        ("Pooling", "", "AI_CORE", "other cube"),
        ("Relu", "", "AI_VECTOR_CORE", "vector"),
        ("TransData", "", "AI_VECTOR_CORE", "transposes and casts"),
        ("Transpose", "", "AI_CORE", "transposes and casts"),
        ("TensorMove", "", "AI_VECTOR_CORE", "tensor moves"),
        ("DropoutGenMask", "", "AI_CPU", "AI CPU"),
        ("DSAGenBitMask", "", "DSA_SQE", "other"),
        # kernels of GPUs by the operator that launched them
        ("aten::mm", "void own_kernel<4>(int)", "kernel", "matmul"),
        ("aten::addmm", "void cublasLt::splitKreduce_kernel<32>(int)", "kernel", "matmul"),
        ("aten::_scaled_mm", "", "kernel", "matmul"),
        ("aten::upsample_linear1d", "", "kernel", "vector"),
        ("vllm::rocm_unquantized_gemm", "wvSplitK_hf_sml_", "kernel", "matmul"),
        ("aten::miopen_convolution", "batched_transpose_32x32_half", "kernel", "convolution"),
        ("aten::convolution_backward", "Cijk_Alik_Bljk_BBS", "kernel", "convolution"),
        ("aten::_flash_attention_forward", "attn_fwd", "kernel", "flash attention"),
        ("aten::_scaled_dot_product_cudnn_attention", "", "kernel", "flash attention"),
        ("FlashAttnVarlenFunc", "own", "kernel", "flash attention"),
        (
            "aten::copy_",
            "void at::native::elementwise_kernel<4>()",
            "kernel",
            "transposes and casts",
        ),
        ("aten::embedding", "", "kernel", "vector"),
        ("aten::_convert_weight_to_int4pack", "", "kernel", "vector"),
        ("triton_poi_fused_addmm_convolution_transpose", "", "kernel", "vector"),
        ("triton_tem_fused_addmm", "", "kernel", "matmul"),
        ("fbgemm::permute_2D_sparse_data", "void fbgemm_gpu::x<int>(int)", "kernel", "vector"),
        # and else by their names
        ("fbgemm::f8f8bf16_rowwise", "void cutlass::device_kernel<X::Gemm>", "kernel", "matmul"),
        ("AddmmBackward0", "volta_sgemm_128x32_nn", "kernel", "matmul"),
        ("cuBLAS GEMM", "ampere_bf16_s16816gemm_bf16_128x64_tn", "kernel", "matmul"),
        ("Tensile GEMM", "", "kernel", "matmul"),
        (
            "sm90_fp8_gemm_1d2d_impl",
            "void deep_gemm::sm90_fp8_gemm_1d2d_impl<>",
            "kernel",
            "matmul",
        ),
        ("fused_moe_kernel", "fused_moe_kernel", "kernel", "matmul"),
        ("permute_2D_lengths_kernel", "void fbgemm_gpu::permute_2D_<int>(int)", "kernel", "vector"),
        ("flash attention backward", "", "kernel", "flash attention"),
        ("create_flashinfer_kv_indices_triton", "", "kernel", "vector"),
        ("BatchPrefillWithPagedKVCacheKernel", "", "kernel", "paged attention"),
        ("paged_attention_ll4mi_reduce_kernel", "", "kernel", "paged attention"),
        ("kernel_batched_gemm_xdlops_bwd_weight", "", "kernel", "convolution"),
        ("nchwToNhwcKernel", "", "kernel", "transposes and casts"),
        (
            "bn_fw_tr_1C11_kernel_NCHW",
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<>",
            "kernel",
            "vector",
        ),
        ("reduce_kernel", "", "Kernel", "vector"),
    ],
)
def test_classes_of_computing(kind: str, name: str, core: str, expected: str) -> None:
    """By type as msprof-analyze does; on GPUs by launching operators, then by names of kernels."""
    assert computing_class(kind, name, core, vector_known=True) == expected
    merged = {"other cube", "vector"}
    either = "other cube and vector" if expected in merged else expected
    assert computing_class(kind, name, core, vector_known=False) == either
    assert expected in CLASSES
    assert either in CLASSES


def test_a_trace_does_not_tell_vector_from_cube() -> None:
    """It calls both AI_CORE; a database and a GPU do not."""
    assert not distinguish_vector(["AI_CORE", "MIX_AIV", "AI_CPU"])
    assert distinguish_vector(["AI_CORE", "AI_VECTOR_CORE"])
    assert distinguish_vector(["kernel"])


def test_types_of_the_runtime_do_not_compare_with_others() -> None:
    """It starts mixed kernels of vector cores as KERNEL_AICORE, which others call MIX_AIV."""
    by_runtime = ["KERNEL_AICORE", "KERNEL_AIVEC", "MIX_AIV"]
    by_scheduler = ["AI_CORE", "AI_VECTOR_CORE", "MIX_AIV"]
    assert distinguish_vector(by_runtime, by_runtime)
    assert distinguish_vector(by_scheduler, by_scheduler)
    assert not distinguish_vector(by_runtime, by_scheduler)
    assert distinguish_vector(by_runtime, ["kernel"])


FORWARD, BACKWARD = 1, 2
"""Threads."""


@dataclass(frozen=True)
class Kernel:
    """A device task, and when the framework asked for it, None where nothing tells."""

    type: str = "Mul"
    name: str = "aclnnMul_Mul"
    core: str = "AI_VECTOR_CORE"
    asked_ns: int | None = None
    length_ns: int = 10
    stream: int = 2
    compute: bool = True
    copy: bool = False


@dataclass(frozen=True)
class Call:
    """A call of the framework."""

    start_ns: int
    end_ns: int
    name: str
    thread: int = FORWARD


def records_of(
    kernels: list[Kernel],
    calls: list[Call] = (),  # type: ignore[assignment]
    *,
    gradients: tuple[tuple[int, int], ...] = (),
    hardware: str = "Ascend Hardware",
) -> Records:
    """Records in which each kernel is asked for in a call of its own; gradients: rows of calls."""
    strings = StringPool()
    on_gpu = hardware == GPU
    asked = [(row, one.asked_ns) for row, one in enumerate(kernels) if one.asked_ns is not None]
    asking = {
        "layer": "Runtime" if on_gpu else "Python",
        "thread": FORWARD,
        "name": "cudaLaunchKernel" if on_gpu else "Enqueue@x",
    }
    ends = [
        ("ac2g" if on_gpu else "async_npu", call, FlowEnd.TASK, row)
        for call, (row, _) in enumerate(asked, len(calls))
    ]
    ends += [("fwdbwd", source, FlowEnd.HOST, target) for source, target in gradients]
    return Records(
        0,
        strings,
        tasks=table_of(
            Tasks,
            [
                {
                    "start_ns": start_ns,
                    "end_ns": start_ns + one.length_ns,
                    "stream": one.stream,
                    "name": one.name,
                    "op_type": one.type,
                    "task_type": one.core,
                    "compute": one.compute,
                    "copy": one.copy,
                }
                for start_ns, one in zip(range(10_000_000, 20_000_000, 1000), kernels, strict=False)
            ],
            strings,
        ),
        host=table_of(
            HostEvents,
            [
                *({**asdict(call), "layer": "Python"} for call in calls),
                *({"start_ns": at_ns, "end_ns": at_ns, **asking} for _, at_ns in asked),
            ],
            strings,
        ),
        flows=table_of(
            Flows,
            [
                dict(zip(("category", "source_row", "target_kind", "target_row"), end, strict=True))
                for end in ends
            ],
            strings,
            source_kind=FlowEnd.HOST,
        ),
        hardware=hardware,
    )


def classes(records: Records) -> tuple[list[WorkClass], list[WorkClass]]:
    """The class of each task by kernel and by launch."""
    tasks = with_work_classes(records).tasks
    by_kernel, by_launch = (
        [WorkClass(one) for one in column.tolist()]
        for column in (tasks.kernel_class, tasks.launch_class)
    )
    return by_kernel, by_launch


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (Kernel("Conv2D", core="AI_CORE"), WorkClass.FORWARD_CONVOLUTION),
        (Kernel("Conv2DBackpropFilter", core="AI_CORE"), WorkClass.BACKWARD_CONVOLUTION),
        (Kernel("FlashAttentionScore", core="MIX_AIC"), WorkClass.FORWARD_ATTENTION),
        (Kernel("FlashAttentionScoreGrad", core="MIX_AIC"), WorkClass.BACKWARD_ATTENTION),
        (Kernel("FusedInferAttentionScore", core="MIX_AIC"), WorkClass.FORWARD_ATTENTION),
        (Kernel("PagedAttentionMaskNdKernel"), WorkClass.PAGED_ATTENTION),
        (Kernel("BatchMatMulV2", core="AI_CORE"), WorkClass.MATMUL),
        (Kernel("GroupedMatmul", core="MIX_AIC"), WorkClass.MATMUL),
        (Kernel("Other", core="MIX_AIC"), WorkClass.CUBE),
        (Kernel("Other", core="AI_CORE"), WorkClass.CUBE),
        (Kernel("TransData"), WorkClass.VECTOR),
        (Kernel("NLLLoss", core="MIX_AIV"), WorkClass.VECTOR),
        (Kernel("DSAGenBitMask", core="DSA_SQE"), WorkClass.OTHER),
        (Kernel("DSAGenBitMask", core="STARS_COMMON"), WorkClass.OTHER),
        (Kernel("Range", core="AI_CPU"), WorkClass.OTHER),
        (Kernel("TensorMove", "aclnnInplaceCopy_TensorMoveAiCore_TensorMove"), WorkClass.SDMA),
        (Kernel("TensorMove", "aclnnMm_TensorMove_TensorMove"), WorkClass.VECTOR),
        (Kernel("", "aclnnMm_MatMulCommon_MatMulV2", "AI_CORE"), WorkClass.MATMUL),
        (Kernel("N/A", "Default/network/Conv2D-op3", "AI_CORE"), WorkClass.FORWARD_CONVOLUTION),
        (Kernel("", "", "AI_CORE"), WorkClass.UNKNOWN),
        (Kernel("", "KERNEL_AIVEC", "KERNEL_AIVEC", compute=False), WorkClass.LCCL),
        (Kernel("", "SDMA_SQE", "SDMA_SQE", compute=False, copy=True), WorkClass.UNKNOWN),
    ],
)
def test_types_names_and_cores_tell_classes_by_kernel(kernel: Kernel, found: WorkClass) -> None:
    # The second one is what names vector cores.
    assert classes(records_of([kernel, Kernel()]))[0] == [found, WorkClass.VECTOR]


def test_a_run_whose_kernels_are_all_on_one_kind_of_core_tells_no_cube_from_vector() -> None:
    """Its matmuls are told nevertheless, and the others are neither counted nor said to be none."""
    records = records_of([Kernel("MatMul", core="AI_CORE"), Kernel("Mul", core="AI_CORE")])
    assert classes(records)[0] == [WorkClass.MATMUL, WorkClass.CUBE_OR_VECTOR]
    times = sum_classes(with_work_classes(records))
    unknown = {WorkClass(one) for one in times.take(~times.known & ~times.launch).work_class}
    assert unknown == {WorkClass.CUBE, WorkClass.VECTOR}


def test_kernels_without_names_are_no_lccl() -> None:
    """Where no kernel has a name, all vector kernels are called as those of LCCL are."""
    kernels = [Kernel("", "KERNEL_AIVEC", "KERNEL_AIVEC"), Kernel("", "KERNEL_AIVEC")]
    assert WorkClass.LCCL not in classes(records_of(kernels))[0]


@pytest.mark.parametrize(
    ("call", "thread", "found"),
    [
        ("aten::conv2d", FORWARD, WorkClass.FORWARD_CONVOLUTION),
        ("aten::convolution_backward", FORWARD, WorkClass.BACKWARD_CONVOLUTION),
        ("aten::conv2d", BACKWARD, WorkClass.BACKWARD_CONVOLUTION),
        ("aten::addmm", FORWARD, WorkClass.MATMUL),
        ("aten::mm", BACKWARD, WorkClass.MATMUL),
        ("npu::npu_fusion_attention", BACKWARD, WorkClass.FORWARD_ATTENTION),
        ("npu::npu_fusion_attention_grad", FORWARD, WorkClass.BACKWARD_ATTENTION),
        ("flash_attn::_flash_attn_backward", FORWARD, WorkClass.VECTOR),
        ("aten::_efficient_attention_backward", FORWARD, WorkClass.BACKWARD_ATTENTION),
        ("aten::relu", FORWARD, WorkClass.VECTOR),
        ("flash_attention.py(12): flash_attention_forward", FORWARD, WorkClass.VECTOR),
        ("nn.Module: flash_attention_3", FORWARD, WorkClass.VECTOR),
    ],
)
def test_the_call_around_the_launch_tells_classes_by_launch(
    call: str, thread: int, found: WorkClass
) -> None:
    """Not frames of Python, and not modules, whatever they are called."""
    calls = [
        Call(0, 100, "aten::add", FORWARD),
        Call(0, 100, "AddBackward0", BACKWARD),
        Call(200, 300, call, thread),
    ]
    records = records_of([Kernel(asked_ns=250)], calls, gradients=((0, 1),))
    assert classes(records) == ([WorkClass.VECTOR], [found])


def test_a_run_without_arrows_or_without_a_framework_tells_nothing_by_launch() -> None:
    calls = [Call(0, 100, "aten::mm")]
    for records in (
        records_of([Kernel("MatMul", core="AI_CORE")], calls),
        records_of([Kernel("MatMul", core="AI_CORE", asked_ns=50)]),
    ):
        times = sum_classes(with_work_classes(records))
        assert not times.known[times.launch].any()
        assert times.known[~times.launch].any()


def test_copies_on_streams_that_compute_and_wait_are_sdma_by_launch_alone() -> None:
    """Those on other streams are of no class, as no step waits for them there."""
    copy = Kernel("", "SDMA_SQE", "SDMA_SQE", compute=False, copy=True)
    wait = Kernel("", "EVENT_WAIT_SQE", "EVENT_WAIT_SQE", compute=False)
    elsewhere = Kernel("", "SDMA_SQE", "SDMA_SQE", stream=3, compute=False, copy=True)
    also = Kernel(stream=3)
    kernels = [Kernel(asked_ns=50), copy, wait, elsewhere, also]
    by_kernel, by_launch = classes(records_of(kernels, [Call(0, 100, "aten::mul")]))
    assert WorkClass.SDMA not in by_kernel
    assert [at for at, one in enumerate(by_launch) if one is WorkClass.SDMA] == [1]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ampere_sgemm_128x64_tn", WorkClass.MATMUL),
        ("cutlass_80_wgrad_something_tensorop", WorkClass.BACKWARD_CONVOLUTION),
        ("void fmha_cutlassB_f16_aligned_64x64_k64_sm80", WorkClass.BACKWARD_ATTENTION),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64> >", WorkClass.FORWARD_ATTENTION),
        ("paged_attention_v1_kernel", WorkClass.PAGED_ATTENTION),
        ("vectorized_elementwise_kernel", WorkClass.VECTOR),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int>(int)", WorkClass.VECTOR),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688_grouped>", WorkClass.CUBE),
    ],
)
def test_kernels_of_gpus_tell_their_class_by_name(name: str, found: WorkClass) -> None:
    records = records_of([Kernel("aten::op", name, "kernel")], hardware=GPU)
    assert classes(records)[0] == [found]


def test_what_gpus_do_not_have_is_not_known_to_be_none() -> None:
    records = records_of([Kernel("", "gemm", "kernel", 5)], [Call(0, 9, "aten::mm")], hardware=GPU)
    times = sum_classes(with_work_classes(records))
    unknown = times.take(~times.known)
    assert set(zip(unknown.launch.tolist(), unknown.work_class.tolist(), strict=True)) == {
        (False, WorkClass.SDMA),
        (False, WorkClass.LCCL),
        (True, WorkClass.LCCL),
    }
    assert classes(records)[1] == [WorkClass.MATMUL]


CALLS = st.lists(
    st.builds(
        lambda start, length, name: Call(start, start + length, name),
        st.integers(0, 60),
        st.integers(0, 40),
        st.sampled_from(
            ["aten::mm", "aten::conv2d", "aten::_flash_attention_forward", "aten::add"]
        ),
    ),
    min_size=1,
    max_size=8,
)
KERNELS = st.lists(
    st.builds(
        Kernel,
        st.sampled_from(["Conv2D", "MatMul", "Mul", "PagedAttention", ""]),
        st.sampled_from(["aclnnMul_Mul", "aclnnInplaceCopy_TensorMove", ""]),
        st.sampled_from(["AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "Other"]),
        st.none() | st.integers(0, 120),
        st.integers(0, 9),
    ),
    max_size=8,
)


@given(CALLS, KERNELS)
def test_the_first_call_around_a_launch_is_found_as_a_walk_finds_it(
    calls: list[Call], kernels: list[Kernel]
) -> None:
    """Whichever thread it is on; one that has ended when another begins is around no more."""
    records = records_of(kernels, calls)
    by_kernel, by_launch = classes(records)
    told = {
        "aten::mm": WorkClass.MATMUL,
        "aten::conv2d": WorkClass.FORWARD_CONVOLUTION,
        "aten::_flash_attention_forward": WorkClass.FORWARD_ATTENTION,
    }
    # Of calls that begin at once the longer one is around the other.
    ordered = sorted(calls, key=lambda call: (call.start_ns, -call.end_ns))
    asked = any(kernel.asked_ns is not None for kernel in kernels)
    for kernel, own, found in zip(kernels, by_kernel, by_launch, strict=True):
        moment = kernel.asked_ns
        around = [
            told[call.name]
            for call in ordered
            if moment is not None and call.name in told and call.start_ns <= moment <= call.end_ns
        ]
        first = own in (WorkClass.SDMA, WorkClass.PAGED_ATTENTION)
        expected = around[0] if around and not first else own
        assert found == (expected if asked else WorkClass.UNKNOWN)


@given(KERNELS, CALLS)
def test_each_kernel_is_counted_in_one_class_at_most(
    kernels: list[Kernel], calls: list[Call]
) -> None:
    times = sum_classes(with_work_classes(records_of(kernels, calls)))
    whole = Counter(count=len(kernels), ns=sum(one.length_ns for one in kernels))
    for launch in (False, True):
        its = times.take(times.launch == launch)
        assert its.count.sum() <= whole["count"]
        assert its.total_ns.sum() <= whole["ns"]
        assert not its.count[~its.known].any()
    assert len(times) == (20 if kernels else 0)


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "kineto", "mindspore-2.1"])
def test_classes_of_kernels_take_no_longer_than_all_kernels(
    layout: str, shelf: ProfileShelf
) -> None:
    """In any layout, and by launch where a framework and its arrows are recorded."""
    with open_profile(shelf.get(layout).path) as profile:
        records = profile.sources[0].read(ReadRequest(frozenset(Layer), names=True))
    times = sum_classes(with_work_classes(records))
    tasks = records.tasks.take(records.tasks.compute)
    its = times.take(~times.launch & times.known)
    matmul = its.work_class == WorkClass.MATMUL
    assert its.count[matmul].sum()
    assert its.total_ns.sum() <= (tasks.end_ns - tasks.start_ns).sum()
    by_launch = times.take(times.launch & (times.work_class != WorkClass.SDMA))
    assert by_launch.total_ns.sum() <= (tasks.end_ns - tasks.start_ns).sum()
    assert by_launch.known.any() == (layout != "mindspore-2.1")


# -- types of names --------------------------------------------------------------------------------


MEGABYTE = 1 << 20


@pytest.mark.parametrize("piece", ["Aa", "_9", "9", "a1_B", "-op1", "A1", "_Z9"])
@pytest.mark.parametrize("characters", [4_000, MEGABYTE])
def test_a_long_name_takes_no_longer_than_it_is(piece: str, characters: int) -> None:
    """Searching for some ends of names took the square of their length, so hours."""
    with deadline(60):
        assert operator_type(piece * (characters // len(piece)) + "x")


def test_the_length_of_a_mangled_name_may_be_endless() -> None:
    """Python makes no number of so many digits, and no part of a name is so long."""
    assert operator_type("_Z" + "9" * 4_500 + "foo")
    assert operator_type("_Z10add_customPhS_") == "add_custom"
    assert operator_type("Add_1_2") == "Add"
    assert operator_type("MatMulV241") == "MatMulV2"


PIECE = re.compile(r"[()<>{}\[\],*&]|^.{0,2}$")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # functions, without template, parameters and namespaces
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, char*)",
            "vectorized_elementwise_kernel",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::"
            "exp_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda"
            "(float)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int, at::native::gpu_kernel)",
            "elementwise_kernel",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, 10, true>(float*, int)",
            "softmax_warp_forward",
        ),
        ("void <unnamed>::softmax_warp_forward<float>(float *)", "softmax_warp_forward"),
        (
            "void at::native::_GLOBAL__N__8a63b6ef_22_List_cu_b2::multi_tensor_apply_kernel<X>",
            "multi_tensor_apply_kernel",
        ),
        ("std::enable_if<(a > b), void>::type own::product<(x >> 2)>(int*)", "product"),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int*)", "permute_2D_lengths_kernel"),
        (
            "split_embedding_backward_codegen(at::Accessor<int, 1ul>)",
            "split_embedding_backward_codegen",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::na",
            "reduce_kernel",
        ),
        ("void epilogue::impl::globalKernel<float, true>(int)", "epilogue::globalKernel"),
        ("void kernel<int>(int)", "kernel"),
        ("__amd_rocclr_fillBufferAligned.kd", "__amd_rocclr_fillBufferAligned"),
        ("loop_add_fusion.3", "loop_add_fusion"),
        ("batched_transpose_32x16_half", "batched_transpose"),
        ("kernel_unified_attention_2d", "kernel_unified_attention_2d"),
        # mangled ones
        (
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELb0EEEvPT0_i",
            "add_rmsnorm_quant_kernel",
        ),
        (
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3"
            "INS_28GridwiseGemm_xdl_cshuffle_v3E",
            "kernel_grouped_conv_fwd_xdl_cshuffle_v3",
        ),
        ("_Z11scal_kernelIfEvPT_", "scal_kernel"),
        ("_ZL9quantize_PKf", "quantize"),
        ("_ZN7ck_tile6kentryILi256ENS_13FmhaFwdKernelINS_1XEEEEEvT1_", "flash attention"),
        (
            "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_E",
            "CUTLASS convolution",
        ),
        # families
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align8>"
            "(cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align8::Params)",
            "CUTLASS GEMM",
        ),
        (
            "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm"
            "::kernel::GemmUniversal<cute::tuple<int, int> > > >(Params)",
            "CUTLASS GEMM",
        ),
        (
            "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32>(Params)",
            "CUTLASS convolution",
        ),
        (
            "void cutlass_cudnn_train::Kernel<cutlass_cudnn_train::reduction::ReduceSplitK<X> >(Y)",
            "CUTLASS split-K reduction",
        ),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x512_MI16x16x1_SN", "Tensile GEMM"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "cuBLAS GEMM"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "cuBLAS GEMM"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_execute_cublas", "cuBLAS GEMM"),
        ("nvjet_sm100_tst_mma_128x128x64_4_16x64x64_tmaAB_bz_TNT", "cuBLAS GEMM"),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(int)", "cuBLAS GEMM"),
        ("void sgemm_largek_lds64<true, true, 6, 3>(float*)", "cuBLAS GEMM"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(int)", "cuBLAS GEMV"),
        ("void gemv2T_kernel_val<int, int, float>(float)", "cuBLAS GEMV"),
        ("bmm_Bfloat16_E2m1E2m1_Fp32_bA16_bB16_bC16_t128x64x256u2_s6", "TensorRT-LLM GEMM"),
        (
            "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_nhwc_tilesize128x128x16",
            "cuDNN convolution",
        ),
        ("cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "cuDNN convolution"),
        ("void implicit_convolve_sgemm<float, float, 1024>(int)", "cuDNN convolution"),
        ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x128x32_wt32x32x8", "MIOpen convolution"),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::X<64>, false>(P)", "flash attention"),
        ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<X>(P)", "flash attention backward"),
        (
            "void cutlass::device_kernel<flash::FlashAttnBwdSm90<flash::X<2> > >(P)",
            "flash attention backward",
        ),
        ("attn_fwd", "flash attention"),
        ("_ZN5aiter25fmha_fwd_hd128_bf16_causE", "flash attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "flash attention"),
        (
            "fmha_cutlassF_f16_aligned_64x64_rf_sm80(AttentionKernel<X>::Params)",
            "efficient attention",
        ),
        ("fmha_cutlassB_f16_aligned_64x64_k64_sm80(Params)", "efficient attention backward"),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "NCCL AllReduce",
        ),
        (
            "void rocprim::ROCPRIM_400_NS::detail::trampoline_kernel<rocprim::ROCPRIM_400_NS::"
            "default_config, rocprim::ROCPRIM_400_NS::detail::reduce_config_selector<bool> >(X)",
            "rocprim reduce",
        ),
        # Triton
        ("triton_poi_fused_addmm_gelu_view_15", "triton_poi_fused_addmm_gelu_view"),
        ("triton__0d1d2d3de", "triton"),
        ("matmul_kernel_0d1d2d34567c89c1011c", "matmul_kernel"),
        ("_gemm_a16_w16_kernel_BLOCK_SIZE_M_256_BLOCK_SIZE_N_256", "_gemm_a16_w16_kernel"),
        ("_fwd_grouped_kernel_stage1", "_fwd_grouped_kernel_stage1"),
        ("create_flashinfer_kv_indices_triton", "create_flashinfer_kv_indices_triton"),
        # what is no name
        ("", ""),
        ("(unknown)", "unknown"),
    ],
)
def test_types_of_kernels(name: str, expected: str) -> None:
    """The function, or the family of those that a library has for each shape and type."""
    assert kernel_type(name) == expected


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::mm", "aten::mm"),
        ("aten::add.Tensor", "aten::add.Tensor"),
        ("fbgemm::split_embedding_codegen_forward", "fbgemm::split_embedding_codegen_forward"),
        ("FlashAttnFunc", "FlashAttnFunc"),
        ("triton_red_fused_add_mean_0", "triton_red_fused_add_mean"),
        ("autograd::engine::evaluate_function: MmBackward0", ""),
        ("## Call CompiledFxGraph f3x ##", ""),
        ("Torch-Compiled Region: 0/0", ""),
        ("ProfilerStep#4", ""),
        ("Optimizer.step#Adam.step", ""),
        ("nn.Module: Linear_0", ""),
        ("<forward op>", ""),
        ("forward", ""),
        ("record_param_comms", ""),
        ("", ""),
    ],
)
def test_types_by_launching_operators(operator: str, expected: str) -> None:
    """Frames and annotations are none: everything runs inside of them."""
    assert launched_type(operator) == expected


@given(st.text(alphabet="ab_1:<>(){}[],*& -.ZNE~\n", max_size=40) | st.text())
@example("a<b>::c")
@example("operator()")
@example("_ZN99a")
@example("_Z")
@example("-><(")
def test_no_name_leaves_brackets(name: str) -> None:
    """Whatever a kernel is called, and wherever its name breaks off."""
    assert not re.search(r"[()<>{}\[\],*&]", kernel_type(name))


def _traces() -> Iterator[dict[str, Any]]:
    for path in sorted((DATA / "gpu").rglob("*.json*")):
        with open_profile_file(path) as file:
            yield json.loads(file.read())
    for path in sorted(DATA.glob("gpu*/*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".json") and (held := archive.extractfile(member)):
                    yield json.load(held)


@pytest.mark.skipif(not (DATA / "gpu").is_dir(), reason=f"the real captures are not in {DATA}")
def test_types_of_real_kernels() -> None:
    """No type is a piece of a name, and names of one function are one type."""
    types: dict[str, str] = {}
    for trace in _traces():
        events = trace["traceEvents"]
        named = {event["name"] for event in events if event.get("cat") == "kernel"}
        types |= {name: kernel_type(name) for name in named}
    assert len(types) > 500
    assert [kind for kind in types.values() if PIECE.search(kind)] == []
    assert 100 < len(set(types.values())) < 200
