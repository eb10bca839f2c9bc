"""Proves that one declaration of an option is enough for the command and the library."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypedDict

import pytest

import timeline
from timeline.cli.parser import Parser, build_compare_parser, build_parser, given_keywords
from timeline.declarations import (
    Group,
    InCompare,
    Option,
    fill,
    format_flags,
    option,
    options_in,
    with_keywords,
)
from timeline.keywords import CompareKeywords, ExportKeywords, SelectionKeywords
from timeline.options import CompareOptions, ExportOptions, ReadingOptions
from timeline.selection import Selection

DECLARING = (Selection, ExportOptions, ReadingOptions)
UNITS = ("", "_ns", "_bytes")


@dataclass(frozen=True)
class _Inner:
    names: tuple[str, ...] = option(
        "--name",
        group=Group.DRAW,
        help="a name; may be repeated",
        metavar="NAME",
        repeated=tuple,
        read=lambda names: tuple(names or ()),
    )


@dataclass(frozen=True)
class _Outer:
    width_ns: int = option(
        "-w",
        "--width",
        group=Group.OUTPUT,
        help="how wide",
        metavar="TIME",
        default="5",
        read=int,
        variables=("TLEXPORT_TEST_WIDTH",),
    )
    inner: _Inner = field(default_factory=_Inner)


class _Keywords(TypedDict, total=False):
    width: int | str
    name: tuple[str, ...] | None
    other: object


@with_keywords(_Keywords, _Outer)
def _taking(first: int, **keywords: Any) -> dict[str, Any]:
    return {"first": first, **keywords}


def declared(declaring: type) -> Iterator[tuple[str, Option]]:
    """The fields of options, with their options, those of dataclasses within too."""
    for one in fields(declaring):
        if "option" in one.metadata:
            yield one.name, one.metadata["option"]
        elif is_dataclass(one.default_factory) and isinstance(one.default_factory, type):
            yield from declared(one.default_factory)


@pytest.mark.parametrize("declaring", DECLARING)
def test_a_field_is_named_as_its_flag(declaring: type) -> None:
    """With a unit at most."""
    for name, one in declared(declaring):
        assert name in {f"{one.keyword}{unit}" for unit in UNITS}


def test_every_keyword_of_the_library_is_declared() -> None:
    """None is in a TypedDict that is no option, or in a signature that compare does not have."""
    known = {one.keyword: one for each in DECLARING for one in options_in(each)}
    assert {*ExportKeywords.__annotations__} == {*known, "progress"} - {"output"}
    compared = {name for name, one in known.items() if one.compare is not None}
    selecting = {one.keyword for one in options_in(Selection)}
    assert {*SelectionKeywords.__annotations__} == selecting - {"layers"}
    compared |= {one.keyword for one in options_in(CompareOptions)}
    assert {*CompareKeywords.__annotations__} == {*compared, "progress"} - {"output"}


def test_both_parsers_follow_the_declarations() -> None:
    known = [one for each in DECLARING for one in options_in(each)]
    assert {one.keyword for one in known} <= set(build_parser().options)
    there = set(build_compare_parser().options)
    assert {one.keyword for one in known if one.compare is not None} <= there
    assert not {one.keyword for one in known if one.compare is None} & there


def test_an_option_is_parsed_and_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags, what they leave to the environment, and the dataclass within."""
    parser = Parser()
    parser.add_options([*options_in(_Outer)])
    asked = parser.parse(["--name", "b", "-w", "7", "--name", "a"])
    assert given_keywords(asked, _Outer) == {"width": "7", "name": ("b", "a")}
    assert fill(_Outer, given_keywords(asked, _Outer)) == _Outer(7, _Inner(("b", "a")))
    assert fill(_Outer, given_keywords(parser.parse([]), _Outer)) == _Outer() == _Outer(5, _Inner())
    monkeypatch.setenv("TLEXPORT_TEST_WIDTH", "9")
    assert fill(_Outer, given_keywords(parser.parse([]), _Outer)).width_ns == 9


def test_keywords_have_the_defaults_of_options() -> None:
    """They are shown; the function has those that are given, and fills in the rest itself."""
    assert _taking(1, name=("a",)) == {"first": 1, "name": ("a",)}
    spelled = [str(one) for one in inspect.signature(_taking).parameters.values()]
    assert spelled[1] == "width: 'int | str' = '5'"
    refused = r"^_taking\(\) got an unexpected keyword argument 'widths'; did you mean width\?$"
    with pytest.raises(TypeError, match=refused):
        _taking(1, widths=3)


def test_a_keyword_that_is_none_is_refused() -> None:
    """As Python refuses it, and before anything is read."""
    with pytest.raises(TypeError, match=r"export\(\) got an unexpected keyword argument 'limits'"):
        timeline.export(".", limits=3)  # type: ignore[call-arg]


def test_flags_are_spelled_for_what_is_not_empty() -> None:
    """As a command that is suggested repeats how the profile was read."""
    given = {"offset": {2: "5us"}, "align": "start", "bp_end": "X", "jobs": 3}
    words = ["--align", "start", "--offset", "2=5000ns", "--bp-end", "X"]
    assert format_flags(fill(ReadingOptions, given)) == words
    assert format_flags(ReadingOptions()) == []


def test_options_say_what_is_different_in_compare() -> None:
    """Everything else is said once."""
    for each in DECLARING:
        for one in options_in(each):
            if one.compare is not None:
                assert one.compare == InCompare() or one.compare.help != one.help
