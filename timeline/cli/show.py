"""The command `tlexport show`, which prints the verdict that a file contains."""

from __future__ import annotations

import argparse
from pathlib import Path

from timeline.cli.parser import PrintOptions
from timeline.cli.printing import (
    check_standard_output,
    flush,
    print_json,
    say_commands,
    say_remarks,
)
from timeline.declarations import fill
from timeline.errors import SourceError
from timeline.printable import say
from timeline.process import ended_by_signals
from timeline.units import format_count


def run(asked: argparse.Namespace) -> None:
    """Print the verdict that a file contains.

    Raises:
        TimelineError: the file has no verdict or cannot be read; the message says what to do.
    """
    prints = fill(PrintOptions, vars(asked))
    check_standard_output(prints, None)
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
