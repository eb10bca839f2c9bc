"""What is said of several ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timeline.ranks.read_ranks import said_once


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["no steps.", "no tasks."]))))
def test_each_text_is_said_once_with_all_its_ranks(found: list[tuple[int, str]]) -> None:
    said = list(said_once(f"rank {rank}: {text}" for rank, text in found))
    assert len(said) == len({text for _, text in found})
    for line in said:
        head, text = line.split(": ")
        ranks = {rank for rank, its in found if its == text}
        assert head.startswith("rank ") == (len(ranks) == 1)


def test_what_is_of_no_rank_stays_and_order_is_that_of_the_first() -> None:
    warnings = ["rank 3: b.", "of the run.", "rank 0: a.", "rank 1: b.", "rank 2: b."]
    assert list(said_once(warnings)) == ["ranks 1-3: b.", "of the run.", "rank 0: a."]
