"""Proves that the sentence on idle time has the largest causes, and that each has its words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.places import ROOT
from timeline.analysis.idle.idle_sums import IdleCause
from timeline.verdict.words import LEAST_SHARE, MOST_CAUSES, MeanIdle, idle_sentence

MS = 1_000_000


def idle(times_ns: dict[IdleCause, int], **more: object) -> MeanIdle:
    """Idle time of some causes, the longest first."""
    causes = sorted(((cause.value, time) for cause, time in times_ns.items()), key=lambda x: -x[1])
    return MeanIdle(tuple(causes), more.get("calls", {}), more.get("least_ns", 0))  # type: ignore[arg-type]


def test_words_and_labels_are_one() -> None:
    """A label is the words of a sentence without the article, and no two causes share theirs."""
    labels = {cause.label for cause in IdleCause}
    defined = (ROOT / ".github" / "docs" / "definitions.md").read_text(encoding="utf-8")
    assert len(labels) == len(IdleCause)
    for cause in IdleCause:
        assert cause.label.lower() == cause.words.removeprefix("the ").lower()
        assert cause.label[0].isupper()
        assert f"| `{cause.value}` | {cause.words} |" in defined


@given(st.dictionaries(st.sampled_from(IdleCause), st.integers(1, 10**9), min_size=1))
def test_the_largest_causes_are_told(times_ns: dict[IdleCause, int]) -> None:
    """At most four, each no small share of all, in order; unless launches are hardly recorded."""
    found = idle(times_ns)
    told = found.largest(found.total_ns)
    assert 1 <= len(told) <= MOST_CAUSES
    assert [time_ns for _, time_ns in told] == sorted(times_ns.values(), reverse=True)[: len(told)]
    assert all(time_ns >= LEAST_SHARE * found.total_ns for _, time_ns in told)
    sentence = idle_sentence(found, steps=1, span_ns=found.total_ns)
    assert sentence is not None
    if times_ns.get(IdleCause.NOT_RECORDED, 0) > 0.9 * found.total_ns:
        assert "not in this profile" in sentence
    else:
        places = [sentence.index(IdleCause(cause).words) for cause, _ in told]
        assert places == sorted(places)


def test_devices_that_hardly_idle() -> None:
    """Nothing is said of a small share of a step."""
    found = idle({IdleCause.QUEUED: MS})
    assert found.largest(100 * MS) == ()
    assert idle_sentence(found, steps=3, span_ns=100 * MS) is None


def test_calls_and_the_least_gap() -> None:
    """Calls with their time, one that is nearly all of its cause without, and the least gap."""
    found = idle(
        {IdleCause.HOST_NOT_ASKED: 6 * MS, IdleCause.BETWEEN_TASKS: 3 * MS, IdleCause.QUEUED: MS},
        calls={
            "host_not_asked": (("aten::item", 3 * MS), ("aten::cat", MS)),
            "queued": (("Enqueue", MS),),
        },
        least_ns=2_000,
    )
    assert idle_sentence(found, steps=4, span_ns=20 * MS, beyond=True) == (
        "Idle 10.00 ms per step, also before the first kernel and between steps: 6.00 ms host busy "
        "elsewhere (aten::item 3.00 ms, aten::cat 1.00 ms), 3.00 ms between tasks (at least "
        "2.00 us each), 1.00 ms queued on the host (Enqueue)."
    )


def test_the_least_gap_may_be_the_cost_of_collecting() -> None:
    """Where the profiler collects metrics of each task, the gap between tasks is no promise."""
    found = MeanIdle((("between_tasks", MS),), {}, 87_000, "L2 cache metrics")
    assert idle_sentence(found, steps=1, span_ns=2 * MS) == (
        "Idle 1.00 ms: 1.00 ms between tasks (at least 87.0 us each, which may be the cost of "
        "collecting L2 cache metrics for each task)."
    )


def test_copies_beyond_the_work_of_a_step_are_told() -> None:
    """What the mean step counts as between steps is idle time and copies; a little is left out."""
    found = idle({IdleCause.HOST_NOT_ASKED: 3 * MS})
    for copies_ns, said in ((2 * MS, ", where copies take 2.00 ms"), (MS // 10, "")):
        sentence = idle_sentence(found, steps=2, span_ns=20 * MS, beyond=True, copies_ns=copies_ns)
        assert sentence == (
            f"Idle 3.00 ms per step, also before the first kernel and between steps{said}: "
            "3.00 ms host busy elsewhere."
        )
