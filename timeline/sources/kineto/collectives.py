"""Communication of a PyTorch trace: kernels, ops, and groups with their members."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct, distinct_pairs, rows_by_value
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import CommunicationOps, GroupMembers, Tasks
from timeline.records.task_kinds import (
    POINT_TO_POINT,
    UNKNOWN_OP,
    collective_kind,
    format_kind,
    function_parts,
    have_type,
)
from timeline.sources.common.identity import ProcessGroup, members_of, ranks_in
from timeline.sources.decoders.event_columns import EventRows
from timeline.sources.decoders.exported_values import Value, number, text
from timeline.sources.decoders.joins import values_at
from timeline.sources.kineto.launches import RuntimeCalls, ThreadIntervals
from timeline.sources.kineto.tables import COLLECTIVES, tell_of_collectives

_MOST_CACHED = 1 << 14


@dataclass(frozen=True)
class Communication:
    """Library and kind of the communication of a kernel.

    library: for people, who name groups by it. op: what it does, as far as the kernel tells.
    """

    library: str
    op: str


_COLLECTIVE = r"(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
"""In snake_case or CamelCase, as the authors of a library like."""
_SCOPE = r"(?i:block|warp|wave|thread|lane|cta|grid|cluster)_?(?i:wide_?|level_?)?"
"""Whose threads a reduction within one kernel is over, which computes."""
_COMPUTES = rf"triton_|allToAllV?\Z|.*(?:(?i:gemm|matmul)|{_SCOPE}{_COLLECTIVE})"
_ENGINE = r"(?:vllm|sglang|aiter|flashinfer|tensorrt_llm)"
_FUNCTIONS = (
    ("NCCL", UNKNOWN_OP, r"(?:nccl|rccl|msccl(?!pp))\w*"),
    ("PCCL", UNKNOWN_OP, r"pccl(?:Dev)?Kernel\w*"),
    ("MSCCL++", UNKNOWN_OP, r"(?:\w+::)*mscclpp::.*"),
    ("oneCCL", UNKNOWN_OP, r"(?:one)?ccl_\w+|oneccl\w*(?:::.*)?"),
    ("NVSHMEM", "", r"(?:\w+::)*nvshmem\w*(?:::.*)?"),
    ("DeepEP", "", r"(?:\w+::)*(?:deep_)?ep::(?:\w+::)*(?:inter|intra)node\w*::\w+"),
    ("DeepEP", "", r"(?:\w+::)*(?:deep|hybrid)_ep::(?:\w+::)*(?!get_)\w*(?:dispatch|combine)\w*"),
    ("MORI", "", r"mori::(?:\w+::)*Ep(?:Dispatch|Combine)\w*"),
    ("MoE all-to-all", "all_to_all", r"(?:\w+::)*moe(?:A2A|AllToAll)\w*"),
    ("MoE all-to-all", "all_to_all", r"(?:\w+::)*a2a_kernels::\w*(?:[dD]ispatch|[cC]ombine)\w*"),
    ("Symmetric memory", "", r"c10d::symmetric_memory::.*|(?:\w+::)*multimem_\w+"),
    ("Symmetric memory", "", r"(?:\w+::)*(?:one|two)_shot_\w*reduce\w*"),
    ("User buffers", "", r"(?:\w+::)*userbuffers_\w+"),
    ("Custom all-reduce", "all_reduce", r"(?:\w+::)*cross_device_reduce\w*"),
    ("Custom all-reduce", "all_reduce", r"(?:\w+::)*quickreduce::.*"),
    ("Custom collective", "", rf"{_ENGINE}::(?:\w+::)*barrier_kernel"),
    ("Custom collective", "", rf"(?!{_COMPUTES})(?:\w+::)*\w*{_COLLECTIVE}\w*"),
)  # fmt: skip
"""Who kernels are of, what they do where their own name does not tell, and their functions.

