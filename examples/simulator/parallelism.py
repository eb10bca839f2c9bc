"""Which ranks of a simulated job communicate with which."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.truth import Group

GROUP = "10.0.0.1%enp189s0f0_60000_0_1736424000123586"
"""What HCCL calls the group of all ranks."""


@dataclass(frozen=True)
class Parallelism:
    """How ranks share a model: `tensor` ranks a layer, in `stages` of a pipeline, the rest data.

    Ranks count tensors first, then data, then stages. micro_batches: those of each step that run
    through the pipeline, all forward and then all backward. batched: whether stages exchange
    batches of sends and receives, which both call alike.
    """

    tensor: int = 1
    stages: int = 1
    micro_batches: int = 1
    batched: bool = False

    def data(self, world: int) -> int:
        """How many ranks do the same with other data."""
        share = self.tensor * self.stages
        if world % share or min(self.tensor, self.stages, self.micro_batches) < 1:
            raise ValueError(f"{world} ranks cannot be shared by {self}")
        return world // share

    @property
    def named(self) -> bool:
        """Whether there is more than the group of all ranks."""
        return self.tensor * self.stages > 1

    def groups(self, world: int) -> tuple[Group, ...]:
        """All groups that communicate.

        As in Megatron, `pp` are the ranks of a whole pipeline. Stages of longer ones send to the
        next in pairs, which msprof-analyze calls `p2p`; those of two are the pair.
        """
        everyone = Group(GROUP, "default_group", tuple(range(world)))
        if not self.named:
            return (everyone,)
        data, per_stage = self.data(world), world // self.stages
        found = [
            ("tp", tuple(range(first, first + self.tensor)))
            for first in range(0, world, self.tensor)
        ]
        found += [
            ("dp", tuple(range(first, first + data * self.tensor, self.tensor)))
            for stage in range(0, world, per_stage)
            for first in range(stage, stage + self.tensor)
        ]
        found += [("pp", tuple(range(first, world, per_stage))) for first in range(per_stage)]
        if self.stages > 2:
            found += [("p2p", (rank, rank + per_stage)) for rank in range(world - per_stage)]
        named = [
            Group(f"group_name_{number}", label, members)
            for number, (label, members) in enumerate(found)
            if len(members) > 1
        ]
        return (everyone, *named)

    def stage(self, rank: int, world: int) -> int:
        """Position of a rank in its pipeline."""
        return rank // (world // self.stages)


def group_number(name: str) -> int:
    """The number by which names of HCCL's ops call a group: the last digits of its hash.

    As in msprof: two polynomial hashes of 32 bits, to bases 29 and 131, one after the other.
    """
    low = high = 0
    for character in name.encode():
        high = (high * 29 + character) & 0xFFFFFFFF
        low = (low * 131 + character) & 0xFFFFFFFF
    return (high << 32 | low) % 1000
