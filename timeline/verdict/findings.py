"""Findings of a run in words and numbers, as they are reported."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from timeline.analysis.gains.findings import (
    FASTER,
    NOTABLE,
    Basis,
    Cause,
    Finding,
    FindingKind,
    Findings,
    find_losses,
)
from timeline.analysis.gains.run import gather_run
from timeline.analysis.idle.host_calls import names_waiting_for_data
from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.culprit import Culprit, find_culprit
from timeline.analysis.waits.waiting import Waiting
from timeline.analysis.work.framework_calls import STEP
from timeline.columns.group_by import group_by
from timeline.columns.strings import StringPool
from timeline.errors import format_ids
from timeline.records.task_kinds import Unit, unit_of
from timeline.tables.short_names import shortened
from timeline.tables.table import Table, sum_rows
from timeline.units import format_count, format_like, format_number, format_share, format_short
from timeline.verdict.advice import find_remedy

NO_CALLS = Table({})
NOT_ASKED = "causes were not asked for"
MOST_NAMED = 8
"""Maximum number of ranks, steps or ranges of them in a list."""
MOST_CHARACTERS = 60
"""Maximum length of names of kernels and calls."""
_ALLOCATES = re.compile(r"(?:\b|@)(?:cuda|hip|musa|aclrt|rt)(?:Malloc|Free|HostAlloc|MemUnmap)")
"""Host calls that allocate or free device memory, during which the device waits."""
MOSTLY_WON = 0.75
"""Share of the time in which devices wait for hosts from which a gain needs no explanation."""
LEAST_CALL = 0.1
"""Minimum share of the host's part of the critical path for a call to be named."""
TIMES = 2
"""Minimum ratio to be reported as "times as long"; smaller ones are reported in percent."""


