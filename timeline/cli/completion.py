"""Completion of the command line in shells: their scripts, and the answers to these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import argcomplete
from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

from timeline.cli.parser import SHELLS, Parser
from timeline.commands.next_command import COMMANDS
from timeline.declarations import Option


def script_lines(shell: str) -> list[str]:
    """Return the completion script for a shell, with the command to install it on line 2.

    Line 1 must stay first: zsh reads the name of the command to complete from it.
    """
    first, *rest = shellcode(["tlexport"], shell=shell).strip("\n").splitlines()
    return [first, f"# Install: {SHELLS[shell]}", *rest]


def words_before() -> list[str]:
    """Return the command word if the line continues after one, else nothing.

    The words after it are then completed.
    """
    first, *more = os.environ.get("COMP_LINE", "").split(maxsplit=2)[1:] or [""]
    if first not in COMMANDS or not (more or os.environ["COMP_LINE"].endswith(" ")):
        return []
    os.environ["_ARGCOMPLETE"] = str(int(os.environ["_ARGCOMPLETE"]) + 1)
    return [first]


def complete(parser: Parser) -> None:
    """Answer the shell, and end the process.

    Values complete to files unless another completion is declared, and the first word also to
    commands.
    """
    for action in parser._actions:
        option = parser.options.get(action.dest)
        completer = None if option is None else _completer_of(option)
        if action.dest == "path":
            completer = _files_and_commands
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


def _files_and_commands(prefix: str, **_context: object) -> Iterable[str]:
    """Return the files and command words that begin with `prefix`."""
    files: Iterable[str] = FilesCompleter()(prefix)
    return [*(word for word in COMMANDS if word.startswith(prefix)), *files]


def _directories() -> Callable[..., Iterable[str]]:
    completer: Callable[..., Iterable[str]] = DirectoriesCompleter()
    return completer


class _SeparatedWords:
    """Completer of comma-separated lists, which offers the words not in the list yet."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words

    def __call__(self, prefix: str, **_context: object) -> Iterable[str]:
        before, comma, _ = prefix.rpartition(",")
        named = before.split(",")
        return [f"{before}{comma}{word}" for word in self._words if word not in named]