Kernels that Triton fused are named after all operators around them, collectives included; those
that multiply too compute. Names that say little (barrier_kernel, allToAllV) count where their
namespace is known.
"""
_LAUNCHERS = (
    ("NCCL", r"(?:\w*ccl|gloo|ucc|mpi):.*|record_param_comms|_?c10d(?:_functional)?::.*"),
    ("Symmetric memory", r"symm_mem::(?!_async|fused).*"),
    ("Custom collective", rf"(?!aten::|.*(?:_mm|linear)|{_COMPUTES})\w+::\w*{_COLLECTIVE}\w*"),
)
"""Whose kernels the operators and annotations launch that communicate."""


@lru_cache(maxsize=_MOST_CACHED)
def function_path(kernel: str) -> str:
    """Return the function of a kernel with its namespaces, without types, templates and parameters.

    >>> function_path("void ns::(anonymous namespace)::reduce_1stage<float, 4>(ns::Data*)")
    'ns::reduce_1stage'
    >>> function_path("_ZN2ns13reduce_1stageIfLi4EEEvPT_")
    'ns::reduce_1stage'
    """
    return "::".join(function_parts(kernel)) or kernel


@lru_cache(maxsize=_MOST_CACHED)
def communication_of(kernel: str, launcher: str = "") -> Communication | None:
    """Return what a kernel communicates, None if it computes.

    Its own name tells, or else what launched it.

    Args:
        kernel: its name.
        launcher: the innermost operator or annotation around its launch, empty where not known.
    """
    path = function_path(kernel)
    for library, does, pattern in _FUNCTIONS:
        if _whole(pattern, path):
            return Communication(library, _op_of(path.rpartition("::")[2], does))
    for library, pattern in _LAUNCHERS:
        if _whole(pattern, launcher):
            return Communication(library, launched_op(launcher) or UNKNOWN_OP)
    return None


def launched_op(launcher: str) -> str:
    """Return what an operator or annotation says that it launches; empty where it says nothing.

    >>> launched_op("nccl:all_to_all"), launched_op("nccl:send 0->1"), launched_op("aten::mm")
    ('all_to_all', 'send', '')
    """
    if not any(_whole(pattern, launcher) for _, pattern in _LAUNCHERS):
        return ""
    return launcher.rpartition(":")[2].partition(" ")[0] if ":" in launcher else ""


def _op_of(name: str, does: str) -> str:
    if does == UNKNOWN_OP and format_kind(name):
        return name
    return does or name


def _whole(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


_ALGORITHM = re.compile(r"_((?:RING|TREE|COLLNET_\w+?|NVLS(?:_TREE)?|PAT)_(?:LL128|LL|SIMPLE))")
_UNDEFINED = frozenset({"", "undefined"})


class Descriptions(ColumnTable):
    """Args of collectives (record_param_comms of PyTorch), names as codes.

    group: for people; group_name: what all its ranks call it. ranks: its members as they are
    written; size: how many they are, NO_ID where that is not known.
    """

    name: Codes = column(np.int32, NO_NAME)
    group: Codes = column(np.int32, NO_NAME)
    group_name: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64, NO_ID)
    data_type: Codes = column(np.int32, NO_NAME)
    sequence: Int64 = column(np.int64, NO_ID)
    process_group: Codes = column(np.int32, NO_NAME)
    ranks: Codes = column(np.int32, NO_NAME)
    size: Int64 = column(np.int64, NO_ID)

    @classmethod
    def read(cls, events: EventRows) -> Descriptions:
        """Return what the args of some events tell."""
        strings = events.strings
        sequences = [one if type(one) is int else NO_ID for one in events.objects("sequence")]
        pairs = zip(events.objects("group"), events.objects("communicator"), strict=True)
        groups = [group if communicator is None else communicator for group, communicator in pairs]
        ranks = events.objects("group_ranks")
        described, sizes = events.objects("group_description"), events.objects("group_size")
        return cls.of(
            len(events),
            {
                "name": events.arg_names("collective"),
                "group": strings.codes(map(_label, groups, described)),
                "group_name": strings.codes(map(_group_name, groups, ranks, sizes)),
                "count": events.ids(NO_ID, "elements"),
                "data_type": events.arg_names("data_type"),
                "sequence": [number(one, NO_ID) for one in sequences],
                "process_group": strings.codes(map(text, groups)),
                "ranks": strings.codes(str(one or "") for one in ranks),
                "size": [number(one, NO_ID) for one in sizes],
            },
        )

    def at(self, rows: Int64) -> Descriptions:
        """Return what rows say, nothing where the row is NO_ID."""
        nothing = Descriptions.of(1, {})
        return Descriptions.concat([self, nothing]).take(np.where(rows < 0, len(self), rows))


def find_announcing(events: EventRows) -> Bool:
    """Return which events of the host say what collective they launch."""
    launch = events.by_name(np.bool_, lambda name: bool(launched_op(name)))
    return tell_of_collectives(events) | launch


class Announcements(ThreadIntervals):
    """Events of the host that announce the collectives it launches.

    op: what is launched; described: the row of Descriptions with more, NO_ID for none.
    """

    op: Codes = column(np.int32)
    described: Int64 = column(np.int64)

    @classmethod
    def read(cls, events: EventRows, described: Int64) -> Announcements:
        """Return what some events say, given the rows of what their args describe."""
        strings = events.strings
        ops = events.by_name(np.int64, lambda name: strings.code(launched_op(name)))
        return cls.of(
            len(events),
            events.spans() | events.lanes() | {"op": ops.astype(np.int32), "described": described},
        )

    def of_calls(self, call: Rows, calls: RuntimeCalls) -> tuple[Codes, Int64]:
        """Return what is said of what each call launched: the op, and the row of its description.

        Nothing is said of graphs, whose ops were announced when they were captured.
        """
        naming, describing = self.take(self.op != NO_NAME), self.take(self.described != NO_ID)
        return (
            values_at(naming.op, naming.around(call, calls), NO_NAME),
            values_at(describing.described, describing.around(call, calls), NO_ID),
        )


def _label(group: Value, description: Value) -> str:
    """Return the process group: descriptions repeat ("undefined"), names do not."""
    if group is None:
        return ""
    if not isinstance(description, str) or description in _UNDEFINED:
        return f"Group {text(group)}"
    return f"Group {text(group)} {description}"


def _group_name(group: Value, ranks: Any, size: Value) -> str:
    """Name and members: groups of one name have other members elsewhere in some versions."""
    members = str(ranks or "")
    if not members and size is not None:
        members = f"of {text(size)} ranks"
    return f"{text(group)} {members}".strip()


def find_communicating(tasks: Tasks, strings: StringPool) -> Rows:
    """Return the tasks that communicate, by category, by kernel or by what launched them."""
    kernels = np.flatnonzero(tasks.compute)
    named = [column[kernels].astype(np.int64) for column in (tasks.name, tasks.op_type)]
    pairs, which = distinct_pairs(*named)
    told = [
        communication_of(strings[kernel], strings[by]) is not None for kernel, by in pairs.tolist()
    ]
    found = have_type(COLLECTIVES, tasks.task_type, strings)
    found[kernels] |= np.array(told, np.bool_)[which]
    return np.flatnonzero(found)


_OF_TASKS = ("start_ns", "end_ns", "connection", "launch_ns")
_TOLD = ("count", "data_type", "sequence")


def build_ops(
    tasks: Tasks, announced: Codes, told: Descriptions, strings: StringPool
) -> CommunicationOps:
    """Communication ops from the kernels that ran them.

    An all-to-all of NCCL runs as sends and receives, so that what launched a kernel tells more
    than its name. A kernel whose launch is not in the trace did what all others of its function
    did, and is of the group that has its stream, where there is but one.

    Args:
        tasks: those that communicate.
        announced: (n,) the op that was to be launched, NO_NAME where that is not known.
        told: (n,) what the trace says of each.
    """
    kernels = [strings[code] for code in tasks.name.tolist()]
    recorded = have_type(COLLECTIVES, tasks.task_type, strings).tolist()
    kinds = [
        Communication("HCCL", kernel)
        if is_op
        else communication_of(kernel, strings[by]) or Communication("", UNKNOWN_OP)
        for kernel, by, is_op in zip(kernels, tasks.op_type.tolist(), recorded, strict=True)
    ]
    names = strings.codes(
        [
            _op_name(strings[said], strings[by], kind.op)
            for said, by, kind in zip(told.name.tolist(), announced.tolist(), kinds, strict=True)
        ]
    )
    known = (announced != NO_NAME) | (told.name != NO_NAME)
    functions = strings.codes([function_path(kernel) for kernel in kernels])
    label, group_name = _groups_by_stream(told, tasks.stream)
    library = strings.codes([kind.library for kind in kinds])
    label = _labels_by_library(label, library, tasks.stream, strings)
    return CommunicationOps.of(
        len(tasks),
        {
            **{name: getattr(tasks, name) for name in _OF_TASKS},
            **{name: getattr(told, name) for name in _TOLD},
            "group": label,
            "group_name": group_name,
            "name": _name_as_others(names, functions, known, strings),
            "algorithm": strings.codes([_algorithm(kernel) for kernel in kernels]),
        },
    )


def _op_name(said: str, announced: str, of_kernel: str) -> str:
    """Return the first of what is said that tells what the op does."""
    given = [name for name in (said, announced, of_kernel) if name]
    return next((name for name in given if format_kind(name)), given[-1])


def _name_as_others(names: Codes, functions: Codes, known: Bool, strings: StringPool) -> Codes:
    """Return the names; kernels of unknown launch take that of others of their function."""
    found = names.copy()
    for _, its in rows_by_value(functions, distinct(functions[~known])):
        others = distinct(names[its[known[its]]]).tolist()
        kinds = {collective_kind(strings[code]) for code in others}
        if len(kinds) == 1 and not kinds & set(POINT_TO_POINT):
            found[its[~known[its]]] = others[0]
    return found


def _groups_by_stream(told: Descriptions, stream: Int64) -> tuple[Codes, Codes]:
    """Label and name of each op's group; where not told, that of its stream if it has but one."""
    label, name = told.group.copy(), told.group_name.copy()
    for _, its in rows_by_value(stream, distinct(stream[label == NO_NAME])):
        is_told = label[its] != NO_NAME
        at = its[is_told]
        groups, _ = distinct_pairs(label[at].astype(np.int64), name[at].astype(np.int64))
        if len(groups) == 1:
            rows = its[~is_told]
            label[rows], name[rows] = groups[0]
    return label, name


