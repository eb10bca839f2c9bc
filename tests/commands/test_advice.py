"""Proves that whatever goes wrong, the last thing people read is what to do about it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import timeline
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline import errors
from timeline.cli.main import main
from timeline.errors import SelectionError, TimelineError
from timeline.ranks.read_ranks import choose_ranks
from timeline.selection import Selection
from timeline.sources.source import Identity, Source

PACKAGE = Path(timeline.__file__).parent
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TimelineError)
}
VERBS = (
    "Ask|Check|Choose|Copy|Export|Give|Leave|Make|Move|Name|Parse|Pass|Raise|Report|Run|Say|Start|Take"
    "|Try|Unpack|Use|Write|Expected|pip"
)
ADVICE = rf"(^|[.,;:] )({VERBS})\b"
"""How a sentence begins that says what to do, or what would be right."""


def advices() -> Iterator[tuple[str, str]]:
    """Where errors are made, and how their advice begins; that of the class where they give none.

    What is not a text in the source is advice that some other call here gives.
    """
    named = re.compile(rf"\b({'|'.join(KINDS)})\(")
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not named.search(text):  # most files raise none, and parsing takes long
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            kind = KINDS.get(node.func.id)
            if kind is None:
                continue
            do = next((one.value for one in node.keywords if one.arg == "do"), None)
            if isinstance(do, ast.JoinedStr):
                do = do.values[0]
            if isinstance(do, ast.Constant):
                yield f"{path.name}:{node.lineno}", str(do.value)
            elif do is None:
                yield f"{path.name}:{node.lineno}", kind.usual_advice


def test_every_error_comes_with_advice() -> None:
    """Each place that raises an error says what to do, or has a class that does."""
    found = list(advices())
    assert len(found) > 60
    assert [one for one in found if not re.search(ADVICE, one[1], re.IGNORECASE)] == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_advice_ends_the_message(kind: str) -> None:
    """The advice of an error comes last, that of its class where it has none of its own."""
    place: tuple[Any, ...] = ("found this.",)
    if issubclass(KINDS[kind], errors.SourceError):
        place = (Path("file"), "found this.")
    elif KINDS[kind] is errors.WorkerError:
        place = (3, "its process died")
    error = KINDS[kind](*place)
    (line,) = error.lines()
    assert line.endswith((error.advice or error.usual_advice,))
    assert line != error.advice
    if KINDS[kind] is not errors.WorkerError:
        assert KINDS[kind](*place, do="Do that.").lines()[0].endswith("found this. Do that.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rank", "0"), "there is no option --rank; did you mean --ranks?"),
        (("--kinds=detail",), "there is no option --kinds; did you mean --kind?"),
        (("--kind", "detial"), "did you mean detail?"),
        (("--fit", "coarse"), "did you mean coarsen?"),
        (("--layers", "hardwear"), "did you mean hardware?"),
        (("--assign-rank", "run=1"), "Name one of "),
        (("--frobnicate",), "there is no option --frobnicate. Try: tlexport --help-all"),
        (("-o", "out.pftrce"), "Use one of .pftrace, "),
    ],
)
def test_what_was_meant(
    arguments: tuple[str, ...], said: str, shelf: ProfileShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of options, values and layers the nearest that there is, where one is near."""
    assert main([str(shelf.get("torch-db").path), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_path_beside_the_one_that_was_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profile").mkdir()
    assert main([str(tmp_path / "profle")]) == 1
    assert "does not exist; did you mean profile? " in capsys.readouterr().err


def test_the_rank_that_was_meant() -> None:
    """Where ranks are too many to list, the nearest are named."""
    sources = [
        cast(Source, SimpleNamespace(identity=Identity(rank, Path(f"rank{rank}"))))
        for rank in range(0, 200, 5)
    ]
    with pytest.raises(SelectionError, match=r"rank 77 is not in .* the nearest are 75,80\. Use"):
        choose_ranks(sources, Selection(ranks=frozenset({77})), Path("profile"))


def test_a_directory_without_a_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thing that a new user may see: where was looked, for what, and what to pass."""
    monkeypatch.chdir(tmp_path)
    assert main([]) == 1
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith(f"tlexport: {tmp_path}: holds no Ascend profile")
    assert first.endswith("tlexport PATH")
    assert all(len(line) <= 80 for line in rest)
    assert any("ASCEND_PROFILER_OUTPUT" in line for line in rest)


def test_the_narrower_command_keeps_window_and_layers(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is suggested lies in the window that was asked for, shows its layers, and is exact."""
    profile = shelf.get("torch-db", steps=8).path
    whole, narrow = tmp_path / "whole.pftrace", tmp_path / "narrow.pftrace"
    asked = ["--kind", "detail", "--window", "30%:90%", "--layers", "steps,hardware,overlap"]
    assert main([str(profile), *asked, "-o", str(whole)]) == 0
    limit = f"{whole.stat().st_size * 2 // 3}B"
    capsys.readouterr()
    assert main([str(profile), *asked, "-o", str(whole), "--force", "--limit", limit]) == 0
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("  exact: ")
    ]
    words = shlex.split(line.removeprefix("  exact: "))
    assert words[0] == "tlexport"
    assert words[words.index("--layers") + 1] == "hardware,overlap,steps"
    assert main([*words[1:], "-o", str(narrow)]) == 0
    said = capsys.readouterr().out
    assert "merged" not in said
    assert main([str(profile), *asked, "-o", str(whole), "--force", "--limit", "0"]) == 0
    drawn = [
        TraceProcessor.load(path.read_bytes()).rows(
            "SELECT slice.name, slice.dur FROM slice JOIN track ON track.id = track_id "
            "WHERE track.name GLOB 'Stream*' ORDER BY 1, 2"
        )
        for path in (narrow, whole)
    ]
    assert drawn[0]
    assert len(drawn[0]) < len(drawn[1])
    rest = list(drawn[1])
    for row in drawn[0]:
        rest.remove(row)
