"""Proves what is said of each kind of finding, with and without steps, of one rank and of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from timeline.analysis.gains.findings import Basis, Cause, Finding, FindingKind, Findings
from timeline.tables.table import Table
from timeline.verdict.findings import FindingWords, ReportedFinding

MS = 1_000_000
RANKS = (4, 5, 6, 7)
STEPS = (1, 2, 3, 4)
LOSSES = Findings(
    recording_ns=400 * MS,
    classes=(0, 0, 0, 0),
    step_numbers=STEPS,
    step_times_ns=(100 * MS,) * 4,
)
SLOW_RANK = Finding(
    FindingKind.SLOW_RANK,
    (1,),
    None,
    Cause.COMPUTING,
    40 * MS,
    40 * MS,
    250 * MS,
    50 * MS,
    "MatMul",
)
ALL = replace(SLOW_RANK, ranks=None)


def said(
    finding: Finding,
    losses: Findings = LOSSES,
    *,
    ranks: tuple[int, ...] = RANKS,
    path: Table | None = None,
    computing: Table | None = None,
    follows: bool = False,
) -> ReportedFinding:
    words = FindingWords(
        ranks, losses, path or Table({}), computing or Table({"rank": np.zeros(0, np.int64)}), (9,)
    )
    return words.report(finding, [SLOW_RANK] if follows else [])


def path_in(call: str, line: str | None = None, line_ns: int = 0) -> Table:
    """A critical path on which the host of rank 5 is in a call, at a line of code."""
    return Table(
        {
            "kind": np.array(["host", "device"], object),
            "rank": np.array([5, 5]),
            "step": np.array([2, 2]),
            "name": np.array([call, "MatMul"], object),
            "duration_ns": np.array([32 * MS, 5 * MS]),
            "call_ns": np.array([30 * MS, 0]),
            "line": np.array([line, None], object),
            "line_ns": np.ma.masked_array([line_ns, 0], [line is None, True]),
        }
    )


@pytest.mark.parametrize(
    ("finding", "sentence"),
    [
        (SLOW_RANK, "Rank 5 computes 25% longer than the other 3: without that, the run would be"),
        (
            replace(SLOW_RANK, took_ns=600 * MS, less_ns=400 * MS),
            "Rank 5 computes 3.0 times as long",
        ),
        (replace(SLOW_RANK, steps=(1, 3)), "Rank 5 computes 25% longer in steps 1, 3: "),
        (replace(SLOW_RANK, steps=(3,)), "Rank 5 computes 25% longer in step 3: "),
        (
            replace(SLOW_RANK, cause=Cause.HOST),
            "Rank 5's host falls behind: ",
        ),
        (replace(SLOW_RANK, cause=Cause.UNKNOWN), "Rank 5 takes 12.5 ms per step longer: "),
        (
            replace(SLOW_RANK, ranks=(), absent=9),
            "Rank 9, which is not selected, comes late to collectives, 12.5 ms per step: ",
        ),
        (
            replace(SLOW_RANK, ranks=(), absent=8),
            "Rank 8, which is not in this profile, comes late to collectives, 12.5 ms per step: ",
        ),
        (
            replace(SLOW_RANK, kind=FindingKind.SLOW_RANKS, ranks=(0, 1)),
            "Ranks 4-5 compute up to 25% longer than the other 2: ",
        ),
        (
            replace(SLOW_RANK, kind=FindingKind.SLOW_RANKS, ranks=(0, 1), cause=Cause.HOST),
            "The hosts of ranks 4-5 fall behind: ",
        ),
        (
            replace(ALL, kind=FindingKind.STARVED, cause=Cause.INPUT),
            "Input-bound: the hosts of all 4 ranks wait up to 12.5 ms of every 100 ms for data: ",
        ),
        (
            replace(SLOW_RANK, kind=FindingKind.STARVED, cause=Cause.INPUT),
            "Rank 5 waits 12.5 ms per step longer for data: ",
        ),
        (
            replace(ALL, kind=FindingKind.SLOW_HOSTS, cause=Cause.HOST),
            "Hosts stand still: ",
        ),
        (
            replace(SLOW_RANK, kind=FindingKind.SLOW_LINK, cause=Cause.LINK, ranks=(2,)),
            "Transfers of rank 6 take 25% longer than others of their size: ",
        ),
        (
            replace(SLOW_RANK, kind=FindingKind.PIPELINE, cause=Cause.PIPELINE, ranks=(2, 3)),
            "Ranks 6-7 limit the pipeline: they compute 62.50 ms per step, 50.00 ms were stages "
            "even: ",
        ),
    ],
)
def test_faults(finding: Finding, sentence: str) -> None:
    """The class first, who and when, by how much, and last what mending it wins."""
    reported = said(finding)
    assert reported.sentence.startswith(sentence)
    assert reported.sentence.endswith("the run would be 10% shorter.")


@pytest.mark.parametrize(
    ("finding", "sentence"),
    [
        (
            replace(ALL, kind=FindingKind.SLOW_OPERATOR, took_ns=250 * MS, less_ns=10 * MS),
            "Compute-bound: MatMul takes 40% of computing; made 10% faster, it would make the run "
            "10% shorter.",
        ),
        (
            replace(ALL, kind=FindingKind.EXPOSED_COMMUNICATION, cause=Cause.COMMUNICATION),
            "Communication-bound: hiding all communication behind computing would make the run 10% "
            "shorter.",
        ),
        (
            replace(ALL, kind=FindingKind.EXPOSED_COMMUNICATION, basis=Basis.BOUND),
            "Communication-bound: without exposed communication, part of which may be waiting for "
            "other ranks, the run would be at most 10% shorter.",
        ),
        (
            replace(ALL, kind=FindingKind.SLOW_HOSTS, cause=Cause.HOST, basis=Basis.BOUND),
            "Host-bound: if the host always launched in time, the run would be at most 10% "
            "shorter (waits for data and the time from launch to start stay).",
        ),
        (
            replace(ALL, kind=FindingKind.SLOW_HOSTS, basis=Basis.BOUND, took_ns=50 * MS),
            "Host-bound: if the host always launched in time, the run would be at most 10% "
            "shorter.",
        ),
    ],
)
def test_levers(finding: Finding, sentence: str) -> None:
    """What would make a healthy run faster."""
    assert said(replace(finding, fault=False)).sentence == sentence


def test_slow_steps_say_how_much_longer_they_take() -> None:
    """Against the median of all other steps."""
    losses = replace(LOSSES, step_times_ns=(100 * MS, 100 * MS, 1100 * MS, 100 * MS))
    odd = replace(ALL, kind=FindingKind.SLOW_STEPS, steps=(3,), took_ns=1100 * MS, less_ns=900 * MS)
    assert said(odd, losses).sentence.startswith(
        "Step 3 takes 11 times as long (all ranks compute longer): "
    )
    one = said(replace(odd, slower=(1,)), losses).sentence
    assert one.startswith("Step 3 takes 11 times as long (rank 5 computes longer): ")
    some = said(replace(odd, slower=(0, 1)), losses).sentence
    assert some.startswith("Step 3 takes 11 times as long (ranks 4-5 compute longer): ")
    reported = said(odd, losses, ranks=(4,))
    assert reported.sentence.startswith("Step 3 takes 11 times as long (computing): ")
    assert reported.evidence["step_ns"] == 1100 * MS
    little = said(replace(odd, less_ns=100 * MS), losses).sentence
    assert little.startswith("All ranks compute longer in step 3: ")


def test_only_the_first_finding_names_the_class_of_the_run() -> None:
    """And what opens with a name keeps its small letter."""
    lever = replace(ALL, kind=FindingKind.SLOW_OPERATOR, fault=False, name="mm_kernel")
    assert said(lever, follows=True).sentence.startswith("mm_kernel takes ")
    hidden = replace(lever, kind=FindingKind.EXPOSED_COMMUNICATION)
    assert said(hidden, follows=True).sentence.startswith("Hiding all communication ")


def test_what_stays_slow_is_said_to_begin() -> None:
    """If the last steps, and more than one, are slower."""
    losses = replace(LOSSES, step_times_ns=(100 * MS, 100 * MS, 135 * MS, 135 * MS))
    slower = replace(ALL, kind=FindingKind.SLOW_STEPS, steps=(3, 4))
    assert said(slower, losses).sentence.startswith(
        "From step 3 on, steps take 35% longer (all ranks compute longer): "
    )
    assert said(replace(SLOW_RANK, steps=(3, 4))).sentence.startswith(
        "Rank 5 computes 25% longer from step 3 on: "
    )


def test_without_steps_nothing_is_per_step() -> None:
    """A recording without steps is one stretch of time."""
    losses = replace(LOSSES, step_numbers=(), step_times_ns=())
    host = replace(SLOW_RANK, cause=Cause.HOST)
    assert said(host, losses).sentence.startswith("Rank 5's host falls behind: ")
    starved = replace(ALL, kind=FindingKind.STARVED, cause=Cause.INPUT)
    assert said(starved, losses).sentence.startswith(
        "Input-bound: the hosts of all 4 ranks wait up to 50.0 ms of 400 ms for data: "
    )


@pytest.mark.parametrize("ranks", [(4,), (4, 5)])
def test_few_ranks_are_called_so(ranks: tuple[int, ...]) -> None:
    """One rank has the host, two are both, and a rank is compared with the only other one."""
    starved = replace(ALL, kind=FindingKind.STARVED, cause=Cause.INPUT)
    losses = replace(LOSSES, classes=(0,) * len(ranks))
    who = {1: "the host waits", 2: "the hosts of both ranks wait up to"}[len(ranks)]
    assert said(starved, losses, ranks=ranks).sentence.startswith(f"Input-bound: {who} ")
    if len(ranks) == 2:
        assert " than rank 4: " in said(SLOW_RANK, losses, ranks=ranks).sentence


def test_a_gain_on_top_of_others_is_told_beside_it_alone() -> None:
    """Only where a fault stands above, and the two differ."""
    finding = replace(SLOW_RANK, gain_ns=8 * MS, further_ns=20 * MS)
    assert said(finding, follows=True).sentence.endswith(
        ": 2% to win, 5% once those above are fixed."
    )
    assert said(finding).sentence.endswith("the run would be 2% shorter.")


def test_of_ranks_that_are_not_read_gains_are_at_least() -> None:
    """Members of groups that are not read may be late as well."""
    losses = replace(LOSSES, is_whole=False)
    assert said(SLOW_RANK, losses).sentence.endswith("the run would be at least 10% shorter.")


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaMalloc", Cause.MEMORY),
        ("AscendCL@aclrtFree", Cause.MEMORY),
        ("hipFree", Cause.MEMORY),
        ("aten::item", Cause.HOST),
        ("myMalloc", Cause.HOST),
    ],
)
def test_a_host_that_allocates_lacks_memory(call: str, cause: Cause) -> None:
    """The longest call on the critical path says so; any other is the host's own."""
    reported = said(replace(SLOW_RANK, cause=Cause.HOST), path=path_in(call))
    assert reported.evidence["call"] == call
    assert reported.cause is cause
    assert f"(in {call})" in reported.sentence


