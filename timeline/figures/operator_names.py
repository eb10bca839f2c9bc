"""Names of operators on GPUs and NPUs, mapped so that two runs find each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from timeline.analysis.work.framework_calls import EVALUATE

_ATTENTION, _ATTENTION_BACKWARD = "npu::npu_fusion_attention", "npu::npu_fusion_attention_grad"
_ATTENTION_NODE = "NpuFusionAttentionBackward0"
_SERVED_ATTENTION = "npu::npu_fused_infer_attention_score"

NPU_NAMES: Mapping[str, str] = {
    # Attention: PyTorch's own kernels, FlashAttention 2 and 3, xFormers.
    "aten::_flash_attention_forward": _ATTENTION,
    "aten::_efficient_attention_forward": _ATTENTION,
    "aten::_cudnn_attention_forward": _ATTENTION,
    "flash_attn::_flash_attn_forward": _ATTENTION,
    "flash_attn::_flash_attn_varlen_forward": _ATTENTION,
    "flash_attn_3::_flash_attn_forward": _ATTENTION,
    "flash_attn_3::fwd": _ATTENTION,
    "FlashAttnFunc": _ATTENTION,
    "FlashAttnVarlenFunc": _ATTENTION,
    "xformers_flash::flash_fwd": _ATTENTION,
    "xformers::efficient_attention_forward_cutlass": _ATTENTION,
    "aten::_flash_attention_backward": _ATTENTION_BACKWARD,
    "aten::_efficient_attention_backward": _ATTENTION_BACKWARD,
    "aten::_cudnn_attention_backward": _ATTENTION_BACKWARD,
    "flash_attn::_flash_attn_backward": _ATTENTION_BACKWARD,
    "flash_attn::_flash_attn_varlen_backward": _ATTENTION_BACKWARD,
    "flash_attn_3::_flash_attn_backward": _ATTENTION_BACKWARD,
    "flash_attn_3::bwd": _ATTENTION_BACKWARD,
    "xformers_flash::flash_bwd": _ATTENTION_BACKWARD,
    "xformers::efficient_attention_backward_cutlass": _ATTENTION_BACKWARD,
    "FlashAttnFuncBackward": _ATTENTION_NODE,
    "FlashAttnVarlenFuncBackward": _ATTENTION_NODE,
    "ScaledDotProductFlashAttentionBackward0": _ATTENTION_NODE,
    "ScaledDotProductEfficientAttentionBackward0": _ATTENTION_NODE,
    "ScaledDotProductCudnnAttentionBackward0": _ATTENTION_NODE,
    "_vllm_fa2_C::varlen_fwd": _SERVED_ATTENTION,
    "_vllm_fa3_C::fwd": _SERVED_ATTENTION,
    "_C::paged_attention_v1": "npu::_npu_paged_attention",
    "_C::paged_attention_v2": "npu::_npu_paged_attention",
    # Convolution, normalisation, dropout.
    "aten::cudnn_convolution": "aten::convolution_overrideable",
    "aten::miopen_convolution": "aten::convolution_overrideable",
    "aten::cudnn_batch_norm": "aten::native_batch_norm",
    "aten::miopen_batch_norm": "aten::native_batch_norm",
    "aten::cudnn_batch_norm_backward": "aten::native_batch_norm_backward",
    "aten::miopen_batch_norm_backward": "aten::native_batch_norm_backward",
    "CudnnBatchNormBackward0": "NativeBatchNormBackward0",
    "MiopenBatchNormBackward0": "NativeBatchNormBackward0",
    "aten::_fused_rms_norm": "npu::npu_rms_norm",
    "aten::_fused_rms_norm_backward": "npu::npu_rms_norm_backward",
    "FusedRmsNormBackward0": "NpuRmsNormBackward0",
    "_C::rms_norm": "npu::npu_rms_norm",
    "_C::fused_add_rms_norm": "npu::npu_add_rms_norm",
    "aten::native_dropout": "npu::_npu_dropout",
    "aten::native_dropout_backward": "npu::npu_dropout_backward",
    "NativeDropoutBackward0": "NpuDropoutBackward0",
    # Activations, positions, experts, casts.
    "_C::silu_and_mul": "npu::npu_swiglu",
    "_C::rotary_embedding": "npu::_npu_rotary_embedding",
    "_C_cache_ops::reshape_and_cache": "npu::_npu_reshape_and_cache",
    "_C_cache_ops::reshape_and_cache_flash": "npu::_npu_reshape_and_cache",
    "aten::_grouped_mm": "npu::npu_grouped_matmul",
    "aten::_cudnn_rnn": "npu::npu_lstm",
    "torchvision::roi_align": "npu::npu_roi_align",
    # Optimizers: the kernels of PyTorch's fused ones.
    "aten::_fused_adam_": "npu::npu_apply_adam",
    "aten::_fused_adamw_": "npu::npu_apply_adam_w",
}
"""By what CUDA and ROCm call an operator, what torch_npu calls the one that does its work."""

_OPTIMIZER = re.compile(r"(Optimizer\.(?:step|zero_grad)#)(?:Npu)?(?:Fused)?(\w+)(\.\w+)")
"""PyTorch puts this around each step of an optimizer, of whichever class."""
_LIBRARIES = (("nccl:", "hccl:"), ("rccl:", "hccl:"), ("ProcessGroupNCCL", "ProcessGroupHCCL"))
"""How names of collectives begin, by library."""


def mapped(name: str, custom: Mapping[str, str], *, built_in: bool = True) -> str:
    """Return the name of an operator where runs are compared.

    Optimizers lose what tells apart who fused them, so that both runs find each other.

    >>> mapped("aten::_flash_attention_forward", {})
    'npu::npu_fusion_attention'
    >>> mapped("Optimizer.step#NpuFusedAdamW.step", {})
    'Optimizer.step#AdamW.step'

    Args:
        name: as the profiler tells it.
        custom: names of the user, old to new; they count before those that are built in.
        built_in: whether names of GPUs become those of NPUs, which is right only where one run
            is of each: elsewhere it would hide a change of kernels.
    """
    if name in custom:
        name = custom[name]
    if not built_in:
        return name
    around = EVALUATE if name.startswith(EVALUATE) else ""
    inner = name.removeprefix(EVALUATE)
    if optimizer := _OPTIMIZER.fullmatch(inner):
        return "".join(optimizer.groups())
    for gpu, npu in _LIBRARIES:
        if inner.startswith(gpu):
            return f"{around}{npu}{inner.removeprefix(gpu)}"
    return around + NPU_NAMES.get(inner, inner)


_NUMBER = re.compile(r"_[0-9]+$")
"""What PyTorch puts behind the class of a module."""


def module_class(name: str) -> str:
    """Return the class in the name of a module, such as Linear in Linear_3."""
    return _NUMBER.sub("", name)


@dataclass(frozen=True)
class OperatorNames:
    """Names of operators and modules in a comparison.

    custom: names of the user, old to new; of modules a whole path, or what is between slashes, or
    that without its number. between_vendors: names of GPUs become those of NPUs. with_shapes:
    operators of other shapes are others.
    """

    custom: Mapping[str, str] = field(default_factory=dict)
    between_vendors: bool = False
    with_shapes: bool = False

    def operator(self, name: str) -> str:
        """Return the name of an operator."""
        return mapped(name, self.custom, built_in=self.between_vendors)

    def operator_key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the name of an operator and its shapes, None where they are not told apart."""
        name, shapes = key
        return self.operator(name), shapes if self.with_shapes else None

    def path(self, path: str) -> str:
        """Return the path of a module.

        >>> OperatorNames({"Linear": "Dense", "Net_0": "Model"}).path("Net_0/Linear_3")
        'Model/Dense_3'
        """
        if path in self.custom:
            return self.custom[path]
        return "/".join(map(self._module, path.split("/"))) if self.custom else path

    def _module(self, name: str) -> str:
        if name in self.custom:
            return self.custom[name]
        kind = module_class(name)
        return self.custom.get(kind, kind) + name.removeprefix(kind)
