"""Turns kernels that communicate, and what traces say of collectives, into communication ops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.collective_kinds import (
    POINT_TO_POINT,
    UNKNOWN_OP,
    collective_kind,
    spelled_kind,
)
from timeline.records.tables import NO_ID, CommunicationOps, Tasks
from timeline.sources.common.kernel_kinds import (
    Communication,
    communication_of,
    function_path,
    launched_op,
)
from timeline.sources.kineto.events import Activity, Args
from timeline.sources.kineto.operators import OnThreads, open_at
from timeline.sources.kineto.tables import NOT_LAUNCHED, RuntimeCalls
from timeline.sources.trace_json.event_fields import ids_of, names_of, spans_of
from timeline.sources.trace_json.events import text

__all__ = ["Announcements", "Descriptions", "announces", "communicating", "communication_ops"]

_ALGORITHM = re.compile(r"_((?:RING|TREE|COLLNET_\w+?|NVLS(?:_TREE)?|PAT)_(?:LL128|LL|SIMPLE))")
_UNDEFINED = frozenset({"", "undefined"})


@dataclass(frozen=True)
class Descriptions(ColumnTable):
    """What args tell of a collective (record_param_comms of PyTorch), names as codes.

    group: for people; group_name: what all its ranks call it.
    """

    name: Codes = column(np.int32, NO_NAME)
    group: Codes = column(np.int32, NO_NAME)
    group_name: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64, NO_ID)
    data_type: Codes = column(np.int32, NO_NAME)
    sequence: Int64 = column(np.int64, NO_ID)

    @classmethod
    def read(cls, args: Sequence[Args], strings: StringPool) -> Descriptions:
        """What the args of some events tell."""
        sequences = [own.sequence if type(own.sequence) is int else None for own in args]
        return cls.of(
            len(args),
            {
                "name": strings.codes([text(own.collective) for own in args]),
                "group": strings.codes([_label(own) for own in args]),
                "group_name": strings.codes([_group_name(own) for own in args]),
                "count": ids_of([own.elements for own in args], NO_ID),
                "data_type": names_of([own.data_type for own in args], strings),
                "sequence": ids_of(sequences, NO_ID),
            },
        )

    def at(self, rows: Int64) -> Descriptions:
        """What rows say, nothing where the row is NO_ID."""
        nothing = Descriptions.of(1, {})
        return Descriptions.concat([self, nothing]).take(np.where(rows < 0, len(self), rows))


def announces(event: Activity) -> bool:
    """Whether an event of the host says which collective it launches."""
    said = event.args is not None and event.args.of_collective
    return said or bool(launched_op(event.name))


@dataclass(frozen=True)
class Announcements(OnThreads):
    """What the host says of the collectives that it launches.

    op: what is launched; described: the row of Descriptions with more, NO_ID for none.
    """

    op: Codes = column(np.int32)
    described: Int64 = column(np.int64)

    @classmethod
    def read(
        cls, events: Sequence[Activity], described: Int64, strings: StringPool
    ) -> Announcements:
        """What some events say, given the rows of what their args describe."""
        return cls.of(
            len(events),
            spans_of(events)
            | {
                "process": ids_of([event.pid for event in events], NO_ID),
                "thread": ids_of([event.tid for event in events], NO_ID),
                "op": strings.codes([launched_op(event.name) for event in events]),
                "described": described,
            },
        )

    def around(self, call: Rows, calls: RuntimeCalls) -> tuple[Codes, Int64]:
        """What is said of what each call launched: the op, and the row of its description.

        Nothing is said of graphs, whose ops were announced when they were captured.
        """
        op = np.full(len(call), NO_NAME, np.int32)
        described = np.full(len(call), NO_ID, np.int64)
        asked = np.flatnonzero(call != NOT_LAUNCHED)
        asked = asked[~calls.graph[call[asked]]]
        saying = self.take(self.op != NO_NAME)
        row = open_at(saying, calls.take(call[asked]))
        op[asked[row >= 0]] = saying.op[row[row >= 0]]
        saying = self.take(self.described != NO_ID)
        row = open_at(saying, calls.take(call[asked]))
        described[asked[row >= 0]] = saying.described[row[row >= 0]]
        return op, described


def _label(args: Args) -> str:
    """The process group: descriptions repeat ("undefined"), names do not."""
    if args.group is None:
        return ""
    described = args.group_description
    if not isinstance(described, str) or described in _UNDEFINED:
        return f"Group {text(args.group)}"
    return f"Group {text(args.group)} {described}"


def _group_name(args: Args) -> str:
    """Name and members: groups of one name have other members elsewhere in some versions."""
    members = str(args.group_ranks or "")
    if not members and args.group_size is not None:
        members = f"of {text(args.group_size)} ranks"
    return f"{text(args.group)} {members}".strip()


def communicating(name: Codes, launcher: Codes, strings: StringPool) -> Bool:
    """Which kernels communicate, by their names and those of the operators that launched them."""
    pairs, which = distinct_pairs(name.astype(np.int64), launcher.astype(np.int64))
    told = [
        communication_of(strings[kernel], strings[by]) is not None for kernel, by in pairs.tolist()
    ]
    found: Bool = np.array(told, np.bool_)[which]
    return found


def communication_ops(
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
    kinds = [
        communication_of(kernel, strings[by]) or Communication("", UNKNOWN_OP)
        for kernel, by in zip(kernels, tasks.op_type.tolist(), strict=True)
    ]
    names = strings.codes(
        [
            _op_name(strings[said], strings[by], kind.op)
            for said, by, kind in zip(told.name.tolist(), announced.tolist(), kinds, strict=True)
        ]
    )
    known = (announced != NO_NAME) | (told.name != NO_NAME)
    functions = strings.codes([function_path(kernel) for kernel in kernels])
    label, group_name = _of_stream(told, tasks.stream)
    library = strings.codes([kind.library for kind in kinds])
    label, group_name = _of_library(label, group_name, library, tasks.stream, strings)
    return CommunicationOps.of(
        len(tasks),
        {
            "start_ns": tasks.start_ns,
            "end_ns": tasks.end_ns,
            "group": label,
            "group_name": group_name,
            "name": _as_others(names, functions, known, strings),
            "connection": tasks.connection,
            "launch_ns": tasks.launch_ns,
            "count": told.count,
            "data_type": told.data_type,
            "algorithm": strings.codes([_algorithm(kernel) for kernel in kernels]),
            "sequence": told.sequence,
        },
    )


def _op_name(said: str, announced: str, of_kernel: str) -> str:
    """The first of what is said that tells what the op does."""
    given = [name for name in (said, announced, of_kernel) if name]
    return next((name for name in given if spelled_kind(name)), given[-1])


def _as_others(names: Codes, functions: Codes, known: Bool, strings: StringPool) -> Codes:
    """The names, with those of kernels of unknown launch taken from others of their function."""
    found = names.copy()
    for function in distinct(functions[~known]).tolist():
        own = functions == function
        others = distinct(names[own & known]).tolist()
        kinds = {collective_kind(strings[code]) for code in others}
        if len(kinds) == 1 and not kinds & set(POINT_TO_POINT):
            found[own & ~known] = others[0]
    return found


def _of_stream(told: Descriptions, stream: Int64) -> tuple[Codes, Codes]:
    """Label and name of each op's group; where not told, that of its stream if it has but one."""
    label, name = told.group.copy(), told.group_name.copy()
    for own in distinct(stream[label == NO_NAME]).tolist():
        here = stream == own
        groups, _ = distinct_pairs(
            label[here & (label != NO_NAME)].astype(np.int64),
            name[here & (label != NO_NAME)].astype(np.int64),
        )
        if len(groups) == 1:
            rows = here & (label == NO_NAME)
            label[rows], name[rows] = groups[0]
    return label, name


def _of_library(
    label: Codes, name: Codes, library: Codes, stream: Int64, strings: StringPool
) -> tuple[Codes, Codes]:
    """The same, where no group is told by the library, and by the stream if it has several.

    Every communicator has a stream of its own, and all ranks make them in the same order.
    """
    label, name = label.copy(), name.copy()
    for code in distinct(library[label == NO_NAME]).tolist():
        rows = np.flatnonzero((label == NO_NAME) & (library == code))
        streams, place = np.unique(stream[rows], return_inverse=True)
        own = strings[code]
        if len(streams) == 1:
            label[rows] = code
        else:
            labels = strings.codes(f"{own} stream {number}" for number in streams.tolist())
            names = strings.codes(f"{own} {at + 1}" for at in range(len(streams)))
            label[rows] = labels[place]
            name[rows] = np.where(name[rows] == NO_NAME, names[place], name[rows])
    return label, name


def _algorithm(kernel: str) -> str:
    match = _ALGORITHM.search(kernel)
    return match[1] if match else ""
