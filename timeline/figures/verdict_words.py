"""Sentences of the verdict on a mean step."""

from __future__ import annotations

from timeline.analysis.waits.waiting import Basis
from timeline.figures.mean_step import MeanStep
from timeline.figures.table import Table
from timeline.units import spell_share, spell_short

HARDLY = 0.01
"""Ranks that wait a smaller share of a step hardly wait: nobody holds them up."""
BUSY = 0.8
"""A device that is busy for such a share of the time has hardly anything to wait for."""
MOSTLY_TOLD = 0.9
"""Of a smaller share of communication it is said how much tells who waits for whom."""


# -- what nothing stands out of --------------------------------------------------------------------


def nothing_sentence(mean: MeanStep, longest: str) -> str:
    """Return what the devices do all the time, where nothing is worth mending.

    longest: the type of operator that takes longest, empty for none.
    """
    busy_ns = mean.computing_ns + mean.exposed_ns + mean.copies_ns
    busy = spell_share(busy_ns, mean.period_ns)
    if busy_ns < BUSY * mean.period_ns:
        return f"Device busy {busy} of the time, and no single loss is worth 2% of the run."
    kernels = f"; {longest}" if longest else ""
    return f"Device busy {busy}: only faster kernels help{kernels}."


def basis_sentence(basis: Basis) -> str | None:
    """Return how much communication shows who waits for whom, None if that is nearly all.

    Sends and receives are communication too, so all collectives may take little of it.
    """
    if basis.share >= MOSTLY_TOLD or not 0 < basis.compared < basis.collectives:
        return None
    return (
        f"Who waits for whom is known of {basis.compared} of {basis.collectives} collectives "
        f"({spell_share(basis.share, 1)} of communication time)."
    )


# -- where a step goes -----------------------------------------------------------------------------


def step_sentence(mean: MeanStep) -> str:
    """Return where the time of a mean step goes."""
    step = "Device time" if not mean.steps else "Step"
    if mean.single is not None:
        step = f"Step {mean.single}"
    head = f"{step} ({spell_short(mean.period_ns)})"
    if not mean.computing_ns:
        share = spell_share(mean.communication_ns, mean.period_ns)
        return f"{head}: communication {share}; no compute tasks in this profile.{_mean_of(mean)}"
    told = [
        f"{name} {share}%" + (f" ({detail})" if detail else "")
        for name, share, detail in step_shares(mean)
    ]
    return f"{head}: {', '.join(told)}.{_mean_of(mean)}"


def step_shares(mean: MeanStep) -> list[tuple[str, int, str]]:
    """Yield the reported parts of a mean step: name, percent, and details if known."""
    if not mean.computing_ns:
        return [("communication", percent(mean.communication_ns, mean.period_ns), "")]
    parts = [
        ("compute", mean.computing_ns, ""),
        ("exposed communication", mean.exposed_ns, _split(mean)),
        ("copies", mean.copies_ns, ""),
        ("idle", mean.idle_ns, ""),
        ("free", mean.unexplained_ns, "why is not recorded"),
        ("before the first kernel", mean.before_ns, ""),
        ("between steps", mean.between_ns, ""),
    ]
    return [
        (name, percent(part_ns, mean.period_ns), detail)
        for name, part_ns, detail in parts
        if percent(part_ns, mean.period_ns)
    ]


def is_notable(part_ns: int, mean: MeanStep) -> bool:
    """Return whether a part of the mean step is worth a number of its own."""
    return part_ns >= HARDLY * mean.period_ns


def percent(part_ns: int, whole_ns: int) -> int:
    """Return the percentage of a time that a part is reported as."""
    return round(100 * part_ns / whole_ns)


def _split(mean: MeanStep) -> str:
    """Return the parts of exposed communication, in percent of the step."""
    if mean.waiting_ns is None or mean.transfer_ns is None:
        return ""
    rest_ns = mean.exposed_ns - mean.waiting_ns - mean.transfer_ns
    parts = {"waiting": mean.waiting_ns, "transfer": mean.transfer_ns, "not known": rest_ns}
    told = {name: percent(part_ns, mean.period_ns) for name, part_ns in parts.items()}
    return ", ".join(f"{name} {percent}" for name, percent in told.items() if percent > 0)


def _mean_of(mean: MeanStep) -> str:
    counts = [f"{mean.ranks} ranks"] if mean.ranks > 1 else []
    counts += [f"{mean.steps} steps"] if mean.steps > 1 else []
    return f" Mean of {' and '.join(counts)}." if counts else ""


def ends_sentence(steps: Table) -> str | None:
    """Return at which step device tasks end, if steps are marked beyond that."""
    if not len(steps) or not steps["tasks"].any():
        return None
    found = list[tuple[int, int, int]]()
    for rank in sorted(set(steps["rank"].tolist())):
        its = steps.take(steps["rank"] == rank)
        numbers = its["step"].tolist()
        there = [at for at, tasks in enumerate(its["tasks"].tolist()) if tasks]
        if there and there[-1] + 1 < len(numbers):
            found.append((there[-1] + 1, numbers[there[-1]], rank))
    if not found:
        return None
    _, step, rank = min(found)
    its = steps.take(steps["rank"] == rank)
    of_rank = "" if len({end[:2] for end in found}) == 1 else f" of rank {rank}"
    first, last = int(its["step"].min()), int(its["step"].max())
    marked = f" of {last}" if first < 2 else f"; steps are marked up to {last}"
    return f"Device tasks{of_rank} end at step {step}{marked}."
