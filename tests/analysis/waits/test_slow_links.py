"""Proves that links are called slow by what like links between other ranks move meanwhile."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.waits.links import LinkTimes, RankLinks
from timeline.analysis.waits.slow_links import MUCH_SLOWER, find_slow_link

MEGABYTE = 1_000_000


def links(slow: dict[int, float], ranks: int, **more: Any) -> list[RankLinks]:
    """Every rank sends 4 x 1 MB to each other in 100 us; to some, so many times as slowly."""
    found = []
    for source in range(ranks):
        targets = [target for target in range(ranks) if target != source]
        count = len(targets)
        columns: dict[str, Any] = {
            "source_rank": [source] * count,
            "target_rank": targets,
            "link": [0] * count,
            "count": [4] * count,
            "size_bytes": [4 * MEGABYTE] * count,
            "total_ns": [round(100_000 * slow.get(target, 1)) for target in targets],
        }
        found.append(RankLinks(("HCCS",), LinkTimes.of(count, columns | more)))
    return found


@given(st.integers(3, 8), st.integers(0, 7), st.floats(MUCH_SLOWER + 0.1, 20.0))
def test_links_toward_one_rank(ranks: int, rank: int, factor: float) -> None:
    """It is found with what each other rank loses; none lose anything to others."""
    rank %= ranks
    found = find_slow_link(links({rank: factor}, ranks))
    assert found is not None
    assert (found.rank, found.link, found.usual) == (rank, "HCCS", 40.0)
    assert abs(found.bandwidth - 40.0 / factor) < 0.01
    lost = round(100_000 * factor) - 100_000
    assert found.excess_ns == tuple((one, lost) for one in range(ranks) if one != rank)
    assert found.total_ns == lost * (ranks - 1)


@given(st.integers(2, 8), st.floats(1.0, MUCH_SLOWER - 0.01))
def test_links_that_are_alike(ranks: int, factor: float) -> None:
    """What is little slower is none, nor is anything between two ranks: they have no peers."""
    assert find_slow_link(links({0: factor}, ranks)) is None
    assert find_slow_link(links({0: 10.0}, 2)) is None
    assert find_slow_link([]) is None


def test_small_tasks_are_not_compared() -> None:
    """Tasks that move much less are slower per byte on any link."""
    ranks = links({}, 4)
    small = links({0: 0.5}, 4, size_bytes=[MEGABYTE // 10] * 3)
    mixed = []
    for rank, (usual, less) in enumerate(zip(ranks, small, strict=True)):
        to_first = usual.times.target_rank == 0
        rows = [less.times.take(to_first), usual.times.take(~to_first)]
        mixed.append(usual if rank == 0 else RankLinks(("HCCS",), LinkTimes.concat(rows)))
    assert find_slow_link(mixed) is None
