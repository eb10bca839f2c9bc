"""The line of the program's own code that a host call comes from, and its whole call stack."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from timeline.analysis.work.framework_calls import NO_CALL, CallTree
from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.constant import is_constant
from timeline.columns.distinct import distinct, distinct_pairs, matched_rows
from timeline.columns.nesting import latest_open
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import HostEvents

_SOURCE = ".py("
"""Text that every frame of Python has, in lower case."""
_FRAME = re.compile(
    r"^(?P<path>[^\n]+?\.py)\((?P<line>\d+)\): (?P<function>[^\n]*)", re.IGNORECASE | re.MULTILINE
)
"""A frame, from the start of its line: tried from anywhere, a long line takes quadratic time."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_INTERPRETER = re.compile(r"(?:^|/)(?:lib(?:64|32)?/python\d[\d.]*t?|python[\d.]*/lib)/", re.I)
"""Directories of the interpreter's own library, on Linux and Windows."""
_COMPILED = "/torchinductor_"
"""Part of the directories of what `torch.compile` wrote."""
_PACKAGES = frozenset(
    (
        *("torch", "torch_npu", "torch_xla", "torchaudio", "torchdata", "torchvision", "functorch"),
        *("triton", "numpy", "apex", "accelerate", "datasets", "deepspeed", "diffusers", "ray"),
        *("flash_attn", "lightning", "pytorch_lightning", "peft", "safetensors", "timm", "tqdm"),
        *("transformers", "trl", "xformers", "aiter", "torch_guard", "PIL"),
    )
)
"""Packages that are installed: PyTorch cuts the directory of packages off the paths of frames."""
_PROGRAMS = frozenset({"test", "profile", "trace", "code", "this"})
"""Modules of the interpreter whose names programs have too."""
_LIBRARY = (sys.stdlib_module_names | _PACKAGES) - _PROGRAMS


def line_of(stack: str) -> str:
    r"""Return the innermost frame of a stack that is the program's own, with the name of its file.

    stack: frames, innermost first, a frame a line. Frames of installed packages and of the
    interpreter's own library are not the program's; empty if all are.

    >>> line_of("/lib/python3.9/site-packages/torch/_ops.py(692): __call__\n/me/a.py(3): train")
    'a.py(3): train'
    """
    for match in _FRAME.finditer(stack):
        path = match["path"].replace("\\", "/")
        if not _is_library(path):
            return f"{path.rpartition('/')[2]}({match['line']}): {match['function']}"
    return ""


def _is_library(path: str) -> bool:
    """Return whether a file is of an installed package or of the interpreter.

    path: absolute, or without the directory in which Python looks for modules.
    """
    if path.startswith("<") or _COMPILED in path or _INTERPRETER.search(path):
        return True
    first, *others = path.split("/")
    if not _INSTALLED.isdisjoint(others):
        return True
    return first.removesuffix(".py") in _LIBRARY


class CodeLines:
    """Lines of code of the host calls of a rank, whose strings lines are added to.

    A call comes from the line of its own stack; from the call itself if that is a frame of the
    program; otherwise from the nearest call around it on its thread that has a line.
    """

    def __init__(self, host: HostEvents, strings: StringPool) -> None:
        self._host, self._strings = host, strings
        frames = strings.codes_with([_SOURCE])
        texts = strings.texts(frames)
        self._by_code = np.zeros(len(strings), np.int32)
        """Code of the line of a stack, or of the name of a frame, by its code."""
        self._by_code[frames] = strings.codes(map(line_of, texts))

    @cached_property
    def own(self) -> Codes:
        """Return the line of each host call by its own stack or name, (calls,), else NO_NAME."""
        host = self._host
        own: Codes = self._by_code[host.name]
        if is_constant(host.stack):
            return own
        by_stack = self._by_code[host.stack]
        return np.where(by_stack != NO_NAME, by_stack, own)

    @cached_property
    def holders(self) -> Rows:
        """Return the rows of the host calls that have a line of their own, ascending."""
        if not self._by_code.any():
            return np.empty(0, np.intp)
        return np.flatnonzero(self.own)

    def of(self, rows: Rows | Int64) -> Codes:
        """Return the line of host calls at some rows, (n,); NO_NAME for NO_ID, or if unknown."""
        lines = np.full(len(rows), NO_NAME, np.int32)
        if not len(self.holders):
            return lines
        known = np.flatnonzero(rows != NO_ID)
        lines[known] = self.own[rows[known]]
        asked = known[lines[known] == NO_NAME]
        host, holders = self._host, self.holders
        for places, of_thread in matched_rows(host.thread[rows[asked]], host.thread[holders]):
            around, here = holders[of_thread], asked[places]
            at = _innermost_around(host, around, rows[here])
            inside = np.flatnonzero(at >= 0)
            lines[here[inside]] = self.own[around[at[inside]]]
        return lines


