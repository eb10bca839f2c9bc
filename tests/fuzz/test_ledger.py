"""Proves that counts of fuzzing add up over all its runs, and that no input is run twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.input_tree import InputTree, SeenInputs
from tests.fuzz.ledger import Counts, Ledger, main
from tests.fuzz.promises import BrokenPromise


def test_counts_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of one program apart from those of others, whichever process tells them."""
    for _ in range(2):
        Ledger(tmp_path).add("sweep", Counts(runs=3, inputs=2, drew=1, seconds=0.5))
    Ledger(tmp_path).add("records", Counts(runs=7))
    found = Ledger(tmp_path).counts()
    assert found["sweep"] == Counts(runs=6, inputs=4, drew=2, seconds=1.0)
    assert main(["--corpus", str(tmp_path)]) == 0
    assert (
        "4 distinct inputs (4.0/s of a process), of which 2 (50%) drew" in capsys.readouterr().out
    )


def test_faults_are_counted_by_kind(tmp_path: Path) -> None:
    """And the sums of all runs say so, as long as the counts are kept."""
    counts = Counts(runs=1)
    counts.faults["ValueError here"] += 1
    for _ in range(2):
        Ledger(tmp_path).add("sweep", counts)
    assert Ledger(tmp_path).counts()["sweep"].faults == {"ValueError here": 2}
    assert main(["--corpus", str(tmp_path)]) == 1


def test_numbers_are_taken_once(tmp_path: Path) -> None:
    taken = [Ledger(tmp_path).take("records", "next", 250) for _ in range(3)]
    assert taken == [0, 250, 500]


def test_inputs_are_seen_once(tmp_path: Path) -> None:
    """By the process that runs them, and by all that start later."""
    seen = SeenInputs(tmp_path / "seen")
    assert [seen.add(key) for key in (5, 7, 5)] == [True, True, False]
    seen.keep()
    later = SeenInputs(tmp_path / "seen")
    assert (len(later), later.add(7), later.add(9)) == (2, False, True)


def test_inputs_have_the_key_of_their_content(tmp_path: Path) -> None:
    """Which file it is in counts too; what is put back is the input that it was."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    tree = InputTree(tmp_path)
    plain = tree.key({})
    assert len({plain, tree.key({one: b"2"}), tree.key({other: b"1"})}) == 3
    with tree.holding({one: b"3"}):
        assert InputTree(tmp_path).key({}) == tree.key({one: b"3"})
    assert InputTree(tmp_path).key({}) == plain


@pytest.mark.parametrize("name", ["one", "other", "new"])
def test_a_changed_input_is_noticed(tmp_path: Path, name: str) -> None:
    """Whether in the file that fuzzing changed, in another one, or a new one."""
    for given in ("one", "other"):
        (tmp_path / given).write_bytes(b"1")
    tree = InputTree(tmp_path)
    with (
        pytest.raises(BrokenPromise, match="not what it was"),
        tree.holding({tmp_path / "one": b"2"}),
    ):
        (tmp_path / name).write_bytes(b"3")
