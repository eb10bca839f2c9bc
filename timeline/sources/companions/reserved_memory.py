"""How much memory was reserved at most, from memory_record.csv beside a capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.not_given import NO_ID
from timeline.records.tables import Omission, Records
from timeline.sources.common.counters import SIZES, column_name, column_unit
from timeline.sources.common.losses import LossLog, unreadable_file
from timeline.sources.companions.sample_tables import select_device_rows
from timeline.sources.decoders.csv_blocks import RowShape, read_blocks

__all__ = ["with_reserved_memory"]

_TABLE = "memory_record"
_RESERVED = "Total Reserved"


def with_reserved_memory(
    records: Records,
    files: Mapping[str, tuple[Path, ...]],
    device: int | None,
    *,
    counted: bool,
) -> Records:
    """Records with the most memory that any component reserved, where the capture tells it not.

    Args:
        files: by plain name without a stamp.
        device: the one whose rows are wanted; None is all.
        counted: whether what is damaged is told by counters of the same table already.
    """
    paths = files.get(f"{_TABLE}.csv", ())
    if not paths or records.reserved_bytes != NO_ID:
        return records
    try:
        found, lost = _most_reserved(paths, device, records.rank)
    except SourceError as error:
        found, lost = NO_ID, [unreadable_file(error, records.rank)]
    omissions = records.omissions if counted else (*records.omissions, *lost)
    return replace(records, reserved_bytes=found, omissions=omissions)


def _most_reserved(
    paths: Sequence[Path], device: int | None, rank: int
) -> tuple[int, list[Omission]]:
    """The largest value of all rows in bytes, NO_ID without any; and what was left out."""
    most, omissions = NO_ID, list[Omission]()
    for path in paths:
        damage = LossLog(path)
        for block in read_blocks(path, None, (), damage, RowShape.FULL):
            columns = {column_name(column): column for column in block.header}
            if _RESERVED not in columns:
                raise SourceError(path, f"has no column {_RESERVED}.")
            values, given = block.reals(columns[_RESERVED])
            wanted = select_device_rows(block, device)
            good = wanted & np.isfinite(values)
            damage.add_lines("values that are no numbers", block.lines[wanted & given & ~good])
            if good.any():
                factor = SIZES.get(column_unit(columns[_RESERVED]), 1)
                most = max(most, round(float(values[good].max()) * factor))
        omissions += damage.omissions(rank)
    return most, omissions
