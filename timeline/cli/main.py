"""The entry point of the command line, which turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from timeline.errors import SourceError, TimelineError
from timeline.language import asked_language, spoken
from timeline.printable import say, say_remarks
from timeline.process import (
    WRITTEN_BEFORE,
    Terminated,
    ended_by_signals,
    interrupted_by_signals,
    say_interrupted,
    tune_for_one_command,
)

SCARCE = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Error numbers that mean that open files, processes or memory ran out."""
UNMAPPED = ("failed to map segment", "cannot map zero-fill pages", os.strerror(errno.ENOMEM))
"""Messages of the loader of shared libraries when memory is short; it gives no error number."""
FEWER_JOBS = "Use fewer --jobs, or allow more (ulimit -a tells the limits)."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 written; 1 input, output or data error; 2 usage; 3 the selection does not
        exist; 4 the limit or --strict forbids it; 5 written, and slower than --fail-above allows;
        129 the terminal was closed; 130 interrupted; 143 terminated.
    """
    tune_for_one_command()
    words = list(sys.argv[1:] if arguments is None else arguments)
    with spoken(asked_language(words)):
        return _run_or_explain(words)


def _run_or_explain(words: list[str]) -> int:
    """Run the command, print its error if it fails, and return its exit code."""
    try:
        with interrupted_by_signals():
            _run(words)
    except TimelineError as error:
        first, *more = error.lines()
        say_remarks(first)
        say(*more, stream=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        number = interrupt.number if isinstance(interrupt, Terminated) else signal.SIGINT
        # Interrupted decoders of text may add other args.
        return say_interrupted(number, written=WRITTEN_BEFORE in interrupt.args)
    except OSError as error:
        if error.filename is not None:
            say_remarks(f"{error.filename}: {error.strerror}.")
            return 1
        if error.errno in SCARCE:
            say_remarks(f"cannot go on: {error.strerror}. {FEWER_JOBS}")
            return 1
        # An error without a file name: the terminal or pipe failed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            say_remarks(f"cannot print: {error.strerror}.")
        return 1
    except MemoryError:
        say_remarks(f"there is not enough memory. {FEWER_JOBS}")
        return 1
    except ImportError as error:
        library = _unmapped(error)
        if library is None:
            raise
        what = f"there is not enough memory to load the module {library}."
        say_remarks(f"{what} {FEWER_JOBS}")
        return 1
    return 0


def _unmapped(error: BaseException | None) -> str | None:
    """Return the module that could not be loaded for lack of memory; None for other failures.

    NumPy raises its own error, without a name, from that of the loader.
    """
    while isinstance(error, ImportError):
        if error.name and any(message in str(error) for message in UNMAPPED):
            return error.name
        error = error.__cause__
    return None


def _run(words: list[str]) -> None:
    """Run the command named by the first word, compare, open, query or show, else export.

    A timeline that tlexport wrote is opened.

    A profile with the name of a command is written ./compare. A single word such as `list` means an
    option unless a path of that name exists.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise SourceError(
            Path(), "the current directory was removed.", do="Move to another one."
        ) from None
    # Imported after tuning the process: garbage collection is a tenth of the time of --help.
    with ended_by_signals():
        from timeline.cli import compare, export, written_file
        from timeline.cli.parser import (
            WORDS,
            build_compare_parser,
            build_open_parser,
            build_parser,
            build_query_parser,
            build_show_parser,
        )

    completing = "_ARGCOMPLETE" in os.environ
    if completing:
        from timeline.cli.completion import complete, words_before

        words = words_before()
    match words[:1]:
        case ["compare"]:
            parser, run, words = build_compare_parser(), compare.run, words[1:]
        case ["open"]:
            parser, run, words = build_open_parser(), written_file.run_open, words[1:]
        case ["query"]:
            parser, run, words = build_query_parser(), written_file.run_query, words[1:]
        case ["show"]:
            parser, run, words = build_show_parser(), written_file.run_show, words[1:]
        case [word] if word in WORDS and not os.path.lexists(word):
            parser, run, words = build_parser(), export.run, [*words[1:], WORDS[word]]
        case _ if written_file.is_timeline(words):
            parser, run = build_open_parser(), written_file.run_open
        case _:
            parser, run = build_parser(), export.run
    if completing:
        complete(parser)
    run(parser.parse(words))
