"""Proves how much work one rank more is: what is opened, asked and looked up, not how long."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.growth import compiled_calls
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main
from timeline.sources.decoders.json_events import Scanner
from timeline.sources.files import opened

FEW, MANY = 32, 36
"""Numbers of ranks whose directories are more than are remembered."""
WORK = {
    "connections": ("Connection.close",),
    "queries": ("Connection.execute",),
    "status": ("stat", "lstat"),
    "directories": ("listdir", "scandir"),
    "decoded": ("asdict",),
}
"""Compiled functions that do work of each kind."""
MOST = {
    ("torch-db", "--list"): {"connections": 3, "queries": 25, "status": 60, "directories": 25},
    ("torch-db", "--verdict"): {"connections": 4, "queries": 40, "status": 80, "directories": 25},
    ("torch-text", "--list"): {"status": 120, "directories": 30, "decoded": 0},
}
"""The most work of each kind for one rank more."""


@pytest.mark.parametrize(("layout", "ask"), MOST, ids=" ".join)
def test_work_of_one_rank_more(
    layout: str,
    ask: str,
    shelf: ProfileShelf,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is small: each file is opened once for each use, and nothing is looked up for pairs."""
    monkeypatch.setattr(opened, "FRESH_NS", 0)  # what is known of new directories is kept too
    if layout == "torch-text" and Scanner is None:
        pytest.skip("the package was built without a compiler")

    def work(ranks: int) -> Counter[str]:
        path = shelf.get(layout, ranks=ranks).path
        calls = compiled_calls(lambda: main([str(path), ask, "--jobs", "1"]))
        assert capsys.readouterr().out
        return Counter({kind: sum(calls[name] for name in names) for kind, names in WORK.items()})

    work(2)  # imports what is needed
    few, many = work(FEW), work(MANY)
    for kind, most in MOST[layout, ask].items():
        assert many[kind] - few[kind] <= most * (MANY - FEW), kind
