"""The forward, backward and update kernels of a small network with so many operators."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice

from simulator.model import Kernel

NETWORK = "network-WithLossCell/_backbone-ResNet"


@dataclass(frozen=True)
class Operator:
    """A kernel together with the framework calls around it and its usual duration."""

    kernel: Kernel
    duration_ns: int
    framework_name: str
    launch_name: str
    module: str
    module_index: int
    slows_down: bool
    """Whether a slow rank computes it slowly; updates only move memory."""


@dataclass(frozen=True)
class Network:
    """The operators of one graph in launch order, by phase."""

    forward: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    update: tuple[Operator, ...]


@dataclass(frozen=True)
class _Template:
    op_type: str
    core: str
    duration_ns: int
    module: str
    framework_name: str
    inputs: str
    outputs: str
    layout: str = "NCHW"


_FORWARD = (
    _Template(
        "Conv2D", "AI_CORE", 180_000, "Conv2d", "aten::convolution",
        "32,64,56,56;64,64,3,3;64", "32,64,56,56", "NC1HWC0",
    ),
    _Template(
        "BNTrainingUpdate", "AI_VECTOR_CORE", 62_000, "BatchNorm2d", "aten::batch_norm",
        "32,64,56,56;64;64", "32,64,56,56",
    ),
    _Template(
        "Relu", "AI_VECTOR_CORE", 31_000, "ReLU", "aten::relu_", "32,64,56,56", "32,64,56,56"
    ),
    _Template(
        "DropoutGenMask", "AI_CPU", 290_000, "Dropout", "aten::dropout", "2;1", "6422528", "ND"
    ),
    _Template(
        "MatMulV2", "AI_CORE", 124_000, "Linear", "aten::addmm",
        "32,512;512,1000;1000", "32,1000", "ND",
    ),
    _Template(
        "LogSoftmaxV2", "MIX_AIV", 24_000, "LogSoftmax", "aten::log_softmax",
        "32,1000", "32,1000", "ND",
    ),
)  # fmt: skip
_BACKWARD = (
    _Template(
        "LogSoftmaxGrad", "MIX_AIV", 27_000, "LogSoftmax", "LogSoftmaxBackward0",
        "32,1000;32,1000", "32,1000", "ND",
    ),
    _Template(
        "MatMulV2", "AI_CORE", 133_000, "Linear", "AddmmBackward0",
        "32,1000;1000,512", "32,512", "ND",
    ),
    _Template(
        "ReluGrad", "AI_VECTOR_CORE", 36_000, "ReLU", "ReluBackward0",
        "32,64,56,56;32,64,56,56", "32,64,56,56",
    ),
    _Template(
        "BNTrainingUpdateGrad", "AI_VECTOR_CORE", 71_000, "BatchNorm2d", "NativeBatchNormBackward0",
        "32,64,56,56;32,64,56,56;64", "64;64",
    ),
    _Template(
        "Conv2DBackpropInput", "AI_CORE", 191_000, "Conv2d", "ConvolutionBackward0",
        "64,64,3,3;32,64,56,56", "32,64,56,56", "NC1HWC0",
    ),
    _Template(
        "Conv2DBackpropFilter", "AI_CORE", 203_000, "Conv2d", "ConvolutionBackward0",
        "32,64,56,56;32,64,56,56", "64,64,3,3", "NC1HWC0",
    ),
)  # fmt: skip
# An update kernel outlasts its launch on the host, so the device always finishes a step last.
_UPDATE = (
    _Template(
        "ApplyMomentum", "AI_VECTOR_CORE", 66_000, "SGD", "Optimizer.step#SGD.step",
        "64,64,3,3;64,64,3,3;1", "64,64,3,3", "ND",
    ),
)  # fmt: skip


def build_network(ops: int, graph_index: int) -> Network:
    """Share out `ops` operators (at least three) over the phases of one graph."""
    if ops < 3:
        raise ValueError(f"a step needs at least 3 operators, not {ops}")
    forward = backward = max(1, ops * 5 // 12)
    counts = (forward, backward, ops - forward - backward)
    number = 1 + 1000 * graph_index
    phases = []
    for templates, count in zip((_FORWARD, _BACKWARD, _UPDATE), counts, strict=True):
        chosen = enumerate(islice(cycle(templates), count))
        phases.append(
            tuple(_operator(one, number + index, index // len(templates)) for index, one in chosen)
        )
        number += count
    return Network(*phases)


def _operator(template: _Template, number: int, layer: int) -> Operator:
    plain_launch = f"aclnn{template.op_type}"
    kernel = Kernel(
        name=f"{plain_launch}_{template.op_type}AiCore_{template.op_type}",
        scope=f"{_scope(template, layer)}/{template.op_type}-op{number}",
        op_type=template.op_type,
        core=template.core,
        blocks=_blocks(template.core),
        input_shapes=template.inputs,
        input_types=_repeat("FLOAT", template.inputs),
        input_formats=_repeat(template.layout, template.inputs),
        output_shapes=template.outputs,
        output_types=_repeat("FLOAT", template.outputs),
        output_formats=_repeat(template.layout, template.outputs),
    )
    return Operator(
        kernel=kernel,
        duration_ns=template.duration_ns,
        framework_name=template.framework_name,
        launch_name=plain_launch,
        module=template.module,
        module_index=layer,
        slows_down=template not in _UPDATE,
    )


def _scope(template: _Template, layer: int) -> str:
    if template in _UPDATE:
        return "Default/optimizer-Momentum"
    cell = f"{NETWORK}/layer{layer + 1}-SequentialCell/{template.module.lower()}-{template.module}"
    return f"Default/{cell}" if template in _FORWARD else f"Gradients/Default/gradnet/{cell}"


def _blocks(core: str) -> int:
    return {"AI_CORE": 24, "AI_VECTOR_CORE": 48, "MIX_AIV": 48}.get(core, 1)


def _repeat(value: str, shapes: str) -> str:
    return ";".join(value for _ in shapes.split(";"))
