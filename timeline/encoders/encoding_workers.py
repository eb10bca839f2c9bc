"""Processes that encode; named by the ranks that lend them and by the encoders that use them."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

__all__ = ["EncodingWorkers"]


@dataclass(frozen=True)
class EncodingWorkers:
    """Processes of this machine that have time, and how many they are."""

    executor: Executor
    jobs: int
