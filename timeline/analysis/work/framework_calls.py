"""What the calls of a framework are, by their names: operators, modules, annotations, frames."""

from __future__ import annotations

import enum
import re

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.patterns import compile_late
from timeline.records.tables import RUNTIME_LAYERS, HostEvents

__all__ = ["MARKS", "MODULE", "CallKind", "FrameworkCalls", "launch_name", "module_name"]

STEP = "ProfilerStep"
_STEPS = f"{STEP}#"
MODULE = "nn.Module: "
"""What PyTorch puts before the class and number of a module."""
MARKS = "MSTX"
"""The host layer of the ranges and marks that a program makes itself."""
EVALUATE = "autograd::engine::evaluate_function: "
"""What the autograd engine puts before the name of the node that it runs."""
_FRAME = compile_late(r"<built-in |.+\(\d+\): ")
"""A function of Python: with its file and line, or of the interpreter."""
_QUEUE = compile_late(r"(?:En|De)queue\b")
_OPERATOR = compile_late(r"[\w.]+::|acl[a-z]+[A-Z]|\w*Backward\d*$|<(?:forward|backward) op>")
"""Operators have a namespace, or are calls of CANN's library or nodes of autograd."""
_LAYER = "AscendCL@"
_LIBRARY = compile_late(rf"(?:{_LAYER})?acl(?:nn|op)[A-Z]")
"""Operators of CANN's library, some with the name of their layer in front."""
_BACKWARD = compile_late(r"autograd::engine::|\w*Backward\d*$|<backward op>")
_FORWARD = compile_late(r"\bforward\b", re.IGNORECASE)


class CallKind(enum.IntEnum):
    """What a call of the framework is."""

    NONE = 0
    """Nothing that work is told by: a function of Python, a queue, or no call of the framework."""
    OPERATOR = 1
    MODULE = 2
    ANNOTATION = 3
    STEP = 4
    OPERATOR_OR_ANNOTATION = 5
    """A name that both may have: an annotation lies around operators, and in none."""


class FrameworkCalls:
    """What the names of host events stand for, by their codes."""

    def __init__(self, host: HostEvents, strings: StringPool) -> None:
        runtime = [code for name in RUNTIME_LAYERS if (code := strings.find(name)) is not None]
        self._runtime = np.array(runtime, np.int32)
        marks = strings.find(MARKS)
        self._marks = -1 if marks is None else marks
        kinds = np.zeros(len(strings), np.int8)
        backward, forward, library = np.zeros((3, len(strings)), np.bool_)
        for code in distinct(host.name).tolist():
            name = strings[code]
            kinds[code] = _kind(name)
            backward[code] = _BACKWARD.match(name) is not None
            forward[code] = _FORWARD.search(name) is not None
            library[code] = _LIBRARY.match(name) is not None
        self._kinds, self._library = kinds, library
        self.backward: Bool = backward
        """By code: whether autograd calls so what it runs backward."""
        self.forward: Bool = forward
        """By code: whether a module or annotation of the name says that it runs forward."""

    def kinds(self, layer: Codes, name: Codes) -> npt.NDArray[np.int8]:
        """The CallKind of some calls."""
        found = self._kinds[name]
        found[np.isin(layer, self._runtime)] = CallKind.NONE
        found[layer == self._marks] = CallKind.ANNOTATION
        return found

    def library_kinds(self, layer: Codes, name: Codes) -> npt.NDArray[np.int8]:
        """The CallKind of some calls where no framework is recorded: CANN's own operators."""
        is_operator = self._library[name] & np.isin(layer, self._runtime)
        return np.where(is_operator, CallKind.OPERATOR, CallKind.NONE).astype(np.int8)


def _kind(name: str) -> CallKind:
    if name.startswith(MODULE):
        return CallKind.MODULE
    if name.startswith(_STEPS):
        return CallKind.STEP
    if not name or _FRAME.match(name) or _QUEUE.match(name):
        return CallKind.NONE
    return CallKind.OPERATOR if _OPERATOR.match(name) else CallKind.OPERATOR_OR_ANNOTATION


def launch_name(name: str) -> str:
    """What an operator is called that launched: without what profilers put in front.

    >>> launch_name("autograd::engine::evaluate_function: AddmmBackward0")
    'AddmmBackward0'
    """
    return name.removeprefix(EVALUATE).removeprefix(_LAYER)


def module_name(name: str) -> str:
    """What a module, annotation or step is called in the path of those around it.

    >>> module_name("nn.Module: Linear_3"), module_name("ProfilerStep#12")
    ('Linear_3', 'ProfilerStep')
    """
    return STEP if name.startswith(_STEPS) else name.removeprefix(MODULE)
