"""What is slow, in sentences: the culprit first, then where a step goes, its slowest rank last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timeline.analysis.waits.culprit import Culprit, HeldUp
from timeline.analysis.waits.lateness import Cause
from timeline.analysis.waits.waiting import Basis
from timeline.figures.computing_table import tell_computing
from timeline.figures.mean_step import MeanStep
from timeline.figures.table import Table
from timeline.units import spell_like, spell_rate, spell_share, spell_short

__all__ = [
    "HARDLY",
    "basis_sentence",
    "between_sentence",
    "cause_sentence",
    "culprit_sentence",
    "ends_sentence",
    "no_culprit_sentence",
    "percent",
    "starved_sentence",
    "step_sentence",
    "step_shares",
    "waits_longest_sentence",
]

HARDLY = 0.01
"""Ranks that wait a smaller share of a step hardly wait: nobody holds them up."""
MOST_NAMED = 3
"""So many waiting ranks are told one by one."""
NOTABLE_WAIT = 1.25
"""A rank is told to wait longest if it waits so many times the mean."""
MOSTLY_TOLD = 0.9
"""Of a smaller share of communication it is said how much tells who waits for whom."""


# -- who holds up the others -----------------------------------------------------------------------


def culprit_sentence(culprit: Culprit) -> str:
    """Who holds up the others, and how long they wait; made from the culprit alone."""
    waits = _of_a_step(culprit)
    if culprit.share < HARDLY:
        longest = f"rank {culprit.rank}" + ("" if culprit.profiled else ", which is not profiled")
        return f"Ranks hardly wait in collectives: {waits}, mostly for {longest}."
    if culprit.slow_link is not None:
        return f"{_named(culprit)} holds up the others: transfers to it take {waits} longer."
    if not culprit.profiled:
        return f"{_named(culprit)} holds up the others: {_waiting(culprit)}."
    return f"Rank {culprit.rank} holds up {_others(culprit, waits)}{_how_often(culprit)}."


def starved_sentence(culprit: Culprit) -> str:
    """Which rank waits for data, and how long; made from the culprit alone."""
    waited_ns = round(culprit.share * culprit.step_ns)
    waited, whole = (
        spell_like(time_ns, culprit.step_ns) for time_ns in (waited_ns, culprit.step_ns)
    )
    longest = "" if culprit.ranks == 1 else f" longest of {culprit.ranks} ranks"
    share = spell_share(culprit.share, 1)
    if not culprit.of_steps:
        return f"Rank {culprit.rank} waits for data{longest}: {waited} of {whole} ({share})."
    return (
        f"Rank {culprit.rank} waits for data{longest}: {waited} of every {whole}, {share} of the "
        "time from one step to the next."
    )


def _named(culprit: Culprit) -> str:
    if culprit.profiled:
        return f"Rank {culprit.rank}"
    of = "" if culprit.members is None else f" ({culprit.ranks} of {culprit.members} ranks)"
    return f"Rank {culprit.rank}, which is not in this profile{of},"


def _waiting(culprit: Culprit) -> str:
    """How long each of a few ranks waits for one that is not profiled, else their mean."""
    if len(culprit.waiters) > MOST_NAMED:
        return f"{_they(culprit, _of_a_step(culprit))}{_how_often(culprit)}"
    first, *others = culprit.waiters
    all_ns = first.communication_ns
    waited, communication = spell_like(first.waited_ns, all_ns), spell_like(all_ns, all_ns)
    if waited.split()[-1] == communication.split()[-1]:
        waited = waited.split()[0]
    more = "".join(f", rank {one.rank} {spell_like(one.waited_ns, all_ns)}" for one in others)
    return (
        f"rank {first.rank} spent {waited} of {communication} of communication waiting for it"
        f"{more}{_how_often(culprit)}"
    )


def _others(culprit: Culprit, waits: str) -> str:
    count, others = len(culprit.waiters), culprit.ranks - 1
    if count == 1:
        return f"rank {culprit.waiters[0].rank}, which waits {waits} for it"
    whom = f"the other {others}" if count == others else f"{count} of the other {others} ranks"
    return f"{whom}: {_they(culprit, waits)}"


def _they(culprit: Culprit, waits: str) -> str:
    return f"they {'each ' if len(culprit.waiters) < culprit.ranks - 1 else ''}wait {waits} for it"


def _of_a_step(held: Culprit | HeldUp) -> str:
    """A wait and the step that it is a share of."""
    waited_ns = round(held.share * held.step_ns)
    waited, step = (spell_like(time_ns, held.step_ns) for time_ns in (waited_ns, held.step_ns))
    share = spell_share(held.share, 1)
    if held.ordinary == 0:
        return f"{waited} of {step} ({share})"
    if held.ordinary == 1:
        return f"{waited} of the {step} step ({share} of the step)"
    return f"{waited} of every {step} step ({share} of the step)"


def _how_often(culprit: Culprit) -> str:
    """In how many steps it causes the most waiting: of those in which ranks wait, if few do."""
    if culprit.ordinary < 2:
        return ""
    if 2 * culprit.steps > culprit.ordinary:
        return f", in {culprit.steps} of {culprit.ordinary} steps"
    return f", in {culprit.steps} of the {culprit.waiting_steps} steps in which ranks wait"


def cause_sentence(culprit: Culprit, computing: Mapping[str, Any] | None = None) -> str:
    """Why the culprit is late, as far as the profile tells.

    computing: its row of `Figures.computing_causes`, where it computes longer than others.
    """
    lateness, link = culprit.lateness, culprit.slow_link
    if link is not None:
        return (
            f"Cause: links to it are slow, {link.link} at {spell_rate(link.bandwidth)} against "
            f"{spell_rate(link.usual)} between other ranks."
        )
    if lateness.compute_share is None:
        more = "is not in this profile." if culprit.profiled else "is not known: profile it too."
        return f"Why rank {culprit.rank} is late {more}"
    computes, idles = (
        spell_share(share, 1) for share in (lateness.compute_share, 1 - lateness.compute_share)
    )
    if lateness.compute_share >= 0.5 and lateness.same_work:
        return (
            f"Why it is late is not clear: it computes longer before it comes ({computes} of the "
            "lateness), but not in a whole step."
        )
    if lateness.compute_share >= 0.5:
        rest = f"; late launches {idles}" if 1 - lateness.compute_share >= HARDLY else ""
        why = "computes longer" if computing is None else tell_computing(computing)
        return f"Cause: it {why} ({computes} of the lateness{rest})."
    what = "work that others do earlier" if lateness.same_work else "compute"
    rest = f"; {what} {computes}" if lateness.compute_share >= HARDLY else ""
    late = f"({idles} of the lateness{rest})"
    if culprit.cause is Cause.INPUT:
        more = spell_short(lateness.idle_more_ns)
        per = " per step" if culprit.ordinary > 1 else ""
        return f"Cause: its input is late {late}: it waits {more} longer for data{per}."
    return f"Cause: its host launches late {late}{_idles_more(culprit)}."


def _idles_more(culprit: Culprit) -> str:
    """What its device idles longer for than others."""
    lateness = culprit.lateness
    if lateness.idle_cause is None or not lateness.idle_more_ns:
        return ""
    more, per = spell_short(lateness.idle_more_ns), " per step" if culprit.ordinary > 1 else ""
    return f": its device idles {more}{per} longer than others ({lateness.idle_cause.words})"


def no_culprit_sentence(held: HeldUp) -> str | None:
    """How long ranks wait where no single one holds them up; None where they do not wait."""
    if not held.waited_ns:
        return (
            "Ranks wait for each other, if at all, less than their clocks may be off: "
            f"{spell_short(held.unclear_ns)} in a collective."
            if held.unclear_ns
            else None
        )
    waits = _of_a_step(held)
    if held.share < HARDLY:
        return f"Ranks hardly wait in collectives: {waits}."
    if held.unknown_ns * 2 > held.waited_ns:
        return (
            f"Ranks wait at least {waits}; for whom is not known, since not all ranks of their "
            "groups are in this profile."
        )
    return f"Ranks wait {waits} for no single rank: different ranks come last."


def waits_longest_sentence(culprit: Culprit) -> str | None:
    """Who waits longest, where that differs from rank to rank."""
    if len(culprit.waiters) < 2 or culprit.share < HARDLY:
        return None
    longest = culprit.waiters[0]
    steps = max(culprit.ordinary, 1)
    mean_ns = sum(one.waited_ns for one in culprit.waiters) / len(culprit.waiters)
    if longest.waited_ns < NOTABLE_WAIT * mean_ns:
        return None
    waited = spell_like(round(longest.waited_ns / steps), culprit.step_ns)
    per = " per step" if culprit.ordinary > 1 else ""
    return f"Rank {longest.rank} waits longest for it: {waited}{per}."


def basis_sentence(basis: Basis) -> str | None:
    """How much of communication tells who waits for whom, where that is not nearly all.

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
    """Where the time of a mean step goes."""
    step = "Device time" if not mean.steps else "Step"
    if mean.single is not None:
        step = f"Step {mean.single}"
    head = f"{step} ({spell_short(mean.span_ns)})"
    if not mean.computing_ns:
        share = spell_share(mean.communication_ns, mean.span_ns)
        return f"{head}: communication {share}; no compute tasks in this profile.{_mean_of(mean)}"
    told = [
        f"{name} {share}%" + (f" ({detail})" if detail else "")
        for name, share, detail in step_shares(mean)
    ]
    return f"{head}: {', '.join(told)}.{_mean_of(mean)}"


