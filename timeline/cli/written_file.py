"""The commands on a written file: show prints its verdict, query answers a question."""

from __future__ import annotations

import argparse
from pathlib import Path

from timeline.cli.parser import PrintOptions
from timeline.cli.printing import (
    check_standard_output,
    flush,
    print_json,
    print_text,
    say_commands,
    say_remarks,
)
from timeline.declarations import fill
from timeline.errors import SourceError
from timeline.printable import say
from timeline.process import ended_by_signals
from timeline.units import format_count


def run_show(asked: argparse.Namespace) -> None:
    """Print the verdict that a file contains.

    Raises:
        TimelineError: the file has no verdict or cannot be read; the message says what to do.
    """
    prints = fill(PrintOptions, vars(asked))
    check_standard_output(prints, asked)
    with ended_by_signals():
        from timeline.commands.show import read_verdict
    filed = read_verdict(asked.file)
    if not filed.lines and not prints.json:
        what = f"was written by tlexport {filed.version}, which put no printed lines into files."
        do = "Export the profile again, or print what the file has with --json."
        raise SourceError(Path(asked.file), what, do=do)
    say_remarks(filed.notes)
    if prints.json:
        print_json(filed.to_json())
    elif not prints.quiet:
        verbose = filed.verbose_lines if prints.verbose else ()
        say(*(verbose or filed.lines))
        say_commands(filed.commands)
    if prints.verbose:
        for name, rows in filed.left_out.items():
            say(f"Not in the file, to keep it small: {format_count(rows, 'row')} of {name}")
    flush()


def run_query(asked: argparse.Namespace) -> None:
    """Print the answer to a question, or all questions by name.

    Raises:
        TimelineError: there is no such file or question, or no trace processor.
    """
    with ended_by_signals():
        from timeline.reports.valid_json import json_of
        from timeline.tables.table import Table
        from timeline.viewer.queries import ask, questions
    file = Path(asked.file)
    if not file.is_file():
        raise SourceError(file, "is not a file.", do="Name a timeline that tlexport wrote.")
    if asked.question is None:
        answer = Table.of_rows({"question": object, "asks": object}, questions())
    else:
        answer = ask(file, asked.question)
    if asked.json:
        print_json(json_of(answer.to_dicts()))
    elif asked.csv:
        print_text(answer.to_csv(safe=True))
    else:
        say(*answer.to_text().splitlines())
    flush()
