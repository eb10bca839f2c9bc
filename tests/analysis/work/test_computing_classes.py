"""Proves that operators are computing of the class that msprof-analyze, and people, put them in."""

from __future__ import annotations

import pytest

from timeline.analysis.work.work_classes import CLASSES, computing_class, tells_vector


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
    assert computing_class(kind, name, core, told=True) == expected
    merged = {"other cube", "vector"}
    either = "other cube and vector" if expected in merged else expected
    assert computing_class(kind, name, core, told=False) == either
    assert expected in CLASSES
    assert either in CLASSES


def test_a_trace_does_not_tell_vector_from_cube() -> None:
    """It calls both AI_CORE; a database and a GPU do not."""
    assert not tells_vector(["AI_CORE", "MIX_AIV", "AI_CPU"])
    assert tells_vector(["AI_CORE", "AI_VECTOR_CORE"])
    assert tells_vector(["kernel"])


def test_types_of_the_runtime_do_not_compare_with_others() -> None:
    """It starts mixed kernels of vector cores as KERNEL_AICORE, which others call MIX_AIV."""
    by_runtime = ["KERNEL_AICORE", "KERNEL_AIVEC", "MIX_AIV"]
    by_scheduler = ["AI_CORE", "AI_VECTOR_CORE", "MIX_AIV"]
    assert tells_vector(by_runtime, by_runtime)
    assert tells_vector(by_scheduler, by_scheduler)
    assert not tells_vector(by_runtime, by_scheduler)
    assert tells_vector(by_runtime, ["kernel"])
