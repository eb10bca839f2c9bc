"""Call stacks of framework operators, as traces and databases hold them."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import are_first
from timeline.columns.strings import NO_NAME, Interner, StringPool
from timeline.records.not_given import NO_ID

if TYPE_CHECKING:
    from timeline.sources.decoders.event_columns import EventRows
    from timeline.sources.decoders.sqlite import Database

CHAINS = "PYTORCH_CALLCHAINS"
"""The table of frames of torch_npu, a row per stack and frame."""
_BETWEEN = re.compile(r";\s*|[\r\n]+")
"""What parts frames in args: torch_npu writes a semicolon and a new line, PyTorch one of them."""


def read_stacks(events: EventRows) -> Codes:
    """Return the stack of each event, innermost frame first, a frame a line; NO_NAME for none."""
    places, values = events.given("call_stack")
    if not len(places):
        return constant(NO_NAME, len(events), np.int32)
    stacks = np.full(len(events), NO_NAME, np.int32)
    codes = values.of_others(lambda text: events.strings.code(_format_stack(text)), NO_NAME)
    stacks[places] = codes.astype(np.int32)
    return stacks


def _format_stack(text: object) -> str:
    frames = _BETWEEN.split(text) if isinstance(text, str) else ()
    return "\n".join(filter(None, map(str.strip, frames)))


def read_chains(
    database: Database, texts: dict[int, str], strings: StringPool, chain: Int64
) -> Codes:
    """Return the stack of each call of a database, as `read_stacks` does.

    torch_npu numbers the stack of each call anew, so that equal ones are joined here.

    Args:
        texts: the strings of the database by id.
        chain: (n,) the number of the stack of each call, NO_ID for none.
    """
    stacks: Codes = constant(NO_NAME, len(chain), np.int32)
    if not (chain != NO_ID).any():
        return stacks
    raw = database.integers(CHAINS, dict.fromkeys(("id", "stack", "stackDepth"), NO_ID))
    order = _by_depth(raw["id"], raw["stackDepth"])
    if order is not None:
        raw = {name: values[order] for name, values in raw.items()}
    first = np.flatnonzero(are_first(raw["id"]))
    if not len(first):
        return stacks
    codes = _codes_of_chains(raw["stack"], first, texts, strings)
    ids = raw["id"][first]
    at = np.minimum(np.searchsorted(ids, chain), len(ids) - 1)
    return np.where((ids[at] == chain) & (chain != NO_ID), codes[at], NO_NAME).astype(np.int32)


def _by_depth(ids: Int64, depth: Int64) -> Rows | None:
    """Return the rows by chain, then depth; None if they are in this order."""
    step, deeper = np.diff(ids), np.diff(depth)
    if bool(((step > 0) | ((step == 0) & (deeper >= 0))).all()):
        return None
    return np.lexsort((depth, ids))


def _codes_of_chains(
    frames: Int64, first: Rows, texts: dict[int, str], strings: StringPool
) -> Codes:
    """Return the code of the stack that begins at each of some rows of frames."""
    bounds = [*first.tolist(), len(frames)]
    numbers: Interner[bytes] = Interner()
    held = (frames[begin:end].tobytes() for begin, end in itertools.pairwise(bounds))
    which = np.fromiter(map(numbers.__getitem__, held), np.int64, len(first))
    codes = strings.codes(
        "\n".join(texts.get(frame, "") for frame in np.frombuffer(stack, np.int64).tolist())
        for stack in numbers
    )
    return codes[which]
