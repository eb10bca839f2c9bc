"""Turns the command line into what a shell completes when Tab is pressed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import argcomplete
from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter
from argcomplete.shell_integration import shellcode

from timeline.cli.parser import OneOf
from timeline.selection import Layer

__all__ = ["SHELLS", "complete", "script_lines"]

SHELLS = {
    "bash": 'eval "$(tlexport --completion bash)"        # as a line of ~/.bashrc',
    "zsh": 'eval "$(tlexport --completion zsh)"         # as a line of ~/.zshrc, after compinit',
    "fish": "tlexport --completion fish > ~/.config/fish/completions/tlexport.fish",
}
"""How the script of each is installed."""


def script_lines(shell: str) -> list[str]:
    """The script for a shell; how to install it is said in its second line.

    The first line has to stay where it is: zsh reads from it what the script completes.
    """
    first, *rest = shellcode(["tlexport"], shell=shell).strip("\n").splitlines()
    return [first, f"# Install: {SHELLS[shell]}", *rest]


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, and end the process.

    Values that are not in a list complete as files, unless a completer is named here.
    """
    for action in parser._actions:
        completer = _COMPLETERS.get(action.dest)
        if isinstance(action.type, OneOf):
            completer = ChoicesCompleter(dict.fromkeys(action.type.values, ""))
        if completer is not None:
            action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def _layers(prefix: str, **_context: object) -> Iterable[str]:
    """The names that may come next in a list with commas."""
    before, comma, _ = prefix.rpartition(",")
    named = before.split(",")
    return [f"{before}{comma}{own.value}" for own in Layer if own.value not in named]


_ALL = ChoicesCompleter({"all": "all"})
_NOTHING = ChoicesCompleter({})
_COMPLETERS: dict[str, Callable[..., Iterable[str]]] = {
    "layers": _layers,
    "ranks": _ALL,
    "graphs": _ALL,
    "steps": _ALL,
    "assign_rank": DirectoriesCompleter(),
    "limit": ChoicesCompleter({"20MB": "the default", "0": "no limit"}),
    **dict.fromkeys(("window", "fp_start", "bp_end", "jobs", "executor"), _NOTHING),
}
