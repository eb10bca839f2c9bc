"""What a file says of what is slow, as text for a terminal of any width, or for a pipe."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from timeline.figures.filed_verdict import FiledVerdict
from timeline.reports.terminal import Display, name_text, render_blocks
from timeline.reports.terminal_verdict import verdict_text
from timeline.units import spell_count


def filed_text(filed: FiledVerdict, display: Display, *, verbose: bool = False) -> str:
    """The text that the command printed when it wrote the file.

    verbose: each step too, the longest communication ops, and which rows the file does not have.
    """
    if filed.verdict is not None and filed.figures is not None:
        text = verdict_text(filed.verdict, filed.figures, display, verbose=verbose)
    elif filed.comparison is not None:
        from timeline.reports.terminal_comparison import comparison_text

        text = comparison_text(filed.comparison, display)
    else:
        text = render_blocks([[name_text(line, display) for line in filed.sentences]], display)
    left_out = [Text(line) for line in _left_out(filed)] if verbose else []
    return text + (f"\n{render_blocks([left_out], display)}" if left_out else "")


def _left_out(filed: FiledVerdict) -> Iterator[str]:
    for name, rows in filed.left_out.items():
        yield f"Not in the file, to keep it small: {spell_count(rows, 'row')} of {name}"
