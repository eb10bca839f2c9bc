"""`tlexport show`: prints again what a file says is slow."""

from __future__ import annotations

import argparse

from timeline.cli.parser import PrintOptions
from timeline.cli.printing import check_standard_output, flush, print_verdict
from timeline.declarations import fill
from timeline.process import ended_by_signals


def run(asked: argparse.Namespace) -> None:
    """Print the verdict in the file.

    Raises:
        TimelineError: it holds none, or cannot be read; the message says what to do.
    """
    prints = fill(PrintOptions, vars(asked))
    check_standard_output(prints, None)
    with ended_by_signals():
        from timeline.commands.show import read_verdict
    filed = read_verdict(asked.file)
    print_verdict(filed, prints)
    flush()
