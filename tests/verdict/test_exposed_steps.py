"""Proves that what steps wait and transfer adds up to what ranks do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.profile_shelf import ProfileShelf
from timeline.commands.export import export


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindspore-text"])
def test_waiting_and_transfer_of_steps_add_up_to_those_of_ranks(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """Over ordinary steps, to the nanosecond, and never more than is exposed."""
    figures = export(shelf.get(layout, ranks=3).path, tmp_path / "a.pftrace").figures
    steps, parts = figures.steps, figures.exposed_steps
    assert len(parts) == len(steps)
    ordinary = steps["ordinary"] == 1
    waiting_ns, transfer_ns = (np.ma.filled(parts[name], 0) for name in parts.columns)
    assert (waiting_ns + transfer_ns <= np.ma.filled(steps["not_overlapped_ns"], 0)).all()
    for row in figures.exposed.to_dicts():
        its = ordinary & (steps["rank"] == row["rank"])
        assert waiting_ns[its].sum() == row["waiting_ns"]
        assert transfer_ns[its].sum() == row["transfer_ns"]
    assert figures.exposed["waiting_ns"].sum() > 0
