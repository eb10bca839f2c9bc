"""How numbers of slices are drawn: rates with digits that count, others exact and spelled beside.

A rate or a share comes of a division, so that further digits would say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Float64, Rows
from timeline.layers import SLICES, SliceKind
from timeline.tracks.model import Arg, ArgKind, Slices
from timeline.units import spell_bytes, spell_duration, spell_rate

SPELLERS: Sequence[tuple[str, Callable[[Any], str]]] = (
    ("_ns", spell_duration),
    ("_bytes", spell_bytes),
    ("_gb_s", spell_rate),
)
"""What spells a number, by the unit that its name ends with."""
DIGITS = 4
"""Digits of a real number that are drawn."""
_MOST_POWER = 300
"""Beyond this power of ten on either side of one, rounding would leave what a float holds."""


def round_reals(values: Float64) -> Float64:
    """Finite real numbers, rounded to the nearest with few digits; others and the extreme stay.

    >>> round_reals(np.array([0.223045894482905, 645.604, -12345.6, 0.0])).tolist()
    [0.223, 645.6, -12350.0, 0.0]
    """
    size = np.abs(values)
    usual = (size >= 10.0**-_MOST_POWER) & (size <= 10.0**_MOST_POWER)
    behind = DIGITS - 1 - np.floor(np.log10(np.where(usual, size, 1.0)))
    scale = 10.0 ** np.abs(behind)
    # Multiplied by a power of ten from one on, or divided by it, which is exact more often.
    times, by = np.where(behind >= 0, scale, 1.0), np.where(behind >= 0, 1.0, scale)
    less = np.round(np.where(usual, values, 1.0) * times / by) * by / times
    return np.where(usual, less, values)


@dataclass(frozen=True)
class SpelledArg:
    """An arg that spells another one: `waited` "5.616 ms" stands beside `waited_ns`.

    texts: (k,) distinct; text: (n,) which of them a slice has, where it is present.
    """

    name: str
    of: Arg
    texts: Sequence[str]
    text: Rows

    @property
    def present(self) -> Bool:
        """Which slices have it."""
        return self.of.present

    def add_texts(self, counts: Counter[str]) -> None:
        """Count the spellings."""
        uses = np.bincount(self.text[self.present], minlength=len(self.texts))
        for text, count in zip(self.texts, uses.tolist(), strict=True):
            counts[text] += count


def spell_args(slices: Slices) -> list[SpelledArg]:
    """The numbers of some slices spelled; none for kinds that people do not look at one by one."""
    made = []
    for arg in slices.args:
        speller = _speller_of(slices.kind, arg)
        if speller is not None and arg.present.any():
            unit, spell = speller
            texts, text = _spell(arg.values, arg.present, spell)
            made.append(SpelledArg(arg.name.removesuffix(unit), arg, texts, text))
    return made


def is_spelled(kind: SliceKind, arg: Arg) -> bool:
    """Whether an arg of slices of a kind is drawn spelled too."""
    return _speller_of(kind, arg) is not None


def _speller_of(kind: SliceKind, arg: Arg) -> tuple[str, Callable[[Any], str]] | None:
    """The unit of an arg and what spells it, None where it is not spelled."""
    if not SLICES[kind].spelled or arg.kind is ArgKind.NAME:
        return None
    return next((speller for speller in SPELLERS if arg.name.endswith(speller[0])), None)


def _spell(
    values: npt.NDArray[Any], present: Bool, spell: Callable[[Any], str]
) -> tuple[list[str], Rows]:
    """The distinct spellings, and which of them each row has; rows without a number have any."""
    distinct, which = np.unique(values[present], return_inverse=True)
    numbers: dict[str, int] = {}
    number = [numbers.setdefault(spell(value), len(numbers)) for value in distinct.tolist()]
    text = np.zeros(len(values), np.intp)
    text[present] = np.array(number, np.intp)[which]
    return list(numbers), text