def _innermost_around(host: HostEvents, some: Rows, rows: Rows | Int64) -> Rows:
    """Return the innermost of some calls around each call of their thread, (n,), -1 for none.

    It is open in the middle of the call, because clocks of framework and runtime may differ by
    microseconds; where that one began within the call, it is open when the call starts.
    """
    start_ns, end_ns = host.start_ns[some], host.end_ns[some]
    begin_ns, stop_ns = host.start_ns[rows], host.end_ns[rows]
    at = np.array(latest_open(start_ns, end_ns, begin_ns + (stop_ns - begin_ns) // 2))
    inside = np.flatnonzero(at >= 0)
    begun = start_ns[at[inside]] > begin_ns[inside]
    within = inside[begun & (end_ns[at[inside]] <= stop_ns[inside])]
    at[within] = latest_open(start_ns, end_ns, begin_ns[within])
    return at


def are_frames(host: HostEvents, strings: StringPool) -> Bool:
    """Return a mask of the host calls that are functions of Python, with their file and line."""
    frame = np.zeros(len(strings), np.bool_)
    for code in strings.codes_with([_SOURCE]).tolist():
        frame[code] = _FRAME.fullmatch(strings[code]) is not None
    return np.asarray(frame[host.name])


def whole_stacks(host: HostEvents, rows: Rows, strings: StringPool) -> Codes:
    """Return the stack of each host call, (calls,), as `HostEvents.stack` holds them.

    If none is recorded, calls at some rows get that of the Python frames around them; frames
    themselves get none. Stacks are added to the strings, each distinct one once.
    """
    is_frame = are_frames(host, strings)
    frames = np.flatnonzero(is_frame)
    if not len(frames) or host.stack.any():
        return host.stack
    stacks = np.full(len(host), NO_NAME, np.int32)
    asked = rows[~is_frame[rows]]
    for places, of_thread in matched_rows(host.thread[asked], host.thread[frames]):
        around, here = frames[of_thread], asked[places]
        at = _innermost_around(host, around, here)
        inside = np.flatnonzero(at >= 0)
        tree = CallTree.of(around, host.start_ns[around], host.end_ns[around])
        innermost = tree.places(around[at[inside]])
        stacks[here[inside]] = _stacks_at(tree, host.name, innermost, strings)
    return stacks


def _stacks_at(tree: CallTree, names: Codes, at: Rows, strings: StringPool) -> Codes:
    """Return the codes of the stacks from some frames of a tree outwards, (n,).

    at: (n,) places of the innermost frames.
    """
    needed = _with_parents(tree, at)
    number, parents, frames = np.full(len(tree) + 1, NO_CALL), list[int](), list[int]()
    # The last place stands for "nothing around", so that NO_CALL reads it.
    for level in tree.levels:
        here = level[needed[level]]
        if not len(here):
            continue
        pairs, which = distinct_pairs(
            number[tree.parent[here]], names[tree.row[here]].astype(np.int64)
        )
        number[here] = len(parents) + which
        outer, inner = pairs.T.tolist()
        parents += outer
        frames += inner
    codes = np.zeros(len(parents), np.int32)
    used = distinct(number[at])
    codes[used] = strings.codes(
        "\n".join(_outwards(node, parents, frames, strings)) for node in used.tolist()
    )
    return np.asarray(codes[number[at]])


def _with_parents(tree: CallTree, at: Rows) -> Bool:
    """Return a mask of some frames of a tree and all those around them."""
    needed = np.zeros(len(tree), np.bool_)
    needed[at] = True
    for level in reversed(tree.levels[1:]):
        needed[tree.parent[level[needed[level]]]] = True
    return needed


def _outwards(
    node: int, parents: list[int], frames: list[int], strings: StringPool
) -> Iterator[str]:
    while node != NO_CALL:
        yield strings[frames[node]]
        node = parents[node]