def step_shares(mean: MeanStep) -> list[tuple[str, int, str]]:
    """The parts of a mean step that are told: name, percent, and what it consists of, if known."""
    if not mean.computing_ns:
        return [("communication", percent(mean.communication_ns, mean.span_ns), "")]
    parts = [
        ("compute", mean.computing_ns, ""),
        ("exposed communication", mean.exposed_ns, _split(mean)),
        ("copies", mean.copies_ns, ""),
        ("idle", mean.idle_ns, ""),
        ("free", mean.unexplained_ns, "why is not recorded"),
    ]
    return [
        (name, percent(part_ns, mean.span_ns), detail)
        for name, part_ns, detail in parts
        if percent(part_ns, mean.span_ns)
    ]


def percent(part_ns: int, whole_ns: int) -> int:
    """How many percent of a time a part is told to be."""
    return round(100 * part_ns / whole_ns)


def _split(mean: MeanStep) -> str:
    """What exposed communication consists of, in percent of the step."""
    if mean.waiting_ns is None or mean.transfer_ns is None:
        return ""
    rest_ns = mean.exposed_ns - mean.waiting_ns - mean.transfer_ns
    parts = {"waiting": mean.waiting_ns, "transfer": mean.transfer_ns, "not known": rest_ns}
    told = {name: percent(part_ns, mean.span_ns) for name, part_ns in parts.items()}
    return ", ".join(f"{name} {percent}" for name, percent in told.items() if percent > 0)


def _mean_of(mean: MeanStep) -> str:
    counts = [f"{mean.ranks} ranks"] if mean.ranks > 1 else []
    counts += [f"{mean.steps} steps"] if mean.steps > 1 else []
    return f" Mean of {' and '.join(counts)}." if counts else ""


def between_sentence(mean: MeanStep) -> str | None:
    """What passes between steps, where that is notable."""
    if mean.between_ns < HARDLY * mean.span_ns:
        return None
    share = mean.between_ns / (mean.span_ns + mean.between_ns)
    return (
        f"Between steps: {spell_short(mean.between_ns)}, {spell_share(share, 1)} of the time from "
        "one step to the next."
    )


def ends_sentence(steps: Table) -> str | None:
    """At which step device tasks end, where steps are marked beyond that."""
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
