"""Proves that any name has a type at once, which users of CANN and PyTorch know."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.deadline import deadline
from tests.support.places import DATA
from timeline.analysis.work.operator_names import kernel_type, launched_type, operator_type
from timeline.sources.files.opened import open_profile_file

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
