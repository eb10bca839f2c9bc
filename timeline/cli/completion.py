"""Completion of the command line in shells: the scripts, and the answers that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import argcomplete
from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter
from argcomplete.shell_integration import shellcode

from timeline.cli.parser import SHELLS, Parser
from timeline.declarations import Option

__all__ = ["SHELLS", "complete", "script_lines"]


def script_lines(shell: str) -> list[str]:
    """The script for a shell; how to install it is said in its second line.

    The first line has to stay where it is: zsh reads from it what the script completes.
    """
    first, *rest = shellcode(["tlexport"], shell=shell).strip("\n").splitlines()
    return [first, f"# Install: {SHELLS[shell]}", *rest]


def complete(parser: Parser) -> None:
    """Answer the shell, and end the process.

    Values complete as files where nothing else is declared for them.
    """
    for action in parser._actions:
        option = parser.options.get(action.dest)
        completer = None if option is None else _completer_of(option)
        if completer is not None:
            action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def _completer_of(option: Option) -> Callable[..., Iterable[str]] | None:
    if option.choices:
        return _choices(dict.fromkeys(option.choices, ""))
    declared = option.completion
    if declared is None:
        return None
    if declared.directories:
        return _directories()
    if declared.separated:
        return _SeparatedWords(tuple(declared.words))
    return _choices(declared.words)


def _choices(words: Mapping[str, str]) -> Callable[..., Iterable[str]]:
    completer: Callable[..., Iterable[str]] = ChoicesCompleter(words)
    return completer


def _directories() -> Callable[..., Iterable[str]]:
    completer: Callable[..., Iterable[str]] = DirectoriesCompleter()
    return completer


class _SeparatedWords:
    """Completes a list with commas by the words that are not in it."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words

    def __call__(self, prefix: str, **_context: object) -> Iterable[str]:
        before, comma, _ = prefix.rpartition(",")
        named = before.split(",")
        return [f"{before}{comma}{word}" for word in self._words if word not in named]
