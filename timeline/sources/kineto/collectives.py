"""Communication in a PyTorch trace: which kernels communicate, their ops, and group members."""

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
from timeline.sources.kineto.tables import COLLECTIVES, have_collective_args

_MOST_CACHED = 1 << 14


@dataclass(frozen=True)
class Communication:
    """Library and operation of a kernel that communicates.

    library: its name for people, which labels groups that have no other name. op: the operation, as
    far as names of the kernel and its launcher show it.
    """

    library: str
    op: str


_COLLECTIVE = r"(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
"""Names of collectives, in the snake_case or CamelCase of different libraries."""
_SCOPE = r"(?i:block|warp|wave|thread|lane|cta|grid|cluster)_?(?i:wide_?|level_?)?"
"""Prefix of a reduction over threads within one kernel, which is computation."""
_COMPUTES = rf"triton_|allToAllV?\Z|.*(?:(?i:gemm|matmul)|{_SCOPE}{_COLLECTIVE})"
"""Functions that compute although they are named after a collective."""
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
"""Libraries of communication kernels, their operation, and a pattern of their functions.

The operation is empty if it is the name of the function, and UNKNOWN_OP if that name may hold it.

Kernels that Triton fused are named after all fused operators, collectives included, but compute;
so do kernels that multiply matrices as well. Generic names (barrier_kernel, allToAllV) count only
in a known namespace.
"""
_LAUNCHERS = (
    ("NCCL", r"(?:\w*ccl|gloo|ucc|mpi):.*|record_param_comms|_?c10d(?:_functional)?::.*"),
    ("Symmetric memory", r"symm_mem::(?!_async|fused).*"),
    ("Custom collective", rf"(?!aten::|.*(?:_mm|linear)|{_COMPUTES})\w+::\w*{_COLLECTIVE}\w*"),
)
"""Libraries of the kernels launched by operators and annotations that communicate, by pattern."""


@lru_cache(maxsize=_MOST_CACHED)
def function_path(kernel: str) -> str:
    """Return a kernel's function with its namespaces, without types, templates and parameters.

    >>> function_path("void ns::(anonymous namespace)::reduce_1stage<float, 4>(ns::Data*)")
    'ns::reduce_1stage'
    >>> function_path("_ZN2ns13reduce_1stageIfLi4EEEvPT_")
    'ns::reduce_1stage'
    """
    return "::".join(function_parts(kernel)) or kernel


@lru_cache(maxsize=_MOST_CACHED)
def communication_of(kernel: str, launcher: str = "") -> Communication | None:
    """Return the library and operation of a kernel that communicates, None if it computes.

    The name of the kernel decides, else its launcher.

    Args:
        kernel: the kernel's name.
        launcher: the innermost operator or annotation around its launch, empty if unknown.
    """
    path = function_path(kernel)
    for library, op, pattern in _FUNCTIONS:
        if re.fullmatch(pattern, path):
            function = path.rpartition("::")[2]
            is_named = op == UNKNOWN_OP and format_kind(function)
            return Communication(library, function if is_named else op or function)
    for library, pattern in _LAUNCHERS:
        if re.fullmatch(pattern, launcher):
            return Communication(library, launched_op(launcher) or UNKNOWN_OP)
    return None


def launched_op(launcher: str) -> str:
    """Return the collective that an operator or annotation names, empty if it names none.

    >>> launched_op("nccl:all_to_all"), launched_op("nccl:send 0->1"), launched_op("aten::mm")
    ('all_to_all', 'send', '')
    """
    if not any(re.fullmatch(pattern, launcher) for _, pattern in _LAUNCHERS):
        return ""
    return launcher.rpartition(":")[2].partition(" ")[0] if ":" in launcher else ""


_ALGORITHM = re.compile(r"_((?:RING|TREE|COLLNET_\w+?|NVLS(?:_TREE)?|PAT)_(?:LL128|LL|SIMPLE))")
_UNDEFINED = frozenset({"", "undefined"})


