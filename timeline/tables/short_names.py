"""Short names that remain apart from each other, and names in two lines of a table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from operator import eq

CUT = "…"
_LEAD = 8
"""Characters that are shown before the first that differs."""
_RETURNS = re.compile(r"void (?=\S)")
_BREAK = re.compile(r"[\s,;]+|(?<=[/_>)\]])|(?=::|[<(\[/])")


def operator_label(kind: str, name: str) -> str:
    """Return an operator's name after the framework call that launched it, or its type alone.

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

    Long names keep their beginning and end; where those would read the same, their beginning and
    the place where they differ.

    most: at least 20. cut: stands for what is left out.
    """
    short = {name: name for name in names if len(name) <= most}
    long = sorted({name for name in names if len(name) > most})
    plain = _grouped(long, _plain)
    spelled = {
        stem if len(group) == 1 else name: name for stem, group in plain.items() for name in group
    }
    found = dict[str, str]()
    for text, group in _grouped(sorted(spelled), lambda name: _ends(name, most, cut)).items():
        found |= {group[0]: text} if len(group) == 1 else _apart(group, most, cut)
    for stem, text in _numbered(found, set(short), most, cut).items():
        short[spelled[stem]] = text
    return [short[name] for name in names]


def two_lines(name: str, width: int) -> str:
    """Break a name of at most two widths into at most two lines, between words if possible."""
    if len(name) <= width:
        return name
    breaks = [found.end() for found in _BREAK.finditer(name, max(1, len(name) - width), width + 1)]
    at = next((end for end in reversed(breaks) if end <= width), width)
    return f"{name[:at].rstrip()}\n{name[at:].lstrip()}"


def _plain(name: str) -> str:
    """Return a C++ function without `void` and parameters, any other name unchanged."""
    if not name.endswith(")"):
        return name
    return _without_parameters(_RETURNS.sub("", name, count=1)) or name


def _ends(name: str, most: int, cut: str) -> str:
    """Return the beginning and the end of a name."""
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
    """Yield names that still read the same, each with the part where it first differs."""
    same = sum(1 for _ in takewhile(bool, map(eq, min(group), max(group))))

    def abbreviate(name: str) -> str:
        head = (most - len(cut)) // 3
        differing = name[max(head, same - _LEAD) :]
        text = name[:head] + (cut if same > head + _LEAD else "") + differing
        return text if len(text) <= most else text[: most - len(cut)] + cut

    found = dict[str, str]()
    for text, alike in _grouped(group, abbreviate).items():
        found |= {alike[0]: text} if len(alike) == 1 else _apart(alike, most, cut)
    return found


def _grouped(names: Sequence[str], text_of: Callable[[str], str]) -> Mapping[str, list[str]]:
    """Group names by their shortened form."""
    groups = defaultdict[str, list[str]](list)
    for name in names:
        groups[text_of(name)].append(name)
    return groups


def _numbered(found: Mapping[str, str], taken: set[str], most: int, cut: str) -> dict[str, str]:
    """Yield names and their shortened forms, numbered where these still read the same."""
    numbered = {}
    for name, text in found.items():
        unique, number = text, 1
        while unique in taken:
            number += 1
            end = f"{cut}{number}"
            unique = text[: most - len(end)] + end
        taken.add(unique)
        numbered[name] = unique
    return numbered
