"""What is true of a simulated run, also of the ranks of it that were not profiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Group:
    """Ranks that communicate; its name is that of HCCL, and numbers in it count `members`."""

    name: str
    label: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Meeting:
    """One op of HCCL: when each member of its group began and ended it, in ns of the run.

    A send has the name of the send, and as members its sender and its receiver.
    """

    step: int
    kind: str
    name: str
    group: str
    members: tuple[int, ...]
    starts_ns: tuple[int, ...]
    ends_ns: tuple[int, ...]

    @property
    def last_rank(self) -> int:
        """The member that came last."""
        return self.members[self.starts_ns.index(max(self.starts_ns))]

    def waited_ns(self, rank: int) -> int:
        """How long a member waited for the last one."""
        return max(self.starts_ns) - self.starts_ns[self.members.index(rank)]

    def transfer_ns(self, rank: int) -> int:
        """What a member took when all had come."""
        return self.ends_ns[self.members.index(rank)] - max(self.starts_ns)


@dataclass(frozen=True)
class Truth:
    """What a simulated cluster did, and what is wrong with it.

    world: ranks of the job, of which `profiled` left a profile. causes: ranks with a fault and its
    name. groups and meetings are those of all ranks. named: whether profiles tell the groups.
    clocks: ranks whose clocks are ahead, by how many ns, and how many more each second; meetings
    have the times of the run. lost: ranks with the positions of collectives without a record.
    """

    world: int
    profiled: tuple[int, ...]
    causes: tuple[tuple[int, str], ...] = ()
    groups: tuple[Group, ...] = ()
    meetings: tuple[Meeting, ...] = field(default=(), repr=False)
    named: bool = False
    clocks: tuple[tuple[int, int, int], ...] = ()
    lost: tuple[tuple[int, int], ...] = ()

    def group(self, name: str) -> Group:
        """The group of a name."""
        return next(one for one in self.groups if one.name == name)

    def waited_for_ns(
        self, *, steps: tuple[int, ...] | None = None
    ) -> Mapping[tuple[int, int], int]:
        """By a profiled rank and the rank it waited for, which may be any, the sum over its ops.

        Nobody is late in a pipeline, so sends are left out.
        """
        waited: Counter[tuple[int, int]] = Counter()
        for one in self.meetings:
            if one.kind != "send" and (steps is None or one.step in steps):
                for rank in set(one.members) & set(self.profiled):
                    waited[rank, one.last_rank] += one.waited_ns(rank)
        return {pair: waited_ns for pair, waited_ns in waited.items() if waited_ns}

    def received_ns(self, step: int) -> Mapping[int, int]:
        """By rank, how long its receives of a step waited for their senders."""
        waited: Counter[int] = Counter()
        for one in self.meetings:
            if one.kind == "send" and one.step == step:
                waited[one.members[1]] += one.waited_ns(one.members[1])
        return waited

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)
