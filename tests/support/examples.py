"""How many examples a test has Hypothesis make up that takes longer than others."""

from __future__ import annotations

from hypothesis import settings


def at_most(number: int) -> int:
    """Cap the examples of the profile, which a CI and the sanitizers set lower still."""
    return min(number, settings().max_examples)
