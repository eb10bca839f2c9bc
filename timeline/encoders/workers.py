"""Turns the processes that read ranks into those that encode them."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

__all__ = ["Workers"]


@dataclass(frozen=True)
class Workers:
    """Processes of this machine that have time, and how many they are."""

    executor: Executor
    jobs: int