@pytest.mark.parametrize(
    ("call", "line_ns", "where"),
    [
        ("aten::item", 17 * MS, "(in aten::item, late in train.py(57): train_step)"),
        ("aten::item", 16 * MS, "(in aten::item)"),
        ("/me/train.py(57): train_step", 17 * MS, "(in /me/train.py(57): train_step)"),
    ],
)
def test_a_late_host_is_late_in_a_line_of_code(call: str, line_ns: int, where: str) -> None:
    """The line that takes more than half of the host's time, unless it is the call itself."""
    path = path_in(call, "train.py(57): train_step", line_ns)
    reported = said(replace(SLOW_RANK, cause=Cause.HOST), path=path)
    assert f"Rank 5's host falls behind {where}: " in reported.sentence


def test_a_slow_core_is_the_reason_of_slow_computing() -> None:
    """Both frequencies are told."""
    computing = Table(
        {
            "rank": np.array([5]),
            "cause": np.array(["frequency"], object),
            "frequency_mhz": np.array([1000]),
            "peer_frequency_mhz": np.array([1500]),
            "type": np.array(["MatMul"], object),
        }
    )
    reported = said(SLOW_RANK, computing=computing)
    assert reported.cause is Cause.FREQUENCY
    assert ", at 1.00 instead of 1.50 GHz: " in reported.sentence