class Descriptions(ColumnTable):
    """Args of collectives (record_param_comms of PyTorch), strings as codes.

    group: label of the group for people. group_name: a name that is the same on all its ranks and
    different from that of any other group. ranks: its members as written in the trace; size: their
    number, NO_ID if unknown.
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
        """Read one row of args per event."""
        strings = events.strings
        sequences = [
            sequence if type(sequence) is int else NO_ID for sequence in events.objects("sequence")
        ]
        pairs = zip(events.objects("group"), events.objects("communicator"), strict=True)
        groups = [group if communicator is None else communicator for group, communicator in pairs]
        ranks = events.objects("group_ranks")
        descriptions, sizes = events.objects("group_description"), events.objects("group_size")
        return cls.of(
            len(events),
            {
                "name": events.arg_names("collective"),
                "group": strings.codes(map(_format_label, groups, descriptions)),
                "group_name": strings.codes(map(_format_group_name, groups, ranks, sizes)),
                "count": events.ids(NO_ID, "elements"),
                "data_type": events.arg_names("data_type"),
                "sequence": [number(sequence, NO_ID) for sequence in sequences],
                "process_group": strings.codes(map(text, groups)),
                "ranks": strings.codes(str(members or "") for members in ranks),
                "size": [number(size, NO_ID) for size in sizes],
            },
        )

    def at(self, rows: Int64) -> Descriptions:
        """Return the given rows; an empty description for row NO_ID."""
        empty = Descriptions.of(1, {})
        return Descriptions.concat([self, empty]).take(np.where(rows < 0, len(self), rows))


def are_announcements(events: EventRows) -> Bool:
    """Return which events of the host name or describe the collective that they launch."""
    launch = events.by_name(np.bool_, lambda name: bool(launched_op(name)))
    return have_collective_args(events) | launch


class Announcements(ThreadIntervals):
    """Events of the host that name or describe the collectives launched inside them.

    op: name of the collective, NO_NAME for none; described: row in `Descriptions`, NO_ID for none.
    """

    op: Codes = column(np.int32)
    described: Int64 = column(np.int64)

    @classmethod
    def read(cls, events: EventRows, described: Int64) -> Announcements:
        """Read announcements from events, given the row in `Descriptions` of each."""
        strings = events.strings
        ops = events.by_name(np.int64, lambda name: strings.code(launched_op(name)))
        return cls.of(
            len(events),
            events.spans() | events.lanes() | {"op": ops.astype(np.int32), "described": described},
        )

    def of_calls(self, call: Rows, calls: RuntimeCalls) -> tuple[Codes, Int64]:
        """Return the collective around each runtime call, and the row of its description.

        They are NO_NAME and NO_ID for launches of graphs, whose collectives were announced when
        the graph was captured.
        """
        naming, describing = self.take(self.op != NO_NAME), self.take(self.described != NO_ID)
        return (
            values_at(naming.op, naming.around(call, calls), NO_NAME),
            values_at(describing.described, describing.around(call, calls), NO_ID),
        )


def _format_label(group: Value, description: Value) -> str:
    """Return a label of a process group: its unique name, and its description if it has one."""
    if group is None:
        return ""
    if not isinstance(description, str) or description in _UNDEFINED:
        return f"Group {text(group)}"
    return f"Group {text(group)} {description}"


def _format_group_name(group: Value, ranks: Any, size: Value) -> str:
    """Return the name and members of a group.

    In some versions of PyTorch, groups of other ranks have the same name but other members.
    """
    members = str(ranks or "")
    if not members and size is not None:
        members = f"of {text(size)} ranks"
    return f"{text(group)} {members}".strip()


def find_communicating(tasks: Tasks, strings: StringPool) -> Rows:
    """Return the tasks that communicate, judged by category, by kernel name or by launcher."""
    kernels = np.flatnonzero(tasks.compute)
    names = [column[kernels].astype(np.int64) for column in (tasks.name, tasks.op_type)]
    pairs, pair_of_kernel = distinct_pairs(*names)
    pair_communicates = [
        communication_of(strings[kernel], strings[launcher]) is not None
        for kernel, launcher in pairs.tolist()
    ]
    communicates = have_type(COLLECTIVES, tasks.task_type, strings)
    communicates[kernels] |= np.array(pair_communicates, np.bool_)[pair_of_kernel]
    return np.flatnonzero(communicates)


_FROM_TASKS = ("start_ns", "end_ns", "connection", "launch_ns")
_FROM_DESCRIPTIONS = ("count", "data_type", "sequence")


def build_ops(
    tasks: Tasks, announced: Codes, descriptions: Descriptions, strings: StringPool
) -> CommunicationOps:
    """Build communication ops from the kernels that ran them.

    Names from the launch precede those of kernels, because an all-to-all of NCCL runs as kernels of
    sends and receives. A kernel whose launch is not in the trace gets the op of other kernels of
    its function if they all have the same one, and the group of its stream if that has only one.

    Args:
        tasks: (n,) the tasks that communicate.
        announced: (n,) the name of the launched op, NO_NAME if unknown.
        descriptions: (n,) the args of each task's collective.
    """
    kernels = [strings[code] for code in tasks.name.tolist()]
    recorded = have_type(COLLECTIVES, tasks.task_type, strings).tolist()
    kinds = [
        Communication("HCCL", kernel)
        if is_op
        else communication_of(kernel, strings[launcher]) or Communication("", UNKNOWN_OP)
        for kernel, launcher, is_op in zip(kernels, tasks.op_type.tolist(), recorded, strict=True)
    ]
    launch_names = zip(descriptions.name.tolist(), announced.tolist(), strict=True)
    names = strings.codes(
        [
            _choose_op_name(strings[described], strings[op], kind.op)
            for (described, op), kind in zip(launch_names, kinds, strict=True)
        ]
    )
    is_launch_known = (announced != NO_NAME) | (descriptions.name != NO_NAME)
    functions = strings.codes([function_path(kernel) for kernel in kernels])
    label, group_name = _find_groups(descriptions, tasks.stream)
    library = strings.codes([kind.library for kind in kinds])
    label = _label_by_library(label, library, tasks.stream, strings)
    return CommunicationOps.of(
        len(tasks),
        {
            **{name: getattr(tasks, name) for name in _FROM_TASKS},
            **{name: getattr(descriptions, name) for name in _FROM_DESCRIPTIONS},
            "group": label,
            "group_name": group_name,
            "name": _rename_by_function(names, functions, is_launch_known, strings),
            "algorithm": strings.codes([_parse_algorithm(kernel) for kernel in kernels]),
        },
    )


def _choose_op_name(described: str, announced: str, kernel_op: str) -> str:
    """Return the first name that is one of a known kind of op, else the last that is not empty."""
    names = [name for name in (described, announced, kernel_op) if name]
    return next((name for name in names if format_kind(name)), names[-1])


def _rename_by_function(
    names: Codes, functions: Codes, is_launch_known: Bool, strings: StringPool
) -> Codes:
    """Rename kernels without a known launch like others of their function, if those agree."""
    renamed = names.copy()
    for _, rows in rows_by_value(functions, distinct(functions[~is_launch_known])):
        others = distinct(names[rows[is_launch_known[rows]]]).tolist()
        kinds = {collective_kind(strings[code]) for code in others}
        if len(kinds) == 1 and not kinds & set(POINT_TO_POINT):
            renamed[rows[~is_launch_known[rows]]] = others[0]
    return renamed


def _find_groups(descriptions: Descriptions, stream: Int64) -> tuple[Codes, Codes]:
    """Return label and name of each op's group.

    An op without a group gets that of other ops on its stream, if they have only one.
    """
    label, name = descriptions.group.copy(), descriptions.group_name.copy()
    for _, rows in rows_by_value(stream, distinct(stream[label == NO_NAME])):
        has_group = label[rows] != NO_NAME
        known = rows[has_group]
        groups, _ = distinct_pairs(label[known].astype(np.int64), name[known].astype(np.int64))
        if len(groups) == 1:
            unknown = rows[~has_group]
            label[unknown], name[unknown] = groups[0]
    return label, name


def _label_by_library(label: Codes, library: Codes, stream: Int64, strings: StringPool) -> Codes:
    """Label groups without a label by their library, and by stream if the library uses several.

    Each communicator has a stream of its own, but ranks number streams differently.
    """
    label = label.copy()
    unknown = np.flatnonzero(label == NO_NAME)
    for code, at in rows_by_value(library[unknown]):
        rows = unknown[at]
        streams, stream_index = np.unique(stream[rows], return_inverse=True)
        label[rows] = code
        if len(streams) > 1:
            labels = [f"{strings[code]} stream {number}" for number in streams.tolist()]
            label[rows] = strings.codes(labels)[stream_index]
    return label


def _parse_algorithm(kernel: str) -> str:
    match = _ALGORITHM.search(kernel)
    return match[1] if match else ""


def find_members(
    descriptions: Descriptions,
    configured: Mapping[str, Sequence[int]],
    world: int | None,
    strings: StringPool,
) -> GroupMembers:
    """Return members and sizes of groups, including the group of all ranks if its size is known.

    Args:
        descriptions: the args of collectives, in which long lists of members are cut short.
        configured: members of groups by name, from the metadata of the trace.
        world: the number of all ranks, None if unknown.
    """
    groups = [*_list_groups(descriptions, configured, strings)]
    if world is not None:
        groups.append(ProcessGroup("", size=world))
    return members_of(groups, strings)


def _list_groups(
    descriptions: Descriptions, configured: Mapping[str, Sequence[int]], strings: StringPool
) -> Iterator[ProcessGroup]:
    names = ("group_name", "process_group", "ranks", "size")
    rows = zip(*(getattr(descriptions, name).tolist() for name in names), strict=True)
    for group_name, process_group, ranks, size in dict.fromkeys(rows):
        name = strings[group_name]
        if not name:
            continue
        members = _parse_members(strings[ranks]) or configured.get(strings[process_group], ())
        if size not in (NO_ID, len(members)):
            members = ()
        yield ProcessGroup(name, ranks=members, size=max(size, 0))


def _parse_members(text: str) -> tuple[int, ...]:
    """Return the ranks in a JSON list, none if the list was cut short."""
    try:
        return ranks_in(orjson.loads(text))
    except orjson.JSONDecodeError:
        return ()