@dataclass(frozen=True)
class ReportedFinding:
    """A finding as it is reported.

    ranks, steps: their numbers, None for all. gain_ns: gain if only this is fixed; further_ns: gain
    on top of the findings before it. gain_share, further_share: as shares of the recording.
    evidence: names and numbers used in the sentence. text: the sentence without `bound`, which is
    the class of the run, such as Input-bound, empty if ranks or steps are to blame. is_first:
    whether it is the first finding of the run. remedy: the last clause of the sentence, which says
    what to try; empty if the recording holds no evidence for one, or a finding before has it.
    """

    kind: FindingKind
    ranks: tuple[int, ...] | None
    steps: tuple[int, ...] | None
    cause: Cause
    gain_ns: int
    gain_share: float
    further_ns: int
    further_share: float
    basis: Basis
    fault: bool
    evidence: dict[str, Any]
    text: str
    bound: str = ""
    is_first: bool = False
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """Return the sentence on the finding; that of the first one starts with `bound`."""
        text = f"{self.text}; {self.remedy}" if self.remedy else self.text
        if self.bound and self.is_first:
            return f"{self.bound}: {text}."
        if self.kind is FindingKind.SLOW_OPERATOR:  # starts with a name, whose case must not change
            return f"{text}."
        return f"{text[0].upper()}{text[1:]}."

    def to_dict(self) -> dict[str, Any]:
        """Return the finding under the names of the report."""
        return {
            "kind": self.kind.value,
            "ranks": None if self.ranks is None else list(self.ranks),
            "steps": None if self.steps is None else list(self.steps),
            "cause": self.cause.value,
            "gain_ns": self.gain_ns,
            "gain_share": round(self.gain_share, 6),
            "further_ns": self.further_ns,
            "further_share": round(self.further_share, 6),
            "basis": self.basis.value,
            "fault": self.fault,
            "evidence": self.evidence,
            "remedy": self.remedy or None,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class ReportedFindings:
    """The findings of a run, in the order in which to fix them.

    recording_ns: duration of the run. residual_ns: error of a replay without changes. reason: why
    no gains are reported, empty if they are.
    """

    found: tuple[ReportedFinding, ...] = ()
    recording_ns: int = 0
    residual_ns: int = 0
    reason: str = "what ran is not recorded task by task"

    @property
    def knows_input(self) -> bool:
        """Return whether any fault is about late data."""
        return any(one.cause is Cause.INPUT and one.fault for one in self.found)

    def with_fault(self, fault: ReportedFinding) -> ReportedFindings:
        """Return the findings with another fault, before those with smaller gains and levers."""
        larger = [one for one in self.found if one.fault and one.gain_share >= fault.gain_share]
        rest = [one for one in self.found if one not in larger]
        found = enumerate([*larger, fault, *rest])
        return replace(self, found=tuple(replace(one, is_first=not at) for at, one in found))

    def to_dict(self) -> dict[str, Any]:
        """Return the basis of the gains, under the names of the report."""
        return {
            "recording_ns": self.recording_ns,
            "residual_ns": self.residual_ns,
            "reason": self.reason or None,
        }


def report_findings(
    facts: Sequence[RankFacts],
    waiting: Waiting,
    path: Table,
    computing: Table,
    on_disk: Collection[int] = (),
    idle_calls: Table = NO_CALLS,
) -> tuple[ReportedFindings, Culprit | None]:
    """Find what to fix in a run, and the rank to blame first, if any.

    Args:
        facts: of ranks on one clock.
        waiting: of these ranks.
        path: `Figures.critical_path`.
        computing: `Figures.computing_causes`.
        on_disk: all ranks of the profile, selected or not.
        idle_calls: `Figures.idle_calls`.
    """
    run = gather_run(facts, waiting) if facts else None
    if run is None:
        items = sum(rank.replay.items for rank in facts)
        if items:
            reason = f"{format_number(items)} tasks are too many to replay, choose --steps"
            return ReportedFindings(reason=reason), None
        are_left_out = any(
            rank.recorded.tasks.any() or (rank.idle is None and len(rank.operators.runs))
            for rank in facts
        )
        return ReportedFindings(reason=NOT_ASKED) if are_left_out else ReportedFindings(), None
    losses = _without_needed_gaps(find_losses(run), facts)
    numbers = [rank.rank for rank in facts]
    allocating = _allocating_share(path, _ordinary_numbers(facts))
    words = FindingWords(
        *(numbers, losses, path, computing, on_disk, _ai_cpu_types(facts), allocating),
        idle_calls,
        _small_share(facts),
    )
    reported = ReportedFindings(
        _once_each(
            words.report(finding, losses.found[:place])
            for place, finding in enumerate(losses.found)
        ),
        losses.recording_ns,
        losses.residual_ns,
        losses.reason,
    )
    culprit = find_culprit(facts, waiting, losses)
    if culprit is not None:
        blaming = (one for one in reported.found if one.fault and one.ranks == (culprit.rank,))
        culprit = replace(culprit, cause=next(blaming).cause)
    return reported, culprit


def _without_needed_gaps(losses: Findings, facts: Sequence[RankFacts]) -> Findings:
    """Limit what hosts of a run without steps could win to its gaps before late launches.

    A gain that is then no longer notable is left out. Without known launches, nothing changes.
    """
    gaps = [rank.idle.kernel_gaps for rank in facts if rank.idle is not None]
    if losses.step_numbers or not any(one.queued.count + one.late.count for one in gaps):
        return losses
    most_ns = sum(one.most_ns for one in gaps)
    limited = (
        replace(one, gain_ns=min(one.gain_ns, most_ns), further_ns=min(one.further_ns, most_ns))
        if one.kind is FindingKind.SLOW_HOSTS and not one.fault
        else one
        for one in losses.found
    )
    least_ns = NOTABLE * losses.recording_ns
    return replace(
        losses, found=tuple(one for one in limited if one.fault or one.further_ns >= least_ns)
    )


def _once_each(findings: Iterable[ReportedFinding]) -> tuple[ReportedFinding, ...]:
    """Return the findings with each remedy at the first one only."""
    remedies, reported = set[str](), list[ReportedFinding]()
    for one in findings:
        reported.append(replace(one, remedy="") if one.remedy in remedies else one)
        remedies.add(one.remedy)
    return tuple(reported)


def _ordinary_numbers(facts: Sequence[RankFacts]) -> set[int]:
    """Return the numbers of the steps that are ordinary on any rank."""
    chosen = zip(facts, ordinary_steps(facts), strict=True)
    return {step for rank, mask in chosen for step in rank.steps.iteration[mask].tolist()}


def _allocating_share(path: Table, steps: Collection[int]) -> float:
    """Return the share of the critical path in which hosts allocate or free device memory.

    path: `Figures.critical_path`. steps: numbers of the steps that count; without any, all do.
    """
    if not len(path):
        return 0.0
    is_in = np.isin(np.ma.filled(path["step"], -1), [*steps]) | np.ma.getmaskarray(path["step"])
    rows = path.take(np.flatnonzero(is_in | (not steps)))
    hosts = rows.take(np.flatnonzero(rows["kind"] == "host"))
    calls = zip(hosts["name"].tolist(), hosts["call_ns"].tolist(), strict=True)
    allocating_ns = sum(call_ns or 0 for name, call_ns in calls if _ALLOCATES.search(name))
    return allocating_ns / max(int(rows["duration_ns"].sum()), 1)


def _small_share(facts: Sequence[RankFacts]) -> float:
    """Return the share of transfers between ranks that are small, see `LinkTimes`."""
    count = sum(int(rank.links.times.count.sum()) for rank in facts)
    return sum(int(rank.links.times.small_count.sum()) for rank in facts) / max(count, 1)


def _ai_cpu_types(facts: Sequence[RankFacts]) -> frozenset[str]:
    """Return the types of operators that AI CPUs run on any rank."""
    types = set[str]()
    for operators in (rank.operators for rank in facts):
        pairs = zip(operators.times.type.tolist(), operators.times.core.tolist(), strict=True)
        strings = operators.strings
        types.update(strings[kind] for kind, core in pairs if unit_of(strings[core]) is Unit.AI_CPU)
    return frozenset(types)


@dataclass(frozen=True)
class FindingWords:
    """The context from which sentences on findings are written.

    numbers: ranks by position. losses: all findings. path, computing: see `report_findings`.
    on_disk: all ranks of the profile, selected or not. ai_cpu_types: types of operators that run on
    AI CPUs. allocating: share of the critical path of ordinary steps in the device's allocator.
    idle_calls: `Figures.idle_calls`. small: share of transfers between ranks that are small.
    """

    numbers: Sequence[int]
    losses: Findings
    path: Table
    computing: Table
    on_disk: Collection[int]
    ai_cpu_types: Collection[str] = ()
    allocating: float = 0.0
    idle_calls: Table = field(default_factory=lambda: NO_CALLS)
    small: float = 0.0

    def report(self, finding: Finding, before: Sequence[Finding]) -> ReportedFinding:
        """Return a finding with its evidence and its sentence; before: the findings before it."""
        whole_ns = max(self.losses.recording_ns, 1)
        ranks = self._ranks(finding)
        evidence = self._evidence(finding, ranks)
        cause = finding.cause
        if cause is Cause.COMPUTING and evidence.get("computing_cause") == "frequency":
            cause = Cause.FREQUENCY
        if cause is Cause.HOST and _ALLOCATES.search(evidence.get("call", "")):
            cause = Cause.MEMORY
        phrases = _Phrases(finding, ranks, evidence, self)
        remedy = find_remedy(
            finding,
            cause,
            call=evidence.get("call", ""),
            share=self.allocating,
            waits=self._waits_for_data(),
            on_ai_cpu=finding.name in self.ai_cpu_types,
            first_steps=self.losses.step_numbers[:1],
            idle_calls=self._calls_of_selection(),
            small=self.small,
        )
        gain = self._gain(finding, follows=any(one.fault for one in before))
        return ReportedFinding(
            finding.kind,
            ranks,
            finding.steps,
            cause,
            finding.gain_ns,
            finding.gain_ns / whole_ns,
            finding.further_ns,
            finding.further_ns / whole_ns,
            finding.basis,
            finding.fault,
            evidence,
            f"{_SENTENCES[finding.kind](phrases)}{gain}",
            _bound(phrases),
            is_first=not before,
            remedy=remedy,
        )

    def _waits_for_data(self) -> frozenset[str]:
        """Return the names of calls that wait for data, on the critical path or while idle."""
        names = {*(self.path["name"].astype(str).tolist() if len(self.path) else ())}
        names |= {*(self.idle_calls["call"].tolist() if len(self.idle_calls) else ())}
        strings = StringPool(sorted(names))
        return frozenset(strings.texts(names_waiting_for_data(strings)))

    def _calls_of_selection(self) -> Table:
        """Return the rows of `idle_calls` of the whole selection."""
        if not len(self.idle_calls):
            return self.idle_calls
        return self.idle_calls.take(np.ma.getmaskarray(self.idle_calls["step"]))

    def _ranks(self, finding: Finding) -> tuple[int, ...] | None:
        if finding.absent is not None:
            return (finding.absent,)
        if finding.ranks is None:
            return None
        return tuple(sorted(self.numbers[at] for at in finding.ranks))

    def _evidence(self, finding: Finding, ranks: tuple[int, ...] | None) -> dict[str, Any]:
        """Return the names and numbers for the sentence on a finding."""
        losses = self.losses
        steps = len(losses.step_numbers) if finding.steps is None else len(finding.steps)
        evidence = dict[str, Any](
            took_ns=finding.took_ns, less_ns=finding.less_ns, steps=steps, name=finding.name
        )
        if finding.absent is not None:
            evidence["profiled"] = finding.absent in self.on_disk
        if finding.ranks is not None and len(finding.ranks) == 1:
            own = losses.classes[finding.ranks[0]]
            evidence["peers"] = losses.classes.count(own) - 1
        if finding.steps is not None:
            times = dict(zip(losses.step_numbers, losses.step_times_ns, strict=True))
            others = [ns for step, ns in times.items() if step not in finding.steps]
            if others:
                evidence["step_ns"] = round(median(times[step] for step in finding.steps))
                evidence["other_step_ns"] = round(median(others))
        if call := self._longest_call(finding, ranks):
            evidence["call"], evidence["call_ns"] = call
        if line := self._longest_line(finding, ranks):
            evidence["line"], evidence["line_ns"] = line
        if finding.cause is Cause.COMPUTING and ranks is not None and len(ranks) == 1:
            rows = [row for row in self.computing.to_dicts() if row["rank"] == ranks[0]]
            if rows and rows[0]["cause"] is not None:
                evidence["computing_cause"] = rows[0]["cause"]
                evidence["frequency_mhz"] = rows[0]["frequency_mhz"]
                evidence["peer_frequency_mhz"] = rows[0]["peer_frequency_mhz"]
                evidence["operator"] = rows[0]["type"]
        return evidence

    def _longest_call(
        self, finding: Finding, ranks: tuple[int, ...] | None
    ) -> tuple[str, int] | None:
        """Return the host call that takes most of the critical path, and its time.

        None if the cause is neither the host nor unknown, or no call takes a notable part, see
        `LEAST_CALL`. Marks of steps are left out, as they are no calls; so are waits for data if
        the host is the cause.
        """
        calls = self._on_host(finding, ranks)
        if not len(calls):
            return None
        names, which = np.unique(calls["name"].astype(str), return_inverse=True)
        total_ns = group_by(len(calls), [which.reshape(-1)]).sum(np.ma.filled(calls["call_ns"], 0))
        strings = StringPool(names.tolist())
        blameless = np.array([not name or name.startswith(STEP) for name in strings])
        if finding.cause is Cause.HOST:
            blameless[names_waiting_for_data(strings)] = True
        total_ns = np.where(blameless, 0, total_ns)
        at = int(np.argmax(total_ns))
        is_notable = LEAST_CALL * int(calls["duration_ns"].sum()) <= total_ns[at] > 0
        return (str(names[at]), int(total_ns[at])) if is_notable else None

    def _longest_line(
        self, finding: Finding, ranks: tuple[int, ...] | None
    ) -> tuple[str, int] | None:
        """Return the line of code that takes most of the critical path where hosts are to blame.

        None if no line takes more than half of it.
        """
        rows = self._on_host(finding, ranks)
        if not len(rows) or not any(rows["line"]):
            return None
        all_ns = int(rows["duration_ns"].sum())
        rows = rows.take(rows["line"].astype(bool))
        longest = sum_rows(rows, ("line",), ("line_ns",), by="line_ns")
        line_ns = int(longest["line_ns"][0])
        return (str(longest["line"][0]), line_ns) if 2 * line_ns > all_ns else None

    def _on_host(self, finding: Finding, ranks: tuple[int, ...] | None) -> Table:
        """Return the host segments of the critical path where hosts may be to blame."""
        if finding.cause not in (Cause.HOST, Cause.UNKNOWN) or not len(self.path):
            return Table({})
        rows = self.path["kind"] == "host"
        if ranks is not None:
            rows &= np.isin(np.ma.filled(self.path["rank"], -1), ranks)
        if finding.steps is not None:
            rows &= np.isin(np.ma.filled(self.path["step"], -1), finding.steps)
        return self.path.take(np.flatnonzero(rows))

    def _gain(self, finding: Finding, *, follows: bool) -> str:
        """Return the gain as the end of a sentence.

        follows: whether faults come before the finding.
        """
        whole_ns = self.losses.recording_ns
        least = "" if self.losses.is_whole else "at least "
        if finding.basis is Basis.BOUND:
            least = "at most "
        alone = format_share(finding.gain_ns, whole_ns)
        further = format_share(finding.further_ns, whole_ns)
        above = " once those above are fixed" if follows else ""
        if finding.kind is FindingKind.EXPOSED_COMMUNICATION and finding.basis is Basis.BOUND:
            return f", the run would be {least}{further} shorter{above}"
        if not finding.fault and finding.kind is not FindingKind.STARVED:
            would = "would be" if finding.kind is FindingKind.SLOW_HOSTS else "would make the run"
            stays = ""
            is_slow = finding.kind is FindingKind.SLOW_HOSTS
            if is_slow and not follows and finding.gain_ns < MOSTLY_WON * finding.took_ns:
                stays = " (waits for data and the time from launch to start stay)"
            return f" {would} {least}{further} shorter{above}{stays}"
        if not follows or further == alone:
            return f": without that, the run would be {least}{alone} shorter"
        if 100 * finding.gain_ns < whole_ns:
            return f": {least}{further} to win once those above are fixed"
        return f": {least}{alone} to win, {further} once those above are fixed"


@dataclass(frozen=True)
class _Phrases:
    """The phrases of the sentence on one finding."""

    finding: Finding
    ranks: tuple[int, ...] | None
    evidence: dict[str, Any]
    words: FindingWords

    @property
    def rank(self) -> str:
        """Return the ranks as the subject of a sentence."""
        if self.ranks is None:
            return _all_of(len(self.words.numbers))
        if len(self.ranks) == 1:
            if self.ranks[0] in self.words.numbers:
                return f"Rank {self.ranks[0]}"
            selected = self.ranks[0] in self.words.on_disk
            where = "selected" if selected else "in this profile"
            return f"Rank {self.ranks[0]}, which is not {where},"
        return f"Ranks {_listed(self.ranks)}"

    @property
    def in_steps(self) -> str:
        """Return the affected steps as an adverbial, empty for all steps."""
        steps = self.finding.steps
        if steps is None:
            return ""
        if self.is_from_then_on:
            return f" from step {steps[0]} on"
        return f" in step{'s' if len(steps) > 1 else ''} {_listed(steps)}"

    @property
    def is_from_then_on(self) -> bool:
        """Return whether the affected steps are several, and the last ones of the run."""
        steps = self.finding.steps or ()
        return len(steps) > 1 and steps == self.words.losses.step_numbers[-len(steps) :]

    @property
    def per_step(self) -> str:
        """Return how much longer each affected step takes."""
        steps = self.evidence["steps"]
        each = format_short(round(self.finding.less_ns / max(steps, 1)))
        return f"{each} per step" if steps > 1 else each

    @property
    def longer(self) -> str:
        """Return how much longer the mended parts take than comparable ones."""
        took_ns, like_ns = self.finding.took_ns, self.finding.took_ns - self.finding.less_ns
        if like_ns <= 0:
            return f"{format_short(took_ns)} longer"
        if took_ns >= TIMES * like_ns:
            return f"{took_ns / like_ns:.1f} times as long"
        return f"{took_ns / like_ns - 1:.0%} longer"

    @property
    def than(self) -> str:
        """Return the ranks that a rank is compared with, empty if there are none."""
        peers, ranks = self.evidence.get("peers", 0), len(self.words.numbers)
        more = " as" if "times" in self.longer else " than"
        if self.finding.steps is not None or not peers:
            return ""
        if peers == ranks - 1:
            return f"{more} rank {self._other}" if peers == 1 else f"{more} the other {peers}"
        do = "does" if peers == 1 else "do"
        return f"{more} the {format_count(peers, 'rank')} that {do} the same work"

    @property
    def _other(self) -> int:
        return next(rank for rank in self.words.numbers if rank not in (self.ranks or ()))

    @property
    def who_computes(self) -> str:
        """Return a clause in brackets on the ranks that compute longer."""
        ranks = sorted(self.words.numbers[at] for at in self.finding.slower)
        if len(self.words.numbers) == 1:
            return "computing"
        if len(ranks) in (0, len(self.words.numbers)):
            return "all ranks compute longer"
        return f"rank{'s' if len(ranks) > 1 else ''} {_listed(ranks)} " + (
            "compute longer" if len(ranks) > 1 else "computes longer"
        )

    @property
    def in_call(self) -> str:
        """Return the host call that takes most of the time, in brackets, empty if unknown."""
        return f" ({self.inside_call[1:]})" if self.inside_call else ""

    @property
    def inside_call(self) -> str:
        """Return the host call and line of code that take most of the time, for use in brackets."""
        call, line = self.evidence.get("call", ""), self.evidence.get("line", "")
        named = [f" in {shortened([call], MOST_CHARACTERS)[0]}"] if call else []
        if line and line not in call:
            named.append(f" late in {shortened([line], MOST_CHARACTERS)[0]}")
        return ",".join(named)


def _slow_rank(phrases: _Phrases) -> str:
    evidence = phrases.evidence
    if phrases.finding.absent is not None:
        return f"{phrases.rank} comes late to collectives, {phrases.per_step}"
    if phrases.finding.cause is Cause.COMPUTING:
        why = ""
        if evidence.get("computing_cause") == "frequency":
            own, peers = evidence["frequency_mhz"] / 1000, evidence["peer_frequency_mhz"] / 1000
            why = f", at {own:.2f} instead of {peers:.2f} GHz"
        if phrases.finding.copies:
            return f"{phrases.rank} copies {phrases.per_step} longer{phrases.in_steps}"
        return f"{phrases.rank} computes {phrases.longer}{phrases.than}{phrases.in_steps}{why}"
    if phrases.finding.cause is Cause.HOST:
        return f"{phrases.rank}'s host falls behind{phrases.in_steps}{phrases.in_call}"
    return f"{phrases.rank} takes {phrases.per_step} longer{phrases.in_steps}{phrases.in_call}"


def _slow_ranks(phrases: _Phrases) -> str:
    others = len(phrases.words.numbers) - len(phrases.ranks or ())
    if phrases.finding.cause is Cause.COMPUTING:
        as_than = "as" if "times" in phrases.longer else "than"
        return f"{phrases.rank} compute up to {phrases.longer} {as_than} the other {others}"
    if phrases.finding.cause is Cause.HOST:
        return f"The hosts of {phrases.rank.lower()} fall behind{phrases.in_call}"
    return f"{phrases.rank} take {phrases.per_step} longer than the other {others}"


def _slow_steps(phrases: _Phrases) -> str:
    steps, evidence = phrases.finding.steps or (), phrases.evidence
    took_ns, other_ns = evidence.get("step_ns", 0), max(evidence.get("other_step_ns", 0), 1)
    takes = "takes" if len(steps) == 1 else "take"
    longer = (
        f"{took_ns / other_ns:.0f} times as long"
        if took_ns >= TIMES * other_ns
        else f"{took_ns / other_ns - 1:.0%} longer"
    )
    why = {
        Cause.COMPUTING: phrases.who_computes,
        Cause.INPUT: "data come late",
        Cause.HOST: f"the host is busy{phrases.inside_call}",
    }.get(phrases.finding.cause, f"host and device take longer{phrases.inside_call}")
    if phrases.is_from_then_on:
        return f"From step {steps[0]} on, steps take {longer} ({why})"
    longer_ns = len(steps) * max(took_ns - other_ns, 0)
    if phrases.finding.cause is Cause.COMPUTING and 2 * phrases.finding.less_ns < longer_ns:
        who = phrases.who_computes
        return f"{'the rank computes longer' if who == 'computing' else who}{phrases.in_steps}"
    step = "Step" if len(steps) == 1 else "Steps"
    return f"{step} {_listed(steps)} {takes} {longer} ({why})"


def _starved(phrases: _Phrases) -> str:
    evidence = phrases.evidence
    steps = max(evidence["steps"], 1)
    each_ns = round(phrases.finding.less_ns / steps)
    if phrases.ranks is not None:
        return f"{phrases.rank} waits {phrases.per_step} longer for data{phrases.in_steps}"
    whole_ns = round(phrases.words.losses.recording_ns / steps)
    waits = f"{format_like(each_ns, whole_ns)} of "
    waits += f"every {format_short(whole_ns)}" if steps > 1 else format_short(whole_ns)
    if len(phrases.words.numbers) == 1:
        return f"the host waits {waits} for data"
    # Devices may have work meanwhile, so that they idle for less than hosts wait.
    return f"the hosts of {phrases.rank.lower()} wait up to {waits} for data"


def _slow_hosts(phrases: _Phrases) -> str:
    if not phrases.finding.fault:
        return "if the host always launched in time, the run"
    one = len(phrases.words.numbers) == 1
    hosts = "The host stands" if one else "Hosts stand"
    return f"{hosts} still{phrases.in_call}"


def _slow_link(phrases: _Phrases) -> str:
    transfers = f"Transfers of {phrases.rank[0].lower()}{phrases.rank[1:]}"
    like = " as others of their size" if "times" in phrases.longer else " than others of their size"
    return f"{transfers} take {phrases.longer}{like}"


def _pipeline(phrases: _Phrases) -> str:
    steps, finding = max(phrases.evidence["steps"], 1), phrases.finding
    took_ns, even_ns = finding.took_ns, finding.took_ns - finding.less_ns
    return pipeline_text(phrases.ranks or (), round(took_ns / steps), round(even_ns / steps))


def _exposed(phrases: _Phrases) -> str:
    if phrases.finding.basis is Basis.BOUND:
        return "without exposed communication, part of which may be waiting for other ranks"
    return "hiding all communication behind computing"


def _slow_operator(phrases: _Phrases) -> str:
    (name,) = shortened([phrases.finding.name], MOST_CHARACTERS)
    share = format_share(phrases.finding.less_ns * FASTER, phrases.finding.took_ns)
    return f"{name} takes {share} of computing; made 10% faster, it"


def _bound(phrases: _Phrases) -> str:
    """Return the class of the run if a finding is the first one, empty if something is slow."""
    finding = phrases.finding
    if finding.kind is FindingKind.STARVED and phrases.ranks is None:
        return "Input-bound"
    return "" if finding.fault else _BOUNDS.get(finding.kind, "")


_BOUNDS = {
    FindingKind.EXPOSED_COMMUNICATION: "Communication-bound",
    FindingKind.SLOW_OPERATOR: "Compute-bound",
    FindingKind.SLOW_HOSTS: "Host-bound",
}
_SENTENCES = {
    FindingKind.SLOW_RANK: _slow_rank,
    FindingKind.SLOW_RANKS: _slow_ranks,
    FindingKind.SLOW_STEPS: _slow_steps,
    FindingKind.STARVED: _starved,
    FindingKind.SLOW_HOSTS: _slow_hosts,
    FindingKind.SLOW_LINK: _slow_link,
    FindingKind.PIPELINE: _pipeline,
    FindingKind.EXPOSED_COMMUNICATION: _exposed,
    FindingKind.SLOW_OPERATOR: _slow_operator,
}


def _all_of(ranks: int) -> str:
    return {1: "The rank", 2: "Both ranks"}.get(ranks, f"All {ranks} ranks")


def pipeline_text(ranks: Sequence[int], took_ns: int, even_ns: int) -> str:
    """Return the clause that the stage of some ranks limits the pipeline.

    took_ns: their computing time per step. even_ns: the same if stages were even.
    """
    took, even = format_like(took_ns, took_ns), format_like(even_ns, took_ns)
    noun, limits, compute = "ranks", "limit", "they compute"
    if len(ranks) == 1:
        noun, limits, compute = "rank", "limits", "it computes"
    return (
        f"{noun} {_listed(ranks)} {limits} the pipeline: {compute} {took} per step, {even} "
        "were stages even"
    )


def _listed(numbers: Sequence[int]) -> str:
    """Format numbers as a list with ranges, shortened if it is long.

    >>> _listed((1, 2, 3, 7))
    '1-3, 7'
    """
    return format_ids(numbers, most=MOST_NAMED, shortest_run=2).replace(",", ", ")