def _labels_by_library(label: Codes, library: Codes, stream: Int64, strings: StringPool) -> Codes:
    """Labels of groups: where not told, the library, and the stream if that has several.

    Every communicator has a stream of its own, which each rank numbers for itself.
    """
    label = label.copy()
    unknown = np.flatnonzero(label == NO_NAME)
    for code, at in rows_by_value(library[unknown]):
        rows = unknown[at]
        streams, number_of = np.unique(stream[rows], return_inverse=True)
        label[rows] = code
        if len(streams) > 1:
            of_stream = [f"{strings[code]} stream {number}" for number in streams.tolist()]
            label[rows] = strings.codes(of_stream)[number_of]
    return label


def _algorithm(kernel: str) -> str:
    match = _ALGORITHM.search(kernel)
    return match[1] if match else ""


def find_members(
    told: Descriptions,
    configured: Mapping[str, Sequence[int]],
    world: int | None,
    strings: StringPool,
) -> GroupMembers:
    """Return the members of the groups of some collectives, and how many ranks there are.

    Args:
        told: what the args of the collectives say; long lists of members are cut short there.
        configured: the members of groups that the head of the trace tells, by name.
        world: the number of all ranks, None if it is not known.
    """
    groups = [*_groups(told, configured, strings)]
    if world is not None:
        groups.append(ProcessGroup("", size=world))
    return members_of(groups, strings)


def _groups(
    told: Descriptions, configured: Mapping[str, Sequence[int]], strings: StringPool
) -> Iterator[ProcessGroup]:
    columns = (told.group_name, told.process_group, told.ranks, told.size)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for group_name, process_group, ranks, size in dict.fromkeys(rows):
        name = strings[group_name]
        if not name:
            continue
        members = _listed(strings[ranks]) or configured.get(strings[process_group], ())
        if size not in (NO_ID, len(members)):
            members = ()
        yield ProcessGroup(name, ranks=members, size=max(size, 0))


def _listed(text: str) -> tuple[int, ...]:
    """Return the members in a list that is written out; none where it is cut short."""
    try:
        return ranks_in(orjson.loads(text))
    except orjson.JSONDecodeError:
        return ()
