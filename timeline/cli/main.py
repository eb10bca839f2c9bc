"""The command line: which command is meant, and what becomes of its errors."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from timeline.errors import SourceError, TimelineError
from timeline.printable import say
from timeline.process import (
    WRITTEN_BEFORE,
    Terminated,
    ended_by_signals,
    interrupted_by_signals,
    say_interrupted,
    tune_for_one_command,
)

SCARCE = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Of open files, processes and memory there are no more, which is nobody's file."""
UNMAPPED = ("failed to map segment", "cannot map zero-fill pages", os.strerror(errno.ENOMEM))
"""What the loader of shared libraries says where there is no memory for one; it gives no number."""
FEWER_JOBS = "Use fewer --jobs, or allow more (ulimit -a tells the limits)."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 written; 1 input, output or data error; 2 usage; 3 the selection is not there; 4 the
        limit or --strict forbids it; 5 written, and slower than --fail-above allows; 129 its
        terminal was closed; 130 interrupted; 143 terminated.
    """
    tune_for_one_command()
    try:
        with interrupted_by_signals():
            _run(list(sys.argv[1:] if arguments is None else arguments))
    except TimelineError as error:
        first, *more = error.lines()
        say(f"tlexport: {first}", *more, stream=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        number = interrupt.number if isinstance(interrupt, Terminated) else signal.SIGINT
        # It may have other args: those that decoders of text give to what ends them.
        return say_interrupted(number, written=WRITTEN_BEFORE in interrupt.args)
    except OSError as error:
        if error.filename is not None:
            say(f"tlexport: {error.filename}: {error.strerror}.", stream=sys.stderr)
            return 1
        if error.errno in SCARCE:
            say(f"tlexport: cannot go on: {error.strerror}. {FEWER_JOBS}", stream=sys.stderr)
            return 1
        # No file: it is the terminal or pipe that failed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            say(f"tlexport: cannot print: {error.strerror}.", stream=sys.stderr)
        return 1
    except MemoryError:
        say(f"tlexport: there is not enough memory. {FEWER_JOBS}", stream=sys.stderr)
        return 1
    except ImportError as error:
        library = _unmapped(error)
        if library is None:
            raise
        what = f"there is not enough memory to load the module {library}."
        say(f"tlexport: {what} {FEWER_JOBS}", stream=sys.stderr)
        return 1
    return 0


def _unmapped(error: BaseException | None) -> str | None:
    """The module that there was no memory to load; None where its import failed for anything else.

    NumPy raises an error of its own, without a name, from that of the loader.
    """
    while isinstance(error, ImportError):
        if error.name and any(said in str(error) for said in UNMAPPED):
            return error.name
        error = error.__cause__
    return None


def _run(words: list[str]) -> None:
    """Parse the words and do what they ask: compare or show by the first word, else export.

    A profile of the name of a command is ./compare. Words such as `list` mean an option where no
    path has that name.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise SourceError(
            Path(), "the current directory was removed.", do="Move to another one."
        ) from None
    # Loaded here, after the process is tuned: garbage collection is a tenth of the time of --help.
    with ended_by_signals():
        from timeline.cli import compare, export, show
        from timeline.cli.parser import WORDS, build_compare_parser, build_parser, build_show_parser

    completing = "_ARGCOMPLETE" in os.environ
    if completing:
        from timeline.cli.completion import complete, words_before

        words = words_before()
    match words[:1]:
        case ["compare"]:
            parser, run, words = build_compare_parser(), compare.run, words[1:]
        case ["show"]:
            parser, run, words = build_show_parser(), show.run, words[1:]
        case [word] if word in WORDS and not os.path.lexists(word):
            parser, run, words = build_parser(), export.run, [*words[1:], WORDS[word]]
        case _:
            parser, run = build_parser(), export.run
    if completing:
        complete(parser)
    run(parser.parse(words))
