"""Operators of a GPU and of an NPU that do the same work have one name; others keep theirs."""

from __future__ import annotations

import pytest

from timeline.comparison.pairs import NPU_NAMES, mapped


@pytest.mark.parametrize(
    ("gpu", "npu"),
    [
        ("aten::_efficient_attention_forward", "npu::npu_fusion_attention"),
        ("flash_attn::_flash_attn_backward", "npu::npu_fusion_attention_grad"),
        ("aten::cudnn_convolution", "aten::convolution_overrideable"),
        ("Optimizer.step#FusedAdam.step", "Optimizer.step#NpuFusedAdam.step"),
        ("Optimizer.step#SGD.step", "Optimizer.step#NpuFusedSGD.step"),
        ("nccl:all_reduce", "hccl:all_reduce"),
        (
            "autograd::engine::evaluate_function: NativeDropoutBackward0",
            "autograd::engine::evaluate_function: NpuDropoutBackward0",
        ),
    ],
)
def test_both_names_of_one_operator_become_one(gpu: str, npu: str) -> None:
    assert mapped(gpu, {}) == mapped(npu, {})


@pytest.mark.parametrize("name", ["aten::mm", "aten::native_layer_norm", "npu::npu_rms_norm", ""])
def test_other_names_stay(name: str) -> None:
    assert mapped(name, {}) == name


def test_names_of_the_user_count_first() -> None:
    custom = {"aten::_flash_attention_forward": "my::attention", "my::conv": "aten::conv2d"}
    assert mapped("aten::_flash_attention_forward", custom) == "my::attention"
    assert mapped("my::conv", custom) == "aten::conv2d"


def test_what_the_user_names_as_a_gpu_does_is_mapped_on() -> None:
    custom = {"my::norm": "aten::cudnn_batch_norm"}
    assert mapped("my::norm", custom) == mapped("aten::native_batch_norm", {})


def test_two_runs_of_one_hardware_keep_the_names_of_kernels_apart() -> None:
    names = ["aten::_flash_attention_forward", "aten::_efficient_attention_forward"]
    assert [mapped(name, {}, built_in=False) for name in names] == names


def test_no_name_is_mapped_twice() -> None:
    assert not NPU_NAMES.keys() & set(NPU_NAMES.values())
