"""Shortened names that stay distinct, and names split into two lines of a table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from operator import eq

CUT = "…"
"""Mark for the part of a name that is left out."""
_LEAD = 8
"""Number of characters shown before the first that differs."""
_RETURNS = re.compile(r"void (?=\S)")
_BREAK = re.compile(r"[\s,;]+|(?<=[/_>)\]])|(?=::|[<(\[/])")


def operator_label(kind: str, name: str) -> str:
    """Return the name of an operator, after its type if that is a call of the framework.

    An operator without a name is called by its type.

    >>> operator_label("aten::mm", "ampere_sgemm_32x32_tn"), operator_label("Cast", "")
    ('aten::mm: ampere_sgemm_32x32_tn', 'Cast')
    >>> operator_label("MatMulV2", "aclnnMm_MatMulCommon_MatMulV2")
    'aclnnMm_MatMulCommon_MatMulV2'
    """
    if not name or "::" not in kind:
        return name or kind
    return f"{kind}: {name}"


def shortened(names: Sequence[str], most: int, cut: str = CUT) -> list[str]:
    """Shorten names to a number of characters, so that different names stay different.

    Long names keep their beginning and end, or, if those are equal, their beginning and the part
    where they differ.

    most: maximum length, at least 20. cut: mark for the part that is left out.
    """
    short = {name: name for name in names if len(name) <= most}
    long = sorted({name for name in names if len(name) > most})
    # C++ functions lose their parameters, unless several would then read the same.
    name_of = {
        stem if len(group) == 1 else name: name
        for stem, group in _grouped(long, _plain).items()
        for name in group
    }
    cut_stems = dict[str, str]()
    for text, group in _grouped(sorted(name_of), lambda stem: _ends(stem, most, cut)).items():
        cut_stems |= {group[0]: text} if len(group) == 1 else _apart(group, most, cut)
    for stem, text in _numbered(cut_stems, set(short), most, cut).items():
        short[name_of[stem]] = text
    return [short[name] for name in names]


def two_lines(name: str, width: int) -> str:
    """Break a name of at most 2 * width characters into two lines, at a word if possible."""
    if len(name) <= width:
        return name
    breaks = [match.end() for match in _BREAK.finditer(name, max(1, len(name) - width), width + 1)]
    at = next((end for end in reversed(breaks) if end <= width), width)
    return f"{name[:at].rstrip()}\n{name[at:].lstrip()}"


def _plain(name: str) -> str:
    """Return a C++ function without `void` and parameters, any other name unchanged."""
    if not name.endswith(")"):
        return name
    return _without_parameters(_RETURNS.sub("", name, count=1)) or name


def _ends(name: str, most: int, cut: str) -> str:
    """Return the beginning and the end of a name, with the middle cut out if it is too long."""
    if len(name) <= most:
        return name
    head = 2 * (most - len(cut)) // 3
    return name[:head] + cut + name[head + len(cut) - most :]


def _without_parameters(name: str) -> str:
    depth = 0
    for at in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if not depth:
            return name[:at]
    return name


def _apart(group: Sequence[str], most: int, cut: str) -> Mapping[str, str]:
    """Shorten names with equal ends to their beginning and the part where they first differ."""
    same = sum(1 for _ in takewhile(bool, map(eq, min(group), max(group))))

    def abbreviate(name: str) -> str:
        head = (most - len(cut)) // 3
        differing = name[max(head, same - _LEAD) :]
        text = name[:head] + (cut if same > head + _LEAD else "") + differing
        return text if len(text) <= most else text[: most - len(cut)] + cut

    short = dict[str, str]()
    for text, alike in _grouped(group, abbreviate).items():
        short |= {alike[0]: text} if len(alike) == 1 else _apart(alike, most, cut)
    return short


def _grouped(names: Sequence[str], text_of: Callable[[str], str]) -> Mapping[str, list[str]]:
    """Group names by their shortened form."""
    groups = defaultdict[str, list[str]](list)
    for name in names:
        groups[text_of(name)].append(name)
    return groups


def _numbered(short: Mapping[str, str], taken: set[str], most: int, cut: str) -> dict[str, str]:
    """Return shortened names in which those equal to others are numbered.

    short: shortened form by name. taken: names that are short already.
    """
    numbered = {}
    for name, text in short.items():
        unique, number = text, 1
        while unique in taken:
            number += 1
            end = f"{cut}{number}"
            unique = text[: most - len(end)] + end
        taken.add(unique)
        numbered[name] = unique
    return numbered
