"""Turns options into help that begins with examples, and wrong ones into errors with advice."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from timeline.errors import UsageError, did_you_mean

__all__ = ["COMPARE_DESCRIPTION", "COMPARE_USAGE", "OneOf", "Parser"]

USAGE = "%(prog)s [PATH] [options]"
DESCRIPTION = """\
Turn profiles of Ascend NPUs into one timeline for
https://ui.perfetto.dev, and say what is slow.

  # what is slow? (anywhere in, inside or above a profile)
  tlexport

  # what is there: ranks, graphs, steps
  tlexport prof --list

  # see why: every task of three steps of rank 3
  tlexport prof --ranks 3 --steps 10-12 --kind detail

  # the times of every rank and step as a table
  tlexport prof --csv steps.csv

  # did my change help? (see tlexport compare --help)
  tlexport compare before after
"""
COMPARE_USAGE = "%(prog)s compare BASE NEW [options]"
COMPARE_DESCRIPTION = """\
Compare two runs: what takes longer, by part, step, rank, operator and collective;
and draw both in one timeline, aligned at their first step.

  # did my change help?
  tlexport compare before after

  # every operator, as a table
  tlexport compare before after --csv operators.csv
"""
COMPARE_ADVICE = "To compare two runs: tlexport compare BASE NEW"
EPILOG = """\
exit codes:
  0    written
  1    input, output or data error
  2    usage
  3    a rank, graph, step or window that is not there
  4    the limit or --strict forbids it
  129  its terminal was closed
  130  interrupted
  143  terminated
"""


class Parser(argparse.ArgumentParser):
    """A parser whose help begins with examples, and whose errors name the nearest option."""

    def __init__(
        self,
        usage: str = USAGE,
        description: str = DESCRIPTION,
        advice: str = "Try: tlexport --help",
    ) -> None:
        self._advice = advice
        super().__init__(
            prog="tlexport",
            usage=usage,
            description=description,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """The options.

        Raises:
            UsageError: they have no meaning; the message names the nearest that has.
        """
        asked, rest = self.parse_known_args(arguments)
        if rest and not rest[0].startswith("-"):
            raise UsageError(f"{rest[0]!r} is one PATH too many.", do=COMPARE_ADVICE)
        if rest:
            self.error(self._unknown(rest[0]))
        return asked

    def _unknown(self, word: str) -> str:
        name = word.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        return f"there is no option {name}{did_you_mean(name, known)}"

    def error(self, message: str) -> NoReturn:
        """Raise wrong usage like any other error."""
        said = message.removeprefix("argument ")
        end = "" if said.endswith((".", "?")) else "."
        raise UsageError(f"{said}{end}", do=self._advice)


@dataclass(frozen=True)
class OneOf:
    """A type of option that has one of some values."""

    values: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """The value itself.

        Raises:
            ArgumentTypeError: it is none of them; the message names the nearest.
        """
        if text not in self.values:
            raise argparse.ArgumentTypeError(
                f"{text!r} is none of {', '.join(self.values)}{did_you_mean(text, self.values)}"
            )
        return text
