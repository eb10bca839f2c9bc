"""`tlexport show`: prints again what a file says of what is slow."""

from __future__ import annotations

import argparse
import sys

from timeline.cli.parser import PrintOptions
from timeline.cli.printing import check_standard_output, flush, print_json
from timeline.declarations import fill
from timeline.printable import say
from timeline.process import signals_held

__all__ = ["run"]


def run(asked: argparse.Namespace) -> None:
    """Print what the file says.

    Raises:
        TimelineError: it says nothing, or cannot be read; the message says what to do.
    """
    prints = fill(PrintOptions, vars(asked))
    check_standard_output(prints, None)
    with signals_held():  # NumPy takes an interrupt of its import for a broken installation
        from timeline.commands.show import read_verdict
        from timeline.reports.terminal_filed import filed_text
    filed = read_verdict(asked.file)
    if prints.json:
        print_json(filed.to_json())
    elif sys.stdout is not None:
        from timeline.reports.terminal import Display

        sys.stdout.write(filed_text(filed, Display.of(sys.stdout), verbose=prints.verbose))
        if filed.see_why:
            say("", f"See why: {filed.see_why}")
    flush()
