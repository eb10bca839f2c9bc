"""Proves that the package stays as small and as plain as it is: words, lines and modules."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import timeline
from tests.support.places import ROOT

tomllib = pytest.importorskip("tomllib", reason="the standard library reads TOML from 3.11 on")

PACKAGE = Path(timeline.__file__).parent
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
HOUSE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["house"]
QUESTIONS = ("Whether", "How", "What", "Which", "Where", "When", "Whose")
RIDDLES = re.compile(
    r"\b(is|are) told\b|\btells? of\b|(?<!there )\bis no\b|\bthat (is|are) given\b", re.IGNORECASE
)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The docstrings of a module, its classes and functions, by name."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "module"), text


def comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_docstrings_ask_nothing() -> None:
    """A docstring says what a function does or what a class is."""
    asking = [
        f"{name}: {where}: {text.splitlines()[0]}"
        for name, path in FILES.items()
        for where, text in docstrings(tree_of(path))
        if text.split(None, 1)[0] in QUESTIONS
    ]
    assert asking == []


def test_prose_is_no_riddle() -> None:
    """Neither docstrings nor comments use phrases that nobody would say."""
    riddles = []
    for name, path in FILES.items():
        prose = [text for _, text in docstrings(tree_of(path))]
        prose += comments(path.read_text(encoding="utf-8"))
        riddles += [f"{name}: {text[:80]}" for text in prose if RIDDLES.search(text)]
    assert riddles == []


def test_no_room_outgrows_its_budget() -> None:
    """Lines of Python by room; who raises a budget says why in the same change."""
    lines = Counter[str]()
    for name, path in FILES.items():
        room = "/".join(name.split("/")[:-1])
        lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    budgets = dict(HOUSE["lines"])
    assert {room: count for room, count in lines.items() if count > budgets.get(room, 0)} == {}
    spare = {room: budget - lines[room] for room, budget in budgets.items()}
    assert {room: left for room, left in spare.items() if left > 100} == {}, "budgets may fall"


def test_no_more_crumbs() -> None:
    """Modules that one module of their own folder imports, and nobody else."""
    importers: dict[str, set[str]] = {}
    modules = {name.removesuffix(".py").replace("/", "."): name for name in FILES}
    for name, path in FILES.items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for target in {node.module, *(f"{node.module}.{one.name}" for one in node.names)}:
                    if target in modules and modules[target] != name:
                        importers.setdefault(target, set()).add(name)
    crumbs = [
        target
        for target, names in importers.items()
        if len(names) == 1 and Path(*names).parent == Path(modules[target]).parent
    ]
    most = HOUSE["crumbs"]
    assert len(crumbs) <= most, "\n".join(
        [f"merge {len(crumbs) - most} of these with what imports them:", *sorted(crumbs)]
    )
