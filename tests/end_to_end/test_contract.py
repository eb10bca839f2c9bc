"""Pins what users and programs rely on: names, options, keys, rows and exit codes, in one file."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.loaded_picture import LoadedPicture
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.public_names import members
from timeline.cli.main import main
from timeline.cli.parser import EPILOG, build_compare_parser, build_parser

PINNED = Path(__file__).with_name("contract.txt")
DRAWN = (
    *("torch-db", "torch-text", "mindstudio", "mindspore-2.1", "mindspore-text", "msprof-sqlite"),
    *("kernel-details", "raw", "kineto", "mindspore-tables"),
)
"""Layouts whose rows are pinned; together they have all rows that there are."""
ENOUGH_OPERATORS = {"mindspore-tables": {"ops_per_step": 24}}
"""Runs that are longer than others, to have some on AI CPUs."""
_NUMBER = re.compile(r"\d+")
_TYPES = {bool: "true or false", int: "integer", float: "number", str: "text", type(None): "null"}


def test_the_contract_is_pinned(
    shelf: ProfileShelf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever changes what others rely on has to say so; UPDATE_GOLDEN=1 writes it down."""
    monkeypatch.chdir(tmp_path)

    def printed(*arguments: str | Path) -> Any:
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    sections = {
        "library": [_spelled(name, found) for name, found in members()],
        "tlexport": _options(build_parser()),
        "tlexport compare": _options(build_compare_parser()),
        "exit codes": (line.strip() for line in EPILOG.strip().splitlines()[1:]),
        "--json": _keys(_exports(shelf, printed)),
        "--list --json": _keys(printed(shelf.get(name).path, "--list") for name in DRAWN),
        "compare --json": _keys([_comparison(shelf, printed)]),
        "rows": _rows(shelf, tmp_path),
        "args of slices": _args(tmp_path),
    }
    text = "\n".join(
        f"[{title}]\n" + "".join(f"{line}\n" for line in lines) for title, lines in sections.items()
    )
    if os.environ.get("UPDATE_GOLDEN"):
        PINNED.write_text(text, encoding="utf-8")
    assert text == PINNED.read_text(encoding="utf-8")


# -- the library -----------------------------------------------------------------------------------


def _spelled(name: str, found: Any) -> str:
    """A name with its signature; * marks what is given by keyword only."""
    if isinstance(found, property):
        return f"{name}: property"
    if inspect.isclass(found) and issubclass(found, Exception):
        return f"{name}: {', '.join(base.__name__ for base in found.__bases__)}"
    if name in ("Align", "Args", "Fit", "Kind", "Layer"):
        return f"{name}: {', '.join(one.value for one in found)}"
    if name in ("ComparisonReport", "ExportReport", "Profile") or not callable(found):
        return name
    signature = inspect.signature(found)
    given = ", ".join(map(_parameter, signature.parameters.values()))
    return f"{name}({given}) -> {signature.return_annotation}"


def _parameter(parameter: inspect.Parameter) -> str:
    only = "*" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
    if parameter.annotation is inspect.Parameter.empty:
        return parameter.name
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    return f"{only}{parameter.name}: {parameter.annotation}{default}"


# -- the command -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Each option with its value, its choices and its default."""
    for action in parser._actions:
        words = " ".join(action.option_strings) or str(action.metavar)
        value = f" {action.metavar}" if action.metavar and action.option_strings else ""
        choices = f" {{{', '.join(map(str, action.choices))}}}" if action.choices else ""
        has_default = action.default not in (None, False, argparse.SUPPRESS, [], ())
        yield f"{words}{value}{choices}" + (f" = {action.default}" if has_default else "")


def _exports(shelf: ProfileShelf, printed: Callable[..., Any]) -> Iterator[Any]:
    """The reports of each layout, of the detail and with a limit that it exceeds."""
    for name in DRAWN:
        profile = shelf.get(name, **ENOUGH_OPERATORS.get(name, {}))
        yield printed(profile.path, "--kind", "detail", "-o", f"{name}.pftrace")
    yield printed(
        shelf.get("torch-db").path, "--limit", "10KB", "--csv", "t.csv", "-o", "l.pftrace"
    )


def _comparison(shelf: ProfileShelf, printed: Callable[..., Any]) -> Any:
    base, new = shelf.get("torch-db").path, shelf.get("torch-text").path
    return printed("compare", base, new, "-o", "compared.pftrace")


# -- documents -------------------------------------------------------------------------------------


def _keys(documents: Iterable[Any]) -> list[str]:
    """Each key of some documents with the types that its values have in any of them."""
    found: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        for key, kind in _leaves("", document):
            found[key].add(kind)
    with_items = {key.rpartition("[]")[0] for key in found if "[]" in key}
    return [
        f"{key}: {_format_types(kinds)}"
        for key, kinds in sorted(found.items())
        if key not in with_items
    ]


def _format_types(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds, key=lambda kind: (kind == "null", kind)))


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves(f"{key}.{name}" if key else name, one)
    elif isinstance(value, list):
        if not value:
            yield key, "list"
        for one in value:
            yield from _leaves(f"{key}[]", one)
    else:
        yield key, _TYPES[type(value)]


# -- the picture -----------------------------------------------------------------------------------


def _rows(shelf: ProfileShelf, directory: Path) -> list[str]:
    """The names of rows from the root on, N for numbers; what is drawn in them is the profile's."""
    found = set()
    for picture in _pictures(directory):
        for track in picture.tracks.values():
            found.add(" > ".join(_NUMBER.sub("N", name) for name in track.path if name))
    return sorted(found)


def _args(directory: Path) -> list[str]:
    """The args of slices, by the message that holds them."""
    found = set()
    for picture in _pictures(directory):
        for shown in picture.by_id.values():
            found |= {f"{arg.kind}.{arg.name}" for arg in shown.args}
    return sorted(found)


def _pictures(directory: Path) -> Iterator[LoadedPicture]:
    for name in DRAWN:
        content = (directory / f"{name}.pftrace").read_bytes()
        yield LoadedPicture(TraceProcessor.load(content), is_json=False)
