"""The commands on a written file: open it, show its verdict, query answers a question."""

from __future__ import annotations

import argparse
from pathlib import Path

from timeline.cli.parser import PrintOptions
from timeline.cli.printing import (
    check_standard_output,
    flush,
    print_json,
    say_commands,
)
from timeline.declarations import fill
from timeline.errors import SourceError
from timeline.language import ENGLISH, spoken
from timeline.printable import print_text, say, say_remarks
from timeline.process import ended_by_signals
from timeline.selection import Selection
from timeline.units import format_count

TO_OPEN = frozenset({"--lang", "--offline", "--open", "--quiet", "--ranks", "--window", "-q", "-r"})
"""Options with which the name of a timeline opens it; others ask for an export."""


def run_show(asked: argparse.Namespace) -> None:
    """Print the verdict that a file contains, all of it in the language of the file.

    Raises:
        TimelineError: the file has no verdict or cannot be read; the message says what to do.
    """
    prints = fill(PrintOptions, vars(asked))
    check_standard_output(prints, asked)
    with ended_by_signals():
        from timeline.commands.show import read_spoken_verdict
    filed, language = read_spoken_verdict(Path(asked.file))
    if not filed.lines and not prints.json:
        what = f"was written by tlexport {filed.version}, which put no printed lines into files."
        do = "Export the profile again, or print what the file has with --json."
        raise SourceError(Path(asked.file), what, do=do)
    with spoken(language):
        say_remarks(*filed.notes)
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
    with spoken(ENGLISH):  # names in answers stay as they are
        if asked.json:
            print_json(json_of(answer.to_dicts()))
        elif asked.csv:
            print_text(answer.to_csv(safe=True))
        else:
            say(*answer.to_text().splitlines())
    flush()


def is_timeline(words: list[str]) -> bool:
    """Return whether words name a timeline that tlexport wrote, and only options to open it.

    A script without a browser gets an error instead: it would wait for somebody to open the file.
    """
    if not words or not words[0].endswith((".pftrace", ".json", ".gz")):
        return False
    if {word.partition("=")[0] for word in words if word.startswith("-")} - TO_OPEN:
        return False
    from timeline.encoders.attributes import is_timeline_file
    from timeline.viewer.opening import is_worth_serving

    return is_worth_serving() and is_timeline_file(Path(words[0]))


def run_open(asked: argparse.Namespace) -> None:
    """Open a written file in the Perfetto UI, with what its command had in view, or a chosen part.

    Raises:
        TimelineError: the file cannot be read or is not ours, the part lies outside it, or a
            local UI is missing.
    """
    with ended_by_signals():
        from timeline.commands.show import read_timeline
        from timeline.encoders.attributes import ends_as_written
        from timeline.viewer.links import view_of_file
        from timeline.viewer.opening import show_view
        from timeline.viewer.serving import installed_pages
    chosen = fill(Selection, vars(asked))
    file = Path(asked.file)
    written = read_timeline(file)
    if not ends_as_written(file):
        say_remarks(f"{file} was cut off, or changed after it was written.")
    look = written.look_at(chosen)
    with spoken(written.language):  # names of rows are looked for
        view = view_of_file(written.output, look)
    show_view(view, installed_pages() if asked.offline else None, quiet=asked.quiet)
